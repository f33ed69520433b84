"""Requests to one bucket of an object store: signed, each within its deadline.

After its first answer the store's clock is read from the `Date` of each answer and our boot clock,
for signatures and views only. No lock depends on it.
"""

from _thread import allocate_lock
from binascii import b2a_base64
from hashlib import md5
from time import monotonic, sleep, time

from solo.engines import network
from solo.engines.fields import NamedTuple
from solo.engines.http import Answer, Connection, Headers, dial, find_http_date, find_text
from solo.engines.password import Password
from solo.engines.s3.credentials import Settings, find_keys
from solo.engines.s3.sign import Keys, quote, sign
from solo.errors import SoloError, Unreachable, UsageError
from solo.kernel import read_boot_clock

BODY_LIMIT = 1 << 22  # bytes of an answer
REGION = "us-east-1"
EARLY = 300.0  # seconds before their end the keys are read again
PATIENCE, REST = 30.0, 5.0  # seconds: for reading keys without a lease; between two readings
# a CONFLICT may succeed if repeated
OK, NOT_MODIFIED, MISSING, CONFLICT, REFUSED = (200, 204), 304, 404, 409, 412
BUSY = (429, 500, 502, 503, 504)
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
SKEWED = "RequestTimeTooSkewed"
HINTS = {
    "AccessDenied": "it needs s3:GetObject, s3:PutObject and s3:ListBucket",
    "NoSuchBucket": "create the bucket, or correct the URL",
    "NotImplemented": "the store has no conditional writes, which a lock needs",
    "SignatureDoesNotMatch": "the secret access key is wrong",
    "InvalidAccessKeyId": "the store does not know this access key",
}


class Reply(NamedTuple):
    """The answer to a request. `code` is the store's own word for an error."""

    status: int
    etag: str
    body: bytes
    code: str = ""

    def describe(self) -> str:
        return self.code or f"HTTP {self.status}"


