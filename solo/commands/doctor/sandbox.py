"""The settings of a systemd unit: what they keep from solo, which files they make private, and what
to add to them.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import NamedTuple

import solo
from solo.commands.doctor.guards import Advice
from solo.commands.doctor.place import Place, find_names, find_solo
from solo.kernel import HOME_PLACE, USERS_PLACE
from solo.text.remedies import DYNAMIC_UNIT, ROOT_UNIT, quote_path

NO = ("", "no", "n", "false", "f", "off", "0")
MADE = {  # by systemd, for the unit
    "RuntimeDirectory": "/run/",
    "StateDirectory": "/var/lib/",
    "CacheDirectory": "/var/cache/",
    "LogsDirectory": "/var/log/",
}
SPECIFIERS = {
    "%t": "/run",
    "%S": "/var/lib",
    "%C": "/var/cache",
    "%L": "/var/log",
    "%h": "/root",
    "%%": "%",
}
HOMES = "/home /root /run/user"
# What settings do to directories. Of two for one directory the first counts: systemd ranks them.
EFFECTS = {
    "InaccessiblePaths": {"is_hidden": True},
    "BindPaths": {"is_own": False},
    "BindReadOnlyPaths": {"is_own": False, "is_read_only": True},
    "ReadOnlyPaths": {"is_read_only": True},
    "ReadWritePaths": {},
    "NoExecPaths": {"is_noexec": True},
    "ExecPaths": {},
    "TemporaryFileSystem": {"is_own": True},
    "implied": {"is_read_only": True},
    "": {},
}
RANKS = list(EFFECTS)
# The settings that others stand for.
MEANINGS = {
    "ProcSubset=pid": {"BindReadOnlyPaths": "pid:/proc"},
    "PrivateTmp=yes": {"TemporaryFileSystem": "/tmp /var/tmp"},
    "PrivateTmp=disconnected": {"TemporaryFileSystem": "/tmp /var/tmp"},
    "ProtectSystem=yes": {"ReadOnlyPaths": "/usr /boot /efi"},
    "ProtectSystem=full": {"ReadOnlyPaths": "/usr /boot /efi /etc"},
    "ProtectSystem=strict": {"ReadOnlyPaths": "/", "": f"/proc /sys /dev {HOMES}"},
    "ProtectHome=yes": {"InaccessiblePaths": HOMES},
    "ProtectHome=read-only": {"ReadOnlyPaths": HOMES},
    "ProtectHome=tmpfs": {"TemporaryFileSystem": "/home:ro /root:ro /run/user:ro"},
    "DynamicUser=yes": {
        "TemporaryFileSystem": "/tmp /var/tmp",
        "implied": f"/ {HOMES}",
        "": "/proc /sys /dev",
    },
}
YES = ("yes", "y", "true", "t", "on", "1")
NETWORK = ("PrivateNetwork", "NetworkNamespacePath")
# Settings whose effect is not known. Less than 10 MB, 20 descriptors or 20 processes may not do for
# Python.
UNKNOWN = re.compile(
    r"(?:Root(?:Directory|Image)|Extension(?:Images|Directories)|MountImages|PrivatePIDs)=.*"
    r"|(?:Limit(?:AS|DATA|FSIZE|STACK)|Memory(?:High|Max))=(?:\d{1,7}|\d{1,4}K|\dM)(?::.*)?"
    r"|(?:LimitNOFILE|LimitNPROC|TasksMax)=1?\d(?::.*)?"
)
# The system calls of a run, by systemd's groups; @system-service has all of them.
CALLS = {
    "@default": "arch_prctl brk futex geteuid getpid getppid getrandom gettid mmap mprotect munmap "
    "prlimit64 rseq sched_yield set_robust_list set_tid_address",
    "@basic-io": "close close_range dup dup2 lseek pread64 pwrite64 read readv write",
    "@file-system": "access chdir close faccessat faccessat2 fcntl fstat ftruncate getcwd "
    "getdents64 mkdirat newfstatat open openat readlink renameat stat unlinkat utimensat",
    "@io-event": "poll",
    "@ipc": "memfd_create pipe2",
    "@network-io": "bind connect listen recvmsg sendmsg sendto socket socketpair",
    "@process": "clone kill pidfd_open pidfd_send_signal prctl wait4 waitid",
    "@signal": "rt_sigaction rt_sigpending rt_sigprocmask rt_sigtimedwait",
    "@sync": "fsync",
    "@timer": "getitimer setitimer",
    "": "flock ioctl setsid sysinfo umask uname",
}
# Those that only some C libraries make, then those that only some options add too.
LIBRARIES = frozenset("dup faccessat faccessat2 fstat newfstatat open stat sysinfo".split())
OPTIONAL = LIBRARIES.union(
    "bind connect dup2 fsync ftruncate getcwd getitimer kill listen memfd_create pidfd_open "
    "pidfd_send_signal poll prctl readv recvmsg rt_sigpending sendmsg sendto setitimer setsid "
    "socket socketpair utimensat waitid".split()
)
ADDING = frozenset(
    "capture fcntl flock no_orphan notify once_per replace syslog tree via wait".split()
)
# A run does without these where they fail with an errno.
SPARED = frozenset(
    "access brk chdir close_range getppid getrandom gettid lseek munmap prlimit64 rseq "
    "rt_sigtimedwait sched_yield set_robust_list set_tid_address sysinfo unlinkat".split()
)
KILL = "kill"
ELSEWHERE = "so the unit would exclude no run elsewhere"


class View(NamedTuple):
    """A path as a unit sees it, and the setting that makes it so."""

    setting: str = ""
    is_hidden: bool = False
    is_own: bool = False  # not that of the machine
    is_read_only: bool = False
    is_noexec: bool = False


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

    def list_effects(self) -> "Iterator[tuple[str, str, str]]":
        """Yield (setting as shown, key of EFFECTS, a word of its value) for each directory."""
        for key in filter(None, EFFECTS):
            for word in self.list_words(key):
                yield f"{key}={word.lstrip('-+').partition(':')[0]}", key, word
        for key in MADE:
            for folder in self.list_made(key):
                yield key, "ReadWritePaths", folder
        for meaning, effects in MEANINGS.items():
            key, _, wanted = meaning.partition("=")
            value = self.settings.get(key, "").lower()
            is_set = wanted == ("yes" if value in YES else value)
            for other, words in effects.items() if is_set else ():
                for word in words.split():
                    yield meaning, other, word

    def look_at(self, path: str) -> View:
        """Return the path as the unit sees it: the setting for the deepest directory counts."""
        found = list[tuple[str, int, str, dict[str, bool]]]()
        for shown, key, word in self.list_effects():
            source, target, _ = f"{expand(word.lstrip('-+'))}::".split(":", 2)
            effect = EFFECTS[key]
            if key == "TemporaryFileSystem" and "ro" in target.split(","):
                effect = {**effect, "is_read_only": True}
            elif key[:4] == "Bind" and target not in ("", source):
                source, effect = target, {**effect, "is_own": True}
            if is_below(path, source):
                found.append((source.rstrip("/"), RANKS.index(key), shown, effect))
        view, last = View(), None
        for folder, _, shown, effect in sorted(found, key=lambda one: (len(one[0]), one[1])):
            if folder == last:  # systemd takes the first, and what the others forbid
                effect = {key: True for key in ("is_read_only", "is_noexec") if effect.get(key)}
            elif view.is_hidden:
                break
            else:
                view = View(view.setting * view.is_own, is_own=view.is_own)
            last = folder
            view = view._replace(setting=shown if any(effect.values()) else view.setting, **effect)
        return view

    def list_made(self, *keys: str) -> "list[str]":
        """Return the directories that systemd makes for these settings."""
        return [MADE[key] + word for key in keys for word in self.list_words(key)]

    def is_made(self, path: str) -> bool:
        """Return whether systemd makes the directory, for the user of this unit."""
        return is_below(path, *self.list_made(*MADE))

    def removes(self, path: str) -> bool:
        """Return whether systemd removes the directory when the unit stops."""
        kept = self.settings.get("RuntimeDirectoryPreserve", "").lower() in YES
        return is_below(path, *self.list_made("RuntimeDirectory")) and not kept

    def find_private(self, path: str) -> str:
        """Return the setting that puts another directory in the place of that of the machine, "" if
        none does.
        """
        view = self.look_at(path)
        return view.setting * view.is_own

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


def check_unit(unit: Unit, asked: str, via: str, advice: Advice) -> Place:
    """Return what keeps solo from its part in the unit: a problem, or a setting whose effect is not
    known.

    `asked` is the directory of names that the unit sets, "" for the default one.
    """
    path = asked or find_names(unit.user)
    calls = check_calls(unit, advice)
    if problem := calls.problem or find_hidden_program(unit, path):
        return Place(problem)
    if via == "socket" and (setting := unit.find_private_network()):
        return Place(unknown=f"{setting} hides the sockets of the machine, {ELSEWHERE}")
    if via not in ("", "file"):
        return check_type(unit, calls)
    if unit.has_made_up_user and not asked:
        return Place(
            f"the user of DynamicUser= has no home directory ({give_directory(unit, advice.names)})"
        )
    if problem := path and find_problem(unit, path, asked):
        return Place(problem)
    if setting := unit.find_private(path):
        return Place(unknown=f"{setting} covers {path}, {ELSEWHERE}")
    if not asked and unit.removes(path):
        return Place(
            f"RuntimeDirectory= removes {path}, with the locks of others, when the unit stops (add "
            "RuntimeDirectoryPreserve=yes)"
        )
    return check_type(unit, calls)


def check_calls(unit: Unit, advice: Advice) -> Place:
    """Return the problem if the unit refuses system calls of a run, not known for those that it may
    make. The first filter says whether all else is refused, or allowed.
    """
    filters = unit.settings.get("SystemCallFilter", "~").split("\n")
    used = {call for calls in CALLS.values() for call in calls.split()}
    if ADDING.isdisjoint(advice.options):
        used -= OPTIONAL - LIBRARIES
    if unit.settings.get("SystemCallErrorNumber", KILL) != KILL:
        used -= SPARED
    allowed = used if filters[0][:1] == "~" else {*CALLS["@default"].split()}
    for one in filters:
        for word in one.lstrip("~").split():
            group, _, error = word.partition(":")
            calls = used if group == "@system-service" else {*CALLS.get(group, group).split()}
            if one[:1] != "~":
                allowed = allowed | calls
            else:
                allowed = allowed - (calls - SPARED if error not in ("", KILL) else calls)
    refused = used - allowed
    how = f"(add SystemCallFilter={' '.join(sorted(refused))})"
    if refused - OPTIONAL:
        return Place(f"SystemCallFilter= refuses system calls of solo {how}")
    return Place(unknown=f"SystemCallFilter= may refuse system calls of solo {how}" * bool(refused))


def list_programs() -> "list[str]":
    """Return the files that each run executes, then the directories that it reads."""
    modules = [os.path.dirname(module.__file__ or "") for module in (os, solo)]
    return [find_solo(), sys.executable, *modules, "/proc"]


def find_hidden_program(unit: Unit, names: str) -> str:
    """Return the problem if the unit hides what each run reads, or does not let it execute."""
    read = list_programs() + ["/etc/passwd", USERS_PLACE] * names.endswith(HOME_PLACE)
    views = {path: unit.look_at(os.path.realpath(path)) for path in read}
    if hidden := [
        path
        for path, view in views.items()
        if view.is_hidden or view.is_own and path != USERS_PLACE  # which may be missing
    ]:
        view, words = views[hidden[0]], " ".join(hidden)
        return f"{view.setting} hides {words} ({unhide(view, f'add BindReadOnlyPaths={words}')})"
    if barred := [path for path in list_programs()[:2] if views[path].is_noexec]:
        words = " ".join(barred)
        return f"{views[barred[0]].setting} forbids to execute {words} (add ExecPaths={words})"
    return ""


def find_problem(unit: Unit, path: str, asked: str) -> str:
    """Return why solo cannot keep names in `path` there, and what to change; "" if it can."""
    view = unit.look_at(path)
    if view.is_hidden or view.is_own and view.is_read_only:
        return f"{view.setting} hides {path} ({unhide(view, add(unit, 'BindPaths', path))})"
    if view.is_read_only:
        remedy = choose_remedy(unit, path, asked)
        remedy = "remove it" if view.setting.endswith(f"={path}") else remedy
        return f"{view.setting} makes {path} read-only ({remedy})"
    for key in ("ReadWritePaths", "BindPaths") if asked or unit.user != "root" else ():
        sources = [word.lstrip("-+").partition(":")[0] for word in unit.list_words(key)]
        if path in map(expand, sources) and (first := make_first(unit, path)):
            return f"{key}= has {path}, which does not exist (first: {first})"
    return ""


def unhide(view: View, binds: str) -> str:
    """Return how to make a path visible: what is inaccessible hides what is bound below it."""
    if not view.is_hidden:
        return binds
    return f"set ProtectHome=tmpfs and {binds}" if "Home" in view.setting else "remove it"


def choose_remedy(unit: Unit, path: str, asked: str) -> str:
    """Return the settings by which the unit can write in a directory of names that exists without
    it.
    """
    if unit.user == "root" and not asked:
        return f"add {ROOT_UNIT}"
    return add(unit, "ReadWritePaths", path)


def add(unit: Unit, key: str, path: str) -> str:
    """Return how to add a directory to a setting."""
    first = make_first(unit, path)
    return f"add {key}={path}{first and f'; first: {first}'}"


def make_first(unit: Unit, path: str) -> str:
    """Return the command that makes a missing directory, without which systemd starts no unit that
    has it in a setting; "" if it exists.
    """
    if not unit.user or os.path.isdir(path):
        return ""
    prefix = "" if unit.user == "root" else f"runuser -u {unit.user} -- "
    return f"{prefix}mkdir -p -m 700 {quote_path(path)}"


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


def check_type(unit: Unit, calls: Place) -> Place:
    """Return whether systemd understands a command that is not the main process, then `calls`."""
    for key, value in unit.settings.items():
        if UNKNOWN.fullmatch(f"{key}={value}"):
            return Place(unknown=f"{key}={value} changes what solo sees or can use")
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
        return calls
    return Place(f"{needs} is not heard from a command under a launcher (add NotifyAccess=all)")
