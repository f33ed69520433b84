"""`solo wait`: block until the names have neither holders nor waiters, one ticket after the other, without polling."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Any

from solo.argv import is_engine
from solo.commands.lookup import check_known, find_in_the_way, plan_exclusive, visit_queue
from solo.errors import Busy
from solo.identity import read_origin
from solo.kernel import FOREVER
from solo.text.describe import describe_holder, describe_waited


def run(options: dict[str, Any], names: list[str]) -> int:
    """Return 0 once all names were free. Raises Busy after the timeout, SoloError for an unknown name."""
    if is_engine(options):
        from solo.commands import remote

        return remote.wait(options, names)
    for name in names:
        check_known(name, options, "wait for")
    deadline = monotonic() + options.get("timeout", FOREVER)
    plans, origin = plan_exclusive(names), read_origin()

    def wait_next(part: str, claim: Any, queue: Any) -> bool:
        """Wait for the end of one ticket that conflicts with `claim`. Return True if there is none. Raises Busy."""
        ticket = next(find_in_the_way(queue, claim), None) if queue else None
        if ticket is None:
            return True
        try:
            if monotonic() >= deadline:
                raise Busy(f"{part}: busy: {describe_holder(ticket)}{describe_waited(options['timeout'])}")
            ticket.wait_end(deadline)
        finally:
            ticket.close()
        return False

    while not all([visit_queue(part, options, partial(wait_next, part, claim), origin) for part, claim in plans]):
        pass  # a name that was free may be held again
    return 0
