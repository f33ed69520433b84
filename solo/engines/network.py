"""Connections to the hosts of an engine: names, addresses, and the meaning of a TLS failure.

getaddrinfo(3) has no timeout, and no signal interrupts it. So a thread looks a name up, while the
caller waits until its deadline and handles signals. Addresses are kept: renewing a lease needs no
name server. When none of the addresses of a name can be reached, a thread looks the name up again.
"""

from _signal import SIG_SETMASK, pthread_sigmask, valid_signals
from _socket import (
    AF_UNIX,
    AI_NUMERICHOST,
    IPPROTO_TCP,
    SOCK_STREAM,
    TCP_NODELAY,
    getaddrinfo,
    socket,
    timeout,
)
from _thread import allocate_lock, start_new_thread
from time import monotonic

from solo.engines.fields import NamedTuple
from solo.errors import SoloError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLCertVerificationError, SSLContext
    from typing import Any

    Address = tuple[Any, ...]  # as of getaddrinfo

SHORTEST_CALL = 0.001  # seconds
PIECE, LONGEST_LINE = 1 << 16, 1 << 16  # bytes: of one read, and of a line without an end
TIMEOUTS = (TimeoutError, timeout)  # before Python 3.10 they differ

lookups: "dict[tuple[str, int], Lookup]" = {}  # by (host, port)


class Target(NamedTuple):
    """An engine and its address. `hosts` are (host, port), `path` has no outer slashes, `shown` is
    without secrets. A table of solo.toml can set the fields from `user` on.
    """

    scheme: str
    hosts: "list[tuple[str, int]]"
    path: str
    settings: "dict[str, str]"
    shown: str
    user: "str | None" = None
    password: "str | None" = None
    password_file: "str | None" = None
    password_command: "str | None" = None
    cafile: "str | None" = None
    certfile: "str | None" = None
    keyfile: "str | None" = None

    @property
    def has_password(self) -> bool:
        return (self.password, self.password_file, self.password_command) != (None, None, None)


