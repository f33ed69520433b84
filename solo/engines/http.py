"""A small HTTP/1.1 client: one connection, one request at a time, all by a deadline; and the dates
and XML of answers.

Python's http.client takes 20 ms to load, as it reads headers as those of a mail; email.utils takes
8, an XML parser 10.
"""

from _datetime import datetime  # type: ignore[import-not-found]  # datetime takes 3 ms to load
from binascii import b2a_base64

from solo.engines import network
from solo.errors import SoloError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Iterator
    from ssl import SSLContext

MOST_LINES = 100
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
Headers = dict[str, str]  # by name
ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}


class Connection:
    """A connection by a Timed socket to `host`, a header's text. It is no longer open once the
    server has closed it.
    """

    def __init__(self, sock: network.Timed, host: str) -> None:
        self.sock = sock
        self.host = host
        self.is_open = True

    def request(self, method: str, path: str, body: str, headers: "dict[str, str]") -> None:
        self.sock.data = b""  # what came after the last answer is no part of the next one
        data = body.encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + data)

    def getresponse(self) -> "Answer":
        """Return the Answer, whose body is still to be read. Raises OSError, ValueError."""
        answer = Answer(self.sock)
        self.is_open = not answer.is_last
        return answer

    def close(self) -> None:
        self.is_open = False
        self.sock.close()


class Answer:
    """An answer: its `status`, its `headers`, such as "Content-Length", and a body to be read once.
    `is_last`: none follows.
    """

    def __init__(self, sock: network.Timed) -> None:
        self.sock = sock
        self.body = b""  # decoded and not yet read
        self.status = 0
        while self.status < 200:
            version, _, status = self.read_head_line().partition(" ")
            if version[:7] != "HTTP/1." or not status[:3].isdecimal():
                raise ValueError("the answer is not HTTP")
            self.status = int(status[:3])
            self.headers = self.read_headers()
        is_chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        size = None  # until the connection ends
        if self.status in (204, 304):
            is_chunked, size = False, 0
        elif "Content-Length" in self.headers and not is_chunked:
            size = parse_size(self.headers["Content-Length"], 10)
        self.pieces = self.decode_chunks() if is_chunked else self.decode(size)
        default = "close" if version == "HTTP/1.0" else "keep-alive"
        wish = self.headers.get("Connection", default).lower()
        self.is_last = wish != "keep-alive" or size is None and not is_chunked

    def read(self, limit: int) -> bytes:
        """Return the body, cut after `limit` bytes."""
        while len(self.body) < limit and self.read_piece():
            pass
        return self.body[:limit]

    def readline(self, limit: int) -> bytes:
        """Return the next line of the body, cut after `limit` bytes; b"" at the end."""
        while b"\n" not in self.body and len(self.body) < limit and self.read_piece():
            pass
        end = min(limit, self.body.find(b"\n") + 1 or limit)
        line, self.body = self.body[:end], self.body[end:]
        return line

    def read_piece(self) -> bool:
        """Decode what was received, or receive more. Return False at the end of the body."""
        piece = next(self.pieces, b"")
        self.body += piece
        return bool(piece)

    def decode(self, left: "int | None") -> "Iterator[bytes]":
        """Yield the pieces of so many bytes, or, if None, of all until the end of the
        connection.
        """
        sock = self.sock
        while left != 0 and (sock.data or sock.receive(may_end=left is None)):
            piece, sock.data = sock.data[:left], sock.data[left:] if left is not None else b""
            left = None if left is None else left - len(piece)
            yield piece

    def decode_chunks(self) -> "Iterator[bytes]":
        while size := parse_size(self.read_head_line().partition(";")[0].strip(), 16):
            yield from self.decode(size)
            self.read_head_line()
        self.read_headers()  # the trailer

    def read_headers(self) -> "dict[str, str]":
        headers: dict[str, str] = {}
        for _ in range(MOST_LINES):
            name, _, value = self.read_head_line().partition(":")
            if not name:
                return headers
            headers[name.title()] = value.strip()
        raise ValueError("the answer has too many headers")

    def read_head_line(self) -> str:
        return self.sock.read_line().decode("latin-1")


def parse_size(text: str, base: int) -> int:
    if not text.isalnum():  # int() accepts a sign too
        raise ValueError("the answer has no valid length")
    return int(text, base)


