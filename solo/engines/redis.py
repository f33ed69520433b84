"""Redis, by resp.py: the library of Redis would repeat requests by itself. Best effort, as Redis
itself.

The queue of NAME is a hash, `solo:{NAME}`, with a field OWNER: `NUMBER RECORD` per entry. An entry
lives as long as its key `solo:{NAME}:OWNER`, which expires after the ttl; another contender writes
there that the owner should end. `solo:{NAME}:fence` has the last number, for a week;
`solo:{NAME}:once` the last period; `solo:{NAME}:log` the last outcomes, sorted by number. All
changes are scripts, thus atomic. Renewing needs no memory, as the server may have none left.
"""

import posix
from time import monotonic, sleep, time

from solo.engines import network
from solo.engines.engine import (
    OUTCOMES_KEPT,
    Entry,
    EntryRecord,
    Gone,
    Renewal,
    describe_skew,
    make_renewal,
    parse_entry_record,
    pick_between,
)
from solo.engines.queue import Engine, sort_queues
from solo.engines.resp import Connection, Refused
from solo.errors import SoloError, Unreachable, UsageError
from solo.kernel import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

POLL = (0.05, 0.15)  # seconds; random, so that waiters do not all ask at once
CLUSTER = ("MOVED ", "ASK ", "CROSSSLOT ", "CLUSTERDOWN ")
SINGLE = (
    "; solo needs one server that accepts writes, and no Sentinel or Cluster"
    " (name the master's address, or a proxy that follows it, or use another engine)"
)
KEYS_AT_ONCE = 1000  # keys that one SCAN looks at

# KEYS: the queue, our key, the fence. ARGV: owner, ttl, record. A number is the server's time in
# microseconds, or one more than the last number: so a server that forgot it, or was restored from a
# backup, does not repeat it.
JOIN = """
if redis.call('exists', KEYS[2]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    local now = redis.call('time')
    local number = now[1] .. string.format('%06d', now[2])
    if tonumber(number) > tonumber(redis.call('get', KEYS[3]) or 0) then
        redis.call('set', KEYS[3], number, 'ex', 7 * 24 * 3600)
    else
        redis.call('incr', KEYS[3])
    end
    redis.call('hset', KEYS[1], ARGV[1], redis.call('get', KEYS[3]) .. ' ' .. ARGV[3])
    redis.call('set', KEYS[2], '', 'px', ARGV[2])
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
end
"""
# KEYS: a queue and our key, for each name. ARGV: owner, ttl. Returns the contender that asks us to
# end, "" for none, or false if we lost an entry.
RENEW = """
local asker = ''
for at = 1, #KEYS, 2 do
    if redis.call('hexists', KEYS[at], ARGV[1]) == 0 or redis.call('pexpire', KEYS[at + 1], ARGV[2]) == 0 then return false end
    if redis.call('pttl', KEYS[at]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[at], ARGV[2]) end
    if asker == '' then asker = redis.call('get', KEYS[at + 1]) end
end
return asker
"""
LEAVE = """
for at = 1, #KEYS, 2 do
    redis.call('hdel', KEYS[at], ARGV[1])
    redis.call('del', KEYS[at + 1])
end
"""
# KEYS: queues. ARGV: one owner, or nothing for all. Returns {queue, owner, value} of live entries,
# removes dead ones.
READ = """
local found = {}
for _, queue in ipairs(KEYS) do
    local fields = {}
    if redis.call('type', queue).ok == 'hash' then
        fields = ARGV[1] and {ARGV[1], redis.call('hget', queue, ARGV[1])} or redis.call('hgetall', queue)
    end
    for at = 1, #fields, 2 do
        if fields[at + 1] and redis.call('exists', queue .. ':' .. fields[at]) == 1 then
            found[#found + 1] = {queue, fields[at], fields[at + 1]}
        else
            redis.call('hdel', queue, fields[at])
        end
    end
end
return found
"""
# KEYS: the queue, our key. ARGV: owner, value. Returns 0 if we lost the entry.
REWRITE = """
if redis.call('exists', KEYS[2]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
return 1
"""
# KEYS: an owner's key. ARGV: the asker. APPEND keeps the key's ttl, which SET would remove.
ASK = "if redis.call('get', KEYS[1]) == '' then redis.call('append', KEYS[1], ARGV[1]) end"
# KEYS: the period's. ARGV: the text as read, the text to write, "" for none. Returns 0 if it was
# changed meanwhile.
ONCE = """
local now = redis.call('get', KEYS[1]) or ''
if now ~= ARGV[1] and now ~= ARGV[2] then return 0 end
if ARGV[2] == '' then redis.call('del', KEYS[1]) else redis.call('set', KEYS[1], ARGV[2]) end
return 1
"""
# KEYS: the outcomes. ARGV: the number, the text, the last rank to remove.
LOG = """
redis.call('zadd', KEYS[1], ARGV[1], ARGV[2])
redis.call('zremrangebyrank', KEYS[1], 0, ARGV[3])
"""


