"""One session at a PostgreSQL server, by libpq's asynchronous calls: each ends by its deadline, and
can be given up.
"""

import posix
from hashlib import sha256
from select import POLLIN, POLLOUT, poll
from time import monotonic, time

from solo.engines.network import Target, find_addresses, look_up_again, unquote
from solo.engines.password import Password
from solo.engines.postgresql import libpq
from solo.engines.postgresql.libpq import LibpqError, get_message, make_conninfo, pq
from solo.errors import SoloError, Unreachable, UsageError
from solo.process.library import Bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rows = list[list[Any]]  # of texts and None

LONGEST_POLL = 1e6  # seconds
# The limits of tcp(7). TCP_USER_TIMEOUT decides how long a silent session lives, not the number of
# probes.
LONGEST_IDLE, MOST_PROBES = 32767, 127  # seconds
MOST_MILLISECONDS = (1 << 31) - 1  # milliseconds; an int
# Sets the session unless a pooler, whose pid is another one, shares it with other clients. The join
# leaves out what the server does not have.
OPENING = (
    "select pg_backend_pid(), pg_is_in_recovery(), current_setting('server_version'),"
    " extract(epoch from clock_timestamp()), (select count(set_config(name, value, false)) from "
    "pg_settings"
    " join (values ('synchronous_commit', 'on'), ('statement_timeout', '0')) as ours(name, value) "
    "using (name)"
    " where pg_backend_pid() = $1::int)"
)
# libpq has no codes for a failed connection, so match its text. Other reasons may pass: a server
# that starts, or is full.
REFUSALS = (
    "definition of service|service file|invalid|authentication|password|pg_hba|"
    "does not exist|permission|not permitted|certificate|unknown ca|not support"
).split("|")
FULL = ("too many", "slots are reserved")
FULL_REMEDY = " (each holder and each waiter needs a connection: raise {})"
# Codes of errors that may pass: connection, deadlock, resources, read-only (now a standby), locks,
# operator.
PASSING = ("08", "40", "53", "25006", "55P03", "57")


