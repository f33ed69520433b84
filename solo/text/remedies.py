"""Why a directory or a file of a name cannot be used, and what to type then."""

import os
from errno import EACCES, EDQUOT, EFBIG, EINVAL, EISDIR, ENOENT, ENOSPC, ENOTDIR, EROFS
from stat import S_IRWXU, S_ISGID, S_ISVTX, S_IWGRP, S_IWOTH

from solo.kernel import (
    HOME_PLACE,
    IS_DIRECTORY,
    IS_REGULAR,
    OVERFLOW,
    ROOT_PLACE,
    TYPE_MASK,
    USERS_PLACE,
    find_home,
    read_file,
)
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.directories import AskedFor, Directory

# On one line they would be one list of directories, so commas separate the lines of a unit.
# Without the mode systemd sets 0755 at each start; without Preserve a stopping unit removes other
# units' tickets.
IN_A_UNIT = "RuntimeDirectory={0}, RuntimeDirectoryMode=0700, RuntimeDirectoryPreserve=yes"
# Its user exists only while a unit runs: units that exclude each other need the same one, and the
# same directory.
DYNAMIC_UNIT = f"User={{0}}, {IN_A_UNIT.format('{1}')}, Environment=SOLO_DIR=/run/{{1}}"
ROOT_UNIT = f"{IN_A_UNIT.format('solo')}, StateDirectory=solo, StateDirectoryMode=0700"
ELSEWHERE = "choose another place with --dir or SOLO_DIR"
HIDDEN = "if the unit hides the home directory: ProtectHome=no; else "
NO_FILE = "without a file: --via socket, in every run of the name"
MAKE_PLACE = f"as root: install -d -m 700 -o {{0}} {USERS_PLACE}/{{0}}"
DYNAMIC = range(61184, 65520)  # uids of DynamicUser=: another service gets them next


def explain_no_home(uid: int) -> str:
    """Return the reason why there is no default directory of names for a user, and a remedy."""
    remedy = f"{give_place(uid)}; or use --dir or SOLO_DIR"
    if find_user(uid) == str(uid):  # without an account, as in a container
        remedy = f"{give_place(uid)}; or {NO_FILE}; or use --dir or SOLO_DIR"
    if uid in DYNAMIC and is_in_unit():
        remedy = f"in a unit: {DYNAMIC_UNIT.format('NAME', 'NAME')}"
    return f"cannot find a place for names: uid {uid} has no home directory ({remedy})"


def give_place(uid: int) -> str:
    """Return what root types to give a user without a home of its own a default directory of
    names.
    """
    user = find_user(uid)
    if user == str(uid) or not may_get_place(uid):
        return MAKE_PLACE.format(uid)
    return f"as root: solo doctor --fix {user}"


def may_get_place(uid: int) -> bool:
    """Return whether `solo doctor --fix` makes a place for a uid with an account: not if there is
    one, nor for root and nobody.
    """
    return uid not in (0, OVERFLOW) and not os.path.lexists(f"{USERS_PLACE}/{uid}")


def explain(path: str, error: OSError, asked: "AskedFor" = True) -> str:
    """Return why a directory cannot be used, and a remedy. It was `asked` for; True: unless it is
    the default one.
    """
    reason, uid = str(error.strerror), os.geteuid()
    if asked is True:
        default = (
            (f"{USERS_PLACE}/{uid}/", f"{find_home(uid)}{HOME_PLACE}/") if uid else f"{ROOT_PLACE}/"
        )
        asked = not f"{path}/".startswith(default)
    if error.errno in (ENOSPC, EDQUOT):
        return f"{reason} (free some space; {NO_FILE})"  # another place would be another lock
    if error.errno == EROFS:
        first = f"{ELSEWHERE}; " if asked else ""
        return f"{reason} ({choose_writable(path, uid) if is_in_unit() else first}{NO_FILE})"
    if error.errno == EFBIG:
        return f"{reason} (raise RLIMIT_FSIZE: ulimit -f, or LimitFSIZE= of a unit; {NO_FILE})"
    if error.errno not in (EACCES, ENOENT):
        return reason
    found = find_nearest(path)
    try:
        status = os.stat(found)
    except FileNotFoundError:
        return f"{found} is a link to {os.readlink(found)}, which does not exist"
    if not asked and not uid and (root := describe_false_root()):
        return f"{reason} ({root})"
    if status.st_uid == uid and found == path and ~status.st_mode & S_IRWXU:
        return f"{reason} (chmod u+rwx {quote_path(path)})"
    if status.st_uid == uid or (asked and (found != path or status.st_mode & (S_IWGRP | S_IWOTH))):
        return f"{reason} ({ELSEWHERE if asked or not uid else give_place(uid)})"
    whose = blame(found, asked, path)
    return f"{reason}: {whose}" if found != "/" else f"{reason} {whose[whose.index('(') :]}"


