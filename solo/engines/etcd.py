"""etcd, through the JSON gateway of its API v3, without a library.

An entry is a key under our lease, `PREFIX/NAME/LEASE`, as `etcdctl lock PREFIX/NAME` creates them.
Its create_revision is the order of the queue and the fencing token.

Never use /v3/lock/lock: etcd 3.4 grants it even to a waiter whose lease ran out in the queue (etcd
issue 11456).
"""

import posix
from binascii import a2b_base64, b2a_base64
from time import monotonic, time

from solo.engines import json, network
from solo.engines.engine import (
    OUTCOMES_KEPT,
    RESTORED,
    SKEWED,
    Entry,
    EntryRecord,
    Gone,
    Renewal,
    describe_skew,
    make_renewal,
    parse_entry_record,
)
from solo.engines.http import Connection, find_http_date
from solo.engines.password import Password
from solo.engines.queue import Engine, sort_queues
from solo.errors import SoloError, Unreachable
from solo.kernel import decode, encode

PREFIX = "solo"
ENDS, ONCES, LOGS = ".end", ".once", ".log"  # no part of a name starts with a dot
SHORTEST_WATCH = 0.05  # seconds
ANSWER_LIMIT = 1 << 24  # bytes of an answer
OUTCOMES_AT_ONCE = 1000  # outcomes in an answer
MOST_OLD = 10  # outcomes to remove at once
# gRPC's codes
INVALID = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PRECONDITION = 9
UNAVAILABLE = 14
UNAUTHENTICATED = 16
PASSING = (DEADLINE_EXCEEDED, UNAVAILABLE)  # another host may have a leader
TOKEN_HEADER = "Authorization"  # a header
OLD_TOKEN = "revision of auth store is old"  # a JWT is refused so after a change of users or roles
LEASE_EXISTS = "lease already exists"
NO_GATEWAY = (404, 415)  # of HTTP: etcd without its JSON gateway, and gRPC
GATEWAY = (
    "no JSON gateway there (name the members themselves, without "
    "--enable-grpc-gateway=false, and no etcd grpc-proxy)"
)
NAMED_CERTIFICATE = "CommonName"
NAMELESS_REMEDY = " (use a certificate without a common name, and a user and password)"
LONGEST_REFUSAL = 400  # characters


