"""Name -> directory: where names live, and whom we trust with them.

By uid alone, never by what happens to be set or writable: cron, ssh, systemd and CI must agree.
"""

import posix

from solo.errors import SoloError, UsageError, Vanished
from solo.kernel import (
    DIRECTORY,
    EACCES,
    EINVAL,
    ENOENT,
    EPERM,
    EROFS,
    IS_DIRECTORY,
    IS_REGULAR,
    SAFELY,
    TYPE_MASK,
    create,
    encode,
    list_directory,
)

ROOT_PLACE = "/run/solo"
HOME_PLACE = "/.local/state/solo"
# Without the mode systemd sets 0755 at each start; without Preserve a unit that stops removes the tickets of others.
IN_A_UNIT = "RuntimeDirectory={0} RuntimeDirectoryMode=0700 RuntimeDirectoryPreserve=yes"
ROOTS_JOURNALS = "StateDirectory=solo StateDirectoryMode=0700"
PRIVATE = 0o700
STICKY, GROUP_WRITE, OTHER_WRITE = 0o1000, 0o020, 0o002
GROUP, OTHERS = 0o070, 0o007
NAME_MAX = 255  # bytes
DEEPEST = 64  # parts of a nested name


class Place:
    """An open directory: `fd`, its `path` for messages, the `mode` of directories made in it, `shared` with other users.

    Files made in it get what is left of `mode` without the execute bits.
    """

    __slots__ = ("fd", "mode", "path", "shared")

    def __init__(self, fd, path, mode, shared):
        self.fd = fd
        self.path = path
        self.mode = mode
        self.shared = shared


def find_base(asked) -> str:
    """The path under which all names live: the one asked for, else the one of our uid. Creates nothing."""
    if asked:
        return asked
    uid = posix.geteuid()
    if uid == 0:
        return ROOT_PLACE
    import pwd

    try:
        home = pwd.getpwuid(uid).pw_dir.rstrip("/")
    except KeyError:
        home = ""
    if not home:
        remedy = f" (in a unit: {IN_A_UNIT.format('NAME')} Environment=SOLO_DIR=/run/NAME)" if is_in_unit() else ""
        raise SoloError(f"uid {uid} has no home directory to keep names in: use --dir or SOLO_DIR{remedy}")
    return home + HOME_PLACE


def make_base(asked) -> Place:
    """Open the place of all names; make it if it is missing, and its parents if nobody asked for this one."""
    path = find_base(asked)
    try:
        return open_base(path, asked)
    except FileNotFoundError:
        make_directory(path) if asked else make_home_directories(path)
    try:
        return open_base(path, asked)
    except FileNotFoundError:
        raise SoloError(f"{path}: someone removed it") from None


def explain(path: str, error: OSError) -> str:
    """Why a place can not be used, in the system's words, and what to do about it."""
    if error.errno == EROFS and is_in_unit():
        ours = path == ROOT_PLACE or path.startswith(ROOT_PLACE + "/")
        remedy = f"{IN_A_UNIT.format('solo')} {ROOTS_JOURNALS}" if ours else "ReadWritePaths="
        return f"{error.strerror} (in a unit: {remedy})"
    if error.errno in (EACCES, ENOENT, EROFS):
        return f"{error.strerror} (--dir or SOLO_DIR tell another place)"
    return error.strerror


def is_in_unit() -> bool:
    """Did a service manager start us, or whoever did?"""
    return b"INVOCATION_ID" in posix.environ


def make_home_directories(path: str):
    """mkdir -p for what HOME_PLACE adds to a home directory; the home itself must be there."""
    start = len(path) - len(HOME_PLACE) if path.endswith(HOME_PLACE) else len(path)
    for end in range(start + 1, len(path)):
        if path[end] == "/":
            make_directory(path[:end])
    make_directory(path)


def make_directory(path: str):
    try:
        create(posix.mkdir, path, PRIVATE)
    except FileExistsError:
        pass
    except OSError as error:
        raise SoloError(f"can not create {path}: {explain(path, error)}") from None


