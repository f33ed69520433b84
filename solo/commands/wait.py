"""`solo wait`: block as long as an exclusive contender of the names would wait, without polling and
without a ticket.
"""

import posix

from solo.acquire import add_waited
from solo.commands.lookup import Asked, check_known, look_at_names, open_existing
from solo.contention.protocols import Block, Describe
from solo.errors import Busy
from solo.identity import read_origin, read_self
from solo.plan import Plan
from solo.record import Record


def run(options: Asked, names: "list[str]") -> int:
    """Return 0 once all names were free. Raises Busy after the timeout, SoloError for an unknown
    name.
    """
    if options.is_engine:
        from solo.commands import remote

        return remote.wait(options, names)
    for name in names:
        check_known(name, options, "wait for")
    plan = Plan({"name": names, "dir": options.dir, "via": options.via, "wait": options.timeout})
    wanted = Record(read_self(), read_origin(), posix.geteuid(), plan.claim, plan.names, [])
    waits = 1

    def watch(block: Block, look_again: float, describe: Describe, in_one_go: bool = False) -> bool:
        nonlocal waits
        waits += 1
        return block(look_again)

    try:
        while waits:  # a name that was free may be held again
            waits = 0
            look_at_names(wanted, plan, watch, lambda asked, _: open_existing(asked))
    except Busy as error:
        add_waited(error, plan)
        raise
    return 0