class Etcd(Engine):
    timeout = 0.0  # not of a client

    def __init__(self, target: "network.Target", ttl: float, timeout: float):
        self.target = target
        self.password = Password(target)
        self.where = target.shown
        self.prefix = (target.path or PREFIX) + "/"
        self.ttl = float(max(1, round(ttl)))  # etcd counts in whole seconds
        self.timeout = timeout
        self.at = 0  # the index of the host that answered last
        self.connection: Connection | None = None
        self.lease = ""
        self.headers = {"Content-Type": "application/json"}
        self.date: float | None = None  # the server's wall clock in its last answer
        # the answer to a join by name, which has the queue
        self.joined: dict[str, json.Object] = {}
        self.entries = {}  # our held entries by name
        self.revision = 0  # of the store when it was last listed
        self.tls = network.make_tls(target) if target.scheme == "etcds" else None

    def connect(self) -> None:
        """As Engine.connect; without a user the first request connects."""
        if self.target.user is not None:
            self.log_in()

    def log_in(self) -> None:
        self.headers.pop(TOKEN_HEADER, None)
        password, _ = self.password.find(monotonic() + self.timeout)
        known = {"name": self.target.user, "password": password or ""}
        self.headers[TOKEN_HEADER] = self.call("/v3/auth/authenticate", known)["token"]

    def open(self, deadline: float) -> Connection:
        """Return a connection to the current host. Raises OSError."""
        host, port = self.target.hosts[self.at]
        one = network.Timed(network.connect(host, port, deadline, self.tls))
        return Connection(one, f"[{host}]" if ":" in host else host)

    def call(
        self, path: str, body: "json.Object", is_leased: bool = False, may_log_in: bool = True
    ) -> "json.Object":
        """Return the answer to a request. Raises Unreachable, SoloError; Gone if `is_leased` and
        the lease is over.
        """
        answer = self.reach(path, body)
        if answer.get("error") is None:
            return answer
        code, text = read_error(answer)
        is_stale = code == UNAUTHENTICATED or code == INVALID and OLD_TOKEN in text
        if is_stale and may_log_in and TOKEN_HEADER in self.headers:
            self.log_in()
            return self.call(path, body, is_leased, may_log_in=False)
        if code == NOT_FOUND and is_leased:
            raise Gone(text)
        if code == PRECONDITION and LEASE_EXISTS in text:
            # only we use this number: the answer to our first try was lost
            return {"TTL": body["TTL"]}
        raise SoloError(f"{self.where}: {text}")

    def reach(self, path: str, body: "json.Object") -> "json.Object":
        """Return the first host's answer within the timeout. Raises Unreachable; SoloError for a
        certificate.
        """
        deadline, hosts = monotonic() + self.timeout, self.target.hosts
        problems = dict.fromkeys(hosts, "no answer")
        distrust = None
        for _ in range(2 * len(hosts)):
            left = deadline - monotonic()
            if left <= 0:
                break
            was_open = self.connection is not None
            try:
                # With several hosts, a silent one must leave time for the next.
                answer = self.ask(
                    path, body, deadline if len(hosts) == 1 else monotonic() + left / 2
                )
            except (OSError, ValueError, RecursionError) as error:
                problems[hosts[self.at]] = network.describe(error)
                distrust = network.find_distrust(self.tls, self.target, error) or distrust
                # The server may have closed an idle connection: then ask the same host again.
                self.close(is_bad=not was_open or isinstance(error, network.TIMEOUTS))
                continue
            code, text = read_error(answer)
            if code not in PASSING:
                return answer
            problems[hosts[self.at]] = text
            self.close(is_bad=True)
        raise distrust or Unreachable(f"cannot reach {self.where}: {network.name_hosts(problems)}")

    def ask(self, path: str, body: "json.Object", deadline: float) -> "json.Object":
        """Return the answer of the current host. Raises OSError, ValueError, RecursionError."""
        if self.connection is None or not self.connection.is_open:
            self.connection = self.open(deadline)
        self.connection.sock.deadline = deadline
        self.connection.request("POST", path, json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        data = answer.read(ANSWER_LIMIT).decode()
        if len(data) >= ANSWER_LIMIT:
            raise ValueError("the answer is too long")
        self.learn_skew(find_http_date(answer.headers))
        if 400 <= answer.status < 500 and not data.startswith("{"):
            raise SoloError(
                f"{self.where}: HTTP {answer.status}{describe_refusal(answer.status, data)}"
            )
        # of a stream only the first answer
        known = json.loads(data.splitlines()[0] if data else "{}")
        if not isinstance(known, dict):
            raise ValueError("the answer is not a JSON object")
        if answer.status >= 400 and "error" not in known:
            known["error"] = f"HTTP {answer.status}"
        if isinstance(known.get("error"), dict):  # of a stream
            known = {
                "error": "",
                "code": known["error"].get("grpc_code"),
                "message": known["error"].get("message"),
            }
        return known.get("result") or known

    def learn_skew(self, date: "float | None") -> None:
        if date is not None:
            self.date = date
            skew = date - time()
            self.skew = skew if abs(skew) >= SKEWED else 0.0

    def close(self, is_bad: bool = False) -> None:
        """Close the connection. If the host `is_bad`, the next connection is to another one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.at = (self.at + is_bad) % len(self.target.hosts)

    def renew(self) -> "str | None":
        if not self.lease:
            self.grant()
            return None
        answer = self.call("/v3/lease/keepalive", {"ID": self.lease}, is_leased=True)
        if int(answer.get("TTL", 0)) <= 0:
            self.lease = ""
            raise Gone("the lease has expired")
        held = [
            compare(entry.key, "CREATE", "create_revision", entry.number)
            for entry in self.entries.values()
        ]
        asked = {"request_range": {"key": pack(self.make_key(ENDS))}}
        answer = self.call("/v3/kv/txn", {"compare": held, "success": [asked]})
        if not answer.get("succeeded"):
            raise Gone("its key was removed")
        asked = answer["responses"][0]["response_range"].get("kvs", [])
        return (
            unpack(asked[0].get("value", "")).decode(errors="replace") or "another contender"
            if asked
            else None
        )

    def grant(self) -> None:
        # Choose the number ourselves: if we are interrupted, we can still revoke the lease.
        self.lease = str(int.from_bytes(posix.urandom(8), "big") >> 1 or 1)
        try:
            answer = self.call("/v3/lease/grant", {"TTL": int(self.ttl), "ID": self.lease})
        except Unreachable:
            self.lease = ""  # it has no keys; to revoke it would take one more timeout
            raise
        self.ttl = float(answer["TTL"])

    def release(self) -> None:
        lease = self.lease
        self.lease = ""
        self.entries = {}
        self.joined = {}
        try:
            if lease:
                self.call("/v3/lease/revoke", {"ID": lease}, is_leased=True)
        except Gone:
            pass  # it had expired

    def join(self, name: str, record: EntryRecord) -> str:
        if not self.lease:
            self.grant()
        key = self.make_key(name)
        listed = {"request_range": self.make_range(*find_range(self.prefix + name + "/"))}
        wanted = {
            "compare": [compare(key, "CREATE", "create_revision", 0)],
            "success": [{"request_put": self.make_put(key, record)}, listed],
            "failure": [listed],
        }
        try:
            self.joined[name] = self.call("/v3/kv/txn", wanted, is_leased=True)
        except Gone:
            self.release()
            raise
        return key

    def make_put(self, key: str, record: EntryRecord) -> "json.Object":
        return {"key": pack(key), "value": pack(record.format(self.skew)), "lease": self.lease}

    def put_if(self, condition: "json.Object", put: "json.Object") -> bool:
        wanted = {"compare": [condition], "success": [{"request_put": put}]}
        return bool(self.call("/v3/kv/txn", wanted, is_leased="lease" in put).get("succeeded"))

    def leave(self, name: str) -> None:
        if self.lease:
            self.call("/v3/kv/deleterange", {"key": pack(self.make_key(name))})

    def rewrite(self, entry: Entry) -> None:
        known = compare(entry.key, "CREATE", "create_revision", entry.number)
        if not self.put_if(known, self.make_put(entry.key, entry.record)):
            raise Gone("its key was removed")

    def read_queue(self, name: str) -> "list[Entry]":
        """As Engine.read_queue. The answer to a join has the queue that is read after it."""
        answer = self.joined.pop(name, None)
        if answer is None:
            return self.read_entries(*find_range(self.prefix + name + "/"), name)
        return self.parse_entries(answer, answer["responses"][-1]["response_range"], name)

    def make_range(self, first: str, end: str) -> "json.Object":
        return {
            "key": pack(first),
            "range_end": pack(end),
            "sort_order": "ASCEND",
            "sort_target": "CREATE",
        }

    def read_entries(self, first: str, end: str, name: "str | None" = None) -> "list[Entry]":
        """Return the entries with keys from `first` to before `end`."""
        answer = self.call("/v3/kv/range", self.make_range(first, end))
        return self.parse_entries(answer, answer, name)

    def parse_entries(
        self, whole: "json.Object", answer: "json.Object", name: "str | None"
    ) -> "list[Entry]":
        """Return the entries in the `answer` to a range, which may be a part of the `whole` one."""
        self.revision = int(whole["header"]["revision"])
        entries = []
        for kv in answer.get("kvs", []):
            key = decode(unpack(kv["key"]))
            of, _, lease = key[len(self.prefix) :].rpartition("/")
            if lease and of[:1] != "." and name in (None, of):  # a nested name has its own queue
                record = parse_entry_record(unpack(kv.get("value", "")), self.skew)
                entries.append(Entry(of, key, int(kv["create_revision"]), record))
        return entries

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        first, end = find_range(self.prefix + name + "/")
        keys = (
            {"key": pack(key), "filters": ["NOPUT"]}
            if key
            else {"key": pack(first), "range_end": pack(end)}
        )
        request = {"create_request": {**keys, "start_revision": self.revision + 1}}
        try:
            connection = self.open(monotonic() + self.timeout)
        except (OSError, ValueError) as error:
            raise Unreachable(f"cannot reach {self.where}: {network.describe(error)}") from None
        try:
            connection.sock.deadline = max(monotonic() + SHORTEST_WATCH, deadline)
            connection.request("POST", "/v3/watch", json.dumps(request), self.headers)
            answer = connection.getresponse()
            while True:
                line = answer.readline(ANSWER_LIMIT)
                if not line or "error" in (known := json.loads(line)):
                    raise ConnectionError(f"the watch failed: {line[:80].decode(errors='replace')}")
                result = known.get("result", {})
                if result.get("canceled") or result.get("events"):
                    return True
        except network.TIMEOUTS:
            return False
        except (OSError, ValueError, RecursionError, AttributeError) as error:
            raise Unreachable(f"cannot reach {self.where}: {error}") from None
        finally:
            connection.close()

    def make_key(self, name: str) -> str:
        """Return the key of our entry in the queue of `name`; of ENDS: the one that asks us to
        end.
        """
        return f"{self.prefix}{name}/{int(self.lease):x}"

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        if name is not None:
            return sort_queues(self.read_queue(name))
        first, end = find_range(self.prefix)
        log, log_end = find_range(f"{self.prefix}{LOGS}/")  # may be large
        found = self.read_entries(first, log) + self.read_entries(log_end, end)
        # what other prefixes below ours keep beside their queues is no entry
        return sort_queues(entry for entry in found if "/." not in entry.name)

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        try:
            lease = str(int(entry.key.rpartition("/")[2], 16))
            answer = self.call("/v3/lease/timetolive", {"ID": lease}, is_leased=True)
        except (Gone, ValueError):
            return None  # it has ended, or is no lease
        return make_renewal(float(answer.get("TTL", 0)), float(answer.get("grantedTTL", 0)))

    def remove(self, entry: Entry) -> None:
        self.call("/v3/kv/deleterange", {"key": pack(entry.key)})

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        lease = entry.key.rpartition("/")[2]
        key = pack(f"{self.prefix}{ENDS}/{lease}")
        try:
            put = {"key": key, "value": pack(asker.encode()), "lease": str(int(lease, 16))}
            self.call("/v3/kv/put", put, is_leased=True)
        except (Gone, ValueError):
            pass  # the lease has ended

    def read_once(self, name: str) -> "tuple[bytes, object]":
        known = self.call("/v3/kv/range", {"key": pack(f"{self.prefix}{ONCES}/{name}")}).get("kvs")
        return (unpack(known[0].get("value", "")), known[0]["mod_revision"]) if known else (b"", 0)

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        key = f"{self.prefix}{ONCES}/{name}"
        return self.put_if(
            compare(key, "MOD", "mod_revision", version), {"key": pack(key), "value": pack(text)}
        )

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        first = f"{self.prefix}{LOGS}/{name}/."
        end = first[:-1] + "/"  # not the nested names
        put = {"key": pack(f"{first}{number:020d}"), "value": pack(text)}
        listed = {"key": pack(first), "range_end": pack(end), "limit": MOST_OLD, "keys_only": True}
        answer = self.call(
            "/v3/kv/txn", {"success": [{"request_put": put}, {"request_range": listed}]}
        )
        answer = answer["responses"][1]["response_range"]
        old = answer["kvs"][: max(0, int(answer["count"]) - OUTCOMES_KEPT)]
        if old:
            self.call(
                "/v3/kv/deleterange",
                {"key": pack(first), "range_end": pack(unpack(old[-1]["key"]) + b"\0")},
            )

    def read_outcomes(self, name: "str | None") -> "list[tuple[str, bytes]]":
        base = f"{self.prefix}{LOGS}/"
        first, end = find_range(base if name is None else f"{base}{name}/")
        found: list[tuple[str, bytes]] = []
        while True:
            answer = self.call(
                "/v3/kv/range",
                {"key": pack(first), "range_end": pack(end), "limit": OUTCOMES_AT_ONCE},
            )
            before = first
            for kv in answer.get("kvs", []):
                first = decode(unpack(kv["key"])) + "\0"
                found.append((first[len(base) :].rpartition("/")[0], unpack(kv.get("value", ""))))
            if not answer.get("more") or first <= before:
                return found

    def examine(self) -> "list[tuple[str, str]]":
        version = self.call("/v3/maintenance/status", {}).get("version", "?")
        return [
            ("ok", f"etcd {version}"),
            *([describe_skew(self.date)] if self.date else []),
            ("note", RESTORED),
        ]


def describe_refusal(status: int, text: str) -> str:
    """Return what an answer that is not of the JSON gateway says: its own words, unless there is no
    gateway.
    """
    if status in NO_GATEWAY:
        return f": {GATEWAY}"
    words = " ".join(text.split())
    return (
        f": {words[:LONGEST_REFUSAL]}{NAMELESS_REMEDY if NAMED_CERTIFICATE in words else ''}"
        if words
        else ""
    )


def read_error(answer: "json.Object") -> "tuple[int, str]":
    """Return (gRPC's code or 0, the message) of an answer."""
    error = answer.get("error")
    return (
        (0, "") if error is None else (answer.get("code", 0), answer.get("message") or str(error))
    )


def find_range(prefix: str) -> "tuple[str, str]":
    """Return (the first key, the end) of all keys that start with `prefix`, which ends in a
    slash.
    """
    return prefix, prefix[:-1] + "0"


def compare(key: str, target: str, field: str, value: object) -> "json.Object":
    return {"key": pack(key), "target": target, "result": "EQUAL", field: str(value)}


def pack(data: "str | bytes") -> str:
    return b2a_base64(encode(data) if isinstance(data, str) else data, newline=False).decode()


def unpack(text: str) -> bytes:
    return a2b_base64(text)
