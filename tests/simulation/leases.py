"""solo's real lease, queue and engine of S3 or etcd in virtual time: `python -m simulation.leases
--engine etcd`.

Hosts have clocks that run at 0.9 to 1.1, the bound of the rule in engines/lease.py. A request is
late or lost, or takes effect after its sender gave up; a host is cut off for a while, a launcher is
stopped or killed. Checked: no two commands run at once, tokens grow, and no waiter is forgotten.

`--crowd WAITERS --latency SECONDS`: nothing of that, but a crowd that waits for one holder, which
only the rule itself, with which waiters yield, can cost its lease; `--rude` leaves that rule out.
The commands of the crowd take no time: whatever keeps the name idle shows.
"""

import argparse
import heapq
import json
import random
import sys
import time as real_time
import traceback
from binascii import a2b_base64
from types import SimpleNamespace

from greenlet import GreenletExit, getcurrent, greenlet

from simulation.faults import Fault
from simulation.modules import load_changed

NAMES = (
    "lease queue acquire engine json etcd s3.engine s3.objects s3.document s3.store".split()
)  # of solo.engines
HOSTS, TTLS, CROWDED_TTL = 3, (8.0, 15.0, 15.0), 15.0
EPOCH = 1e9
LATEST = 0.999  # of LATENCY: how late the kernel's timer kills
LONGEST_WAIT = 600.0  # virtual seconds in which some command begins
HELD, JOINING = (
    60.0,
    5.0,
)  # virtual seconds: of the command for which a crowd waits; within which its waiters start
POLL, REQUESTS = (
    1.5,
    10,
)  # virtual seconds, and requests, from one end to the next in a crowd: no more on average
ABSENT = {"create_revision": "0"}  # as etcd compares a key that is not there

# Known-bad variants, each of which is found.
# fmt: off
FOUND = [
    Fault("clocks trusted", "engines/lease.py", "RATE = 0.1", "RATE = 0.0", "s3 etcd"),
    Fault(
        "life without its margins", "engines/lease.py Terms.__init__",
        "ttl * (1 - RATE) - LATENCY", "ttl * (1 + RATE)", "s3 etcd",
    ),
    Fault("lease without its timer", "engines/lease.py Lease.start", "self.dead_man.arm(self.deadline)", "None", "s3 etcd"),
    Fault(
        "timer stays when not renewed", "engines/lease.py Lease.renew",
        "sent = read_boot_clock()", "sent = read_boot_clock(); self.dead_man.arm(sent + self.terms.life)", "s3",
    ),
    Fault(
        "entry dead by the store's clock", "engines/s3/engine.py S3.find_dead",
        "now - seen.get(stored.mark, now)", "self.store.read_clock() - stored.renewed", "s3",
    ),
    Fault(
        "entry dead too early", "engines/s3/engine.py S3.find_dead",
        "stored.proof", "stored.proof * (1 - 2 * RATE)", "s3",
    ),
    Fault("holder gone as early as a waiter", "engines/s3/document.py Stored.proof", "self.waits", "True", "s3"),
    Fault("holder says that it waits", "engines/s3/engine.py S3.make_renewal", "name not in self.entries", "True", "s3"),
    Fault(
        "renewal keeps what the place was", "engines/s3/engine.py S3.make_renewal",
        "name not in self.entries", "old.waits", "s3",
    ),
    Fault(
        "seen when it was written", "engines/s3/objects.py Objects.observe",
        "before.get(stored.mark, now)", "before.get(stored.mark, now - 5)", "s3",
    ),
    Fault(
        "mark without its renewals", "engines/s3/document.py Stored.mark",
        "(self.owner, self.number, self.renewals)", "(self.owner, self.number, 0)", "s3",
    ),
    Fault(
        "PUT without a condition", "engines/s3/objects.py Objects.expect",
        "{'If-Match': format_etag(etag, self.is_quoted)}",
        "{'If-Match': format_etag(etag, self.is_quoted)} if etag == WRONG else {}",
        "s3",
    ),
    Fault(
        "earlier entries ignored", "engines/queue.py find_obstacles",
        "[other.record.claim for other in earlier]", "[other.record.claim for other in earlier[:-1]]", "s3 etcd",
    ),
    Fault("token not raised", "engines/s3/engine.py S3.join", "document.counter + 1", "document.counter", "s3"),
    Fault(
        "lease believed longer than granted", "engines/etcd.py Etcd.grant",
        "float(answer['TTL'])", "float(answer['TTL']) + 2", "etcd",
    ),
    Fault(
        "renewal that reads no answer", "engines/etcd.py Etcd.renew",
        "answer = self.call('/v3/lease/keepalive', {'ID': self.lease}, is_leased=True)",
        "self.call('/v3/lease/keepalive', {'ID': self.lease}, is_leased=True)\nreturn None",
        "etcd",
    ),
    Fault("queue in order of keys", "engines/etcd.py Etcd.make_range", "'CREATE'", "'KEY'", "etcd"),
    Fault(
        "revoked lease used again", "engines/etcd.py Etcd.release",
        "lease = self.lease; self.lease = ''", "lease = self.lease", "etcd",
    ),
    Fault(
        "watch from now on", "engines/etcd.py Etcd.wait_change",
        "{**keys, 'start_revision': self.revision + 1}", "keys", "etcd",
    ),
    Fault(
        "confirmation dated late", "engines/queue.py Contender.confirm",
        "sent if self.engine.confirms else NEVER", "sent + self.engine.period", "etcd",
    ),
    Fault(
        "holder confirmed as a waiter", "engines/s3/engine.py",
        "keeps_outcomes = expires_leases = confirms = False", "keeps_outcomes = expires_leases = False", "s3",
    ),
    Fault(
        "lease confirmed by nothing", "engines/lease.py Lease.start",
        "self.engine.confirmed", "read_boot_clock()", "s3 etcd",
    ),
    Fault("queue of a join read again", "engines/etcd.py Etcd.read_queue", "self.joined.pop(name, None)", "self.joined.get(name)", "etcd"),
    Fault("renewal after its answer", "engines/lease.py Lease.renew", "self.renewed = sent", "self.renewed = read_boot_clock()", "s3 etcd"),
]
CROWDED = {  # as FOUND, but by the waiters of a crowd before which each leaves the name idle
    6: Fault(
        "waiter yields to itself", "engines/s3/engine.py S3.yields",
        "self.find_rank(name, document) == 1", "not document.queue", "s3",
    ),
    50: Fault("former place counts", "engines/s3/engine.py S3.yields", "min(first.ttl, self.ttl)", "first.ttl", "s3"),
}
RUDE = [  # nobody yields, or pauses for long after a refused PUT
    Fault("", "engines/s3/engine.py S3.yields", "period / 2 < age < ttl / 2", "False", "s3"),
    Fault("", "engines/s3/objects.py Objects.back_off", "min((BACKOFF + self.delay) * 2**attempt, longest)", "BACKOFF", "s3"),
]
# fmt: on

