"""solo's real lease, queue and S3 engine in virtual time: `python -m simulation.leases`.

Hosts have clocks that run at 0.9 to 1.1, the bound of the rule in engines/lease.py. A request is late or lost, or takes effect after its sender
gave up; a host is cut off for a while, a launcher is stopped or killed. Checked: no two commands run at once, and tokens grow.
"""

import argparse
import heapq
import importlib
import random
import sys
import time as real_time
import traceback
from types import SimpleNamespace

from greenlet import GreenletExit, getcurrent, greenlet

from simulation.modules import Loader

TTLS = (8.0, 15.0, 15.0)
HOSTS = 3
EPOCH = 1e9
LATEST = 0.999  # of LATENCY: how late the kernel's timer kills

# (name, file, text, other text): known-bad variants, each of which is found
FOUND = [
    ("clocks trusted", "engines/lease.py", "RATE = 0.1 ", "RATE = 0.0 "),
    ("life without its margins", "engines/lease.py", "self.life = ttl * (1 - RATE) - LATENCY", "self.life = ttl * (1 + RATE)"),
    ("lease without its timer", "engines/lease.py", "        self.check_start()\n        self.dead_man.arm(self.deadline)", "        self.check_start()"),
    ("timer stays when not renewed", "engines/lease.py", "            sent = read_boot_clock()\n            asked = self.engine.renew()\n", "            sent = read_boot_clock()\n            self.dead_man.arm(sent + self.terms.life)\n            asked = self.engine.renew()\n"),
    ("entry dead by the store's clock", "engines/s3/engine.py", "stored.owner != self.owner and now - seen.get(stored.mark, now) > stored.ttl * (1 + RATE)", "stored.owner != self.owner and self.store.read_clock() - stored.renewed > stored.ttl * (1 + RATE)"),
    ("entry dead too early", "engines/s3/engine.py", "now - seen.get(stored.mark, now) > stored.ttl * (1 + RATE)", "now - seen.get(stored.mark, now) > stored.ttl * (1 - 2 * RATE)"),
    ("seen when it was written", "engines/s3/objects.py", "before.get(stored.mark, now) for", "before.get(stored.mark, now - 5) for"),
    ("mark without its renewals", "engines/s3/document.py", "return self.owner, self.number, self.renewals", "return self.owner, self.number, 0"),
    ("PUT without a condition", "engines/s3/objects.py", "        return {\"If-Match\": format_etag(etag, self.is_quoted)}", "        return {\"If-Match\": format_etag(etag, self.is_quoted)} if etag == WRONG else {}"),
    ("earlier entries ignored", "engines/queue.py", "find_conflicts(claim, [other.record.claim for other in earlier])", "find_conflicts(claim, [other.record.claim for other in earlier[:-1]])"),
    ("token not raised", "engines/s3/engine.py", "number = document.counter + 1", "number = document.counter"),
]  # fmt: skip

world = None


class Killed(GreenletExit):
    """The launcher has ended."""


class Host:
    def __init__(self, number):
        chance = world.chance
        self.number, self.rate = number, chance.choice((0.9, 1.0, 1.1, chance.uniform(0.9, 1.1)))
        self.offset, self.stopped_until, self.cut_off_until = chance.uniform(0, 1e6), 0.0, 0.0

    def read_clock(self):
        return world.now * self.rate + self.offset

    def find_time(self, clock):
        return (clock - self.offset) / self.rate


class World:
    def __init__(self, seed):
        self.chance, self.now, self.events, self.count, self.hub = random.Random(seed), 0.0, [], 0, getcurrent()
        self.objects, self.etag, self.running, self.violation, self.token, self.commands = {}, 0, {}, None, 0, 0
        self.level = self.chance.choice((0.0, 0.05, 0.3))

    def at(self, when, event):
        self.count += 1
        heapq.heappush(self.events, (max(when, self.now), self.count, event))

    def spawn(self, run, main):
        """Start a thread of a run."""

        def body(*_):
            try:
                main()
            except Killed:
                pass
            except Exception:
                self.violation = self.violation or traceback.format_exc()

        thread = greenlet(body, self.hub)
        thread.run_of, thread.turn = run, 0
        run.threads.append(thread)
        self.at(self.now, lambda: self.resume(thread, 0))

    def resume(self, thread, turn, value=None):
        run = thread.run_of
        if thread.dead or thread.turn != turn or run.is_dead:
            return
        if run.host.stopped_until > self.now:
            self.at(run.host.stopped_until, lambda: self.resume(thread, turn, value))
            return
        thread.turn += 1
        thread.switch(value)


def suspend(until=None):
    """Wait until somebody resumes this thread, or until then; return what it was resumed with."""
    thread = getcurrent()
    if thread.run_of.is_dead:
        raise Killed
    turn = thread.turn
    if until is not None:
        world.at(until, lambda: world.resume(thread, turn))
    value = world.hub.switch()
    if thread.run_of.is_dead:
        raise Killed
    return value


def read_clock():
    return getcurrent().run_of.host.read_clock()


def sleep(seconds):
    suspend(world.now + max(seconds, 0.0) / getcurrent().run_of.host.rate)


