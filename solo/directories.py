"""Name -> directory: where names live, and which users are trusted to write there.

The uid alone decides, never a variable of the session or what happens to be writable: cron, ssh and
CI must agree.
"""

import posix
from time import time

from solo import kernel
from solo.errors import SoloError, UsageError, Vanished
from solo.kernel import (
    DIRECTORY,
    EPERM,
    HOME_PLACE,
    OVERFLOW,
    ROOT_PLACE,
    SAFELY,
    USERS_PLACE,
    close,
    create,
    encode,
    find_home,
    say_promptly,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    # --dir, None for the default place; True: the path was asked for unless it is the default one.
    AskedFor = str | bool | None

PRIVATE = 0o700
SETGID, STICKY, GROUP_WRITE, OTHER_WRITE = 0o2000, 0o1000, 0o020, 0o002
GROUP, OTHERS = 0o070, 0o007
NAME_MAX = 255  # bytes
DEEPEST = 64  # parts of a nested name
TEMPORARY = ["/tmp", "/var/tmp", "/dev/shm"]  # that we have not warned of
LONGEST_NAME = 2048  # bytes of a nested name, so that a path with it stays below PATH_MAX


class Directory:
    """An open directory, closed at the end of a `with` block. `path`: for messages; `mode`: of
    directories made in it, and without the execute bits of files.
    """

    def __init__(self, fd: int, path: str, mode: int, shared: bool) -> None:
        self.fd = fd
        self.path = path
        self.mode = mode
        self.shared = shared

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        close(self.fd)


def find_base(asked: "str | None") -> str:
    """Return the path under which all names live: `asked`, else that of our uid. Create nothing.
    Raises SoloError.
    """
    return asked or find_place(posix.geteuid())


def find_place(uid: int) -> str:
    """Return the path of a user's default directory of names, first the one that root made. Raises
    SoloError.
    """
    if uid == 0:
        return ROOT_PLACE
    path = f"{USERS_PLACE}/{uid}"
    try:
        posix.stat(path, follow_symlinks=False)
        above = posix.stat(USERS_PLACE)
        if above.st_uid in (0, OVERFLOW) and not above.st_mode & (GROUP_WRITE | OTHER_WRITE):
            return path
        reason = "other users can write there"
    except FileNotFoundError:
        return find_home_place(uid)
    except OSError as error:  # there may be one
        reason = error.strerror or str(error)
    raise SoloError(
        f"cannot use {USERS_PLACE}: {reason} (as root: chown root {USERS_PLACE}; chmod 755 "
        f"{USERS_PLACE})"
    )


def find_home_place(uid: int) -> str:
    """Return the path of a user's directory of names in its home directory. Raises SoloError."""
    if home := find_home(uid):
        return home + HOME_PLACE
    from solo.text.remedies import explain_no_home

    raise SoloError(explain_no_home(uid))


def make_base(asked: "str | None", is_verbose: bool) -> Directory:
    """Open the directory of all names, made if missing, and its parents too unless it was `asked`
    for. Raises SoloError.
    """
    path = find_base(asked)
    try:
        return open_base(path, asked)
    except FileNotFoundError:
        make_directory(path, asked) if asked else make_home_directories(path)
        if is_verbose:
            say_promptly(f"created {path}, a new directory of names")
    try:
        return open_base(path, asked)
    except FileNotFoundError:
        raise SoloError(f"cannot use {path}: another process removed it") from None


def explain(
    path: str, error: OSError, place: "Directory | None" = None, asked: "AskedFor" = True
) -> str:
    """Return the reason why a directory, or what `path` names in `place`, cannot be used, and a
    remedy if that loads.
    """
    try:
        from solo.text import remedies

        return (
            remedies.explain_file(place, path, error)
            if place
            else remedies.explain(path, error, asked)
        )
    except (ImportError, OSError):  # as without a free descriptor
        return error.strerror or str(error)


def make_home_directories(path: str) -> None:
    """Make the directories of HOME_PLACE, as mkdir -p. The home directory itself must exist."""
    start = len(path) - len(HOME_PLACE) if path.endswith(HOME_PLACE) else len(path)
    for end in range(start + 1, len(path)):
        if path[end] == "/":
            make_directory(path[:end], None)
    make_directory(path, None)


def make_directory(path: str, asked: "AskedFor" = True) -> None:
    """Make a private directory, unless it exists. Raises SoloError."""
    try:
        create(posix.mkdir, path, PRIVATE)
    except FileExistsError:
        pass
    except OSError as error:
        raise SoloError(f"cannot create {path}: {explain(path, error, None, asked)}") from None


def open_base(path: str, asked: "AskedFor") -> Directory:
    """Open a directory of names, shared only if it was `asked` for. Raises SoloError;
    FileNotFoundError if it is missing.
    """
    try:
        fd = posix.open(path, DIRECTORY)
        stat = posix.fstat(fd)
    except FileNotFoundError as error:
        try:
            target = posix.readlink(path)
        except OSError:
            raise error from None
        raise SoloError(
            f"cannot use {path}: it is a link to {target}, which does not exist"
        ) from None
    except OSError as error:
        raise SoloError(f"cannot open {path}: {explain(path, error, None, asked)}") from None
    try:
        if stat.st_uid not in (0, posix.geteuid()):
            from solo.text.remedies import explain_other_user

            raise SoloError(f"cannot use {path}: {explain_other_user(stat.st_uid, path, asked)}")
        check_writers(path, stat.st_mode, bool(asked))
    except SoloError:
        posix.close(fd)
        raise
    mode = choose_mode(stat.st_mode)
    return Directory(fd, path, mode, mode != PRIVATE)


def choose_mode(mode: int) -> int:
    """Return the mode of names' directories below a base of `mode`: only users who can write in it
    share its names.

    A process that can open a ticket or a gate can also lock it.
    """
    if not mode & (GROUP_WRITE | OTHER_WRITE):
        return PRIVATE
    if not mode & GROUP_WRITE:
        mode &= ~GROUP
    if not mode & OTHER_WRITE:
        mode = mode & ~OTHERS | SETGID  # what a member makes there gets the group of the base
    return mode & 0o7777


def check_writers(
    path: str, mode: int, may_be_shared: bool, place: "Directory | None" = None
) -> None:
    """Raise SoloError if users who are not trusted can write in a directory of that `mode`, in
    `place` or the base.
    """
    if mode & OTHER_WRITE and not mode & STICKY:
        reason = "anyone can write there, and it has no sticky bit"
    elif mode & (GROUP_WRITE | OTHER_WRITE) and not may_be_shared:
        reason = "other users can write there"
    else:
        return
    from solo.text.remedies import choose_closing, quote_path

    remedy = choose_closing(place, may_be_shared).format(quote_path(path))
    raise SoloError(f"cannot use {path}: {reason} ({remedy})")


def tighten(fd: int, mode: int) -> None:
    """Remove the permissions of group and others that `mode` lacks, if this user owns the file.
    Raises OSError.
    """
    stat = posix.fstat(fd)
    excess = stat.st_mode & (GROUP | OTHERS) & ~mode
    if excess and stat.st_uid == posix.geteuid():
        posix.fchmod(fd, stat.st_mode & 0o7777 & ~excess)


def open_parts(base: Directory, parts: "list[str]") -> Directory:
    """Open the nested directory `parts` below `base`, which stays open. Make what is missing.
    Raises SoloError.
    """
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


def open_or_make(place: Directory, part: str) -> Directory:
    """Open the directory `part` in `place`, made if it is missing. Raises SoloError; Vanished if it
    was removed again.
    """
    try:
        return open_part(place, part)
    except FileNotFoundError:
        make_part(place, part)
    try:
        inner = open_part(place, part)
        if place.shared and posix.fstat(inner.fd).st_uid == posix.geteuid():
            posix.fchmod(inner.fd, place.mode)  # mkdir(2) applied the umask of the program
        return inner
    except FileNotFoundError:
        raise Vanished(f"cannot use {place.path}/{part}: another process removed it") from None


def open_below(base: Directory, parts: "list[str]") -> Directory:
    """Open the nested directory `parts` below `base`, and close `base`. Raises SoloError,
    FileNotFoundError.
    """
    place = base
    for part in parts:
        with place:
            place = open_part(place, part)
    return place


def make_part(place: Directory, part: str) -> None:
    """Make the directory `part` in `place`, unless it exists. Raises SoloError."""
    try:
        if place.mode & SETGID:
            make_for_group(place, part)
        else:
            create(posix.mkdir, part, place.mode, dir_fd=place.fd)
        if place.path in TEMPORARY and part[0] != ".":
            TEMPORARY.remove(place.path)
            lost = "cleaners remove old files there, and so locks of long runs"
            say_promptly(f"{place.path}: {lost} (choose another --dir)")
    except FileExistsError:
        pass  # another contender was faster
    except OSError as error:
        raise SoloError(
            f"cannot create {place.path}/{part}: {explain(place.path, error)}"
        ) from None


def make_for_group(place: Directory, part: str) -> None:
    """Make `part` with the group of `place`, which may lack the set-group-ID bit; only then give it
    its name. Raises OSError.
    """
    new = f".new.{posix.getpid()}.{time():.6f}"
    create(posix.mkdir, new, PRIVATE, dir_fd=place.fd)
    try:
        fd = posix.open(new, DIRECTORY | posix.O_NOFOLLOW, dir_fd=place.fd)
        try:
            group = posix.fstat(place.fd).st_gid
            if posix.fstat(fd).st_gid != group:
                posix.chown(fd, -1, group)
            posix.fchmod(fd, place.mode)
        finally:
            close(fd)
        posix.rename(new, part, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except OSError as error:
        posix.rmdir(new, dir_fd=place.fd)
        if error.errno in (kernel.ENOTDIR, kernel.ENOTEMPTY):
            raise FileExistsError from None
        if error.errno == EPERM:
            from solo.text.remedies import quote_path

            remedy = f"chmod g+s {quote_path(place.path)}"
            raise OSError(
                EPERM, f"it cannot get the group of {place.path} (as root: {remedy})"
            ) from None
        raise


def open_part(place: Directory, part: str) -> Directory:
    """Open the directory `part` in `place`. Raises SoloError, or FileNotFoundError if it is
    missing.
    """
    path = f"{place.path}/{part}"
    try:
        fd = posix.open(part, DIRECTORY | posix.O_NOFOLLOW, dir_fd=place.fd)
        stat = posix.fstat(fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SoloError(f"cannot open {path}: {explain(part, error, place)}") from None
    try:
        if stat.st_uid not in (0, posix.geteuid()) and (place.mode & STICKY or not place.shared):
            from solo.text.remedies import choose_remedy, explain_owner

            remedy = choose_remedy(place, part, stat.st_uid)
            raise SoloError(f"cannot use {path}: {explain_owner(stat.st_uid, remedy)}")
        if stat.st_mode & (GROUP_WRITE | OTHER_WRITE):
            check_writers(path, stat.st_mode, place.shared, place)
    except SoloError:
        posix.close(fd)
        raise
    return Directory(fd, path, place.mode, place.shared)


def open_file(place: Directory, file: str, flags: int) -> int:
    """Open a regular file, made if it is missing, shared by all users who may write in `place`.
    Raises OSError.
    """
    # Without O_CREAT first: fs.protected_regular forbids it on another user's file, even to root.
    for creating in (0, posix.O_CREAT | posix.O_EXCL, 0):
        try:
            how = file, flags | SAFELY | creating, place.mode & 0o666
            fd = (
                create(posix.open, *how, dir_fd=place.fd)
                if creating
                else posix.open(*how, dir_fd=place.fd)
            )
            if creating and place.shared:
                posix.fchmod(fd, place.mode & 0o666)
            break
        except (FileNotFoundError, FileExistsError) as error:
            # Without the traceback, which refers to this frame, and keeps its descriptors until the
            # next gc.
            reason = error.with_traceback(None)
    else:
        raise reason
    stat = posix.fstat(fd)
    try:
        check_file(place, file, stat)
        if stat.st_mode & (GROUP | OTHERS) & ~place.mode:
            tighten(fd, place.mode)  # an earlier version made the file and its directory
            tighten(place.fd, place.mode)
    except OSError:
        posix.close(fd)
        raise
    return fd


def check_file(place: Directory, file: str, stat: posix.stat_result) -> None:
    """Raise OSError if `file` in `place` is not a regular file that only its user, root or the
    group can replace.
    """
    if not kernel.is_regular(stat.st_mode):
        raise OSError(kernel.EINVAL, "it is not a regular file")
    if place.mode & STICKY and stat.st_uid not in (0, posix.geteuid()):
        from solo.text.remedies import explain_owner, quote_path

        raise OSError(
            EPERM, explain_owner(stat.st_uid, f"chown -h root {quote_path(f'{place.path}/{file}')}")
        )


def check_new_name(name: str) -> None:
    """Raise UsageError if no new name may be called that."""
    if name[:1] == "/":
        raise UsageError(
            f"{name}: a name is not a path (is a variable unset? to lock a file use --flock {name})"
        )
    split_name(name)
    if name[0] in "-=:":  # `-n $UNSET -- job` and `-n=job` would guard the job by a wrong name
        raise UsageError(f"{name}: a name may not start with {name[0]}")
    if name.strip() != name:  # `-n "backup $UNSET"` would be another lock
        raise UsageError(f"{name!r}: a name may not start or end with a blank")
    if not name.isprintable() and any(char < " " or "\x7f" <= char < "\xa0" for char in name):
        raise UsageError(f"{name}: a name may not contain control characters")


def split_name(name: str) -> "list[str]":
    """Return the parts of a nested name. Raises UsageError if a part cannot be the name of a
    directory.
    """
    if not name:
        raise UsageError("a name may not be empty (is a variable unset?)")
    parts = name.split("/")
    if len(parts) > DEEPEST:
        raise UsageError(f"a name may not have more than {DEEPEST} parts")
    if len(encode(name)) > LONGEST_NAME:
        raise UsageError(f"a name may not be longer than {LONGEST_NAME} bytes")
    for part in parts:
        if not part or part[0] == ".":
            raise UsageError(f"{name}: a part of a name may not be empty or start with a dot")
        if len(encode(part)) > NAME_MAX:
            raise UsageError(f"a part of a name may not be longer than {NAME_MAX} bytes")
    return parts
