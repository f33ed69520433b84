"""A session at ZooKeeper: its requests and answers, over one connection at a time.

The messages are kazoo's, the connection is not. Kazoo's client hides the granted timeout, waits
that long for a silent host, resends abandoned requests after a reconnect, and replaces an expired
session by a new one.

The ensemble's leader counts the time of a session from when it last heard of it. A follower reports
sessions with its pings: after it has answered us, or never if it has lost the leader by then. Only
when a connection resumes a session must the leader agree before the follower answers. So to renew
is to reconnect.
"""

import struct
from time import monotonic

from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.protocol.serialization import Auth, CloseInstance, Connect, ReplyHeader, Watch

from solo.engines.engine import Gone
from solo.engines.network import (
    TIMEOUTS,
    Target,
    Timed,
    connect,
    describe,
    find_distrust,
    name_hosts,
)
from solo.engines.password import Password
from solo.errors import SoloError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext
    from typing import Any

    Message = Any  # a request or an answer of kazoo, which has no types

REFUSALS = (NoNodeError, NodeExistsError, BadVersionError)  # expected answers
# connection loss, timeout, session moved, throttled: ask another host, or later
PASSING = (-4, -7, -118, -127)
NO_AUTH, DEMANDS_LOGIN = -102, -124
LOG_IN = " (name a user and a password in a [via.NAME] of solo.toml)"
BY_DIGEST = " other than by digest (solo has no SASL: allow digest, or name other servers)"
EVENT, AUTH = -1, -4  # instead of the number of a request
NO_PASSWORD = bytes(16)
MESSAGE_LIMIT = 1 << 26  # bytes; jute.maxbuffer is 1 MB
MOST_MILLISECONDS = (1 << 31) - 1  # milliseconds; an int
# a failed connection, or an invalid message
BROKEN = (OSError, struct.error, ValueError, IndexError, RuntimeError)


