"""The settings of a systemd unit: what they keep from solo, which files they make private, and what
to add to them.
"""

import os
import re
import shlex
from typing import NamedTuple

from solo.commands.doctor.place import Place, find_names
from solo.text.remedies import DYNAMIC_UNIT, IN_A_UNIT, ROOTS_JOURNALS, quote_path

NO = ("", "no", "n", "false", "f", "off", "0")
MADE = {"RuntimeDirectory": "/run/", "StateDirectory": "/var/lib/"}  # by systemd, for the unit
MADE |= {"CacheDirectory": "/var/cache/", "LogsDirectory": "/var/log/"}
BOUND = ("BindPaths", "BindReadOnlyPaths")
WRITABLE = ("ReadWritePaths", "BindPaths", *MADE)
SPECIFIERS = {
    "%t": "/run",
    "%S": "/var/lib",
    "%C": "/var/cache",
    "%L": "/var/log",
    "%h": "/root",
    "%%": "%",
}
HOMES = ("/home", "/root", "/run/user")
TEMPORARY = ("/tmp", "/var/tmp")
NETWORK = ("PrivateNetwork", "NetworkNamespacePath")
ELSEWHERE = "so the unit would exclude no run elsewhere"


class Unit(NamedTuple):
    """The settings of a service, the values of a list joined by blanks. `user` is "" if it is not
    certain.
    """

    file: str
    settings: "dict[str, str]"
    user: str

    def has(self, key: str) -> bool:
        return self.settings.get(key, "").lower() not in NO

    @property
    def has_made_up_user(self) -> bool:
        """Return whether systemd makes up the user: one without a home directory, who may write
        only where a unit says so.
        """
        return self.has("DynamicUser") and not self.user

    @property
    def owner(self) -> str:
        """The user, also if systemd makes it up, from User= or from the name of the unit; "" if it
        is not certain.
        """
        made_up = self.settings.get("User") or os.path.basename(self.file).partition(".")[0]
        return made_up if self.has_made_up_user else self.user

    @property
    def environment(self) -> "dict[str, str]":
        """The variables that the unit sets."""
        words = [word.partition("=") for word in self.list_words("Environment")]
        return {name: expand(value) for name, sign, value in words if sign}

    def list_words(self, key: str) -> "list[str]":
        """Return the words of a setting without their quotes."""
        text = self.settings.get(key, "")
        try:
            return shlex.split(text)
        except ValueError:
            return text.split()

    def list_covering(self, path: str, *keys: str) -> "list[str]":
        """Return those of the directories in the settings `keys` that have the path in them."""
        found = []
        for key in keys:
            for one in self.list_words(key):
                folder = expand(MADE.get(key, "") + one.lstrip("-+")).partition(":")[0]
                if is_below(path, folder) and not (key in BOUND and is_elsewhere(one)):
                    found.append(folder.rstrip("/"))
        return found

    def is_made(self, path: str) -> bool:
        """Return whether systemd makes the directory, for the user of this unit."""
        return bool(self.list_covering(path, *MADE))

    def find_private(self, path: str) -> str:
        """Return the setting that puts another directory in the place of that of the machine, "" if
        none does.
        """
        if not path or self.list_covering(path, *BOUND):
            return ""
        for folder in self.list_covering(path, "TemporaryFileSystem"):
            return f"TemporaryFileSystem={folder}"
        if not is_below(path, *TEMPORARY):
            return ""
        return next((f"{key}=" for key in ("PrivateTmp", "DynamicUser") if self.has(key)), "")

    def find_private_network(self) -> str:
        """Return the setting that gives the unit other abstract sockets than the machine's, "" if
        none does.
        """
        return next((f"{key}=" for key in NETWORK if self.has(key)), "")


def expand(text: str) -> str:
    """Return a value with the specifiers replaced that have one value in all units of the
    system.
    """
    return re.sub("%[tSCLh%]", lambda found: SPECIFIERS[found[0]], text)


def is_below(path: str, *folders: str) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


def check_unit(unit: Unit, asked: str, via: str, names: "tuple[str, ...]") -> Place:
    """Return what keeps solo from its part in the unit: a problem, or a setting whose effect is not
    known.

    `asked` is the directory of names that the unit sets, "" for the default one.
    """
    if unit.settings.get("ProcSubset") == "pid":
        return Place("ProcSubset=pid hides what solo reads in /proc (remove it)")
    if via == "socket" and (setting := unit.find_private_network()):
        return Place(unknown=f"{setting} hides the sockets of the machine, {ELSEWHERE}")
    if via not in ("", "file"):
        return check_type(unit)
    if unit.has_made_up_user and not asked:
        return Place(
            f"the user of DynamicUser= has no home directory ({give_directory(unit, names)})"
        )
    path = asked or find_names(unit.user)
    if setting := unit.find_private(path):
        return Place(unknown=f"{setting} covers {path}, {ELSEWHERE}")
    if problem := path and find_problem(unit, path, asked):
        return Place(problem)
    return check_type(unit)


