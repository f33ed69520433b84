"""What `solo doctor` checks, as (state, text). Only check_directory says why names are refused; the
others raise it.
"""

import fcntl
import grp
import os
import posix
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from solo import kernel
from solo.commands.clean import LIKE_GENERATED
from solo.commands.doctor.daemon import CRON_PATH
from solo.commands.doctor.guards import RELATIVE
from solo.commands.lookup import Asked, open_existing
from solo.commands.states import MOST_REASONS, describe_bad, find_jobs, read_clock
from solo.commands.writable import explain_unrecorded, find_existing, write_file
from solo.contention.addresses import list_addresses
from solo.contention.judge import Look
from solo.contention.period import ONCE_FILE as ONCE
from solo.directories import PRIVATE, STICKY, Directory, find_base, find_home_place
from solo.errors import SoloError
from solo.gate import GATE
from solo.history.names import find_files
from solo.identity import FIRST_PID_NAMESPACE, read_namespace, read_origin, read_self
from solo.journal_files import JOURNAL, find_journals, open_place
from solo.kernel import HOME_PLACE, USERS_PLACE, decode
from solo.options import FILE
from solo.process.prctl import load_prctl
from solo.text.describe import format_count
from solo.text.remedies import explain, find_nearest, quote_path
from solo.text.rows import BAD, GOOD, NOTE, Finding
from solo.tickets import DEAD, HOLD, READABLE, SEAT, FileQueue, is_foreign, is_published, is_ticket