class Redis(Engine):
    caveat = (
        "Redis is best effort: after a restart, a failover or a step of its clock two may "
        "run; SOLO_TOKEN tells them apart"
    )

    def __init__(self, target: "network.Target", ttl: float, timeout: float):
        if len(target.hosts) > 1:
            raise UsageError(f"--via {target.shown}: Redis is one host{SINGLE}")
        if not (target.path or "0").isdecimal():
            raise UsageError(
                f"--via {target.shown}: Redis selects a database by number (like redis://host/0)"
            )
        self.target = target
        self.where = target.shown
        self.milliseconds = max(1, round(ttl * 1000))
        self.ttl = self.milliseconds / 1000
        tls = network.make_tls(target) if target.scheme == "rediss" else None
        self.client = self.connection = Connection(target, tls, timeout)
        self.is_open = False  # whether its last call was answered
        self.owner = make_owner()
        self.info: dict[str, str] = {}
        self.joined: list[str] = []  # names with our entry in their queue
        self.entries = {}  # our held entries by name
        self.seen: list[list[bytes]] = []  # the queue as it was last read

    def connect(self) -> None:
        try:
            settings = self.call("INFO").decode(errors="replace").splitlines()
            self.info = dict(setting.split(":", 1) for setting in settings if ":" in setting)
        except SoloError as error:
            if ": NOPERM" not in str(error):
                raise
        kind = self.info.get("redis_mode", "standalone")
        if kind != "standalone":
            raise SoloError(f"{self.where}: is a {kind}{SINGLE}")
        if self.info.get("role") == "slave":
            self.connection.dial_again()
            raise Unreachable(f"{self.where}: is a replica{SINGLE}")
        clock = self.info.get("server_time_usec", "")  # of Redis 6.2 and newer
        self.skew = (int(clock) / 1e6 if clock.isdecimal() else self.read_clock()) - time()

    def read_clock(self) -> float:
        seconds, microseconds = map(int, self.call("TIME"))
        return seconds + microseconds / 1e6

    def call(self, *words: object) -> "Any":
        """Return the answer as bytes. Raises Unreachable, SoloError."""
        try:
            try:
                answer = self.connection.call(*words)
            except OSError as error:
                if not self.is_open or isinstance(error, network.TIMEOUTS):
                    raise
                self.is_open = False
                # The server may have restarted, or be another one by now. Each request may be
                # repeated.
                answer = self.connection.call(*words)
            self.is_open = True
            return answer
        except Refused as error:
            if str(error).startswith(CLUSTER):
                raise SoloError(f"{self.where}: is a cluster{SINGLE}") from None
            is_unnamed = str(error).startswith("NOAUTH") and not self.target.has_password
            raise SoloError(
                f"{self.where}: {'it requires a password' if is_unnamed else tidy(error)}"
            ) from None
        except (OSError, ValueError) as error:
            distrust = network.find_distrust(self.connection.tls, self.target, error)
            raise distrust or Unreachable(f"cannot reach {self.where}: {tidy(error)}") from None

    def run(self, script: str, keys: "list[bytes]", *arguments: object) -> "Any":
        return self.call("EVAL", script, len(keys), *keys, *arguments)

    def renew(self) -> "str | None":
        asker = self.run(RENEW, self.make_pairs(self.joined), self.owner, self.milliseconds)
        if asker is None:
            raise Gone("its key has expired or was removed")
        return asker.decode(errors="replace") or None

    def release(self) -> None:
        try:
            if self.joined:
                self.run(LEAVE, self.make_pairs(self.joined), self.owner)
        finally:
            # A late LEAVE must not remove our next entries: they get a new owner.
            self.owner = make_owner()
            self.joined = []
            self.entries = {}

    def close(self) -> None:
        self.connection.close()

    def make_pairs(self, names: "list[str]") -> "list[bytes]":
        return [key for name in names for key in (make_key(name), make_key(name, self.owner))]

    def join(self, name: str, record: EntryRecord) -> str:
        if name not in self.joined:
            self.joined.append(name)
        keys = [*self.make_pairs([name]), make_key(name, b"fence")]
        self.run(JOIN, keys, self.owner, self.milliseconds, record.format(self.skew))
        return decode(make_key(name, self.owner))

    def leave(self, name: str) -> None:
        if name in self.joined:
            self.joined.remove(name)
            self.run(LEAVE, self.make_pairs([name]), self.owner)

    def rewrite(self, entry: Entry) -> None:
        value = b"%d %b" % (entry.number, entry.record.format(self.skew))
        if not self.run(REWRITE, self.make_pairs([entry.name]), self.owner, value):
            raise Gone("its key has expired or was removed")

    def read_queue(self, name: str) -> "list[Entry]":
        self.seen = self.run(READ, [make_key(name)])
        return make_entries(self.seen, self.skew)

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        owner = [] if key is None else [encode(key).rpartition(b":")[2]]
        before = [one for one in self.seen if not owner or one[1] == owner[0]]
        while self.run(READ, [make_key(name)], *owner) == before:
            left = deadline - monotonic()
            if left <= 0:
                return False
            sleep(min(left, pick_between(*POLL)))
        return True

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        if name is not None:
            return sort_queues(self.read_queue(name))
        found: dict[str, Entry] = {}
        for keys in self.scan(make_key("*")):
            # By key, as SCAN may return one twice.
            found.update(
                (entry.key, entry) for entry in make_entries(self.run(READ, keys), self.skew)
            )
        return sort_queues(found.values())

    def scan(self, pattern: bytes) -> "Iterator[list[bytes]]":
        """Yield lists of keys, in which a key may be twice."""
        cursor = None
        while cursor != b"0":
            cursor, keys = self.call("SCAN", cursor or 0, "MATCH", pattern, "COUNT", KEYS_AT_ONCE)
            yield keys

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        return make_renewal(self.call("PTTL", encode(entry.key)) / 1000, entry.record.ttl)

    def remove(self, entry: Entry) -> None:
        self.run(
            LEAVE, [make_key(entry.name), encode(entry.key)], encode(entry.key).rpartition(b":")[2]
        )

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        self.run(ASK, [encode(entry.key)], encode(asker))

    def read_once(self, name: str) -> "tuple[bytes, object]":
        text = self.call("GET", make_key(name, b"once")) or b""
        return text, text

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        return bool(self.run(ONCE, [make_key(name, b"once")], version, text) == 1)

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        self.run(LOG, [make_key(name, b"log")], number, text, -1 - OUTCOMES_KEPT)

    def read_outcomes(self, name: "str | None") -> "list[tuple[str, bytes]]":
        from solo.history.names import is_within

        names = {
            find_name(key, b"log") for keys in self.scan(make_key("*", b"log")) for key in keys
        }
        return [
            (one, text)
            for one in sorted(names)
            if name is None or is_within(one, [name])
            for text in self.call("ZRANGE", make_key(one, b"log"), 0, -1)
        ]

    def examine(self) -> "list[tuple[str, str]]":
        return [
            ("ok", f"Redis {self.info.get('redis_version', '?')}"),
            describe_skew(self.read_clock()),
            *(("note", text) for text in (self.caveat, *self.find_dangers())),
        ]

    def find_dangers(self) -> "Iterator[str]":
        """Yield the settings of this server that can make it forget locks."""
        if self.info.get("aof_enabled") != "1":
            yield "a restart may forget locks (appendonly no)"
        elif not self.syncs_always():
            yield "a crash of its machine forgets the last second (appendfsync is not always)"
        policy = self.info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            yield f"when memory runs out it may forget locks (maxmemory-policy {policy})"
        replicas = self.info.get("connected_slaves", "0")
        if replicas != "0":
            yield f"a failover to one of its replicas ({replicas}) may forget the latest locks"

    def syncs_always(self) -> bool:
        try:
            answer = self.call("CONFIG", "GET", "appendfsync")
        except SoloError:
            return False  # we may not read the configuration
        return b"always" in answer


def make_owner() -> bytes:
    return posix.urandom(8).hex().encode()


def make_key(name: str, suffix: bytes = b"") -> bytes:
    """Return the key of a queue, or one beside it. Two names have none in common, as a suffix has
    no brace in it.
    """
    return b"solo:{%b}" % encode(name) + (b":" + suffix if suffix else b"")


def find_name(key: bytes, suffix: bytes = b"") -> str:
    """Return the name of a key, as of make_key."""
    return decode(key.removesuffix(b":" + suffix)[len("solo:{") : -len("}")])


def make_entries(found: "list[list[bytes]]", skew: float) -> "list[Entry]":
    """Return the entries in order of their numbers, from READ's {queue, owner, value}."""
    entries = []
    for queue, owner, value in found:
        number, _, record = value.partition(b" ")
        entries.append(
            Entry(
                find_name(queue),
                decode(queue + b":" + owner),
                int(number) if number.isdigit() else 0,
                parse_entry_record(record, skew),
            )
        )
    return sorted(entries, key=lambda entry: entry.number)


def tidy(error: Exception) -> str:
    """Return the text of an error in one line, without the script's checksum and the code that says
    nothing.
    """
    return " ".join(network.describe(error).partition(" script: ")[0].split()).removeprefix("ERR ")