def parse_date(text: str) -> float:
    """Return the seconds since the epoch of `2026-11-23T05:47:03Z`, or with `+00:00` or a fraction.
    Raises ValueError.
    """
    clock = text.removesuffix("Z").removesuffix("+00:00")
    seconds: float = datetime.fromisoformat(clock.partition(".")[0] + "+00:00").timestamp()
    if clock == text or seconds < 0:
        raise ValueError("not a date in UTC")
    return seconds


def find_http_date(headers: "dict[str, str]") -> "float | None":
    """Return the seconds since the epoch of the header `Date: Mon, 23 Nov 2026 05:47:03 GMT`, in
    the middle of that second.

    Return None without one that we can parse.
    """
    try:
        _, day, month, year, clock, zone = headers.get("Date", "").split()
        seconds = parse_date(f"{year}-{MONTHS.index(month) + 1:02}-{day}T{clock}Z") + 0.5
        return seconds if zone == "GMT" else None
    except ValueError:
        return None


def find_text(body: bytes, name: str) -> str:
    """Return the text of the first XML element of this name, "" if there is none."""
    return next(iter(find_texts(body.decode(errors="replace"), name)), "")


def find_texts(text: str, name: str) -> "list[str]":
    """Return the texts of all XML elements of this name, which have no attributes and no elements
    within.
    """
    texts = []
    for piece in text.split(f"<{name}>")[1:]:
        inner, end, _ = piece.partition(f"</{name}>")
        if end and "<" not in inner:
            for code, sign in ENTITIES.items():
                inner = inner.replace(code, sign)
            texts.append(inner)
    return texts


# --- the proxy of HTTPS_PROXY, as the tools of AWS use it-----------------------------------------


def dial(
    find: "Callable[..., str]", host: str, port: int, deadline: float, tls: "SSLContext | None"
) -> "socket":
    """Connect to a host, over TLS if there is a context, by a proxy if there is one. Raises
    OSError, SoloError.

    `find` returns the first variable of the environment that is set.
    """
    kind = "http" if tls is None else "https"
    proxy = find(f"{kind}_proxy", f"{kind}_proxy".upper())
    if not proxy or is_spared(host, find("no_proxy", "NO_PROXY")):
        return network.connect(host, port, deadline, tls)
    if tls is None:
        raise SoloError(
            f"http_proxy: solo asks a proxy only for https (NO_PROXY={host} spares this host)"
        )
    return network.encrypt(open_tunnel(proxy, host, port, deadline), host, tls)


def open_tunnel(proxy: str, host: str, port: int, deadline: float) -> "socket":
    """Return a connection to a host through a proxy, which an OSError names. Raises OSError,
    SoloError.
    """
    scheme, mark, rest = proxy.rpartition("://")
    login, _, netloc = rest.rstrip("/").rpartition("@")
    try:
        if mark and scheme != "http":
            raise ValueError
        where = network.split_host(netloc, 80)
    except ValueError:
        raise SoloError(
            "HTTPS_PROXY: not a proxy that solo can use (like http://host:3128)"
        ) from None
    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}"]
    if login:
        words = b2a_base64(network.unquote(login).encode(), newline=False).decode()
        lines.append(f"Proxy-Authorization: Basic {words}")
    source = f"(HTTPS_PROXY names it; NO_PROXY={host} spares this host)"
    try:
        one, status = ask_proxy(where, "\r\n".join([*lines, "", ""]), deadline)
    except (OSError, ValueError) as error:
        raise OSError(f"the proxy {netloc}: {network.describe(error)} {source}") from None
    if status != 200:
        one.close()
        raise OSError(f"the proxy {netloc} answers HTTP {status} {source}")
    return one


def ask_proxy(where: "tuple[str, int]", request: str, deadline: float) -> "tuple[socket, int]":
    """Return (a connection to a proxy, the status of its answer). Raises OSError, ValueError."""
    one = network.dial(*where, deadline)
    try:
        timed = network.Timed(one, deadline)
        timed.sendall(request.encode())
        return one, Answer(timed).status
    except BaseException:
        one.close()
        raise


def is_spared(host: str, hosts: str) -> bool:
    """Return whether NO_PROXY has `*`, the host, or a domain of it."""
    ends = [one.strip().lstrip("*").lstrip(".") for one in hosts.split(",")]
    return "*" in hosts.split(",") or any(end and f".{host}".endswith(f".{end}") for end in ends)