world = solo = None  # `solo`: its modules, by their last names


class Killed(GreenletExit):
    """The launcher has ended."""


class World:
    """`latency` is that of each request, in seconds; without it each is late or lost by chance."""

    def __init__(self, seed, latency=None):
        self.chance, self.now, self.events, self.count, self.hub = (
            random.Random(seed),
            0.0,
            [],
            0,
            getcurrent(),
        )
        self.server, self.running, self.violation = solo.Server(), {}, None
        self.token, self.commands, self.latest = 0, 0, 0.0
        self.level, self.peace = (
            self.chance.choice((0.0, 0.05, 0.3)),
            self.chance.choice((12.0, 12.0, 120.0)),
        )
        self.latency, self.refused, self.ended = latency, 0, []

    def at(self, when, event):
        self.count += 1
        heapq.heappush(self.events, (max(when, self.now), self.count, event))

    def after(self, seconds, event):
        self.at(self.now + seconds, event)

    def advance(self):
        self.now, _, event = heapq.heappop(self.events)
        event()

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
        self.after(0, make_waker(thread))


def make_waker(thread=None):
    """Return a function that resumes a thread, ours by default, from its next `suspend`, which
    returns its argument.
    """
    thread = getcurrent() if thread is None else thread  # one that has not begun is false
    run, turn = thread.run_of, thread.turn

    def wake(value=None):
        if thread.dead or thread.turn != turn or run.is_dead:
            return
        if run.host.stopped_until > world.now:
            world.at(run.host.stopped_until, lambda: wake(value))
            return
        thread.turn += 1
        thread.switch(value)

    return wake


def suspend(until):
    """Wait until somebody resumes this thread, or until then; return what it was resumed with."""
    run = getcurrent().run_of
    if run.is_dead:
        raise Killed
    world.at(until, make_waker())
    value = world.hub.switch()
    if run.is_dead:
        raise Killed
    return value