Findings = Iterator[tuple[str, str]]
SUSPICIOUS = 10  # names made from commands of one program
REMOTE = "nfs nfs4 cifs smb3 9p ceph fuse.sshfs fuse.glusterfs lustre gfs2 ocfs2".split()
WITHOUT_MODES = "vfat msdos exfat fuseblk ntfs ntfs3".split()  # the mount sets those of all files
OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
CLEANED = ("/tmp/", "/var/tmp/")
GONE_AT_BOOT = ("tmpfs", "ramfs")
LOCK_CHECK = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(3)
"""


def check_directory(asked: "str | None") -> Findings:
    """Can solo use the directory of names, and write in it?"""
    try:
        path = find_base(asked)
        place = open_existing(asked)
        folder = find_existing(path, asked)
    except SoloError as error:
        yield BAD, str(error)
        return
    yield (
        GOOD,
        f"names live in {path}, for uid {posix.geteuid()}"
        + (", as --dir or SOLO_DIR says" if asked else ""),
    )
    if place:
        posix.close(place.fd)
    else:
        apart = ", and its locks exclude no run that uses another directory" if asked else ""
        yield NOTE, f"{path} does not exist: the first run makes it{apart}"
    if not asked and path.startswith(USERS_PLACE + "/"):
        yield from check_home_place(path)
    try:
        write_file(folder)
        yield GOOD, "solo can create and write files there"
    except OSError as error:
        yield BAD, f"cannot write in {folder}: {explain(folder, error, asked)}"


def check_home_place(path: str) -> Findings:
    """Would a run that does not see `path`, which root made, use the home directory, as in a
    container?
    """
    try:
        home = find_home_place(posix.geteuid())
    except SoloError:
        return  # it would fail
    if os.path.realpath(home) != path and os.access(find_nearest(home), os.W_OK):
        at = quote_path(home)
        prepare = (
            f"mv {at} {at}.old"
            if os.path.lexists(home)
            else f"mkdir -p {quote_path(os.path.dirname(home))}"
        )
        stop = f"({prepare} && ln -s {path} {at} stops it)"
        yield NOTE, f"a run that cannot see {path}, as in a container, uses {home} {stop}"


def check_trust(asked: "str | None") -> Findings:
    """Which other users can read, block or change the locks? TRUST in solo(1) has the rules."""
    place = open_existing(asked)
    if place is None:
        return
    path, mode = os.path.realpath(place.path), place.mode
    yield from describe_sharing(path, mode, os.fstat(place.fd))
    found = [*examine_names(place), *describe_wide(asked, path, mode)]
    posix.close(place.fd)
    yield from found
    if mode == PRIVATE and not found:
        yield GOOD, f"no other user can read, block or change the locks in {path}"
    yield from check_above(path)


def examine_names(place: Directory) -> Findings:
    """Yield a finding for each directory, gate and ticket that a run refuses, and for each ticket
    that it ignores.
    """
    origin = read_origin()
    for name, inner, files in find_files(place):
        if isinstance(inner, SoloError):
            # In a directory of all users each of them may have names of its own.
            yield NOTE if place.mode & STICKY and is_foreign(place, name) else BAD, str(inner)
            continue
        queue = FileQueue(inner, origin)
        try:
            with Look(inner, ""):
                pass
        except SoloError as error:
            yield BAD, str(error)
        for file in sorted(filter(is_published, filter(is_ticket, files))):
            yield from examine_ticket(queue, file)


def examine_ticket(queue: FileQueue, file: str) -> Findings:
    try:
        ticket = queue.look(file)
        is_damaged = (
            ticket is None
            or ticket.is_hold
            and ticket.state is DEAD
            and ticket.read_record() is None
        )
    except SoloError as error:
        yield BAD, str(error)
        return
    if ticket is not None:
        ticket.close()
    if is_damaged and is_foreign(queue.place, file):
        path = f"{queue.place.path}/{file}"
        remedy = f"as root: rm -r {quote_path(path)}"
        yield NOTE, f"{path} is no ticket, and solo ignores it; another user made it ({remedy})"


def describe_sharing(path: str, mode: int, status: os.stat_result) -> Findings:
    """Yield a note if other users can see or use the names in `path`, where new files grant the
    access `mode`.
    """
    group = f"the members of group {find_group(status.st_gid)}"
    if mode & STICKY:
        users = "all users" if mode & stat.S_IWOTH else group
        can = "can read and block each name in it, and use each name that root made first"
        yield NOTE, f"{path} is shared: {users} {can}"
    elif mode != PRIVATE:
        yield NOTE, f"{path} is shared: {group} can read, block and remove each lock in it"
    elif status.st_mode & OTHER_USERS:
        yield (
            NOTE,
            f"other users can see which names there are in {path}, but cannot use them (chmod 700 "
            "hides them)",
        )


def describe_wide(asked: "str | None", path: str, mode: int) -> Findings:
    """Yield a finding if files of names or journals give other users too much access."""
    bases = filter(may_enter, dict.fromkeys([path, os.path.realpath(find_journals(asked)[0])]))
    wide = [file for base in bases for file in find_wide(base, mode if base == path else PRIVATE)]
    if wide:
        remedy = f"run solo clean{f' --dir {quote_path(asked)}' if asked else ''}"
        remedy = "mount it with umask=077" if find_file_system(path)[0] in WITHOUT_MODES else remedy
        more = f", and {len(wide) - 1} more" if wide[1:] else ""
        yield BAD, f"other users can open {wide[0]}{more}, and so lock it ({remedy})"


def check_above(path: str) -> Findings:
    """Yield a note for each directory above `path` whose owner or writers could replace `path`."""
    for above in map(str, Path(path).parents):
        status = os.stat(above)
        if status.st_uid not in (0, posix.geteuid()):
            yield (
                NOTE,
                f"{above} belongs to uid {status.st_uid}, who can put another directory in the "
                f"place of {path}",
            )
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & STICKY:
            yield (
                NOTE,
                f"other users can write in {above}, and put another directory in the place of "
                f"{path}",
            )


def find_wide(base: str, mode: int) -> "Iterator[str]":
    """Yield the files of root or the user that grant others more than `mode`. A ticket grants no
    more than reading.
    """
    for folder, folders, files in os.walk(base):
        for file in [file for file in files if file.startswith((GATE, SEAT, HOLD, JOURNAL, ONCE))]:
            allowed = mode & READABLE if file.startswith((SEAT, HOLD)) else mode
            with suppress(OSError):
                status = os.lstat(f"{folder}/{file}")
                is_ours = status.st_uid in (0, posix.geteuid()) and stat.S_ISREG(status.st_mode)
                if is_ours and status.st_mode & OTHER_USERS & ~allowed:
                    yield f"{folder}/{file}"
        # Other users cannot reach a file in a directory that they cannot enter, whatever its mode.
        folders[:] = [inner for inner in folders if may_enter(f"{folder}/{inner}")]


def may_enter(folder: str) -> bool:
    with suppress(OSError):
        return bool(os.lstat(folder).st_mode & (stat.S_IXGRP | stat.S_IXOTH))
    return False


def find_group(gid: int) -> str:
    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)


def check_journal(asked: "str | None") -> Findings:
    """Can the journal be written? Where it cannot, only --once-per fails."""
    if (names := open_existing(asked)) is not None:
        posix.close(names.fd)
    path = find_journals(asked)[0]
    try:
        if place := open_existing(asked, open_place):  # else the first run makes it
            path = place.path
            yield from (
                (BAD, str(inner))
                for _, inner, _ in find_files(place)
                if isinstance(inner, SoloError)
            )
            posix.close(place.fd)
    except SoloError as error:
        yield BAD, str(error)
        return
    if reason := explain_unrecorded(path, asked):
        yield NOTE, f"solo history and metrics will know no runs: {reason}"
    else:
        yield GOOD, f"runs are recorded in {path}, for solo history and metrics"


def check_file_system(asked: "str | None") -> Findings:
    """Does flock(2) reach all contenders? On a network file system it may not reach other
    machines.
    """
    path = os.path.realpath(find_base(asked))
    kind, point = find_file_system(path)
    if f"{path}/".startswith(CLEANED):
        lost = "journals, and the tickets of long runs (choose another place with --dir)"
        yield NOTE, f"cleaners of {path} remove old files: {lost}"
    if path.startswith("/run/user/"):
        unseen = "when the user logs out, and a job that runs on is not seen (choose another --dir)"
        yield NOTE, f"{path} is unmounted {unseen}"
    if kind in REMOTE:
        risk = (
            "locks may not reach other machines, and solo hangs with its server (choose a local "
            "--dir)"
        )
        yield NOTE, f"{point} is {kind}: {risk}"
    elif kind == "overlay":
        yield NOTE, f"{point} is overlay: each container has names of its own there"
    else:
        yield (
            GOOD,
            f"{point} is {kind}"
            + (", emptied at each boot, which is fine" if kind in GONE_AT_BOOT else ""),
        )


def check_locks(asked: "str | None") -> Findings:
    """Does one process see the lock of another?"""
    path = find_base(asked)
    folder = find_existing(path, asked)
    try:
        # It has a name: mergerfs opens no file by /proc/PID/fd once that has none.
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            statuses = []
            for operation in (fcntl.LOCK_EX, fcntl.LOCK_UN):
                fcntl.flock(file, operation)
                words = [sys.executable, "-IS", "-c", LOCK_CHECK, file.name]
                statuses.append(
                    subprocess.run(
                        words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    ).returncode
                )
    except FileNotFoundError:
        return  # check_directory reports it
    except OSError as error:
        yield BAD, f"cannot try flock(2): {error.strerror}"
        return
    if statuses == [3, 0]:
        yield GOOD, "flock(2) works between processes here"
    else:
        yield BAD, f"flock(2) does not work in {path} (choose another place with --dir)"


def check_processes(asked: "str | None") -> Findings:
    """Can solo identify processes, by /proc, pidfd and prctl?"""
    try:
        read_self()
        origin = read_origin()
    except (SoloError, OSError) as error:
        yield BAD, f"/proc: {getattr(error, 'strerror', None) or error}"
        return
    mounts = [
        mount
        for mount in read_lines("/proc/self/mounts")
        if mount.split()[1] == "/proc" and "hidepid=" in mount
    ]
    is_hidden = bool(mounts) and not any(f"hidepid={off}" in mounts[0] for off in ("0", "off"))
    if is_hidden and posix.geteuid() != 0:
        yield (
            NOTE,
            "/proc hides other users' processes (hidepid): a process that solo cannot see counts "
            "as alive",
        )
    else:
        yield GOOD, "/proc shows which processes live"
    try:
        posix.close(posix.pidfd_open(posix.getpid()))
        yield GOOD, "solo waits for orphans without polling (pidfd)"
    except (OSError, AttributeError):
        yield (
            NOTE,
            "no pidfd: solo polls orphans; stop and --replace verify a pid just before they signal "
            "it",
        )
    try:
        load_prctl()
        yield GOOD, "--tree, --no-orphan, --flock and --fcntl work (prctl by ctypes)"
    except SoloError as error:
        yield NOTE, str(error)
    if origin.pid_namespace not in (FIRST_PID_NAMESPACE, "-"):
        yield (
            NOTE,
            "in a pid namespace (a container): contenders outside of it see the locks, not always "
            "the processes",
        )


def check_sockets(asked: "str | None") -> Findings:
    """Can --via socket read /proc/net/unix?"""
    try:
        list_addresses()
        namespace = read_namespace("self", "net")
        yield (
            GOOD,
            f"--via socket works, between all processes in this network namespace ({namespace})",
        )
    except (SoloError, OSError) as error:
        yield NOTE, f"--via socket does not work: {error}"


def check_kernel_settings(asked: "str | None") -> Findings:
    """Which kernel settings concern shared directories?"""
    if "".join(read_lines("/proc/sys/fs/protected_hardlinks")).strip() == "0":
        risk = "another user can put a link to your file in the place of a shared gate"
        yield NOTE, f"fs.protected_hardlinks is 0: {risk}"


def check_environment(asked: "str | None") -> Findings:
    """Does the environment name places that cron, ssh or systemd would not use?"""
    home, own = os.environ.get("HOME"), None
    with suppress(SoloError):  # no home directory: check_directory reports it
        own = find_base(None)
    if (
        own
        and own.endswith(HOME_PLACE)
        and not asked
        and home
        and not own.startswith(home.rstrip("/") + "/")
    ):
        yield (
            NOTE,
            f"HOME is {home}, unlike in the password database: names live in the home directory of "
            "the database",
        )
    if asked and not os.path.isabs(asked):
        yield NOTE, RELATIVE.format(asked)
    for variable, default in (("SOLO_DIR", own), ("SOLO_VIA", FILE)):
        value = os.environ.get(variable)
        if value and os.path.normpath(value) != default:
            yield (
                NOTE,
                f"{variable} is set to {value}: unless cron and systemd have the same, there are "
                "two locks",
            )


def check_installation(asked: "str | None") -> Findings:
    """Does solo start as fast as it can, and see what it inherited?"""
    if "solo_ignored" not in sys._xoptions:
        yield (
            NOTE,
            "started without its stub: guesses which signals were ignored (INHERITED STATE, "
            "solo(7))",
        )
    beside = os.path.dirname(os.path.realpath(sys.argv[0]))
    if kernel.program is None and (
        "solo_ignored" in sys._xoptions or os.path.exists(f"{beside}/program")
    ):
        yield (
            NOTE,
            "solo was installed for another version of Python, and starts slower (install it "
            "again)",
        )


def check_cron(asked: "str | None") -> Findings:
    """Does cron, if there is one, find solo by its name, in the PATH that it sets?"""
    typed = os.path.abspath(sys.argv[0])
    crons = [
        one
        for one in ("crontab", "cron", "crond")
        if shutil.which(one, path=f"{CRON_PATH}:/usr/sbin:/sbin")
    ]
    if crons and os.path.basename(typed) == "solo" and not shutil.which("solo", path=CRON_PATH):
        yield (
            NOTE,
            f"cron does not find solo in {CRON_PATH}: write {typed} in crontabs, or set PATH there",
        )


def check_generated_names(asked: "str | None") -> Findings:
    """Are there many names of one program? A name made from changing arguments never excludes
    another run.
    """
    try:
        names = [
            name for name, *_ in find_files(open_place(asked)) if LIKE_GENERATED.fullmatch(name)
        ]
    except (SoloError, OSError):
        return
    for program, count in Counter(name.rpartition("-")[0] for name in names).most_common(3):
        if count >= SUSPICIOUS:
            yield (
                NOTE,
                f"{program} ran under {count} names made from its words; runs of one job need one "
                "name: -n NAME",
            )


def check_jobs(asked: "str | None") -> Findings:
    """Which jobs does the judge of health call bad?"""
    found = find_jobs(Asked(dir=asked), [], read_clock())[0]
    bad = [f"{job.name} ({job.health.state})" for job in found if job.health.is_bad]
    if bad:
        more = ", ..." * (len(bad) > MOST_REASONS)
        yield (
            NOTE,
            f"{describe_bad(len(bad), format_count(len(found), 'job'))}: "
            f"{', '.join(bad[:MOST_REASONS])}{more} (solo list --all)",
        )


CHECKS: "tuple[Callable[[str | None], Findings], ...]" = (
    check_directory,
    check_trust,
    check_file_system,
    check_locks,
    check_processes,
    check_sockets,
    check_journal,
    check_kernel_settings,
    check_environment,
    check_installation,
    check_cron,
    check_generated_names,
    check_jobs,
)


def examine_machine(asked: "str | None") -> "Iterator[Finding]":
    for check in CHECKS:
        with suppress(SoloError):  # check_directory has reported it
            for state, text in check(asked):
                yield Finding(state, check.__name__.removeprefix("check_"), text)


def find_file_system(path: str) -> "tuple[str, str]":
    """Return (kind, mount point) of the file system that `path` is on."""
    path, best = os.path.realpath(path), ("unknown", "/")
    for line in read_lines("/proc/self/mounts"):
        _, point, kind = line.split(" ")[:3]
        point = re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), point)
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[1]):
            best = kind, point
    return best


def read_lines(path: str) -> "list[str]":
    """Return the lines of a file, or none if it cannot be read."""
    try:
        # Only a newline ends a line: mount points may contain the other characters at which Python
        # splits.
        return decode(Path(path).read_bytes()).rstrip("\n").split("\n")
    except OSError:
        return []
