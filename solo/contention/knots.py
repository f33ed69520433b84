"""Which waits never end by themselves? Pure functions over a graph of waiters and holds.

- a hold ends once all waiters below it have left
- a waiter leaves once the holds that are left admit its claim, and first those of the waiters ahead
  of it
- so one for slots waits for any of several holds: only a knot stops it for good, not each circle
  (E. Knapp, "Deadlock
  Detection in Distributed Databases", ACM Computing Surveys 19, 1987)
"""

from solo.modes import Claim, find_conflicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from solo.tickets import Ticket


class Waiting:
    """A waiter in its queue: its claim and those ahead of it, and the holds there."""

    def __init__(
        self, ticket: "Ticket", claims: "Iterable[Claim]" = (), holds: "Iterable[Held]" = ()
    ) -> None:
        self.ticket = ticket
        self.claims = list(claims)
        self.holds = list(holds)


class Held:
    """A hold, and the waiters below it."""

    def __init__(self, ticket: "Ticket", claim: Claim, waits: "Iterable[Waiting]" = ()) -> None:
        self.ticket = ticket
        self.claim = claim
        self.waits = list(waits)


def find_stuck(holds: "Iterable[Held]") -> "set[Held]":
    """Return the holds that do not end by themselves: those that are left once all others have
    ended.
    """
    stuck = set(holds)
    while ended := {
        hold for hold in stuck if not any(find_in_the_way(wait, stuck) for wait in hold.waits)
    }:
        stuck -= ended
    return stuck


def find_in_the_way(wait: Waiting, stuck: "set[Held]") -> "list[Held]":
    """Return those of the holds `stuck` that keep the waiter for good; none if it leaves."""
    held = [hold for hold in wait.holds if hold in stuck]
    claims = [hold.claim for hold in held]
    found = {at for claim in wait.claims for at in find_conflicts(claim, claims)}
    return [held[at] for at in sorted(found)]


def find_circle(start: Waiting, stuck: "set[Held]") -> "list[Ticket]":
    """Return the tickets of a shortest circle: a hold in the way of `start`, a waiter below it, and
    so on to a hold above `start`. None if others are stuck without us.
    """
    seen: set[Held] = set()
    ways: list[tuple[Waiting, list[Ticket]]] = [(start, [])]
    for wait, way in ways:  # it grows
        for hold in find_in_the_way(wait, stuck):
            if hold in seen:
                continue
            seen.add(hold)
            if start in hold.waits:
                return [*way, hold.ticket]
            ways += [(below, [*way, hold.ticket, below.ticket]) for below in hold.waits]
    return []
