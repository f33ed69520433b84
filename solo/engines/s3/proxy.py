"""Connections by the proxy of HTTPS_PROXY, as the tools of AWS make them."""

from binascii import b2a_base64

from solo.engines import network
from solo.engines.http import Answer
from solo.errors import SoloError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def dial(find: "Callable[..., str]", host: str, port: int, deadline: float, tls: "Any") -> "Any":
    """Connect to a host, over TLS if there is a context, by a proxy if there is one. Raises OSError, SoloError.

    `find` returns the first variable of the environment that is set.
    """
    kind = "http" if tls is None else "https"
    proxy = find(f"{kind}_proxy", f"{kind}_proxy".upper())
    if not proxy or is_spared(host, find("no_proxy", "NO_PROXY")):
        return network.connect(host, port, deadline, tls)
    if tls is None:
        raise SoloError(f"http_proxy: solo asks a proxy only for https (NO_PROXY={host} spares this host)")
    return network.encrypt(open_tunnel(proxy, host, port, deadline), host, tls)


def open_tunnel(proxy: str, host: str, port: int, deadline: float) -> "Any":
    """Return a connection to a host through a proxy. Raises OSError, SoloError."""
    scheme, mark, rest = proxy.rpartition("://")
    login, _, netloc = rest.rstrip("/").rpartition("@")
    try:
        if mark and scheme != "http":
            raise ValueError
        where = network.split_host(netloc, 80)
    except ValueError:
        raise SoloError("HTTPS_PROXY: not a proxy that solo can use (like http://host:3128)") from None
    one = network.dial(where[0], where[1], deadline)
    there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}"]
    if login:
        words = b2a_base64(network.unquote(login).encode(), newline=False).decode()
        lines.append(f"Proxy-Authorization: Basic {words}")
    try:
        timed = network.Timed(one, deadline)
        timed.sendall("\r\n".join([*lines, "", ""]).encode())
        status = Answer(timed).status
        if status != 200:
            raise OSError(f"the proxy {netloc} answers HTTP {status}")
    except BaseException:
        one.close()
        raise
    return one


def is_spared(host: str, hosts: str) -> bool:
    """Return whether NO_PROXY has `*`, the host, or a domain of it."""
    ends = [one.strip().lstrip("*").lstrip(".") for one in hosts.split(",")]
    return "*" in hosts.split(",") or any(end and f".{host}".endswith(f".{end}") for end in ends)