class Store:
    """Answers as S3 does, but late, never, or after its client gave up."""

    netloc, root, connection = "store", "", None

    def __init__(self, target, timeout):
        self.timeout, self.offset, self.target = timeout, world.chance.uniform(-30, 30), target

    def read_clock(self):
        return world.now + EPOCH + self.offset

    def renew_keys(self, is_refused=False):
        pass

    def hang_up(self):
        pass

    def refuse(self, reply, key):
        raise real("errors").SoloError(f"{key}: {reply}")

    def ask(self, method, key, headers=None, body="", query=None, deadline=None):
        thread, chance = getcurrent(), world.chance
        host, turn = thread.run_of.host, thread.turn
        end = host.find_time(read_clock() + self.timeout if deadline is None else deadline)
        level = 0.95 if host.cut_off_until > world.now else world.level
        there, back = [chance.expovariate(1 / (5.0 if chance.random() < level else 0.02)) for _ in "12"]
        is_lost, is_forgotten = chance.random() < level / 2, chance.random() < level / 2

        def take_effect():
            reply = self.serve(method, key, headers or {}, body)
            if world.now + back < end and not is_forgotten:
                world.at(world.now + back, lambda: world.resume(thread, turn, reply))

        if not is_lost:
            world.at(world.now + there, take_effect)
        reply = suspend(max(end, world.now))
        if reply is None:
            raise real("errors").Unreachable("no answer")
        return reply

    def serve(self, method, key, headers, body):
        Reply = real("engines.s3.store").Reply
        etag, text = world.objects.get(key, ("", None))
        known = headers.get("If-None-Match", "").strip('"')
        if method == "GET":
            if text is None:
                return Reply(404, "", b"", "NoSuchKey")
            return Reply(304, etag, b"") if known == etag else Reply(200, etag, text.encode())
        expected = headers.get("If-Match", etag).strip('"')
        if known and text is not None or expected != etag:
            return Reply(412, "", b"", "PreconditionFailed")
        world.etag += 1
        world.objects[key] = (f"{world.etag:032x}", body)
        return Reply(200, world.objects[key][0], b"")


class Lock:
    """A lock of threads; `is_reentrant` as RLock."""

    def __init__(self, is_reentrant=True):
        self.owner, self.depth, self.is_reentrant = None, 0, is_reentrant

    def acquire(self, blocking=True, timeout=-1):
        end = read_clock() + timeout if timeout >= 0 else None
        while self.depth and not (self.is_reentrant and self.owner in (None, getcurrent())):
            if end is not None and read_clock() >= end:
                return False
            sleep(0.05)
        self.owner, self.depth = getcurrent(), self.depth + 1
        return True

    def release(self):
        self.depth -= 1

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class StopEvent:
    def __init__(self):
        self.is_stopped, self.waiting = False, None

    def send(self):
        self.is_stopped = True
        if self.waiting:
            thread, turn = self.waiting
            world.at(world.now, lambda: world.resume(thread, turn))

    def wait(self, seconds):
        self.waiting = getcurrent(), getcurrent().turn
        if not self.is_stopped:
            sleep(min(seconds, 1e6))
        self.waiting = None
        return self.is_stopped


class DeadMan:
    """The timer of the kernel: it kills a launcher that is stopped, too."""

    def __init__(self):
        self.is_armed, self.is_over, self.turn = False, False, 0

    def arm(self, at):
        if self.is_over:
            return
        self.is_armed, self.turn = True, self.turn + 1
        run, turn = getcurrent().run_of, self.turn
        late = world.chance.uniform(0, real("engines.lease").LATENCY) * LATEST / run.host.rate

        def fire():
            if self.turn == turn and not self.is_over:
                run.kill(late)

        world.at(run.host.find_time(at), fire)

    def disarm(self):
        self.is_over = True


class Run:
    """One launcher on a host, and its command."""

    def __init__(self, host):
        self.host, self.is_dead, self.threads, self.sleeping = host, False, [], None
        world.spawn(self, self.live)
        if world.chance.random() < 0.15:
            world.at(world.now + world.chance.uniform(0, 90), self.kill)

    def kill(self, late=0.0):
        if not self.is_dead:
            self.is_dead = True
            for thread in self.threads:
                world.at(world.now, lambda thread=thread: thread.dead or thread.throw(Killed))
            world.at(world.now + late, lambda: world.running.pop(self, None))  # the command dies with its launcher
            self.begin_next(late)

    def begin_next(self, late=0.0):
        world.at(world.now + late + world.chance.uniform(0, 20), lambda: Run(self.host))

    def live(self):
        hold = make_hold(self.host)
        hold.acquire_and_renew(real("engines.queue").Wait(float("inf"), watch, float("inf")), None)
        try:
            hold.complete((self.host.number, 1))
        except real("errors").SoloError:
            return self.kill()
        self.run_command(hold.lease, hold.entries["job"].number)
        try:
            hold.lease.end()
        except (real("errors").SoloError, real("engines.engine").Gone):
            pass
        self.is_dead = True
        self.begin_next()

    def run_command(self, lease, token):
        others = [other.host.number for other in world.running]
        if others or token <= world.token:
            world.violation = (
                world.violation or f"host {self.host.number} runs beside {others}, token {token} after {world.token}"
            )
        world.token, world.running[self], world.commands = token, True, world.commands + 1
        lease.begin(self.host.number)
        done, is_asked = read_clock() + world.chance.choice((0.1, 5, 60)) * world.chance.random(), False
        while read_clock() < done and lease.find_life() > 0 and not lease.lost:
            is_asked = is_asked or bool(lease.find_loss())
            self.sleeping = getcurrent(), getcurrent().turn
            left = lease.find_life() if is_asked else max(lease.find_left(), 0.001)
            sleep(min(done - read_clock(), left))
        world.running.pop(self)

    def wake(self):
        if self.sleeping:
            thread, turn = self.sleeping
            world.at(world.now, lambda: world.resume(thread, turn))