class Lookup:
    """Looks a name up in threads, one at a time, which holds the lock `running`. `addresses` are
    the last that were found, as getaddrinfo returns them; `problem` is why the last look-up failed.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.addresses: list[Address] = []
        self.problem = OSError()
        self.running = allocate_lock()

    def start(self) -> None:
        """Look the name up, unless a thread does."""
        if self.running.acquire(False) and not start_thread(self.run):
            self.problem = OSError("cannot start a thread")
            self.running.release()

    def run(self) -> None:
        try:
            self.addresses = list_addresses(self.host, self.port)
        except (OSError, UnicodeError) as error:
            self.problem = OSError(
                f"{self.host}: {getattr(error, 'strerror', None) or 'not a host name'}"
            )
        self.running.release()


def start_thread(run: "Callable[[], object]") -> bool:
    """Call `run` in a thread that gets no signals. Return False if there can be no more threads."""
    mask = pthread_sigmask(SIG_SETMASK, valid_signals())
    try:
        start_new_thread(run, ())
        return True
    except RuntimeError:
        return False
    finally:
        pthread_sigmask(SIG_SETMASK, mask)


def list_addresses(host: str, port: int, flags: int = 0) -> "list[Address]":
    """As socket.getaddrinfo. Raises OSError, UnicodeError."""
    # As bytes, ASCII needs no codec for domain names, which takes 2 ms to load.
    return getaddrinfo(host.encode() if host.isascii() else host, port, 0, SOCK_STREAM, 0, flags)


def name_hosts(problems: "dict[tuple[str, int], str]") -> str:
    """Return the problems of hosts as one text: of several hosts each with its name."""
    texts = (
        [f"{host}:{port}: {text}" for (host, port), text in problems.items()]
        if len(problems) > 1
        else problems.values()
    )
    return "; ".join(texts) or "no answer"


def conceal(text: str) -> str:
    """Return a text without what precedes an @, as the user and password of a URL do."""
    return f"...{text[text.rindex('@') :]}" if "@" in text else text


def describe(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def split_host(text: str, port: int) -> "tuple[str, int]":
    """Return (host, port) of `host[:port]`, `[address][:port]` or an IPv6 address. Raises
    ValueError.
    """
    if "[" in text or "]" in text or text.count(":") > 1:
        host, bracket, rest = (text if "[" in text else f"[{text}]").partition("]")
        if host[:1] != "[" or not bracket or rest[:1] not in ("", ":"):
            raise ValueError
        host = unquote(host[1:])
        colon = rest[:1]
        digits = rest[1:]
        check_ipv6(host)
    else:
        host, colon, digits = text.partition(":")
    if not host or colon and not (digits.isdecimal() and 0 < int(digits) < 1 << 16):
        raise ValueError
    return host, int(digits) if colon else port


def check_ipv6(text: str) -> None:
    """Raise ValueError if this is not an IPv6 address, with or without a scope."""
    from _socket import AF_INET6, inet_pton

    address, percent, scope = text.partition("%")
    try:
        inet_pton(AF_INET6, address)
    except OSError:
        raise ValueError from None
    if percent and (not scope or "%" in scope):
        raise ValueError


def unquote(text: str) -> str:
    if "%" not in text:
        return text
    from urllib import parse  # takes 5 ms

    return parse.unquote(text)


def find_addresses(host: str, port: int, deadline: float) -> "list[Address]":
    """Return the addresses of a host, as getaddrinfo does. Raises OSError."""
    try:
        return list_addresses(host, port, AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass  # not an address but a name
    lookup = lookups.setdefault((host, port), Lookup(host, port))
    if not lookup.addresses:
        lookup.start()
        if not lookup.running.acquire(timeout=max(0, deadline - monotonic())):
            raise OSError(f"{host}: no name server answers")
        lookup.running.release()
        if not lookup.addresses:
            raise lookup.problem
    return lookup.addresses


def look_up_again(host: str, port: int) -> None:
    """Start to look a known name up again: none of its addresses could be reached."""
    lookup = lookups.get((host, port))
    if lookup is not None and lookup.addresses:
        lookup.start()


def connect(host: str, port: int, deadline: float, tls: "SSLContext | None") -> socket:
    """Connect to one of the addresses of a host, over TLS if there is a context. Raises OSError."""
    one = dial(host, port, deadline)
    return one if tls is None else encrypt(one, host, tls)


def dial(host: str, port: int, deadline: float) -> socket:
    """Connect to one of the addresses of a host. Raises OSError."""
    if host.startswith("/"):
        return connect_to(
            (AF_UNIX, SOCK_STREAM, 0, host), max(SHORTEST_CALL, deadline - monotonic())
        )
    addresses, problem = find_addresses(host, port, deadline), OSError()
    for at, address in enumerate(addresses):
        left = max(SHORTEST_CALL, deadline - monotonic())
        try:
            # A silent address must leave time for the next.
            one = connect_to(address, left / (len(addresses) - at))
            one.settimeout(max(SHORTEST_CALL, deadline - monotonic()))
            return one
        except OSError as error:
            problem = error
    look_up_again(host, port)
    raise problem


def connect_to(address: "Address", seconds: float) -> socket:
    one = socket(*address[:3])
    try:
        one.settimeout(seconds)
        one.connect(address[-1])
        if address[0] != AF_UNIX:
            one.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        return one
    except BaseException:
        one.close()
        raise


class Timed:
    """A connected socket whose calls all end by `deadline`: an answer that trickles in would
    outlast a timeout of each.

    `data` was received and is not yet used.
    """

    def __init__(self, one: socket, deadline: float = 0.0):
        self.socket = one
        self.deadline = deadline
        self.data = b""

    def set_timeout(self) -> None:
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.socket.settimeout(left)

    def receive(self, may_end: bool = False) -> bool:
        """Receive more data. Return False at the end of the connection, which is an error unless it
        `may_end`. Raises OSError.
        """
        self.set_timeout()
        data = self.socket.recv(PIECE)
        if not data and not may_end:
            raise ConnectionError("the server closed the connection")
        self.data += data
        return bool(data)

    def read_line(self) -> bytes:
        """Return the next line, without its end. Raises OSError, ValueError."""
        while b"\n" not in self.data:
            if len(self.data) > LONGEST_LINE:
                raise ValueError("the answer has too long a line")
            self.receive()
        line, _, self.data = self.data.partition(b"\n")
        return line.removesuffix(b"\r")

    def sendall(self, data: bytes) -> None:
        self.set_timeout()
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()


# --- TLS------------------------------------------------------------------------------------------

# OpenSSL's X509_V_ERR_*.
UNSIGNED, OTHER_HOST = (2, 18, 19, 20, 21), (62, 64)
# Parts of OpenSSL's names of the alerts by which a server refuses our certificate, or asks for one.
ALERTS = """CERTIFICATE_REQUIRED BAD_CERTIFICATE CERTIFICATE_UNKNOWN UNKNOWN_CA
    UNSUPPORTED_CERTIFICATE CERTIFICATE_EXPIRED
    CERTIFICATE_REVOKED HANDSHAKE_FAILURE ACCESS_DENIED""".split()


def make_tls(target: Target) -> "SSLContext":
    """Return an SSL context that verifies a target's servers, with its client certificate. Raises
    SoloError.
    """
    import ssl

    class Socket(ssl.SSLSocket):
        def sendall(self, *words: "Any") -> None:
            try:
                super().sendall(*words)
            except OSError:
                # With TLS 1.3 a server may refuse our certificate after the handshake: read its
                # alert.
                super().recv(1)
                raise

    try:
        context = ssl.create_default_context(cafile=target.cafile)
        context.sslsocket_class = Socket
        if target.certfile:
            context.load_cert_chain(target.certfile, target.keyfile)
        return context
    except OSError as error:
        raise SoloError(
            f"--via {target.shown}: cannot read its certificates: {error.strerror or error}"
        ) from None


def encrypt(one: socket, host: str, tls: "SSLContext") -> socket:
    """Return a connected socket that speaks TLS. Raises OSError."""
    from socket import socket as full_socket  # takes 3 ms

    timeout = one.gettimeout()
    full = full_socket(fileno=one.detach())
    try:
        full.settimeout(timeout)
        return tls.wrap_socket(full, server_hostname=host)
    except BaseException:
        full.close()
        raise


def find_distrust(
    tls: "SSLContext | None", target: Target, error: "BaseException | None"
) -> "SoloError | None":
    """Return a SoloError if `error` or its cause is about a certificate, as asking again cannot
    help; else None, as without TLS.
    """
    if tls is None:
        return None
    import ssl

    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return SoloError(
                f"{target.shown}: the server's certificate {describe_verification(target, error)}"
            )
        if isinstance(error, ssl.SSLError) and any(
            f"ALERT_{alert}" in (error.reason or "") for alert in ALERTS
        ):
            why = "requires a client certificate (certfile and keyfile of a [via.NAME])"
            if target.certfile:
                why = f"does not accept the certificate {target.certfile}"
            return SoloError(f"{target.shown}: the server {why}: {error.reason}")
        error = error.__cause__ or error.__context__
    return None


def describe_verification(target: Target, error: "SSLCertVerificationError") -> str:
    if error.verify_code in UNSIGNED:
        trusted = "an authority that this system trusts (cafile of a [via.NAME] names others)"
        return f"is not signed by {target.cafile or trusted}"
    if error.verify_code in OTHER_HOST:
        return f"is not for that host: {error.verify_message.rstrip('.')}"
    return f"is not valid: {error.verify_message}"
