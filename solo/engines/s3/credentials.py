"""The keys and settings of AWS, from where its own tools take them: the environment, files, a
command, the host.

Keys are sought in AWS's order: the target's user and password, the environment, a web identity, the
profile, the container, the instance. Those that expire are read again before they do. A profile
with a role or with SSO is refused, also if it has keys: they are not those of the role. `aws
configure export-credentials`, as a credential_process, gets them.
"""

import posix
from time import monotonic

from solo.engines import json, network
from solo.engines.http import Connection, Headers, dial, find_text, parse_date
from solo.engines.program import ask_program
from solo.engines.s3.sign import Keys, format_query
from solo.errors import SoloError, Unreachable
from solo.kernel import find_home

FILE_LIMIT = 1 << 20  # bytes of a file or an answer
CONTAINER, INSTANCE = "http://169.254.170.2", "http://169.254.169.254"
ROLES = "/latest/meta-data/iam/security-credentials/"
TOKEN_LIFE = "21600"  # seconds
INSTANCE_TIMEOUT = 1.0  # seconds: elsewhere nobody answers
ELSEWHERE = ("role_arn", "sso_session", "sso_start_url", "login_session")


class Settings:
    """The environment and the files of AWS. `profile` is the chosen one, {} if there is none."""

    def __init__(self, environment: "dict[bytes, bytes] | None" = None) -> None:
        self.environment = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (posix.environ if environment is None else environment).items()
        }
        self.name = self.find("AWS_PROFILE") or self.find("AWS_DEFAULT_PROFILE") or "default"
        self.profile = self.read_profile()

    def find(self, *names: str, key: str = "") -> str:
        """Return the first of these variables that is set and not empty, else the profile's `key`,
        or "".
        """
        known = next((self.environment[name] for name in names if self.environment.get(name)), "")
        return known or key and self.profile.get(key, "")

    def expand(self, path: str) -> str:
        """Return `path` with the home directory for its `~`, or "" if there is none."""
        if not path.startswith("~/"):
            return path
        home = self.find("HOME") or find_home(posix.geteuid())
        return home and home.rstrip("/") + path[1:]

    def read_profile(self) -> "dict[str, str]":
        config = read_ini(self.expand(self.find("AWS_CONFIG_FILE") or "~/.aws/config"))
        shared = read_ini(
            self.expand(self.find("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")
        )
        name = self.name if self.name == "default" else f"profile {self.name}"
        if self.find("AWS_PROFILE") and name not in config and self.name not in shared:
            raise SoloError(
                f"AWS_PROFILE: no profile {self.name} in ~/.aws/config or ~/.aws/credentials"
            )
        profile = {**config.get(name, {}), **shared.get(self.name, {})}
        return {**profile, **config.get(f"services {profile.get('services')}", {})}

    def is_set(self, key: str) -> bool:
        return self.find(f"AWS_{key.upper()}", key=key).lower() == "true"

    def find_region(self) -> str:
        return self.find("AWS_REGION", "AWS_DEFAULT_REGION", key="region")

    def find_endpoint(self) -> str:
        if self.is_set("ignore_configured_endpoint_urls"):
            return ""
        known = self.find("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", key="s3.endpoint_url")
        return known or self.find(key="endpoint_url")


def read_ini(path: str) -> "dict[str, dict[str, str]]":
    """Return the sections of a file, none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return parse_ini(file.read(FILE_LIMIT).decode(errors="replace"))
    except OSError:
        return {}


def parse_ini(text: str) -> "dict[str, dict[str, str]]":
    """Return {section: {key: value}}. A nested setting, which is indented, has the key
    `outer.inner`.
    """
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    outer = ""
    for line in text.splitlines():
        bare = line.partition(" #")[0].partition(" ;")[0].strip()
        if bare.startswith("[") and bare.endswith("]"):
            section = sections.setdefault(" ".join(bare[1:-1].split()), {})
        elif bare[:1] not in ("", "#", ";"):
            key, equals, value = bare.partition("=")
            key = key.strip().lower()
            if line[:1].isspace():
                key = f"{outer}.{key}"
            else:
                outer = key
            if equals:
                section[key] = value.strip()
    return sections


def find_keys(settings: Settings, timeout: float) -> Keys:
    """Return the keys to sign with. Raises SoloError, Unreachable."""
    identifier, secret = settings.find("AWS_ACCESS_KEY_ID"), settings.find("AWS_SECRET_ACCESS_KEY")
    if identifier and secret:
        return Keys(
            identifier, secret, settings.find("AWS_SESSION_TOKEN") or None, None, "the environment"
        )
    profile, where = settings.profile, f"profile {settings.name}"
    file = settings.find("AWS_WEB_IDENTITY_TOKEN_FILE")
    arn = settings.find("AWS_ROLE_ARN")
    if not file and profile.get("role_arn"):
        file, arn = profile.get("web_identity_token_file", ""), profile["role_arn"]
    if file and arn:
        return ask_sts(settings, file, arn, timeout)
    elsewhere = [key for key in ELSEWHERE if profile.get(key)]
    if elsewhere:
        export = f"credential_process = aws configure export-credentials --profile {settings.name}"
        raise SoloError(
            f"{where}: {elsewhere[0]}: solo assumes no role and asks no SSO (add a profile with "
            f"`{export}`)"
        )
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        token = profile.get("aws_session_token") or None
        return Keys(
            profile["aws_access_key_id"], profile["aws_secret_access_key"], token, None, where
        )
    if profile.get("credential_process"):
        source = f"{where}: credential_process"
        return parse_keys(ask_program(profile["credential_process"], source, timeout), source)
    relative = settings.find("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    full = CONTAINER + relative if relative else settings.find("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if full:
        return ask_container(settings, full, timeout)
    if settings.find("AWS_EC2_METADATA_DISABLED").lower() != "true":
        return ask_instance(settings, timeout)
    raise make_missing("")


def make_missing(why: str) -> SoloError:
    places = (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, or a role of the host"
    )
    return SoloError(f"cannot find access keys for --via s3{why} (set {places})")


def read_token(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_LIMIT).decode("latin-1").strip()
    except OSError as error:
        raise SoloError(f"cannot read {path}: {error.strerror}") from None


def parse_keys(data: bytes, source: str) -> Keys:
    """Return the keys in an answer of a process, a container or an instance. Raises SoloError."""
    try:
        known = json.loads(data)
        token = known.get("SessionToken", known.get("Token"))
        expires = known.get("Expiration")
        texts = [known["AccessKeyId"], known["SecretAccessKey"], *([token] if token else [])]
        if not all(
            isinstance(text, str) and text.isascii() and text.isprintable() and text
            for text in texts
        ):
            raise ValueError("no keys")
        return Keys(
            texts[0], texts[1], token or None, parse_date(expires) if expires else None, source
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SoloError(
            f"{source}: its answer has no valid access keys: {type(error).__name__}"
        ) from None


def ask_sts(settings: Settings, file: str, arn: str, timeout: float) -> Keys:
    """Return the keys of a role for the token in a file, as on EKS. The request needs no
    signature.
    """
    region = settings.find_region() or "us-east-1"
    # all hosts there are FIPS
    has_fips = settings.is_set("use_fips_endpoint") and not region.startswith("us-gov-")
    host = "sts-fips" if has_fips else "sts"
    default = f"https://{host}.{region}.amazonaws.com" + ".cn" * region.startswith("cn-")
    url = (
        settings.find("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL", key="sts.endpoint_url") or default
    )
    session = settings.find("AWS_ROLE_SESSION_NAME", key="role_session_name") or "solo"
    words = {"RoleArn": arn, "RoleSessionName": session, "WebIdentityToken": read_token(file)}
    body = f"Action=AssumeRoleWithWebIdentity&Version=2011-06-15&{format_query(words)}"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    status, data = fetch("POST", url, headers, monotonic() + timeout, body, settings)
    known = {
        name: find_text(data, name)
        for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    }
    if status != 200:
        code = find_text(data, "Code") or f"HTTP {status}"
        kind = Unreachable if status >= 500 else SoloError
        raise kind(
            f"{url}: {code}: {' '.join(find_text(data, 'Message').split())} (role {arn}, token "
            f"{file})"
        )
    return parse_keys(json.dumps(known).encode(), "the web identity")


def ask_container(settings: Settings, url: str, timeout: float) -> Keys:
    path = settings.find("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = read_token(path) if path else settings.find("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if not token.isprintable():
        raise SoloError("AWS_CONTAINER_AUTHORIZATION_TOKEN: not one line")
    headers = {"Authorization": token} if token else {}
    return parse_keys(
        fetch_body("GET", url, headers, monotonic() + timeout), "the container's credentials"
    )


def ask_instance(settings: Settings, timeout: float) -> Keys:
    """Return the keys of the instance's role, by version 2 of its metadata service."""
    base = settings.find("AWS_EC2_METADATA_SERVICE_ENDPOINT").rstrip("/") or INSTANCE
    deadline = monotonic() + min(timeout, INSTANCE_TIMEOUT)
    try:
        life = {"X-aws-ec2-metadata-token-ttl-seconds": TOKEN_LIFE}
        token = (
            fetch_body("PUT", base + "/latest/api/token", life, deadline).decode("latin-1").strip()
        )
        headers = {"X-aws-ec2-metadata-token": token}
        role = fetch_body("GET", base + ROLES, headers, deadline).decode("latin-1").split()[:1]
        if not role or not token.isprintable():
            raise make_missing(": the instance has no role")
        return parse_keys(
            fetch_body("GET", base + ROLES + role[0], headers, deadline), "the instance's role"
        )
    except Unreachable as error:
        raise make_missing(f", and {error}") from None


def fetch_body(method: str, url: str, headers: Headers, deadline: float) -> bytes:
    status, data = fetch(method, url, headers, deadline)
    if status != 200:
        raise Unreachable(f"cannot reach {url}: HTTP {status}")
    return data


def fetch(
    method: str,
    url: str,
    headers: Headers,
    deadline: float,
    body: str = "",
    settings: "Settings | None" = None,
) -> "tuple[int, bytes]":
    """Return an answer's status and body. With `settings` it may be over TLS, and by a proxy.
    Raises Unreachable, SoloError.
    """
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    tls = None
    try:
        host, port = network.split_host(netloc, 443 if scheme == "https" else 80)
    except ValueError:
        host = ""
    if scheme == "https" and settings is not None:
        cafile = settings.find("AWS_CA_BUNDLE") or None
        tls = network.make_tls(network.Target(scheme, [(host, port)], "", {}, url, cafile=cafile))
    if scheme != "http" and tls is None or not host or not url.isprintable() or " " in url:
        raise SoloError(
            f"{url}: not a URL of credentials (like http://169.254.170.23/v1/credentials)"
        )
    try:
        one = (
            network.dial(host, port, deadline)
            if settings is None
            else dial(settings.find, host, port, deadline, tls)
        )
        connection = Connection(network.Timed(one, deadline), netloc)
        try:
            connection.request(method, slash + path or "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(FILE_LIMIT)
        finally:
            one.close()
    except (OSError, ValueError) as error:
        raise Unreachable(f"cannot reach {url}: {network.describe(error)}") from None