class Link:
    """A session at the first of a Target's hosts that accepts one and is no standby; its clock is
    ahead by `skew`.

    `timeout` limits one query; `ttl` is how long we keep a session while the server is silent.
    `is_pooled` tells whether a pooler is in between. `heard` are the notifications received.
    `is_busy` while an answer is outstanding.
    """

    def __init__(self, target: Target, settings: "dict[str, object]", ttl: float, timeout: float):
        self.where = self.shown = target.shown
        self.password = Password(target)
        self.hosts = target.hosts
        self.timeout = timeout
        files = {"sslrootcert": target.cafile, "sslcert": target.certfile, "sslkey": target.keyfile}
        self.has_address = "hostaddr" in settings
        self.skew = 0.0
        known = {
            **files,
            "sslmode": "verify-full" if target.cafile else None,
            "user": target.user,
            "dbname": target.path or None,
            **settings,
            # A silent connection is probed for the last two thirds of the ttl, a busy one never.
            "keepalives_idle": max(1, min(int(ttl / 3), LONGEST_IDLE)),
            "keepalives_interval": 1,
            "keepalives_count": min(int(ttl) + 2, MOST_PROBES),
            "tcp_user_timeout": min(int(ttl * 1000), MOST_MILLISECONDS),
            "client_encoding": "UTF8",
        }
        self.settings = {key: value for key, value in known.items() if value is not None}
        try:
            make_conninfo(self.settings)
        except LibpqError as error:
            raise UsageError(f"--via {self.where}: {join_lines(str(error))}") from None
        self.connection = 0
        self.is_busy = self.is_pooled = False
        self.version = ""
        self.heard: list[str | None] = []

    def open(self) -> None:
        """Connect. Raises Unreachable, SoloError."""
        problem = SoloError()
        password, deadline = self.password.find(monotonic() + self.timeout)
        known = self.settings if password is None else {**self.settings, "password": password}
        left = deadline - monotonic()
        for host, port in self.hosts:
            if len(self.hosts) > 1:
                self.where = f"{self.shown}: {host}:{port}"
            try:
                # A silent host must leave time for the others.
                self.open_host(unquote(host), port, monotonic() + left / len(self.hosts), known)
                return
            except (LibpqError, OSError) as error:
                problem = self.lose(str(error))
            except SoloError as error:
                self.close()
                problem = error
            look_up_again(unquote(host), port)
        raise problem

    def open_host(self, host: str, port: int, deadline: float, known: "dict[str, object]") -> None:
        where = self.resolve(host, port, deadline)
        connection = libpq.start_connection(make_conninfo({**known, **where}))
        try:
            self.connect(connection, deadline)
        except BaseException:
            pq.PQfinish(connection)
            raise
        self.connection = connection
        self.is_busy = False
        self.heard = []
        ours = pq.PQbackendPID(connection)
        [[pid, is_standby, self.version, clock, _]] = self.ask(OPENING, ours, deadline=deadline)
        self.skew = float(clock) - time()
        if is_standby == "t":
            raise Unreachable(f"{self.where}: is a standby")
        self.is_pooled = ours != int(pid)

    def connect(self, connection: int, deadline: float) -> None:
        """Wait until the connection is made. Raises Unreachable, SoloError."""
        state = libpq.WRITING
        while state != libpq.OK:
            if state == libpq.FAILED or pq.PQstatus(connection) == libpq.BAD:
                text = read_failure(get_message(connection))
                if any(words in text for words in FULL):
                    raise Unreachable(f"{self.where}: {text}{FULL_REMEDY.format(find_limit(text))}")
                if pq.PQconnectionNeedsPassword(connection) or is_refusal(text):
                    raise SoloError(f"{self.where}: {text}")
                raise Unreachable(f"cannot reach {self.where}: {text}")
            if not self.wait_socket(
                connection, POLLIN if state == libpq.READING else POLLOUT, deadline
            ):
                raise Unreachable(f"cannot reach {self.where}: no answer")
            state = pq.PQconnectPoll(connection)
        self.verify(connection, pq.PQsetnonblocking(connection, 1) == 0)

    def resolve(self, host: str, port: int, deadline: float) -> "dict[str, object]":
        """Return libpq's settings for a host, with addresses, as libpq's own look-up has no
        timeout. Raises OSError.
        """
        if not host:
            return {}  # libpq knows: a service, PGHOST, or the socket of this machine
        if host[:1] in ("/", "@") or self.has_address or b"PGHOSTADDR" in posix.environ:
            return {"host": host, "port": port}
        addresses = [address[-1][0] for address in find_addresses(host, port, deadline)]
        return {
            "host": ",".join([host] * len(addresses)),
            "hostaddr": ",".join(addresses),
            "port": port,
        }

    def close(self) -> None:
        if self.connection:
            pq.PQfinish(self.connection)
        self.connection = 0
        self.is_busy = False

    def ask(self, query: str, *values: object, deadline: "float | None" = None) -> "Rows":
        """Return the rows of the answer, each value a text or None. Raises Unreachable,
        SoloError.
        """
        deadline = monotonic() + self.timeout if deadline is None else deadline
        if self.is_busy:
            try:
                self.fetch(deadline)  # discard the late answer to an earlier query
            except SoloError:
                pass
        if not self.is_busy:
            self.send(query, *values)
            rows = self.fetch(deadline)
            if rows is not None:
                return rows
        raise Unreachable(f"cannot reach {self.where}: no answer")

    def send(self, query: str, *values: object) -> None:
        self.check()
        texts = (Bytes * len(values))(*map(encode, values))
        sent = (query.encode(), len(values), None, texts, None, None, 0)
        self.verify(self.connection, pq.PQsendQueryParams(self.connection, *sent))
        self.is_busy = True

    def fetch(self, deadline: float) -> "Rows | None":
        """Return the rows that answer the query sent, or None at the deadline. Raises Unreachable,
        SoloError.
        """
        connection = self.connection
        while left := pq.PQflush(connection):
            self.verify(connection, left > 0)
            if not self.wait_socket(connection, POLLIN | POLLOUT, deadline):
                return None
            self.verify(connection, pq.PQconsumeInput(connection))
        rows: Rows = []
        problem = None
        while True:
            while pq.PQisBusy(connection):
                if not self.wait_socket(connection, POLLIN, deadline):
                    return None
                self.hear()
            address = pq.PQgetResult(connection)
            if not address:
                break
            result = libpq.Result(address)
            if result.is_ok:
                rows = [list(map(decode, row)) for row in result.rows]
            else:
                problem = result
        self.hear()
        self.is_busy = False
        if problem is not None:
            raise self.describe_problem(problem)
        return rows

    def check(self) -> None:
        """Raise Unreachable without a session."""
        if not self.connection:
            raise Unreachable(f"cannot reach {self.where}: the session has ended")

    def hear(self) -> None:
        """Read the socket and collect notifications. Raises Unreachable."""
        self.verify(self.connection, pq.PQconsumeInput(self.connection))
        while address := pq.PQnotifies(self.connection):
            self.heard.append(decode(libpq.NOTIFICATION.from_address(address)[2]))
            pq.PQfreemem(address)

    def wait_heard(self, deadline: float) -> None:
        """Wait for a notification until the deadline. Raises Unreachable."""
        self.check()
        if not self.heard and self.wait_socket(self.connection, POLLIN, deadline):
            self.hear()

    def describe_problem(self, result: libpq.Result) -> SoloError:
        text = decode(result.message) or "no reason given"
        code = decode(result.code) or "08"
        if pq.PQstatus(self.connection) == libpq.BAD:
            return self.lose(text)
        kind = Unreachable if code.startswith(PASSING) else SoloError
        return kind(f"{self.where}: {join_lines(text)}")

    def lose(self, text: str) -> Unreachable:
        self.close()
        return Unreachable(f"cannot reach {self.where}: {join_lines(text)}")

    def verify(self, connection: int, truth: object) -> None:
        """Raise Unreachable with the last message of a connection unless a call returned the
        truth.
        """
        if not truth:
            raise self.lose(get_message(connection))

    def wait_socket(self, connection: int, events: int, deadline: float) -> bool:
        """Wait for one of the events at a connection's socket. Return False at the deadline. Raises
        Unreachable.
        """
        poller, fd = poll(), pq.PQsocket(connection)
        if fd < 0:
            raise self.lose("the connection is closed")
        poller.register(fd, events)
        return bool(poller.poll(max(0.0, min(deadline - monotonic(), LONGEST_POLL)) * 1000))