class Store:
    """A bucket. `clock` is how far the store's wall clock is ahead of our boot clock; None before
    its first answer.
    """

    def __init__(self, target: network.Target, timeout: float) -> None:
        self.where = shown = target.shown
        if len(target.hosts) > 1 or target.hosts[0][1] != 443 or ":" in target.hosts[0][0]:
            raise UsageError(
                f"--via {shown}: not one bucket (like "
                "s3://bucket/prefix?endpoint=https://host:9000)"
            )
        if (target.user is not None) != target.has_password:
            raise UsageError(
                f"--via {shown}: an access key is a user and a password (in the [via.NAME] of a "
                "file)"
            )
        self.target = target
        self.timeout = timeout
        self.bucket = target.hosts[0][0]
        self.settings = Settings()
        self.region = target.settings.get("region") or self.settings.find_region() or REGION
        self.endpoint = target.settings.get("endpoint") or self.settings.find_endpoint()
        self.keys: Keys | None = None
        self.refreshing = allocate_lock()
        self.connection: Connection | None = None
        self.busy = ""  # the code of the last answer, if it was that of a busy store
        self.clock: float | None = None
        self.headers = self.make_headers()
        self.place()
        cafile = target.cafile or self.settings.find("AWS_CA_BUNDLE") or None
        self.tls = network.make_tls(target._replace(cafile=cafile)) if self.is_encrypted else None

    def make_headers(self) -> Headers:
        """Return the headers of each PUT by which the bucket's policy may want objects
        encrypted.
        """
        sse, kms = self.target.settings.get("sse"), self.target.settings.get("kms")
        if kms and not (sse or "").startswith("aws:kms"):
            raise UsageError(f"--via {self.where}: kms needs sse=aws:kms")
        known = {
            "x-amz-server-side-encryption": sse,
            "x-amz-server-side-encryption-aws-kms-key-id": kms,
        }
        return {name: value for name, value in known.items() if value}

    def place(self) -> None:
        """Find the host and the bucket's path there: at AWS the bucket is part of the host's
        name.
        """
        if self.endpoint:
            for key in ("use_fips_endpoint", "use_dualstack_endpoint"):
                if self.settings.is_set(key):
                    raise UsageError(
                        f"--via {self.where}: AWS_{key.upper()}, or {key} of a profile, and an "
                        "endpoint"
                    )
            scheme, _, rest = self.endpoint.partition("://")
            netloc, _, path = rest.partition("/")
            try:
                if (
                    scheme not in ("http", "https")
                    or not self.endpoint.isprintable()
                    or " " in rest
                    or "?" in rest
                ):
                    raise ValueError
                self.host, self.port = network.split_host(netloc, 443 if scheme == "https" else 80)
            except ValueError:
                wrong = (
                    f"{network.conceal(self.endpoint)}: not an endpoint (like https://host:9000)"
                )
                raise UsageError(f"--via {self.where}: {wrong}") from None
            self.is_encrypted = scheme == "https"
            self.netloc = netloc
            self.root = "".join(
                f"/{quote(part)}" for part in (*filter(None, path.split("/")), self.bucket)
            )
            return
        kind = "s3-fips" * self.settings.is_set("use_fips_endpoint") or "s3"
        kind += ".dualstack" * self.settings.is_set("use_dualstack_endpoint")
        domain = f"{kind}.{self.region}.amazonaws.com" + ".cn" * self.region.startswith("cn-")
        is_part = "." not in self.bucket  # a certificate's * has no dot
        self.host = self.netloc = f"{self.bucket}.{domain}" if is_part else domain
        self.port = 443
        self.is_encrypted = True
        self.root = "" if is_part else f"/{quote(self.bucket)}"

    def read_clock(self) -> float:
        """Return the store's time in seconds since the epoch; before its first answer this
        host's.
        """
        return time() if self.clock is None else read_boot_clock() + self.clock

    def renew_keys(self, is_refused: bool = False) -> Keys:
        """Return the keys, read again if they have ended or were refused. Raises SoloError,
        Unreachable.

        Before they end a thread reads the next ones: a process that prints them may take longer
        than a renewal may.
        """
        now, keys = self.read_clock(), self.keys
        if keys is None or is_refused or keys.expires is not None and now >= keys.expires:
            keys = self.keys = self.find_keys(self.timeout if keys else max(self.timeout, PATIENCE))
        elif keys.expires is not None and now >= keys.expires - EARLY:
            if self.refreshing.acquire(False) and not network.start_thread(self.refresh):
                self.refreshing.release()  # the next request tries again
        return keys

    def find_keys(self, seconds: float) -> Keys:
        if self.target.has_password:
            password, _ = Password(self.target).find(monotonic() + seconds)
            return Keys(self.target.user or "", password or "", source="the target")
        return find_keys(self.settings, seconds)

    def refresh(self) -> None:
        try:
            self.keys = self.find_keys(PATIENCE)
        except Exception:
            pass  # the old keys still count
        sleep(REST)
        self.refreshing.release()

    def ask(
        self,
        method: str,
        key: str,
        headers: Headers,
        body: str = "",
        query: str = "",
        deadline: "float | None" = None,
    ) -> Reply:
        """Return the answer to a request, also a refusal, or one of a store that is busy. Raises
        Unreachable, SoloError.
        """
        deadline = monotonic() + self.timeout if deadline is None else deadline
        for attempt in range(3):
            answer, reply = self.ask_once(method, key, headers, body, query, deadline)
            if (
                answer.status in (*OK, NOT_MODIFIED, CONFLICT, REFUSED, *BUSY)
                or reply.code == "NoSuchKey"
            ):
                return reply
            if attempt == 2 or not self.correct(answer, reply):
                break
        raise self.refuse(reply, key)

    def ask_once(
        self, method: str, key: str, headers: Headers, body: str, query: str, deadline: float
    ) -> "tuple[Answer, Reply]":
        """Send a request and return its answer. Raises Unreachable, SoloError. Any exception closes
        the connection.
        """
        path = f"{self.root}/{quote(key, '/')}"
        keys = self.renew_keys()
        parts = method, self.netloc, path, query
        try:
            if method == "PUT":
                headers = {**headers, **self.headers, **make_digest(body.encode())}
            signed = sign(keys, self.region, self.read_clock(), parts, headers, body.encode())
            connection = self.connection
            if connection is None or not connection.is_open:
                one = dial(self.settings.find, self.host, self.port, deadline, self.tls)
                connection = self.connection = Connection(network.Timed(one), self.netloc)
            connection.sock.deadline = deadline
            connection.request(method, f"{path}?{query}" if query else path, body, signed)
            answer = connection.getresponse()
            data = answer.read(BODY_LIMIT)
            if len(data) >= BODY_LIMIT:
                raise ValueError("the answer is too long")
            date = find_http_date(answer.headers)
            self.clock = self.clock if date is None else date - read_boot_clock()
            etag = answer.headers.get("Etag", "").removeprefix("W/").strip('"')
            if not (etag.isascii() and etag.isprintable()):
                raise ValueError("the ETag is not text")
            is_error = answer.status >= 300 and answer.status != NOT_MODIFIED
            reply = Reply(answer.status, etag, data, find_text(data, "Code") if is_error else "")
            self.busy = reply.describe() if reply.status in BUSY else ""
            return answer, reply
        except BaseException as error:
            raise self.fail(error) from None

    def fail(self, error: BaseException) -> BaseException:
        """Close the connection, on which an answer may still come. Return what to raise."""
        self.hang_up()
        if not isinstance(error, (OSError, ValueError)) or isinstance(error, SoloError):
            return error
        distrust = network.find_distrust(self.tls, self.target, error)
        reason = (
            isinstance(error, network.TIMEOUTS)
            and self.busy
            or " ".join(network.describe(error).split())
        )
        return distrust or Unreachable(f"cannot reach {self.where}: {reason}")

    def correct(self, answer: Answer, reply: Reply) -> bool:
        """Correct the next try of a refused request. Return whether that can help."""
        if reply.code == SKEWED:
            return self.clock is not None  # known now
        if reply.code in EXPIRED:
            self.renew_keys(is_refused=True)
            return True
        region = answer.headers.get("X-Amz-Bucket-Region") or find_text(reply.body, "Region")
        is_other = (
            region not in ("", self.region)
            and region.replace("-", "").isalnum()
            and region.isascii()
        )
        if is_other and answer.status in (301, 307, 400):
            self.region = region
            self.place()
            self.hang_up()
        return is_other

    def refuse(self, reply: Reply, key: str) -> SoloError:
        """Return SoloError for an answer that asking again does not change; Unreachable for that of
        a busy store.
        """
        code = reply.describe()
        if reply.status in BUSY:
            return Unreachable(f"cannot reach {self.where}: {code}")
        text = find_text(reply.body, "Message") or f"for {key}"
        source = f"; keys of {self.keys.source}" if self.keys else ""
        hint = f" ({HINTS[code]})" if code in HINTS else f", region {self.region}{source}"
        return SoloError(f"{self.where}: {code}: {' '.join(text.split()).rstrip('.')}{hint}")

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def make_digest(body: bytes) -> Headers:
    """Return the header that a bucket with Object Lock demands."""
    try:
        digest = md5(body, usedforsecurity=False).digest()
    except ValueError:
        return {}  # a system without it, as for FIPS
    return {"Content-MD5": b2a_base64(digest, newline=False).decode()}