def open_base(path: str, asked) -> Place:
    """Raises SoloError, and FileNotFoundError if it is missing."""
    fd, stat = open_directory(path, path, DIRECTORY, None)
    try:
        check_owner(path, stat)
        check_writers(path, stat.st_mode, asked)
    except SoloError:
        posix.close(fd)
        raise
    mode = choose_mode(stat.st_mode)
    return Place(fd, path, mode, mode != PRIVATE)


def choose_mode(mode: int) -> int:
    """The mode of names' directories below a base of that `mode`: only those who can write in the base share its names.

    A base that others can only read makes private names, because a process that can open a ticket or a gate can also lock it.
    """
    if not mode & (GROUP_WRITE | OTHER_WRITE):
        return PRIVATE
    if not mode & GROUP_WRITE:
        mode &= ~GROUP
    if not mode & OTHER_WRITE:
        mode &= ~OTHERS
    return mode & 0o7777


def open_directory(word: str, path: str, flags: int, within) -> tuple:
    """(descriptor, stat) of `word` in the directory `within`, called `path` in messages. Raises as open_base does."""
    try:
        fd = posix.open(word, flags, dir_fd=within)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SoloError(f"can not open {path}: {explain(path, error)}") from None
    try:
        return fd, posix.fstat(fd)
    except OSError as error:
        posix.close(fd)
        raise SoloError(f"can not open {path}: {error.strerror}") from None


def check_owner(path: str, stat):
    if stat.st_uid not in (0, posix.geteuid()):
        raise SoloError(f"refusing {path}: it belongs to uid {stat.st_uid}")


def check_writers(path: str, mode: int, may_be_shared):
    if mode & OTHER_WRITE and not mode & STICKY:
        raise SoloError(f"refusing {path}: anyone can write there, and it has no sticky bit")
    if mode & (GROUP_WRITE | OTHER_WRITE) and not may_be_shared:
        raise SoloError(f"refusing {path}: others can write there (chmod go-w it, or ask for a shared --dir)")


def tighten(fd: int, mode: int):
    """Take from group and others what `mode` does not give them, if the file is ours. Raises OSError."""
    stat = posix.fstat(fd)
    excess = stat.st_mode & (GROUP | OTHERS) & ~mode
    if excess and stat.st_uid == posix.geteuid():
        posix.fchmod(fd, stat.st_mode & 0o7777 & ~excess)


def explain_owner(uid: int, path: str) -> str:
    """Why a file of user `uid` cannot be used in a sticky directory."""
    return f"it belongs to uid {uid}, who could remove it while others use it (as root: chown -h root {path})"


def open_name(base: Place, name: str) -> Place:
    """Open a name's directory, each part of it made if missing. Raises SoloError, UsageError for a bad name."""
    return open_parts(base, split_name(name))


def open_parts(base: Place, parts: list) -> Place:
    """Open the directory so far below `base`, which stays open; each is made if it is missing. Raises SoloError."""
    place = base
    try:
        for part in parts:
            inner = open_or_make(place, part)
            if place is not base:
                posix.close(place.fd)
            place = inner
        return place
    except SoloError:
        if place is not base:
            posix.close(place.fd)
        raise


def open_or_make(place: Place, part: str) -> Place:
    try:
        return open_part(place, part)
    except FileNotFoundError:
        make_part(place, part)
    try:
        inner = open_part(place, part)
        if place.shared and posix.fstat(inner.fd).st_uid == posix.geteuid():
            posix.fchmod(inner.fd, place.mode)  # the umask of a program is its own
        return inner
    except FileNotFoundError:
        raise Vanished(f"{place.path}/{part}: someone removed it") from None


def open_below(base: Place, parts: list) -> Place:
    """Open what is there already, so far below `base`, which is closed. Raises SoloError, and FileNotFoundError if it is not."""
    place = base
    for part in parts:
        outer = place
        try:
            place = open_part(outer, part)
        finally:
            posix.close(outer.fd)
    return place


def make_part(place: Place, part: str):
    try:
        create(posix.mkdir, part, place.mode, dir_fd=place.fd)
    except FileExistsError:
        pass  # another contender was faster
    except OSError as error:
        raise SoloError(f"can not create {place.path}/{part}: {explain(place.path, error)}") from None