def read_clock():
    return getcurrent().run_of.host.read_clock()


def sleep(seconds):
    suspend(world.now + max(seconds, 0.0) / getcurrent().run_of.host.rate)


class Host:
    def __init__(self, number):
        chance = world.chance
        rate = chance.choice((0.9, 1.0, 1.1, chance.uniform(0.9, 1.1)))
        self.number, self.rate = number, rate if world.latency is None else 1.0
        self.offset, self.stopped_until, self.cut_off_until = chance.uniform(0, 1e6), 0.0, 0.0

    def read_clock(self):
        return world.now * self.rate + self.offset

    def find_time(self, clock):
        return (clock - self.offset) / self.rate


class Wire:
    """Carries requests to the server and its answers. Each is late or lost, whether or not the
    sender still waits; or the wire breaks.
    """

    def __init__(self):
        self.answers, self.wake = [], lambda: None

    def send(self, serve):
        """Have `serve` called at the server, with a function that sends an answer."""
        run, chance, level = getcurrent().run_of, world.chance, world.level
        if run.is_dead:
            raise Killed
        if run.host.cut_off_until > world.now:
            level = 0.95
        there, back = [
            chance.expovariate(1 / (5.0 if chance.random() < level else 0.02)) for _ in "12"
        ]
        is_lost, is_forgotten, breaks = [
            chance.random() < odds for odds in (level / 2, level / 2, 0.5)
        ]
        if world.latency is not None:
            there, back = [world.latency / 2 * chance.uniform(0.7, 1.5) for _ in "12"]
            is_lost = is_forgotten = False

        def answer(reply):
            if breaks or not is_forgotten:
                world.after(
                    back, lambda: self.arrive(ConnectionResetError() if is_forgotten else reply)
                )

        if not is_lost:
            world.after(there, lambda: serve(answer))

    def arrive(self, reply):
        self.answers.append(reply)
        self.wake()

    def receive(self, deadline):
        """Return the next answer. Raises TimeoutError at the deadline, by the host's clock;
        ConnectionResetError.
        """
        self.wake = make_waker()
        if not self.answers:
            suspend(max(getcurrent().run_of.host.find_time(deadline), world.now))
        reply = self.answers.pop(0) if self.answers else TimeoutError()
        if isinstance(reply, OSError):
            raise reply
        return reply


class Objects:
    """The server of S3."""

    def __init__(self):
        self.objects, self.etag = {}, 0

    def serve(self, method, key, headers, body):
        Reply = solo.store.Reply
        etag, text = self.objects.get(key, ("", None))
        known = headers.get("If-None-Match", "").strip('"')
        if method == "GET":
            if text is None:
                return Reply(404, "", b"", "NoSuchKey")
            return Reply(304, etag, b"") if known == etag else Reply(200, etag, text.encode())
        expected = headers.get("If-Match", etag).strip('"')
        if known and text is not None or expected != etag:
            world.refused += 1
            return Reply(412, "", b"", "PreconditionFailed")
        self.etag += 1
        self.objects[key] = (f"{self.etag:032x}", body)
        return Reply(200, self.objects[key][0], b"")


class Store:
    """A client of S3, in place of engines/s3/store.py."""

    netloc, root, connection = "store", "", None
    renew_keys = hang_up = lambda *_, **__: None

    def __init__(self, target, timeout):
        self.timeout, self.offset, self.target = timeout, world.chance.uniform(-30, 30), target

    def read_clock(self):
        return world.now + EPOCH + self.offset

    def refuse(self, reply, key):
        raise solo.errors.SoloError(f"{key}: {reply}")

    def ask(self, method, key, headers=None, body="", query=None, deadline=None):
        wire = Wire()
        wire.send(
            lambda answer: answer(
                (world.server.serve(method, key, headers or {}, body), int(world.now) + 0.5)
            )
        )
        try:
            reply, date = wire.receive(
                read_clock() + self.timeout if deadline is None else deadline
            )
        except OSError:
            raise solo.errors.Unreachable("no answer") from None
        if world.latency is not None:
            self.offset = date - world.now
        return reply


