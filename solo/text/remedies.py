"""Why a directory or a file of a name cannot be used, and what to type then."""

import posix
from errno import EACCES, EINVAL, EISDIR, ENOENT, ENOTDIR, EROFS
from stat import S_ISGID, S_ISVTX

from solo.kernel import IS_DIRECTORY, IS_REGULAR, TYPE_MASK
from solo.options import ROOT_PLACE
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.directories import Directory

# Without the mode systemd sets 0755 at each start; without Preserve a stopping unit removes other units' tickets.
IN_A_UNIT = "RuntimeDirectory={0} RuntimeDirectoryMode=0700 RuntimeDirectoryPreserve=yes"
ROOTS_JOURNALS = "StateDirectory=solo StateDirectoryMode=0700"
ELSEWHERE = "choose another place with --dir or SOLO_DIR"
CLOSE_BASE = "chmod go-w {0}"
SHARE_BASE = "chmod go-w {0}, or to share it with all users: chmod +t {0}"


def explain_no_home(uid: int) -> str:
    """Return the reason why there is no default directory of names for a user, and a remedy."""
    remedy = f"; in a unit: {IN_A_UNIT.format('NAME')} Environment=SOLO_DIR=/run/NAME" if is_in_unit() else ""
    return f"cannot find a place for names: uid {uid} has no home directory (use --dir or SOLO_DIR{remedy})"


def explain(path: str, error: OSError) -> str:
    """Return the system's reason why a directory cannot be used, and a remedy."""
    if error.errno == EROFS and is_in_unit():
        ours = path == ROOT_PLACE or path.startswith(ROOT_PLACE + "/")
        remedy = f"{IN_A_UNIT.format('solo')} {ROOTS_JOURNALS}" if ours else "ReadWritePaths="
        return f"{error.strerror} (in a unit: {remedy})"
    if error.errno in (EACCES, ENOENT, EROFS):
        return f"{error.strerror} ({ELSEWHERE})"
    return str(error.strerror)


def explain_other_user(uid: int, path: str, asked: object) -> str:
    """Return the reason why a directory of names that belongs to another user cannot be used, and a remedy.

    If none was `asked` for, root's own one has the wrong owner.
    """
    user, remedy = find_user(uid), ELSEWHERE
    if posix.geteuid() == 0:
        if not asked:
            remedy = f"chown root {path}"
        elif user != str(uid):
            remedy = f"as that user: runuser -u {user} -- solo ..."
    return f"it belongs to uid {uid} ({remedy})"


def explain_file(place: "Directory", file: str, error: OSError) -> str:
    """Return the reason why a file or directory in `place` cannot be used, its owner where that matters, and a remedy."""
    path = f"{place.path}/{file}"
    try:
        stat = posix.stat(file, dir_fd=place.fd, follow_symlinks=False)
    except OSError:
        return explain(place.path, error)
    if error.errno == ENOTDIR:
        return f"it is not a directory; {explain_removal(stat.st_uid, path)}"
    kind = stat.st_mode & TYPE_MASK
    if kind not in (IS_REGULAR, IS_DIRECTORY) or kind == IS_DIRECTORY and error.errno in (EINVAL, EISDIR):
        return f"it is not a regular file; {explain_removal(stat.st_uid, path)}"
    if error.errno == EACCES and place.mode & S_ISGID:
        top = quote_path(path if kind == IS_DIRECTORY else place.path)
        group = posix.fstat(place.fd).st_gid
        remedy = f"chgrp -R {group} {top} && chmod -R g+rwX {top} && find {top} -type d -exec chmod g+s {{}} +"
        return f"{error.strerror} (as root: {remedy})"
    return explain(place.path, error)


def explain_removal(uid: int, path: str) -> str:
    """Return the owner of something that is in the way, and how to remove it."""
    return f"uid {uid} owns it ({'' if uid == posix.geteuid() else 'as root: '}rm -r {quote_path(path)})"


def quote_path(path: str) -> str:
    """Return a path as a word for a shell."""
    if all(letter.isalnum() or letter in "/._-+,:@%=" for letter in path):
        return path
    return "'" + path.replace("'", "'\\''") + "'"


def is_in_unit() -> bool:
    """Whether systemd started this process or an ancestor of it."""
    return b"INVOCATION_ID" in posix.environ


def explain_owner(uid: int, remedy: str) -> str:
    """Return the reason why what user `uid` owns cannot be used, and the `remedy`."""
    return f"it belongs to uid {uid}, who could remove it while others use it (as root: {remedy})"


def choose_remedy(place: "Directory", part: str) -> str:
    """Return a command after which the directory `part` of another user in `place` can be used.

    The tickets in a name keep their owner: what another user wrote must not become root's word. A journal would.
    """
    path = quote_path(f"{place.path}/{part}")
    if part[0] == ".":
        return f"rm -r {path}"
    owner = "root" if place.shared else posix.geteuid()
    return f"find {path} -type d -execdir chown -h {owner} {{}} {{}}/.gate ';'"


def choose_closing(place: "Directory | None", may_be_shared: bool) -> str:
    """Return the command that takes away the access to a directory in `place`, or to the base, which others should not
    have.
    """
    if place is None:
        return SHARE_BASE if may_be_shared else CLOSE_BASE
    return "chmod +t {0}" if place.mode & S_ISVTX else "chmod o-w {0}" if place.shared else "chmod -R go-rwx {0}"


def explain_damage(uid: int, path: str) -> str:
    """Return the reason why a damaged ticket of user `uid` counts as held, and the remedy."""
    whose, who = ("", "") if uid == posix.geteuid() else (f", of uid {uid},", "as root, ")
    return f"it is damaged, and its command{whose} may still run ({who}once that has ended: rm {quote_path(path)})"
