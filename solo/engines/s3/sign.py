"""Signatures of requests to S3: AWS Signature Version 4.

botocore would take half a second of CPU to load.
"""

from hashlib import sha256
from hmac import digest as hmac
from time import gmtime, strftime

from solo.engines.fields import NamedTuple
from solo.kernel import encode

ALGORITHM, SERVICE = "AWS4-HMAC-SHA256", "s3"
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Keys(NamedTuple):
    """Access keys of one principal; `expires` is in seconds since the epoch, None for never;
    `source` names them in messages.
    """

    identifier: str
    secret: str
    token: "str | None" = None
    expires: "float | None" = None
    source: str = ""


def quote(text: str, safe: str = "") -> str:
    """Return a text with each byte but the unreserved ones, and those in `safe`, as %XX."""
    spared = UNRESERVED | set(safe.encode())
    return "".join(chr(byte) if byte in spared else f"%{byte:02X}" for byte in encode(text))


def format_query(parameters: "dict[str, str]") -> str:
    """Return the canonical query: sorted, quoted."""
    return "&".join(sorted(f"{quote(key)}={quote(value)}" for key, value in parameters.items()))


def sign(
    keys: Keys,
    region: str,
    moment: float,
    request: "tuple[str, str, str, str]",
    headers: "dict[str, str]",
    body: bytes,
) -> "dict[str, str]":
    """Return the headers that a request needs, with its signature.

    `request` is (method, host, path, query), both quoted; `headers` are its others, and are signed
    too.
    """
    method, host, path, query = request
    stamp = strftime("%Y%m%dT%H%M%SZ", gmtime(moment))
    digest = sha256(body).hexdigest()
    added: dict[str, str | None] = {"x-amz-content-sha256": digest, "x-amz-date": stamp}
    added["x-amz-security-token"] = keys.token
    wanted = {**headers, **{name: value for name, value in added.items() if value}}
    signed = sorted(
        (name.lower(), " ".join(value.split())) for name, value in {**wanted, "host": host}.items()
    )
    names = ";".join(name for name, _ in signed)
    lines = [method, path, query, *(f"{name}:{value}" for name, value in signed), "", names, digest]
    scope = f"{stamp[:8]}/{region}/{SERVICE}/aws4_request"
    text = "\n".join([ALGORITHM, stamp, scope, sha256("\n".join(lines).encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for word in scope.split("/"):
        key = hmac(key, word.encode(), "sha256")
    signature = hmac(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.identifier}/{scope}"
    wanted["Authorization"] = (
        f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
    )
    return wanted