class Gateway:
    """The server of etcd: what its JSON gateway answers. Its clock is right, as the rule is about
    the rates of two clocks.
    """

    def __init__(self):
        self.keys, self.leases, self.watches = {}, {}, []  # the keys in order of creation
        self.history = [None]  # of each revision, from 1: (key, whether it was put)

    def serve(self, path, words, send):
        answer = lambda known: send(json.dumps(known).encode())
        if path == "/v3/watch":
            return self.watch(answer, **words["create_request"])
        try:
            answer(getattr(self, path[len("/v3/") :].replace("/", "_"))(**words))
        except KeyError:
            answer({"error": "requested lease not found", "code": solo.etcd.NOT_FOUND})

    def lease_grant(self, ID, TTL):
        if ID in self.leases:
            return {"error": "lease already exists", "code": solo.etcd.PRECONDITION}
        return self.refresh(ID, TTL)

    def lease_keepalive(self, ID):
        end, ttl = self.leases.get(ID, (0.0, 0))
        return {"result": self.refresh(ID, ttl) if end > world.now else {"ID": ID}}

    def refresh(self, lease, ttl):
        """Have a lease end after its ttl, and its keys up to a second later."""
        known = self.leases[lease] = world.now + ttl, ttl
        late = world.chance.choice((0.0, 1.0)) * world.chance.random()
        world.at(
            known[0] + late, lambda: self.leases.get(lease) is known and self.lease_revoke(lease)
        )
        return {"ID": lease, "TTL": str(ttl)}

    def lease_revoke(self, ID):
        del self.leases[ID]
        for key in [key for key, known in self.keys.items() if known["lease"] == ID]:
            self.kv_deleterange(key)
        return {}

    def kv_deleterange(self, key):
        if self.keys.pop(key, None):
            self.tell(key, False)
        return {}

    def kv_range(self, key, range_end="", sort_target="KEY", sort_order=None):
        found = [known for one, known in self.keys.items() if is_within(one, key, range_end)]
        if sort_target == "KEY":
            found.sort(key=lambda known: a2b_base64(known["key"]))
        return {"header": {"revision": str(len(self.history))}, "kvs": found}

    def kv_txn(self, compare, success, failure=()):
        is_met = all(
            self.keys.get(one["key"], ABSENT)["create_revision"] == one["create_revision"]
            for one in compare
        )
        responses = []
        for ((kind, words),) in (one.items() for one in (success if is_met else failure)):
            responses.append(
                {
                    "response_range": self.kv_range(**words)
                    if kind == "request_range"
                    else self.put(**words)
                }
            )
        return {
            "header": {"revision": str(len(self.history))},
            "succeeded": is_met,
            "responses": responses,
        }

    def put(self, key, value, lease):
        self.leases[lease]
        self.tell(key, True)
        known = self.keys.setdefault(key, {"key": key, "create_revision": str(len(self.history))})
        known.update(value=value, lease=lease)

    def tell(self, key, is_put):
        """Give a change its revision. Tell the watches, each of which ends with its first
        change.
        """
        self.history.append((key, is_put))
        self.watches = [watch for watch in self.watches if not watch(key, is_put)]

    def watch(self, answer, key, range_end="", start_revision=0, filters=()):
        def watch(changed, is_put):
            is_seen = is_within(changed, key, range_end) and not (is_put and "NOPUT" in filters)
            return is_seen and (answer({"result": {"events": [{}]}}) or True)

        answer({"result": {"created": True}})
        if not any(
            watch(*change)
            for change in self.history[(start_revision or len(self.history) + 1) - 1 :]
        ):
            self.watches.append(watch)


def is_within(key, first, end):
    """Return whether a key is in a range, which is only `first` if there is no end. All are in
    base64.
    """
    key, first, end = map(a2b_base64, (key, first, end))
    return first <= key < (end or first + b"\0")


class Link(Wire):
    """A connection to the gateway, its socket, and each of its answers."""

    status, headers, is_open = 200, {}, True
    sock = property(lambda self: self)
    close = getresponse = lambda self: self

    def request(self, method, path, body, headers):
        self.send(lambda send: world.server.serve(path, json.loads(body), send))

    def read(self, limit):
        return self.receive(self.deadline)

    readline = read


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

    def release(self, *_):
        self.depth -= 1

    __enter__, __exit__ = acquire, release


class StopEvent:
    is_stopped = wake = None

    def send(self):
        self.is_stopped = True
        if self.wake:
            world.after(0, self.wake)

    def wait(self, seconds):
        self.wake = make_waker()
        if not self.is_stopped:
            sleep(min(seconds, 1e6))
        self.wake = None
        return self.is_stopped