def choose_writable(path: str, uid: int) -> str:
    """Return the settings with which a unit can write in `path`, and what separates them from
    another remedy.
    """
    if path == ROOT_PLACE or path.startswith(ROOT_PLACE + "/"):
        return f"in a unit: {ROOT_UNIT}; "
    ours = f"{USERS_PLACE}/{uid}"
    return f"in a unit: ReadWritePaths={ours if path.startswith(ours) else ''}; "


def find_nearest(path: str) -> str:
    """Return `path`, or the nearest directory or dangling link above it that this user can see."""
    while path:
        try:
            os.lstat(path)
            return path
        except OSError:
            path = path.rpartition("/")[0]
    return "/"


def blame(found: str, asked: "AskedFor", path: str) -> str:
    """Return whose `found` is, which keeps this user from the directory of names `path`, and a
    remedy.
    """
    # Name the real directory: root must see what a link would have it chown.
    fd = os.open(found, os.O_PATH | os.O_CLOEXEC)
    owner, real = os.fstat(fd).st_uid, os.readlink(f"/proc/self/fd/{fd}")
    os.close(fd)
    uid = os.geteuid()
    home, remedy = find_home(uid), f"as root: chown -R {uid} {quote_path(real)}"
    if owner == OVERFLOW and find_outside() is not None:
        return f"it belongs to a user that this user namespace lacks ({ELSEWHERE})"
    if asked and not owner and (real == ROOT_PLACE or os.path.ismount(real)):
        # Another owner would lock out the host's root, and stop all of its jobs.
        ours = f"{USERS_PLACE}/{uid}"
        remedy = f"on the host, {MAKE_PLACE.format(uid)}; then mount {ours} here instead"
    elif asked:
        remedy = f"if it should be ours, {remedy}"
    elif real == home:
        remedy = give_place(uid)
    elif not real.startswith((f"{USERS_PLACE}/", f"{home or USERS_PLACE}/")):
        remedy = HIDDEN * is_in_unit() + give_place(uid)
    return f"{'it' if real == path else real} belongs to uid {owner} ({remedy})"


def describe_false_root() -> str:
    """Return why this root has no rights, and a remedy: by fakeroot(1) or in a user namespace. ""
    for any other root.
    """
    real = int(read_file("/proc/self/status").partition(b"\nUid:")[2].split()[1])
    outside = real or find_outside()
    if outside is None:
        return ""
    where = "fakeroot" if real else "this user namespace"
    for place in (f"{USERS_PLACE}/{outside}", find_home(outside) + HOME_PLACE):
        if os.access(place, os.X_OK):
            return (
                f"{where} makes root of uid {outside}: SOLO_DIR={quote_path(place)} has its names"
            )
    return f"{where} makes root of uid {outside}: {ELSEWHERE}"


def find_outside() -> "int | None":
    """Return the uid of this user outside its user namespace, None in the first one."""
    uid = os.geteuid()
    for line in read_file("/proc/self/uid_map").splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= uid < inside + count:
            return None if (inside, outside, count) == (0, 0, 2**32 - 1) else outside + uid - inside
    return uid


def explain_other_user(uid: int, path: str, asked: "AskedFor") -> str:
    """Return why a directory of names that belongs to user `uid` cannot be used, and a remedy."""
    user = find_user(uid)
    if os.geteuid() or (uid == OVERFLOW and find_outside() is not None):
        return blame(path, asked, path)
    remedy = ELSEWHERE if user == str(uid) else f"as that user: runuser -u {user} -- solo ..."
    return f"it belongs to uid {uid} ({remedy if asked else f'chown root {path}'})"


