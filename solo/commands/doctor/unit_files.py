"""The files of a service, in the order in which systemd reads them. systemd.unit(5) has the
rules.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from errno import ENOENT
from functools import cache

from solo.commands.doctor.crontab import Source, list_files, read_all
from solo.errors import SoloError
from solo.process import systemd

UNITS = "/etc/systemd/system"  # those of the administrator
# The directories of a system that does not run systemd; the first one with a file wins.
SYSTEM = (
    "/etc/systemd/system.control /run/systemd/system.control /run/systemd/transient "
    "/run/systemd/generator.early"
    f" {UNITS} /etc/systemd/system.attached /run/systemd/system /run/systemd/system.attached "
    "/run/systemd/generator"
    " /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system "
    "/run/systemd/generator.late"
)
USER = (
    "/etc/systemd/user /run/systemd/user /usr/local/lib/systemd/user /usr/lib/systemd/user "
    "/lib/systemd/user"
)
SERVICE = ".service"
OF_SERVICE = re.compile(
    r"([^/@]*[^/@-](?:@[^/]*)?\.service)\.d"
)  # a directory of drop-ins for one service


def read_services(names: "list[str]") -> "Iterator[list[Source]]":
    """Yield the files of each service: its own one, with an empty text if it is missing, then its
    drop-ins.

    A name is that of a service, a file, a drop-in or a directory; none: the directory of the
    administrator. Raises SoloError.
    """
    asked, seen = names or list(filter(os.path.isdir, [UNITS])), set[tuple[str, ...]]()
    for folder, name in [place for one in asked for place in list_services(one)]:
        own, *drop_ins = find_service(folder, name)
        real = tuple(map(os.path.realpath, [own, *drop_ins]))
        if real in seen:  # by its alias, or by its drop-in
            continue
        seen.add(real)
        files = [own] if own == "-" or os.path.lexists(own) else []
        sources = [*read_all([*files, *drop_ins], must_exist=bool(names))]
        if sources:
            yield sources if sources[0].file == own else [Source(own, "", None, ""), *sources]


def list_services(path: str) -> "Iterator[tuple[str | None, str]]":
    """Yield (directory, name of the file) of each service that was named; without a directory:
    systemd's. Raises SoloError.
    """
    folder, name = os.path.split(path)
    above, parent = os.path.split(os.path.dirname(os.path.abspath(path)))
    if path == "-":
        yield "", path
    elif os.path.isdir(path):
        names = {os.path.basename(file) for file in list_files(path)}
        names |= {found[1] for found in map(OF_SERVICE.fullmatch, os.listdir(path)) if found}
        yield from ((path, one) for one in sorted(names))
    elif not folder and not os.path.lexists(path):
        yield None, name if name.endswith(SERVICE) else name + SERVICE
    elif not os.path.lexists(path):
        raise SoloError(f"cannot read {path}: {os.strerror(ENOENT)}")
    elif name.endswith(".conf") and (found := OF_SERVICE.fullmatch(parent)):
        yield above, found[1]
    else:
        yield folder, name


def find_service(folder: "str | None", name: str) -> "list[str]":
    """Return the path of the file of a service, which may be missing, and those of its drop-ins.
    Raises SoloError.
    """
    if name == "-":
        return [name]
    system = find_folders(None)
    if folder is None:
        search, own = system, find_file(name, system)
        if own is None:
            raise SoloError(f"cannot find the unit {name}")
    else:
        search, own = find_folders(folder), find_file(name, [folder])
        if own is None:  # a drop-in for a service elsewhere
            search = search if search == system else [*search, *system]
            own = find_file(name, search)
    real = os.path.realpath(own or name)
    names = dict.fromkeys([name, os.path.basename(real), *list_links(tuple(search)).get(real, [])])
    return [own or os.path.join(folder or "", name), *find_drop_ins([*names], search)]


def find_folders(folder: "str | None") -> "list[str]":
    """Return the directories in which systemd finds what belongs to a service in that one; None:
    all of the system.
    """
    system = list_folders(os.environ.get("SYSTEMD_UNIT_PATH"))
    if folder is None:
        return system
    real = os.path.realpath(folder or ".")
    if real in map(os.path.realpath, system):
        return system
    return [folder, *USER.split()] if os.path.basename(real) == "user" else [folder]


@cache
def list_folders(asked: "str | None") -> "list[str]":
    """Return the directories in which systemd looks for units, by priority. `asked` is the value of
    SYSTEMD_UNIT_PATH.
    """
    if asked is not None:
        return asked.rstrip(":").split(":") + SYSTEM.split() * asked.endswith(":")
    found = ""
    if os.path.isdir("/run/systemd/system"):
        found = systemd.ask("--system", "show", "--property=UnitPath", "--value")
    return found.split() or SYSTEM.split()


def find_file(name: str, folders: "list[str]") -> "str | None":
    """Return the file of a service, or that of the template of an instance; None if there is
    none.
    """
    template = re.sub("@.+(?=[.])", "@", name)
    paths = [
        os.path.join(folder, one) for one in dict.fromkeys([name, template]) for folder in folders
    ]
    return next(filter(os.path.lexists, paths), None)


@cache
def list_links(folders: "tuple[str, ...]") -> "dict[str, list[str]]":
    """Return {real path of a service: its aliases, each the name of a link to it}."""
    links = dict[str, list[str]]()
    for folder in folders:
        with suppress(OSError):
            for entry in os.scandir(folder or "."):
                if entry.is_symlink() and entry.name.endswith(SERVICE):
                    links.setdefault(os.path.realpath(entry.path), []).append(entry.name)
    return links


def find_drop_ins(names: "list[str]", folders: "list[str]") -> "list[str]":
    """Return the drop-ins of a service with these names. Of those with one file name the first
    directory's counts.
    """
    found = dict[str, str]()
    places = [(folder, one) for name in names for folder in folders for one in list_variants(name)]
    if names[0].endswith(SERVICE):
        places += [(folder, "service") for folder in folders]
    for folder, one in places:
        place = os.path.join(folder, f"{one}.d")
        with suppress(OSError):
            for file in os.listdir(place):
                if (
                    file.endswith(".conf")
                    and file[:1] != "."
                    and not os.path.isdir(f"{place}/{file}")
                ):
                    found.setdefault(file, f"{place}/{file}")
    return [found[file] for file in sorted(found)]


def list_variants(name: str) -> "Iterator[str]":
    """Yield the names for which a service has drop-ins: its own, that of its template, and those
    that end at a hyphen.
    """
    prefix, sign, instance = name.removesuffix(SERVICE).partition("@")
    yield name
    if not name.endswith(SERVICE):  # a timer, or a copy
        return
    if instance:
        yield from list_variants(f"{prefix}@{SERVICE}")
    hyphen = prefix[:-1].rfind("-") + 1
    if hyphen > 1:
        yield from list_variants(prefix[:hyphen] + (sign + instance if instance else "") + SERVICE)
