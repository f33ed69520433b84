"""A small client of Redis: its protocol RESP2 on one connection, where each call ends by a
deadline.

The Python library of Redis takes 120 ms to load, and repeats what a lease has no time for.
"""

from time import monotonic

from solo.engines import network
from solo.engines.password import Password

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from ssl import SSLContext
    from typing import Any

# Codes of errors that may pass: the server starts, is full or busy, or another one has become the
# primary.
PASSING = "LOADING BUSY OOM MISCONF NOREPLICAS READONLY MASTERDOWN".split()
FULL = "ERR max number of clients"
FOREIGN = "the answer is not one of Redis"
BULK_LIMIT = 1 << 26  # bytes
ITEMS_LIMIT, DEPTH_LIMIT = 1 << 20, 8  # items of an array, and arrays in each other


class Refused(Exception):
    """The server answered with an error. The text is its text, which begins with a code such as
    NOAUTH.
    """


class Passing(OSError):
    """The server answered with an error that may pass. The next call connects anew, maybe to
    another server.
    """


class Connection:
    """A connection to a Target, opened by the first call. `timeout` limits one call; `tls` is an
    SSL context or None.
    """

    def __init__(self, target: network.Target, tls: "SSLContext | None", timeout: float):
        [(self.host, self.port)] = target.hosts
        self.tls = tls
        self.timeout = timeout
        self.user = target.user
        self.password = Password(target)
        self.database = int(target.path or 0)
        self.sock: network.Timed | None = None

    def call(self, *words: object) -> "Any":
        """Return bytes, a number, None, or a list of answers. Raises Refused; OSError, ValueError:
        the connection is closed.
        """
        deadline = monotonic() + self.timeout
        try:
            sock = self.sock
            if sock is None:
                sock = self.open(deadline)
            else:
                sock.deadline = deadline
            return self.ask(sock, words)
        except Refused:
            raise
        except Passing:
            self.dial_again()
            raise
        except BaseException:
            self.close()  # a late answer must not be taken for the next one
            raise

    def open(self, deadline: float) -> network.Timed:
        """Connect and log in. Return the connection, with the deadline of Password.find."""
        password, deadline = self.password.find(deadline)
        self.sock = sock = network.Timed(
            network.connect(self.host, self.port, deadline, self.tls), deadline
        )
        try:
            if self.user or password is not None:
                self.ask(sock, ["AUTH", *([self.user] if self.user else []), password or ""])
            if self.database:
                self.ask(sock, ["SELECT", self.database])
        except Refused:
            self.close()
            raise
        return sock

    def dial_again(self) -> None:
        """Have the next call connect anew, and look the name up meanwhile: the address that we keep
        can still be reached.
        """
        self.close()
        network.look_up_again(self.host, self.port)

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def ask(self, sock: network.Timed, words: "Iterable[object]") -> "Any":
        texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%b\r\n" % (len(text), text) for text in texts]
        sock.sendall(b"*%d\r\n%b" % (len(parts), b"".join(parts)))
        return self.read_answer(sock)

    def read_answer(self, sock: network.Timed, depth: int = 0) -> "Any":
        line = sock.read_line()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            text = rest.decode(errors="replace")
            raise Passing(text) if is_passing(text) else Refused(text)
        if kind == b"+":
            return rest
        if kind not in (b":", b"$", b"*"):
            raise ValueError(FOREIGN)
        number = int(rest)
        if kind == b":":
            return number
        if kind == b"$" and number <= BULK_LIMIT:
            return read_bulk(sock, number) if number >= 0 else None
        if kind == b"*" and number <= ITEMS_LIMIT and depth < DEPTH_LIMIT:
            return (
                [self.read_answer(sock, depth + 1) for _ in range(number)] if number >= 0 else None
            )
        raise ValueError(FOREIGN)


def is_passing(text: str) -> bool:
    """Return whether an error may pass. Redis before 7 says the code of an error in a script after
    its place there.
    """
    return text.startswith((*PASSING, FULL)) or any(f": -{code} " in text for code in PASSING)


def read_bulk(sock: "network.Timed", size: int) -> bytes:
    while len(sock.data) < size + 2:
        sock.receive()
    bulk = sock.data[:size]
    end = sock.data[size : size + 2]
    sock.data = sock.data[size + 2 :]
    if end != b"\r\n":
        raise ValueError(FOREIGN)
    return bulk