class DeadMan:
    """The timer of the kernel: it kills a launcher that is stopped, too."""

    is_armed = is_over = False
    turn = 0

    def arm(self, at):
        if self.is_over:
            return
        self.is_armed, self.turn = True, self.turn + 1
        run, turn = getcurrent().run_of, self.turn
        late = world.chance.uniform(0, solo.lease.LATENCY) * LATEST / run.host.rate
        world.at(
            run.host.find_time(at), lambda: self.turn != turn or self.is_over or run.kill(late)
        )

    def disarm(self):
        self.is_over = True


class Run:
    """One launcher on a host, and its command; another one follows, unless it is of a crowd: then
    its command takes `length` seconds.
    """

    def __init__(self, host, length=None):
        self.host, self.is_dead, self.threads, self.wake, self.length = (
            host,
            False,
            [],
            None,
            length,
        )
        world.spawn(self, self.live)
        if length is None and world.chance.random() < 0.15:
            world.after(world.chance.uniform(0, 90), self.kill)

    def kill(self, late=0.0):
        if not self.is_dead:
            for thread in self.threads:
                world.after(0, lambda thread=thread: thread.dead or thread.throw(Killed))
            world.after(
                late, lambda: world.running.pop(self, None)
            )  # the command dies with its launcher
            self.end(late)

    def end(self, late=0.0):
        self.is_dead = True
        if self.length is None:
            world.after(late + world.chance.uniform(0, 20), lambda: Run(self.host))

    def live(self):
        hold = make_hold(self.host)
        hold.acquire_and_renew(solo.queue.Wait(float("inf"), watch, float("inf")), None)
        try:
            hold.complete((self.host.number, 1))
        except solo.errors.SoloError:
            return self.kill()
        self.run_command(hold.lease, hold.entries["job"].number)
        try:
            hold.lease.end()
        except (solo.errors.SoloError, solo.engine.Gone):
            pass
        self.end()

    def run_command(self, lease, token):
        others = [other.host.number for other in world.running]
        if others or token <= world.token:
            found = (
                f"host {self.host.number} runs beside {others}, token {token} after {world.token}"
            )
            world.violation = world.violation or found
        world.token, world.running[self], world.commands, world.latest = (
            token,
            True,
            world.commands + 1,
            world.now,
        )
        lease.begin(self.host.number)
        length = (
            world.chance.choice((0.1, 5, 60)) * world.chance.random()
            if self.length is None
            else self.length
        )
        done, loss = read_clock() + length, None
        while read_clock() < done and lease.find_life() > 0 and not lease.lost:
            loss = loss or lease.find_loss()
            if loss and self.length is not None:
                break
            self.wake = make_waker()
            sleep(
                min(
                    done - read_clock(),
                    lease.find_life() if loss else max(lease.find_left(), 0.001),
                )
            )
        world.running.pop(self)
        world.ended.append((world.now, loss))


def watch(block, look_again, describe, in_one_go=False):
    return block(look_again)


def make_hold(host):
    """Return an EngineHold of the name `job`, as of a plan with --via and --wait."""
    terms = solo.lease.Terms(world.chance.choice(TTLS) if world.latency is None else CROWDED_TTL)
    hold, claim = (
        solo.acquire.EngineHold.__new__(solo.acquire.EngineHold),
        solo.modes.Claim(solo.modes.EXCLUSIVE),
    )
    origin = solo.identity.Origin("b", "p", "t", f"h{host.number}")
    hold.wanted = solo.record.Record((host.number, 1), origin, 0, claim, ["job"], [b"job"])
    hold.claims, hold.entries, hold.caught = [("job", claim)], {}, []
    target = SimpleNamespace(shown="engine", path="", hosts=["one"], settings={}, scheme="")
    hold.engine = solo.Engine(target, terms.ttl, terms.timeout)
    hold.lease = solo.lease.Lease(hold.engine, terms)
    return hold


