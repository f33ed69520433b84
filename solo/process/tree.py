"""Other processes: their descendants, and signals to the processes of a record or a tree."""

import posix

from solo.errors import SoloError
from solo.identity import HOLDER, Process, Stat, find_pid, is_alive, read_stat
from solo.kernel import read_file
from solo.process.owners import find_origins, has_launcher, vouches
from solo.process.recipient import Recipient
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from solo.tickets import Ticket


def end(
    ticket: "Ticket", process: Process, signal: int, announce: "Callable[[], None] | None" = None
) -> None:
    """Send `signal` to (pid, start) of the record of `ticket`, and SIGCONT if it is stopped. Do
    nothing if it is gone.

    Call `announce` just before, if the signal is permitted. Raises SoloError as open_recipient
    does, or if it is not.
    """
    if process[0] <= 0:
        raise SoloError("cannot end the holder: it cannot be seen from here")
    try:
        with open_recipient(ticket, process) as recipient:
            if announce is not None:
                recipient.send(0)
                announce()
            recipient.end(signal)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise SoloError(
            f"cannot end pid {find_pid(process, *find_origins(ticket))}: {error.strerror}"
        ) from None


def open_recipient(ticket: "Ticket", process: Process) -> Recipient:
    """Return the Recipient of (pid, start) of the record of `ticket`: of every signal to a process
    of a record.

    Raises ProcessLookupError if it is gone, SoloError if it is hidden or the ticket's owner could
    not have signalled it.
    """
    try:
        recipient = Recipient(process, *find_origins(ticket))
    except SoloError as error:
        from solo.text.describe import describe_release

        error.remedy = describe_release(ticket)
        raise
    if vouches(ticket, process):
        return recipient
    with recipient:
        if recipient.is_gone():
            raise ProcessLookupError
    assert ticket.owner_uid is not None
    why = (
        f"its record was written by {find_user(ticket.owner_uid)}, a user that could not have "
        "signalled it"
    )
    raise SoloError(f"cannot end pid {recipient.pid}: {why}")


def send(process: Process, signal: int) -> None:
    """Send `signal` to our descendant (pid, start), and SIGCONT if it is stopped; not to one that
    cannot be identified.
    """
    try:
        with Recipient(process) as recipient:
            recipient.end(signal)
    except (OSError, SoloError):
        pass


def find_roots(ticket: "Ticket") -> "list[int]":
    """Return our pids of the processes under a hold: the command and its tree, or the program that
    holds it.
    """
    record = ticket.read_record()
    if record is None:
        return []
    if record.child and record.tree is not None and has_launcher(ticket):
        return [
            pid
            for launcher in find_here(ticket, record.launcher)
            for pid, _ in find_children(launcher)
        ]
    return find_here(ticket, record.child or record.launcher)


def find_here(ticket: "Ticket", process: Process) -> "list[int]":
    """Return [our pid of (pid, start)] in the record of `ticket`; [] if it is gone or the record is
    not believed.
    """
    theirs, mine = find_origins(ticket)
    pid = find_pid(process, theirs, mine)
    return (
        [pid] if pid > 0 and vouches(ticket, process) and is_alive(*process, theirs, mine) else []
    )


def is_holder(pid: int) -> bool:
    """Return whether a process is a holder, of `solo hold` or of a nested run: what it waits for
    may be in no tree.
    """
    try:
        return read_file(f"/proc/{pid}/comm") == HOLDER + b"\n"
    except OSError:
        return False


def find_children(pid: int) -> "list[Process]":
    """Return [(pid, start)] of the living children of `pid`."""
    return [(stat.pid, stat.start) for stat in read_all() if stat.parent == pid]


def find_descendants(pid: int, besides: "Container[Process]") -> "list[Process]":
    """Return [(pid, start)] of the living descendants of `pid`, without holders, and without
    `besides` and their descendants.
    """
    children: dict[int, list[Stat]] = {}
    for stat in read_all():
        if (stat.pid, stat.start) not in besides:
            children.setdefault(stat.parent, []).append(stat)
    found, parents = [], [pid]
    while parents:
        for stat in children.pop(parents.pop(), ()):
            if not is_holder(stat.pid):
                found.append((stat.pid, stat.start))
            parents.append(stat.pid)
    return found


def read_all() -> "Iterator[Stat]":
    """Yield the Stat of every living process. They are read one by one: not a snapshot."""
    for entry in filter(str.isdigit, posix.listdir("/proc")):
        try:
            stat = read_stat(entry)
        except OSError:
            continue
        if not stat.is_dead():
            yield stat
