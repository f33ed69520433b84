"""A session at ZooKeeper: what is asked and answered in it, over one connection at a time. Cold.

The words are kazoo's, the connection is not. Its client hides the timeout that was granted, waits as long as that for a host that
is silent, sends what was given up on once it is connected again, and puts a new session in the place of one that expired.

Who leads the ensemble counts a session's time from when it last heard of it: from a follower with the pings of the two, later than
the follower answered us, or never if they are apart by then. Only of a connection that takes up a session it hears before that is
granted. So to renew is to connect anew.
"""

import struct
from time import monotonic

from kazoo.exceptions import EXCEPTIONS, BadVersionError, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import Auth, CloseInstance, Connect, ReplyHeader, Watch

from solo.engines.engine import Gone
from solo.engines.network import connect, find_distrust
from solo.errors import SoloError, Unreachable

REFUSALS = (NoNodeError, NodeExistsError, BadVersionError)  # those to reckon with
PASSING = (-4, -7, -118, -127)  # connection loss, timeout, session moved, throttled: elsewhere or later it may go well
EVENT, AUTH = -1, -4  # in place of a request's number
NO_PASSWORD = bytes(16)
MESSAGE_LIMIT = 1 << 26  # bytes; jute.maxbuffer is 1 MB
SHORTEST_WAIT = 0.001  # seconds
LONGEST = (1 << 31) - 1  # milliseconds; an int
BROKEN = (OSError, struct.error, ValueError, IndexError, RuntimeError)  # the connection, or what came by it