def explain_file(place: "Directory", file: str, error: OSError) -> str:
    """Return the reason why a file or directory in `place` cannot be used, its owner where that
    matters, and a remedy.
    """
    path = f"{place.path}/{file}"
    try:
        stat = os.stat(file, dir_fd=place.fd, follow_symlinks=False)
    except OSError:
        return explain(place.path, error)
    if error.errno == ENOTDIR:
        aside = f"mv {quote_path(path)} {quote_path(path + '.old')}"  # solo made no such file
        return f"it is not a directory; {explain_removal(stat.st_uid, aside)}"
    kind = stat.st_mode & TYPE_MASK
    if kind not in (IS_REGULAR, IS_DIRECTORY) or (
        kind == IS_DIRECTORY and error.errno in (EINVAL, EISDIR)
    ):
        remedy = f"rm -r {quote_path(path)}"
        return f"it is not a regular file; {explain_removal(stat.st_uid, remedy)}"
    if error.errno == EACCES and place.mode & S_ISGID:
        top = quote_path(path if kind == IS_DIRECTORY else place.path)
        group = os.fstat(place.fd).st_gid
        remedy = (
            f"chgrp -R {group} {top} && chmod -R g+rwX {top} && find {top} -type d -exec "
            "chmod g+s {} +"
        )
        return f"{error.strerror} (as root: {remedy})"
    is_whole = os.fstat(place.fd).st_uid == stat.st_uid  # all of the directory is of one user
    if error.errno == EACCES and not (is_whole or place.shared or stat.st_uid == os.geteuid()):
        remedy = (
            choose_remedy(place, file, stat.st_uid)
            if kind == IS_DIRECTORY
            else f"chown -h {os.geteuid()} {quote_path(path)}"
        )
        return f"it belongs to uid {stat.st_uid} (as root: {remedy})"
    usual = 0o7777 if kind == IS_DIRECTORY else 0o666 if file == ".gate" else 0o644
    mode = place.mode & usual
    if error.errno == EACCES and stat.st_mode & 0o777 != mode & 0o777:
        # not ELSEWHERE: another place is another lock
        who = "" if stat.st_uid == os.geteuid() else "as root: "
        return f"{error.strerror} ({who}chmod {mode:o} {quote_path(path)})"
    return explain(place.path, error)


def explain_removal(uid: int, remedy: str) -> str:
    """Return the owner of something that is in the way, and the command against it."""
    return f"uid {uid} owns it ({'' if uid == os.geteuid() else 'as root: '}{remedy})"


def quote_path(path: str) -> str:
    """Return a path as a word for a shell."""
    is_plain = all(letter.isalnum() or letter in "/._-+,:@%=" for letter in path)
    return path if is_plain else "'" + path.replace("'", "'\\''") + "'"


def is_in_unit() -> bool:
    """Return whether systemd started this process or an ancestor of it."""
    return b"INVOCATION_ID" in os.environb


def explain_owner(uid: int, remedy: str) -> str:
    return f"it belongs to uid {uid}, who could remove it while others use it (as root: {remedy})"


def choose_remedy(place: "Directory", part: str, uid: int) -> str:
    """Return a command after which the directory `part` of user `uid` in `place` can be used."""
    # The tickets in a name keep their owner: what another user wrote must not become root's word. A
    # journal would.
    path = quote_path(f"{place.path}/{part}")
    if part[0] == ".":
        return f"mv {path} {path}.old" if uid else f"chown -R {os.geteuid()} {path}"
    owner = "root" if place.shared else os.geteuid()
    return f"find {path} -type d -execdir chown -h {owner} {{}} {{}}/.gate ';'"


def choose_closing(place: "Directory | None", may_be_shared: bool) -> str:
    """Return the command that closes a directory in `place`, or the base, to those who should not
    have access.
    """
    if place is None:
        return "chmod go-w {0}" + (
            ", or to share it with all users: chmod +t {0}" if may_be_shared else ""
        )
    return (
        "chmod +t {0}"
        if place.mode & S_ISVTX
        else "chmod o-w {0}"
        if place.shared
        else "chmod -R go-rwx {0}"
    )


def explain_damage(uid: int, path: str) -> str:
    """Return the reason why a damaged ticket of user `uid` counts as held, and the remedy."""
    whose, who = ("", "") if uid == os.geteuid() else (f", of uid {uid},", "as root, ")
    return (
        f"it is damaged, and its command{whose} may still run ({who}once that has ended: rm "
        f"{quote_path(path)})"
    )