def real(name):
    """Return a module of solo."""
    return importlib.import_module(f"solo.{name}")


def watch(block, look_again, describe, in_one_go=False):
    return block(look_again)


def make_hold(host):
    """Return an EngineHold of the name `job`, as of a plan with --via s3:// and --wait."""
    acquire, lease, record, modes = (real(name) for name in ("engines.acquire", "engines.lease", "record", "modes"))
    terms = lease.Terms(world.chance.choice(TTLS))
    hold, claim = acquire.EngineHold.__new__(acquire.EngineHold), modes.Claim(modes.EXCLUSIVE)
    hold.wanted = record.Record(
        (host.number, 1), real("identity").Origin("b", "p", "t", f"h{host.number}"), 0, claim, ["job"], [b"job"]
    )
    hold.claims, hold.entries, hold.caught = [("job", claim)], {}, []
    hold.engine = real("engines.s3.engine").S3(SimpleNamespace(shown="s3://b", path=""), terms.ttl, terms.timeout)
    hold.lease = lease.Lease(hold.engine, terms)
    return hold


def load(changes):
    """Import solo's engines with changes of their texts; replace their clocks, threads and the store."""
    loader = Loader(changes)
    sys.meta_path.insert(0, loader)
    names = ["lease", "queue", "acquire", "engine", "s3.engine", "s3.objects", "s3.document"]
    times = {"monotonic": read_clock, "read_boot_clock": read_clock, "sleep": sleep, "time": lambda: world.now + EPOCH}
    times["pick_between"] = lambda low, high: world.chance.uniform(low, high)
    for module in [real(f"engines.{name}") for name in names]:
        for word, call in times.items():
            if hasattr(module, word):
                setattr(module, word, call)
    lease, acquire, objects = real("engines.lease"), real("engines.acquire"), real("engines.s3.objects")
    lease.RLock, lease.allocate_lock, lease.StopEvent, lease.DeadMan = Lock, lambda: Lock(False), StopEvent, DeadMan
    lease.start_new_thread = lambda call, words: world.spawn(getcurrent().run_of, lambda: call(*words))
    lease.Lease.wake_launcher = lambda self: getcurrent().run_of.wake()
    objects.Store = Store
    objects.posix = SimpleNamespace(urandom=lambda size: world.chance.getrandbits(8 * size).to_bytes(size, "little"))
    acquire.LastCall = lambda *words: SimpleNamespace(close=lambda: None)
    acquire.say_promptly = real("engines.s3.engine").say_promptly = lambda text: None
    assert set(changes) <= loader.changed


def trouble(hosts):
    """Stop a host's launchers, or cut a host off; the timers of a stopped one still fire."""
    host, chance = world.chance.choice(hosts), world.chance
    if chance.random() < 0.5:
        host.stopped_until = world.now + chance.choice((1, 10, 40)) * chance.random()
    else:
        host.cut_off_until = world.now + chance.choice((5, 20, 60)) * chance.random()
    world.at(world.now + chance.expovariate(1 / 60), lambda: trouble(hosts))


def live_through(seed, hours):
    """Run a world from a seed. Return it."""
    global world
    world = World(seed)
    hosts = [Host(number) for number in range(HOSTS)]
    for host in hosts:
        Run(host)
    trouble(hosts)
    while world.now < hours * 3600 and world.violation is None:
        world.now, _, event = heapq.heappop(world.events)
        event()
    return world


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="virtual hours, a world each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant")
    options = parser.parse_args()
    row = next((row for row in FOUND if row[0] == options.mutant), None)
    load({row[1]: [row[2:4]]} if row else {})
    begin, hours, commands, seed = real_time.process_time(), 0.0, 0, options.seed
    while hours < options.hours:
        lived = live_through(seed, min(1.0, options.hours))
        hours, commands, seed = hours + lived.now / 3600, commands + lived.commands, seed + 1
        if lived.violation:
            print(f"{lived.violation}, after {lived.now:.3f} s\nreplay: python -m simulation.leases --seed {seed - 1}")
            break
    print(
        f"s3: {hours:.1f} virtual hours, {commands} commands, {real_time.process_time() - begin:.1f} CPU s, {int(bool(lived.violation))} broken"
    )
    sys.exit(bool(lived.violation))


if __name__ == "__main__":
    main()