class Session:
    """`number` is 0 while there is none, `ttl` how many seconds it lives, as asked for and then as granted.

    Every method returns within about `timeout` seconds, and raises Unreachable, Gone, SoloError. After any exception of another
    kind, that of a signal handler, it can be used on.
    """

    def __init__(self, target, tls, ttl: float, timeout: float):
        self.target = target
        self.hosts = target.hosts
        self.where = target.shown
        self.login = None if target.user is None else f"{target.user}:{target.password or ''}"
        self.tls = tls
        self.ttl = ttl
        self.timeout = timeout
        self.at = 0  # which of the hosts answered last
        self.socket = None
        self.forget()

    def forget(self):
        self.number, self.password, self.zxid = 0, NO_PASSWORD, 0
        self.hang_up()

    def hang_up(self):
        if self.socket is not None:
            self.socket.close()
        self.socket, self.received, self.sent, self.events = None, b"", 0, set()

    # --- the connection -------------------------------------------------------------------------------------------

    def connect(self, deadline=None):
        """Be on a new connection, with the session we had; if none, with a new one."""
        old, self.socket = self.socket, None
        try:
            self.reach(monotonic() + self.timeout if deadline is None else deadline)
        finally:
            if old is not None:
                old.close()  # not before: a server ends a connection itself that is replaced, but logs who goes without a word

    def reach(self, deadline: float):
        problem, distrust = "no answer", None
        for _ in self.hosts:
            self.hang_up()
            left = deadline - monotonic()
            if left <= 0:
                break
            try:
                # With several hosts, one that is silent must leave time for the next.
                return self.dial(deadline if len(self.hosts) == 1 else monotonic() + left / 2)
            except BROKEN as error:
                problem = self.drop(error)
                distrust = self.tls and find_distrust(self.target, error) or distrust
            except BaseException:
                self.hang_up()
                raise
        raise distrust or Unreachable(f"cannot reach {self.where}: {problem}")

    def drop(self, error) -> str:
        """What `error` says. The next connection is to another host."""
        self.hang_up()
        self.at = (self.at + 1) % len(self.hosts)
        return getattr(error, "strerror", None) or str(error) or type(error).__name__

    def dial(self, deadline: float):
        """Raises BROKEN."""
        self.socket = self.open(deadline)
        self.send(Connect(0, self.zxid, min(round(self.ttl * 1000), LONGEST), self.number, self.password, False))
        granted, _ = Connect.deserialize(self.receive(deadline), 0)
        ttl = granted.time_out / 1000
        if ttl <= 0 or self.number and ttl < self.ttl:
            self.forget()
            raise Gone(f"the session would live only {ttl:g}s more" if ttl > 0 else "the session has expired")
        self.number, self.password, self.ttl = granted.session_id, granted.passwd, ttl
        if self.login is not None:
            self.send(Auth(0, "digest", self.login), AUTH)
            if self.read_answer(AUTH, deadline)[0]:
                raise SoloError(f"{self.where}: refused: user {self.login.partition(':')[0]}")

    def open(self, deadline: float):
        host, port = self.hosts[self.at]
        one = connect(host, port, deadline)
        try:
            return one if self.tls is None else self.tls.wrap_socket(one, server_hostname=host)
        except BaseException:
            one.close()
            raise

    # --- messages -------------------------------------------------------------------------------------------------

    def send(self, request, number=None):
        words = b"" if number is None else struct.pack("!ii", number, request.type)
        words += request.serialize()
        self.socket.sendall(struct.pack("!i", len(words)) + words)

    def receive(self, deadline: float) -> bytes:
        """The next message. Raises BROKEN; after a TimeoutError what came of it is kept."""
        while True:
            size = int.from_bytes(self.received[:4], "big")
            if size > MESSAGE_LIMIT:
                raise ValueError("that is not ZooKeeper")
            if len(self.received) >= 4 + size > 4:
                message, self.received = self.received[4:4 + size], self.received[4 + size:]
                return message
            self.socket.settimeout(max(SHORTEST_WAIT, deadline - monotonic()))
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("it hung up")
            self.received += data

    def read_answer(self, number: int, deadline: float) -> tuple:
        """(0 or the error, the answer's bytes) to request `number`, of EVENT: whatever is watched; others are kept in `events`."""
        while True:
            message = self.receive(deadline)
            header, begin = ReplyHeader.deserialize(message, 0)
            if header.xid == EVENT:
                self.events.add(Watch.deserialize(message, begin)[0].path)
            if header.xid == number:
                self.zxid = max(self.zxid, header.zxid)
                return header.err, message[begin:]
            if header.xid != EVENT:
                raise ValueError("an answer to something else")

    # --- asking ---------------------------------------------------------------------------------------------------

    def ask(self, *requests, deadline=None) -> list:
        """The answers, sent for all at once; one of REFUSALS, not raised, in place of some. If the connection breaks they are asked
        once more: each must be one that may be done twice.
        """
        deadline = monotonic() + self.timeout if deadline is None else deadline
        for is_last in (self.socket is None, True):  # one that was idle may have been closed meanwhile
            if self.socket is None:
                self.connect(deadline)
            try:
                return self.ask_once(requests, deadline)
            except BROKEN as error:
                problem = self.drop(error)
            except BaseException:
                self.hang_up()
                raise
            if is_last or monotonic() >= deadline:
                break
        raise Unreachable(f"cannot reach {self.where}: {problem}")

    def ask_once(self, requests, deadline: float) -> list:
        """Raises BROKEN, Gone, SoloError."""
        self.socket.settimeout(max(SHORTEST_WAIT, deadline - monotonic()))
        first = self.sent + 1
        for request in requests:
            self.sent += 1
            self.send(request, self.sent)
        return [self.read(request, first + at, deadline) for at, request in enumerate(requests)]

    def read(self, request, number: int, deadline: float):
        error, answer = self.read_answer(number, deadline)
        if error in PASSING:
            raise ConnectionError(f"error {error}")
        if error:
            kind = EXCEPTIONS.get(error, SoloError)
            if kind is SessionExpiredError:
                self.forget()
                raise Gone("the session has expired")
            if kind in REFUSALS:
                return kind()
            raise SoloError(f"{self.where}: refused: {kind.__name__} {error} ({getattr(request, 'path', 'session')})")
        return request.deserialize(answer, 0) if hasattr(request, "deserialize") else None

    def wait_event(self, deadline: float) -> bool:
        """Whether anything that is watched has changed by then."""
        try:
            while not self.events:
                if monotonic() >= deadline:
                    return False
                self.read_answer(EVENT, deadline)
        except TimeoutError:
            return False
        except BROKEN as error:
            raise Unreachable(f"cannot reach {self.where}: {self.drop(error)}") from None
        except BaseException:
            self.hang_up()
            raise
        return True

    def close(self):
        """End the session, and with it all that lives as long."""
        if self.number:
            try:
                self.ask(CloseInstance)
            except Gone:
                pass  # it had ended already
        self.forget()