def load(engine, faults):
    """Import solo's engines with `faults`; replace their clocks, threads and connections."""
    global solo
    modules = load_changed(
        [*(f"engines.{name}" for name in NAMES), "errors", "record", "modes", "identity"], faults
    )
    solo = SimpleNamespace(
        **{one.__name__.replace("s3.engine", "s3").rpartition(".")[2]: one for one in modules}
    )
    times = {
        "monotonic": read_clock,
        "read_boot_clock": read_clock,
        "sleep": sleep,
        "time": lambda: world.now + EPOCH,
    }
    times["pick_between"] = lambda low, high: world.chance.uniform(low, high)
    for module in modules[: len(NAMES)]:
        vars(module).update({word: call for word, call in times.items() if hasattr(module, word)})
    lease, acquire, objects = solo.lease, solo.acquire, solo.objects
    lease.RLock, lease.allocate_lock, lease.StopEvent, lease.DeadMan = (
        Lock,
        lambda: Lock(False),
        StopEvent,
        DeadMan,
    )
    lease.start_new_thread = lambda call, words: world.spawn(
        getcurrent().run_of, lambda: call(*words)
    )
    lease.Lease.wake_launcher = lambda self: (
        (wake := getcurrent().run_of.wake) and world.after(0, wake)
    )
    objects.Store, solo.etcd.Etcd.open = Store, lambda self, deadline: Link()
    urandom = lambda size: world.chance.getrandbits(8 * size).to_bytes(size, "little")
    objects.posix = solo.etcd.posix = SimpleNamespace(urandom=urandom)
    acquire.LastCall = lambda *words: SimpleNamespace(close=lambda: None)
    acquire.say_promptly = solo.s3.say_promptly = lambda text: None
    solo.Engine, solo.Server = {"s3": (solo.s3.S3, Objects), "etcd": (solo.etcd.Etcd, Gateway)}[
        engine
    ]


def trouble(hosts):
    """Stop a host's launchers, or cut a host off; the timers of a stopped one still fire."""
    host, chance = world.chance.choice(hosts), world.chance
    if chance.random() < 0.5:
        host.stopped_until = world.now + chance.choice((1, 10, 40)) * chance.random()
    else:
        host.cut_off_until = world.now + chance.choice((5, 20, 60)) * chance.random()
    world.after(chance.expovariate(1 / world.peace), lambda: trouble(hosts))


def live_through(seed, hours):
    """Run a world from a seed. Return it."""
    global world
    world = World(seed)
    hosts = [Host(number) for number in range(HOSTS)]
    for host in hosts:
        Run(host)
    trouble(hosts)
    while world.now < hours * 3600 and world.violation is None:
        world.advance()
        if world.now - world.latest > LONGEST_WAIT:
            world.violation = world.violation or f"no command has begun since {world.latest:.3f} s"
    return world


def gather(count, latency, seed):
    """Let a crowd of commands that take no time wait. Return whether the holder lost its lease, or
    the name was idle.
    """
    global world
    world, refused = World(seed, latency), 0
    for host in [Host(number) for number in range(count + 1)]:
        start, length = (world.chance.uniform(0, JOINING) + 1, 0.0) if host.number else (0.0, HELD)
        world.at(start, lambda host=host, length=length: Run(host, length))
    while len(world.ended) <= count and world.violation is None:
        refused = refused if world.ended else world.refused
        world.advance()
    assert world.violation is None, world.violation
    (end, loss), *_, (last, _) = world.ended
    loses, per_second, turn = loss or "kept its lease", refused / end, (last - end) / count
    print(f"holder: {loses}; {per_second:.1f} PUT/s refused; then one ended each {turn:.1f} s")
    return loss is not None or turn > POLL + REQUESTS * latency


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("s3", "etcd"), default="s3")
    parser.add_argument("--hours", type=float, default=1.0, help="virtual hours, a world each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant")
    parser.add_argument("--crowd", type=int)
    parser.add_argument("--latency", type=float)
    parser.add_argument("--rude", action="store_true")
    options = parser.parse_args()
    faults = [fault for fault in (*FOUND, *CROWDED.values()) if fault.name == options.mutant]
    load(options.engine, RUDE if options.rude else faults)
    if options.crowd:
        sys.exit(gather(options.crowd, options.latency, options.seed))
    begin, hours, commands, seed = real_time.process_time(), 0.0, 0, options.seed
    while hours < options.hours:
        lived = live_through(seed, min(1.0, options.hours))
        hours, commands, seed = hours + lived.now / 3600, commands + lived.commands, seed + 1
        if lived.violation:
            replay = f"python -m simulation.leases --engine {options.engine} --seed {seed - 1}"
            print(f"{lived.violation}, after {lived.now:.3f} s\nreplay: {replay}")
            break
    seconds, is_broken = real_time.process_time() - begin, bool(lived.violation)
    lived = f"{hours:.1f} virtual hours, {commands} commands, {seconds:.1f} CPU s"
    print(f"{options.engine}: {lived}, {int(is_broken)} broken")
    sys.exit(is_broken)


if __name__ == "__main__":
    main()