def open_part(place: Place, part: str) -> Place:
    """Open one directory further down. Raises SoloError, and FileNotFoundError if it is missing."""
    path = f"{place.path}/{part}"
    fd, stat = open_directory(part, path, DIRECTORY | posix.O_NOFOLLOW, place.fd)
    try:
        if not place.shared:
            check_owner(path, stat)
        elif place.mode & STICKY and stat.st_uid not in (0, posix.geteuid()):
            raise SoloError(f"cannot use {path}: {explain_owner(stat.st_uid, path)}")
        check_writers(path, stat.st_mode, place.shared)
    except SoloError:
        posix.close(fd)
        raise
    return Place(fd, path, place.mode, place.shared)


def open_file(place: Place, file: str, flags: int) -> int:
    """Open a regular file that everybody who may write in `place` shares, made if it is missing. Raises OSError."""
    # Without O_CREAT first: fs.protected_regular forbids it on another user's file, even to root.
    for creating in (0, posix.O_CREAT | posix.O_EXCL, 0):
        try:
            how = file, flags | SAFELY | creating, place.mode & 0o666
            fd = create(posix.open, *how, dir_fd=place.fd) if creating else posix.open(*how, dir_fd=place.fd)
            if creating and place.shared:
                posix.fchmod(fd, place.mode & 0o666)
            break
        except (FileNotFoundError, FileExistsError) as error:
            reason = error.with_traceback(None)  # which holds this frame, and whose lock it takes, until the next gc
    else:
        raise reason
    stat = posix.fstat(fd)
    try:
        if stat.st_mode & TYPE_MASK != IS_REGULAR:
            raise OSError(EINVAL, "is not a regular file")
        if place.mode & STICKY and stat.st_uid not in (0, posix.geteuid()):
            raise OSError(EPERM, explain_owner(stat.st_uid, f"{place.path}/{file}"))
        if stat.st_mode & (GROUP | OTHERS) & ~place.mode:
            tighten(fd, place.mode)  # made by an earlier version, and so was the directory
            tighten(place.fd, place.mode)
    except OSError:
        posix.close(fd)
        raise
    return fd


def find_names(place: Place, above: str = ""):
    """(name, Place) of every name below `place`, in order; (name, SoloError) if it is refused. A generator.

    Each place is open until the next one.
    """
    for part in sorted(list_directory(place.fd)):
        if part[0] == "." or not is_directory(place, part):
            continue
        try:
            inner = open_part(place, part)
        except FileNotFoundError:
            continue
        except SoloError as error:
            yield above + part, error
            continue
        try:
            yield above + part, inner
            if above.count("/") < DEEPEST:
                yield from find_names(inner, f"{above}{part}/")
        finally:
            posix.close(inner.fd)


def is_within(name: str, wanted: list) -> bool:
    """Is it one of the `wanted` names, or nested in one? Where none is named, all are."""
    return not wanted or any(name == one or name.startswith(one + "/") for one in wanted)


def is_directory(place: Place, part: str) -> bool:
    try:
        return posix.stat(part, dir_fd=place.fd, follow_symlinks=False).st_mode & TYPE_MASK == IS_DIRECTORY
    except OSError:
        return False


def check_new_name(name: str):
    """Raises UsageError for one that should not be made."""
    if name[:1] == "/":
        raise UsageError(f"{name}: a name is not a path (to lock a file use --flock {name})")
    split_name(name)
    if name[0] in "-=":  # `-n $UNSET -- job` and `-n=job`: others would guard it by another name
        raise UsageError(f"{name}: a name may not start with {name[0]}")


def split_name(name: str) -> list:
    """The parts of a nested name. Raises UsageError for what can not be a directory's name."""
    parts = name.split("/")
    if len(parts) > DEEPEST:
        raise UsageError(f"a name may not have more than {DEEPEST} parts")
    for part in parts:
        if not part or part[0] == ".":
            raise UsageError(f"{name}: a part of a name may not be empty or start with a dot")
        if len(encode(part)) > NAME_MAX:
            raise UsageError(f"a part of a name may not be longer than {NAME_MAX} bytes")
    return parts
