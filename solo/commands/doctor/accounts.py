"""`solo doctor --fix [USER]...`: make places for the names of accounts without a home directory of
their own, as www-data. Packages and `make install` call it.

A place is preferred to a home directory, so it moves an account's names: a run that has a ticket in
the old place would not be seen from the new one.
"""

import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import suppress

from solo.commands.doctor.checks import REMOTE, find_file_system
from solo.directories import find_home_place, find_place
from solo.errors import SoloError
from solo.journal_files import FOLDER
from solo.kernel import OVERFLOW, USERS_PLACE, say
from solo.text.remedies import may_get_place, quote_path
from solo.text.width import print_clean
from solo.tickets import is_published, is_ticket

NOT_LOCAL = (*REMOTE, "autofs")  # it may be mounted later, and looking at it may hang


def run(users: "list[str]") -> int:
    """Make the places of these users, else of all accounts that need one. Print a line for each.
    Return 125 if one is refused. Raises SoloError.
    """
    if os.geteuid() != 0:
        raise SoloError("only root can make places for names (as root: solo doctor --fix)")
    made = True
    for account in map(find_account, users) if users else filter(needs_place, list_accounts()):
        try:
            place = make_place(account)
            print_clean(f"{account.pw_name}: names live in {place} now")
            say_history(account, place)
        except SoloError as error:
            say(f"{account.pw_name}: {error}")
            made = False
    return 0 if made else SoloError.status


def find_account(user: str) -> pwd.struct_passwd:
    """Return the account of a user, wherever it is kept. Raises SoloError."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise SoloError(f"{user}: this machine has no such user") from None


def list_accounts() -> "Iterator[pwd.struct_passwd]":
    """Yield the accounts of the file /etc/passwd: a directory service may have a million."""
    with open("/etc/passwd", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            name, password, uid, gid, *rest = (*line.rstrip("\n").split(":"), *[""] * 6)
            if uid.isdecimal() and gid.isdecimal():
                yield pwd.struct_passwd((name, password, int(uid), int(gid), *rest[:3]))


def needs_place(account: pwd.struct_passwd) -> bool:
    """Return whether an account has neither names nor a home directory of its own. Those of nobody
    and root never do.
    """
    if not may_get_place(account.pw_uid):
        return False
    if find_file_system(account.pw_dir or "/")[0] in NOT_LOCAL:
        return False
    try:
        is_own = os.stat(account.pw_dir).st_uid == account.pw_uid
        return not is_own and not os.path.lexists(find_home_place(account.pw_uid))
    except SoloError:
        return True  # it has no home directory
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))


def make_place(account: pwd.struct_passwd) -> str:
    """Make the place of an account, and return it. Raises SoloError."""
    if account.pw_uid in (0, OVERFLOW):
        why = "root has one" if account.pw_uid == 0 else "too many services share this account"
        raise SoloError(f"cannot make a place for its names: {why}")
    path = f"{USERS_PLACE}/{account.pw_uid}"
    if os.path.lexists(path):
        return find_place(account.pw_uid)
    check_old_place(account)
    try:
        os.umask(0o022)  # of a root with 077 users could not enter it
        os.makedirs(USERS_PLACE, 0o755, exist_ok=True)
        new = tempfile.mkdtemp(prefix=".new.", dir=USERS_PLACE)
        os.chown(new, account.pw_uid, account.pw_gid)
        os.rename(new, path)
    except OSError as error:
        raise SoloError(f"cannot create {path}: {error.strerror}") from None
    try:
        check_old_place(account)  # again: a run may have begun meanwhile
        return find_place(account.pw_uid)
    except SoloError:
        with suppress(OSError):  # a run may be there already
            os.rmdir(path)
        raise


def say_history(account: pwd.struct_passwd, place: str) -> None:
    """Say where the history of an account is that has a new place, and how it gets there."""
    with suppress(SoloError):
        old = f"{find_home_place(account.pw_uid)}/{FOLDER}"
        if os.path.isdir(old) and not os.path.lexists(f"{place}/{FOLDER}"):
            keep = f"runuser -u {account.pw_name} -- cp -a {quote_path(old)} {place}"
            what = f"its history and --once-per stay in {old}"
            say(f"{account.pw_name}: {what} (to keep them: {keep})")


def check_old_place(account: pwd.struct_passwd) -> None:
    """Raise SoloError if a run of this account has a ticket in the home directory."""
    try:
        old = find_home_place(account.pw_uid)
    except SoloError:
        return
    for folder, _, files in os.walk(old):
        for file in filter(is_ticket, files):
            if is_published(file):
                remedy = (
                    f"once it has ended: runuser -u {account.pw_name} -- solo clean, then again"
                )
                raise SoloError(
                    f"cannot move its names: {folder}/{file} may be of a run ({remedy})"
                )