def find_problem(unit: Unit, path: str, asked: str) -> str:
    """Return why solo cannot keep names in `path` there, and what to change; "" if it can."""
    is_strict = unit.settings.get("ProtectSystem") == "strict" or unit.has("DynamicUser")
    home = unit.settings.get("ProtectHome", "").lower()
    if unit.has("DynamicUser") and home in NO:
        home = "read-only"
    remedy = choose_remedy(unit, path, asked)
    if covering := unit.list_covering(path, "InaccessiblePaths"):
        return f"InaccessiblePaths={covering[0]} covers {path} (remove it)"
    if not is_below(path, *HOMES):
        is_covered = (
            is_strict and not is_below(path, "/dev") and not unit.list_covering(path, *WRITABLE)
        )
        if is_covered:
            return f"ProtectSystem=strict makes {path} read-only ({remedy})"
    elif home == "tmpfs" and not unit.list_covering(path, "BindPaths"):
        return f"ProtectHome=tmpfs hides {path} ({add(unit, 'BindPaths', path)})"
    elif home == "read-only" and not unit.list_covering(path, *WRITABLE):
        return f"ProtectHome=read-only makes {path} read-only ({remedy})"
    elif home not in (*NO, "tmpfs", "read-only"):
        return (
            f"ProtectHome= hides {path} (set ProtectHome=tmpfs and {add(unit, 'BindPaths', path)})"
        )
    for key in ("ReadOnlyPaths", "BindReadOnlyPaths"):
        covering = unit.list_covering(path, key)
        if covering and not unit.list_covering(path, *WRITABLE):
            return f"{key}={covering[0]} covers {path} ({remedy})"
    return ""


def choose_remedy(unit: Unit, path: str, asked: str) -> str:
    """Return the settings by which the unit can write in a directory of names that exists without
    it.
    """
    if unit.user == "root" and not asked:
        return f"add {IN_A_UNIT.format('solo')} {ROOTS_JOURNALS}"
    return add(unit, "ReadWritePaths", path)


def add(unit: Unit, key: str, path: str) -> str:
    """Return how to add a directory to a setting, which systemd refuses if the directory is
    missing.
    """
    prefix = "" if unit.user == "root" else f"runuser -u {unit.user} -- "
    is_missing = unit.user and not os.path.isdir(path)
    make = f"; first: {prefix}mkdir -p -m 700 {quote_path(path)}" if is_missing else ""
    return f"add {key}={path}{make}"


def give_directory(unit: Unit, names: "tuple[str, ...]") -> str:
    """Return the settings that give a made-up user a directory. They follow from the user or else
    the name, never from the unit's file: units of one name need the same.
    """
    tops = {name.partition("/")[0] for name in names}
    plain = re.sub("[^A-Za-z0-9_-]", "-", min(tops, default=""))
    made = f"solo-{plain[:26]}"  # a user's name has at most 31 characters
    if names == ("%i",):
        made = "solo-%i"
    elif len(tops) != 1 or "%" in min(tops):
        made = "solo-NAME"
    user = unit.settings.get("User") or made
    folder = user if user.startswith("solo-") else f"solo-{user}"
    return f"add {DYNAMIC_UNIT.format(user, folder)}, the same in each unit of the name"


def check_type(unit: Unit) -> Place:
    """Return whether systemd understands a command that is not the main process."""
    bound = [key for key in BOUND for one in unit.list_words(key) if is_elsewhere(one)]
    for key in ("RootDirectory", "RootImage", "PrivatePIDs", *bound):
        if unit.has(key):
            return Place(unknown=f"{key}= changes the files or processes that solo sees")
    kind = unit.settings.get("Type", "simple")
    if kind == "forking":
        return Place(
            unknown=(
                "with Type=forking the lock ends with the process that starts the daemon (use "
                "Type=exec)"
            )
        )
    needs = "WatchdogSec=" * unit.has("WatchdogSec")
    needs = f"Type={kind}" if kind.startswith("notify") else needs
    if not needs or unit.settings.get("NotifyAccess") == "all":
        return Place()
    return Place(f"{needs} is not heard from a command under a launcher (add NotifyAccess=all)")


def is_elsewhere(bound: str) -> bool:
    """Return whether a directory is bound to another place than its own."""
    source, target = f"{bound.lstrip('-+')}::".split(":")[:2]
    return target not in ("", source)