def read_failure(text: str) -> str:
    """Return the reason in libpq's text about a failed connection: a line for each address, and a
    question below it.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    last = lines[-1] if lines else "no reason given"
    return join_lines(last.partition(" failed: ")[2] or last)


def find_limit(text: str) -> str:
    """Return the setting by which the server is full."""
    owner = next((one for one in ("role", "database") if f" for {one} " in text), None)
    return f"the CONNECTION LIMIT of the {owner}" if owner else "max_connections"


def is_refusal(text: str) -> bool:
    """Return whether libpq says, outside of quoted names, that asking again cannot help."""
    plain = "".join(text.split('"')[::2])
    return any(words in plain for words in REFUSALS)


def encode(value: object) -> "bytes | None":
    return None if value is None else str(value).encode("utf-8", "surrogateescape")


def decode(value: "bytes | None") -> "str | None":
    return None if value is None else value.decode(errors="replace")


def join_lines(text: str) -> str:
    return " ".join(text.split())


def make_key(name: str) -> int:
    """Return the advisory lock of a name: a signed bigint of 48 bits of a hash, then 16 zero
    bits.
    """
    return int.from_bytes(hash_name(f"solo\0{name}")[:6], "big", signed=True) << 16


def hash_name(name: str) -> bytes:
    return sha256(name.encode("utf-8", "surrogateescape")).digest()
