"""Which waits never end: a table, and every small graph against the futures that it can have."""

from functools import lru_cache
from itertools import product

import pytest

from solo.contention.knots import Held, Waiting, find_circle, find_in_the_way, find_stuck
from solo.modes import EXCLUSIVE, INTEND_EXCLUSIVE, SHARED, SLOTS, Claim, find_conflicts

pytestmark = pytest.mark.quick

CLAIMS = {"X": Claim(EXCLUSIVE), "S": Claim(SHARED), "IX": Claim(INTEND_EXCLUSIVE)}
CLAIMS |= {"1/2": Claim(SLOTS, 2, 1), "2/2": Claim(SLOTS, 2, 2), "1/3": Claim(SLOTS, 3, 1)}


class Queue:
    """The claims of the `holds` of a name, and (claim, the hold that it is below) of the `waiters`
    in their order.
    """

    def __init__(self, holds, waiters):
        self.holds, self.waiters = holds, waiters


def read(text):
    """Return the queues of `a: X S <- S@b0 X | b: X <- X@a0`: the second waiter for a is below no
    hold.
    """
    queues = {}
    for line in text.split(" | "):
        name, _, tickets = line.partition(": ")
        holds, _, waiters = tickets.partition("<-")
        queues[name] = Queue(
            holds.split(), [tuple(word.partition("@")[::2]) for word in waiters.split()]
        )
    return queues


def make_graph(queues):
    """Return ({name of a hold: its node}, {name of a waiter: its node}), as deadlock.py reads
    them.
    """
    holds, waits = {}, {}
    for name, queue in queues.items():
        holds |= {
            f"{name}{at}": Held(f"{name}{at}", CLAIMS[one]) for at, one in enumerate(queue.holds)
        }
    for name, queue in queues.items():
        here = [hold for key, hold in holds.items() if key[0] == name]
        for at, (_, above) in enumerate(queue.waiters):
            claims = [CLAIMS[claim] for claim, _ in queue.waiters[: at + 1]]
            waits[f"{name}<{at}"] = Waiting(f"{name}<{at}", claims, here)
            if above:
                holds[above].waits.append(waits[f"{name}<{at}"])
    return holds, waits


def find_leaving(queues):
    """Return the waiters that acquire in a future: any hold without waiters below it ends, any head
    of a queue acquires.
    """
    above, claims = {}, {}
    for name, queue in queues.items():
        claims |= {f"{name}{at}": claim for at, claim in enumerate(queue.holds)}
        for at, (claim, hold) in enumerate(queue.waiters):
            claims[f"{name}<{at}"], above[f"{name}<{at}"] = claim, hold

    @lru_cache(None)
    def follow(holds, waiters):
        found = frozenset()
        for hold in holds - {above[waiter] for waiter in waiters}:
            found |= follow(holds - {hold}, waiters)
        for name in queues:
            head = min((waiter for waiter in waiters if waiter[0] == name), default=None)
            held = [CLAIMS[claims[hold]] for hold in holds if hold[0] == name]
            if head and not find_conflicts(CLAIMS[claims[head]], held):
                found |= {head} | follow(holds | {head}, waiters - {head})
        return found

    return follow(frozenset(claims.keys() - above.keys()), frozenset(above))


# The queues, the waiter that joined last, and the circle that it closes.
TABLE = {
    "two runs": ("a: X <- X@b0 | b: X <- X@a0", "a<0", "a0 b<0 b0"),
    "three runs": ("a: X <- X@c0 | b: X <- X@a0 | c: X <- X@b0", "a<0", "a0 b<0 b0 c<0 c0"),
    "a slot that another run will free": ("a: 1/2 1/2 <- 1/2@b0 | b: X <- X@a1", "a<0", ""),
    "the same, the other one last": ("a: 1/2 1/2 <- 1/2@b0 | b: X <- X@a1", "b<0", ""),
    "no slot that another run will free": (
        "a: 1/2 1/2 <- 1/2@b0 | b: X <- X@a0 X@a1",
        "a<0",
        "a0 b<0 b0",
    ),
    "all slots wanted": ("a: 1/2 1/2 <- 2/2@b0 | b: X <- X@a1", "a<0", "a1 b<0 b0"),
    "all slots wanted by the waiter ahead": (
        "a: 1/2 1/2 <- 2/2 1/2@b0 | b: X <- X@a1",
        "a<1",
        "a1 b<0 b0",
    ),
    "fewer slots as long as a run lives that will end": (
        "a: 1/3 1/2 <- 1/3@b0 | b: X <- X@a0",
        "a<0",
        "",
    ),
    "the waiter ahead is exclusive": ("a: S <- X S@b0 | b: X <- X@a0", "a<1", "a0 b<0 b0"),
    "one of those that share": ("a: S S <- X@b0 | b: X <- X@a1", "a<0", "a1 b<0 b0"),
    "one of the nested names": ("a: IX IX <- X@b0 | b: X <- X@a1", "a<0", "a1 b<0 b0"),
    "a chain": ("a: X <- X@b0 | b: X <- X@c0 | c: X <- ", "b<0", ""),
    "behind a circle of others": ("a: X <- X@b0 X | b: X <- X@a0", "a<1", ""),
    "two circles": ("a: X <- X@b0 | b: X <- X@a0 S@c0 | c: X <- X@a0", "a<0", "a0 b<0 b0"),
}


@pytest.mark.parametrize("case", TABLE)
def test_circle_is_found_only_in_a_knot(case):
    text, last, circle = TABLE[case]
    holds, waits = make_graph(read(text))

    assert find_circle(waits[last], find_stuck(holds.values())) == circle.split()


HOLDS = [["X"], ["S", "S"], ["IX"], ["1/2", "1/2"], ["1/3", "1/2"], ["2/2"]]
SOME = [["X"], ["S", "S"], ["1/2", "1/2"]]
FEW = (SOME, ["X", "S", "1/2"], 1)
ONE_EACH = pytest.param(HOLDS, ["X", "S", "1/2", "1/3"], 1, marks=pytest.mark.full)
TWO_FOR_ONE = pytest.param(
    SOME, ["X", "S", "1/2", "2/2"], 2, marks=[pytest.mark.full, pytest.mark.rare]
)


@pytest.mark.parametrize("choices, wanted, count", [FEW, ONE_EACH, TWO_FOR_ONE])
def test_waiter_is_stuck_if_no_future_lets_it_acquire(choices, wanted, count):
    """Every small graph of two names; each waiter is below any hold, or none."""
    stuck_graphs = graphs = 0
    for first, second in product(choices, repeat=2):
        above = [
            "",
            *[f"a{at}" for at in range(len(first))],
            *[f"b{at}" for at in range(len(second))],
        ]
        waiters = list(product(wanted, above))
        for *ours, theirs in product(*[waiters] * count, waiters):
            queues = {"a": Queue(first, ours), "b": Queue(second, [theirs])}
            holds, waits = make_graph(queues)
            stuck = find_stuck(holds.values())
            left = {name for name, wait in waits.items() if find_in_the_way(wait, stuck)}
            assert left == waits.keys() - find_leaving(queues), vars(queues["a"]) | vars(
                queues["b"]
            )
            graphs += 1
            stuck_graphs += bool(left)
    assert 0 < stuck_graphs < graphs
