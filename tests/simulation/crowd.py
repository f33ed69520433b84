"""A crowd of waiters at S3 in virtual time: `python -m simulation.crowd WAITERS SECONDS-PER-REQUEST [rude]`.

No request is lost, and no clock is wrong but by the seconds of a Date. So only the rule itself, with which waiters yield, can cost the
holder its lease.
"""

import heapq
import sys

from simulation import leases
from simulation.leases import Host, World, getcurrent, read_clock, real, sleep, suspend

HELD, JOINING = 60.0, 5.0  # virtual seconds: of the holder's command; within which the waiters start

RUDE = {  # nobody yields, or pauses for long after a refused PUT
    "engines/s3/engine.py": [("if period / 2 < age < first.ttl / 2", "if False")],
    "engines/s3/objects.py": [("min((BACKOFF + self.delay) * 2**attempt, longest)", "BACKOFF")],
}


class Store(leases.Store):
    def ask(self, method, key, headers=None, body="", query=None, deadline=None):
        thread, turn, world = getcurrent(), getcurrent().turn, leases.world
        end = thread.run_of.host.find_time(read_clock() + self.timeout if deadline is None else deadline)
        there, back = [world.latency / 2 * world.chance.uniform(0.7, 1.5) for _ in "12"]

        def take_effect():
            reply, date = self.serve(method, key, headers or {}, body), int(world.now) + 0.5
            world.refused += reply.status == 412

            def arrive():
                self.offset = date - world.now
                world.resume(thread, turn, reply)

            world.at(world.now + back, arrive)

        world.at(world.now + there, take_effect)
        reply = suspend(max(end, world.now))
        if reply is None:
            raise real("errors").Unreachable("timed out")
        return reply


class Run(leases.Run):
    """A launcher whose command runs for `length` seconds, once."""

    def __init__(self, host, length):
        self.host, self.length, self.is_dead, self.threads, self.sleeping = host, length, False, [], None
        leases.world.spawn(self, self.live)

    def begin_next(self, late=0.0):
        pass

    def run_command(self, lease, token):
        world = leases.world
        lease.begin(self.host.number)
        done = read_clock() + self.length
        while read_clock() < done and not lease.find_loss():
            self.sleeping = getcurrent(), getcurrent().turn
            sleep(min(done - read_clock(), max(lease.find_left(), 0.001)))
        world.ended.append((world.now, lease.find_loss() if read_clock() < done else None))


def gather(count, latency, seed=1):
    """Return (why the holder lost its lease or None, refused PUTs per second while it held, seconds to the next end)."""
    world = leases.world = World(seed)
    world.latency, world.refused, world.ended = latency, 0, []
    hosts = [Host(number) for number in range(count + 1)]
    for host in hosts:
        host.rate = 1.0
        start = world.chance.uniform(0, JOINING) + 1 if host.number else 0.0
        world.at(start, lambda host=host: Run(host, 0.0 if host.number else HELD))
    refused = 0
    while len(world.ended) < 2 and world.violation is None:
        world.now, _, event = heapq.heappop(world.events)
        refused = refused if world.ended else world.refused
        event()
    assert world.violation is None, world.violation
    (end, loss), (after, _) = world.ended
    return loss, refused / end, after - end


if __name__ == "__main__":
    leases.load(RUDE if sys.argv[3:] == ["rude"] else {})
    leases.TTLS = (15.0,)
    real("engines.s3.objects").Store = Store
    loss, refused, seconds = gather(int(sys.argv[1]), float(sys.argv[2]))
    print(f"holder: {loss or 'kept its lease'}; {refused:.1f} PUT/s refused; the next one ended after {seconds:.1f} s")
    sys.exit(loss is not None)
