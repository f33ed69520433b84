"""The row of a ticket, as `solo list --json` prints it."""

from solo.identity import find_pid
from solo.kernel import decode
from solo.modes import EXCLUSIVE, Claim
from solo.process.owners import find_origins, is_orphaned, is_trusted, vouches
from solo.text.describe import find_directory
from solo.text.tables import describe_claim
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def make_row(name: str, where: str, ticket: "Any", record: "Any") -> "dict[str, Any]":
    """Return the row of a ticket. `since` is in seconds since the epoch, as `format_times` expects it."""
    # Before its command runs, a launcher that holds the name may wait at its engine, or for the second name of a pair.
    is_waiting = not ticket.is_hold or record is not None and record.child is None and (record.via or record.is_pair)
    state = "waiting" if is_waiting else "orphaned" if is_orphaned(ticket) else "held"
    pids, claims = ({}, {}) if record is None else find_claims(ticket, record)
    slot = record.slot[0][0] if record and record.slot else None
    return {
        "name": name,
        "state": state,
        **describe_claim(record.claim if record else Claim(EXCLUSIVE), slot),
        "launcher": pids.get("launcher"),
        "child": pids.get("child"),
        "since": record and record.since,
        "user": find_user(ticket.owner_uid),
        "host": record and record.origin.host,
        "command": [decode(word) for word in record.command] if record else [],
        "note": record and record.note or None,
        "via": record and record.via or where,
        "ticket": ticket.number,
        "claims": claims,
        "directory": record and find_directory(ticket),
    }


def find_claims(ticket: "Any", record: "Any") -> "tuple[dict[str, int], dict[str, Any]]":
    """Return (our pids of the `launcher` and `child`; the `user`, `launcher` and `child` of the record that the owner of
    its file cannot vouch for, and pids that we cannot see).
    """
    pids: dict[str, int] = {}
    claims: dict[str, Any] = {}
    trusted = is_trusted(ticket)
    if not trusted and record.uid != ticket.owner_uid:
        claims["user"] = find_user(record.uid)
    for key, process in (("launcher", None if record.is_kept else record.launcher), ("child", record.child)):
        if process and process[0]:
            pid = find_pid(process, *find_origins(ticket))
            if pid and (trusted or vouches(ticket, process)):
                pids[key] = pid
            else:
                claims[key] = pid or process[0]
    return pids, claims
