"""The holders of a name, as programs see them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Optional, Union

from solo.api.arguments import AnyPath, check_name, read_options
from solo.errors import SoloError
from solo.options import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.text.rows import Row


@dataclass(frozen=True)
class Holder:
    """A holder of a name, with most keys of a row of `solo list --json`.

    `launcher` is the pid of the solo process, or of the program that holds the name; `child` is the
    pid of the command. `since` is an aware datetime, `directory` the working directory of a run
    without -n. A value that is not known is None. At an engine `renewed_ago` and `free_in` are the
    seconds since the lease was renewed, and until it ends unless it is renewed; `silent` says both
    in words if the renewal is late. `user` owns the ticket. Fields of its record about which that
    user cannot be believed, and pids of processes that cannot be seen from here, are only in
    `claims`, under their names: "user", "launcher", "child".
    """

    name: str
    state: Literal["held", "orphaned", "waiting"]
    mode: Literal["exclusive", "shared", "slots"]
    slot: Optional[int]
    slots: Optional[int]
    take: Optional[int]
    launcher: Optional[int]
    child: Optional[int]
    since: Optional[datetime]
    user: Optional[str]
    host: Optional[str]
    command: tuple[str, ...]
    via: str
    ticket: int
    claims: dict[str, Union[str, int]] = field(default_factory=dict, hash=False)
    note: Optional[str] = None
    directory: Optional[str] = None
    renewed_ago: Optional[float] = None
    free_in: Optional[float] = None
    silent: Optional[str] = None


def holders(
    name: str, *, via: Optional[str] = None, directory: Optional[AnyPath] = None
) -> list[Holder]:
    """Return the holders of `name` and of the names nested in it, the oldest of each name first.

    `via` and `directory` are as for `Lock`, but `via` may name an engine. Without `via`, list the
    holders by files and by sockets; SOLO_VIA is ignored.

    Raises UsageError for an invalid name, SoloError if a ticket or an engine cannot be read.

    >>> with Lock("reports"):
    ...     [(holder.state, holder.launcher == os.getpid()) for holder in holders("reports")]
    [('held', True)]
    """
    from solo.commands.list import collect

    problems: list[str] = []
    path = read_options(via or FILE, directory).get("dir")
    rows, complete = collect(path, via, [check_name(name)], report=problems.append)
    if not complete:
        raise SoloError(problems[0])
    return [make_holder(row) for row in rows if not row.is_waiting]


def make_holder(row: "Row") -> Holder:
    """Return the Holder of a row of `solo list`. Its time is that of --json, in milliseconds."""
    from solo.text.tables import format_time

    since = format_time(row.since)
    fields = {
        **row._asdict(),
        "since": since and datetime.fromisoformat(since),
        "command": tuple(row.command),
    }
    return Holder(**{key: fields[key] for key in Holder.__dataclass_fields__})