class Session:
    """A session. `number` is 0 while there is none; `ttl` is how many seconds it lives, as
    requested and then as granted.

    Every method returns within about `timeout` seconds and raises Unreachable, Gone, SoloError.
    After any other exception, such as that of a signal handler, the session remains usable.
    """

    def __init__(self, target: Target, tls: "SSLContext | None", ttl: float, timeout: float):
        self.target = target
        self.hosts = target.hosts
        self.where = target.shown
        self.password_of_user = Password(target)
        self.login: str | None = None  # found once, as the rights of our znodes depend on it
        self.tls = tls
        self.ttl = ttl
        self.timeout = timeout
        self.at = 0  # the index of the host that answered last
        self.socket: Timed | None = None
        self.forget()

    def forget(self) -> None:
        self.number = 0
        self.password = NO_PASSWORD
        self.zxid = 0
        self.hang_up()

    def hang_up(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.sent = 0
        self.events: set[str] = set()

    def connect(self, deadline: "float | None" = None) -> None:
        """Open a new connection, and resume our session on it, or start one."""
        old, self.socket = self.socket, None
        try:
            self.reach(monotonic() + self.timeout if deadline is None else deadline)
        finally:
            if old is not None:
                old.close()  # after its replacement, as a server would log an early end

    def reach(self, deadline: float) -> None:
        problems = dict.fromkeys(self.hosts, "no answer")
        distrust = None
        for _ in self.hosts:
            self.hang_up()
            left = deadline - monotonic()
            if left <= 0:
                break
            try:
                # With several hosts, a silent one must leave time for the next.
                return self.dial(deadline if len(self.hosts) == 1 else monotonic() + left / 2)
            except BaseException as error:
                host = self.hosts[self.at]
                problems[host] = self.drop(error)
                distrust = find_distrust(self.tls, self.target, error) or distrust
        raise distrust or Unreachable(f"cannot reach {self.where}: {name_hosts(problems)}")

    def drop(self, error: BaseException) -> str:
        """Close the connection. Return the text of `error` if it is one of BROKEN, else raise it.
        The next host is another one.
        """
        self.hang_up()
        if not isinstance(error, BROKEN):
            raise error
        self.at = (self.at + 1) % len(self.hosts)
        return describe(error)

    def dial(self, deadline: float) -> None:
        """Connect to the current host. Raises BROKEN, Gone, SoloError."""
        if self.login is None and self.target.user is not None:
            password, deadline = self.password_of_user.find(deadline)
            self.login = f"{self.target.user}:{password or ''}"
        host, port = self.hosts[self.at]
        self.socket = Timed(connect(host, port, deadline, self.tls), deadline)
        self.send(
            Connect(
                0,
                self.zxid,
                min(round(self.ttl * 1000), MOST_MILLISECONDS),
                self.number,
                self.password,
                False,
            )
        )
        granted, _ = Connect.deserialize(self.receive(deadline), 0)
        ttl = granted.time_out / 1000
        if ttl <= 0 or self.number and ttl < self.ttl:
            self.forget()
            raise Gone(
                f"the session would live only {ttl:g}s more"
                if ttl > 0
                else "the session has expired"
            )
        self.number = granted.session_id
        self.password = granted.passwd
        self.ttl = ttl
        if self.login is not None:
            self.send(Auth(0, "digest", self.login), AUTH)
            if self.read_answer(AUTH, deadline)[0]:
                raise SoloError(f"{self.where}: refused: user {self.login.partition(':')[0]}")

    def send(self, request: "Message", number: "int | None" = None) -> None:
        words = b"" if number is None else struct.pack("!ii", number, request.type)
        words += request.serialize()
        assert self.socket
        self.socket.sendall(struct.pack("!i", len(words)) + words)

    def receive(self, deadline: float) -> bytes:
        """Return the next message. Raises BROKEN; one of TIMEOUTS keeps the part received."""
        sock = self.socket
        assert sock
        sock.deadline = deadline
        while True:
            size = int.from_bytes(sock.data[:4], "big")
            if size > MESSAGE_LIMIT:
                raise ValueError("not ZooKeeper")
            if len(sock.data) >= 4 + size > 4:
                message, sock.data = sock.data[4 : 4 + size], sock.data[4 + size :]
                return message
            sock.receive()

    def read_answer(self, number: int, deadline: float) -> "tuple[int, bytes]":
        """Return (0 or the error, the bytes) of the answer to `number`, or of the next EVENT; keep
        events meanwhile.
        """
        while True:
            message = self.receive(deadline)
            header, begin = ReplyHeader.deserialize(message, 0)
            if header.xid == EVENT:
                self.events.add(Watch.deserialize(message, begin)[0].path)
            if header.xid == number:
                self.zxid = max(self.zxid, header.zxid)
                return header.err, message[begin:]
            if header.xid != EVENT:
                raise ValueError("an answer to another request")

    def ask(self, *requests: "Message", deadline: "float | None" = None) -> "list[Message]":
        """Send all requests and return their answers; an answer may be one of REFUSALS, not raised.
        If the connection breaks, they are sent once more, so each must be repeatable.
        """
        deadline = monotonic() + self.timeout if deadline is None else deadline
        for is_last in (self.socket is None, True):  # the server may have closed an idle connection
            if self.socket is None:
                self.connect(deadline)
            try:
                return self.ask_once(requests, deadline)
            except BaseException as error:
                problem = self.drop(error)
            if is_last or monotonic() >= deadline:
                break
        raise Unreachable(f"cannot reach {self.where}: {problem}")

    def ask_once(self, requests: "Iterable[Message]", deadline: float) -> "list[Message]":
        """Send requests and return their answers. Raises BROKEN, Gone, SoloError."""
        assert self.socket
        self.socket.deadline = deadline
        first = self.sent + 1
        for request in requests:
            self.sent += 1
            self.send(request, self.sent)
        return [self.read(request, first + at, deadline) for at, request in enumerate(requests)]

    def read(self, request: "Message", number: int, deadline: float) -> "Message":
        error, answer = self.read_answer(number, deadline)
        if error in PASSING:
            raise ConnectionError(f"error {error}")
        if error:
            kind = EXCEPTIONS.get(error)
            if kind is SessionExpiredError:
                self.forget()
                raise Gone("the session has expired")
            if kind in REFUSALS:
                return kind()
            raise self.refuse(error, getattr(request, "path", ""))
        return request.deserialize(answer, 0) if hasattr(request, "deserialize") else None

    def refuse(self, error: int, path: str) -> SoloError:
        """Return why the servers refuse a request, with what helps."""
        user = self.target.user
        name = getattr(EXCEPTIONS.get(error), "__name__", "an error unknown to kazoo")
        if error == DEMANDS_LOGIN:
            return SoloError(
                f"{self.where}: the servers demand a log-in{LOG_IN if user is None else BY_DIGEST}"
            )
        if error == NO_AUTH:
            why = (
                ": NoAuth: no rights there "
                f"{'without a user' if user is None else f'for the user {user}'}"
            )
            return SoloError(f"{self.where}: {path}{why}{LOG_IN if user is None else ''}")
        return SoloError(f"{self.where}: {path}{path and ': '}refused: {name} {error}")

    def wait_event(self, deadline: float) -> bool:
        """Wait for an event of a watch. Return False at the deadline."""
        try:
            while not self.events:
                if monotonic() >= deadline:
                    return False
                self.read_answer(EVENT, deadline)
        except TIMEOUTS:
            return False
        except BaseException as error:
            raise Unreachable(f"cannot reach {self.where}: {self.drop(error)}") from None
        return True

    def close(self) -> None:
        """End the session, and with it its ephemeral znodes."""
        if self.number:
            try:
                self.ask(CloseInstance)
            except Gone:
                pass  # it had expired
        self.forget()
