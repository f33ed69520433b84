"""The value of --via: an engine's URL, or a target of the configuration file, which may have
secrets.

A password is never taken from the command line or the environment, which others can read, and is
never shown. Exception: the keys of AWS, which its own tools take from the environment.
"""

import posix
import sys

from solo.engines.fields import NamedTuple
from solo.engines.network import Target, conceal, describe, split_host, unquote
from solo.engines.password import read_trusted
from solo.errors import SoloError, UsageError
from solo.kernel import find_home
from solo.options import LOCAL_BACKENDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.engines.lease import Terms
    from solo.engines.queue import Engine

OTHERS_READ = 0o004  # of a mode
CONFIGURATION = "/etc/solo.toml"
USERS_CONFIGURATION = ".config/solo.toml"  # below the home directory of the password database
PASSWORD_FILE = "password_file"  # a setting of each URL, and a key of a target
KEYS = ("url", *Target._fields[Target._fields.index("user") :])
ALIASES = {"postgres": "postgresql"}
SECRETS = "pas", "pw", "secret", "token"  # parts of a key whose value is hidden, even if mistyped
UNIX = "redis+unix"
WAYS = {  # to what solo does not speak, by a part of the scheme
    "srv": "name the members, as in etcd://h1:2379,h2:2379",
    "sentinel": "name the primary, or a proxy that follows it, as in redis://h:6379",
    "cluster": "name a single server, as in redis://h:6379",
}


class Kind(NamedTuple):
    """One of the engines: the class `engine` in `module`. `schemes` are those of its URLs,
    `settings` those in a URL's query, None for any; `needs` is what must be installed for it,
    `package` Debian's with that, `library` the Python library that is it or brings it,
    `requirement` the same for pip, as in pyproject.toml.
    """

    schemes: "tuple[str, ...]"
    port: int
    module: str
    engine: str
    settings: "tuple[str, ...] | None" = ()
    library: str = ""
    needs: str = ""
    package: str = ""
    requirement: str = ""


PSYCOPG = "psycopg", "libpq", "libpq5", "psycopg[binary]>=3.1.7"
KAZOO = "kazoo", "the Python library kazoo", "python3-kazoo", "kazoo>=2.8"
POSTGRESQL = Kind(("postgresql",), 5432, "postgresql.engine", "PostgreSQL", None, *PSYCOPG)
REDIS = Kind(("redis", "rediss", UNIX), 6379, "redis", "Redis")
KINDS = (
    Kind(("etcd", "etcds"), 2379, "etcd", "Etcd"),
    POSTGRESQL,
    Kind(("zookeeper", "zookeepers"), 2181, "zookeeper.engine", "ZooKeeper", (), *KAZOO),
    REDIS,
    Kind(("s3",), 443, "s3.engine", "S3", ("region", "endpoint", "sse", "kms")),
)
ENGINES = {scheme: kind for kind in KINDS for scheme in kind.schemes}


def open_engine(where: str, terms: "Terms") -> "Engine":
    """Return the Engine of --via `where`, not yet connected, for a lease of these Terms. Raises
    SoloError, UsageError.
    """
    target = find_target(where)
    kind = ENGINES[target.scheme]
    unknown = [
        key for key in target.settings if kind.settings is not None and key not in kind.settings
    ]
    if unknown:
        known = f"there are {', '.join((*(kind.settings or ()), PASSWORD_FILE))}"
        raise UsageError(f"--via {target.shown}: {unknown[0]}: no such setting ({known})")
    try:
        make = import_engine(kind)
    except ImportError as error:
        if not kind.library or (error.name or "").partition(".")[0] != kind.library:
            raise
        from solo.text.missing import describe_install

        how = describe_install({kind.package: kind.requirement})
        raise SoloError(f"--via {target.scheme} needs {kind.needs} (install: {how})") from None
    return make(target, terms.ttl, terms.timeout)


def import_engine(kind: Kind) -> "Callable[[Target, float, float], Engine]":
    # importlib imports warnings.
    module = __import__(f"solo.engines.{kind.module}", fromlist=[kind.engine])
    return getattr(module, kind.engine)  # type: ignore[no-any-return]


def find_target(where: str) -> Target:
    """Return the Target that --via `where` names. Raises SoloError, UsageError."""
    if "://" in where:
        target = parse_url(where)
        if has_secret(target):
            remedy = f"put it into {CONFIGURATION} or ~/{USERS_CONFIGURATION}"
            raise UsageError(
                f"--via {target.shown}: other users could read the password ({remedy})"
            )
        return target
    known: dict[str, Target] = {}
    home = find_home(posix.geteuid())
    files = [CONFIGURATION, *([f"{home}/{USERS_CONFIGURATION}"] if home else [])]
    for path in files:
        known.update(read_configuration(path))
    if where not in known:
        unreadable = [
            path
            for path in files
            if posix.access(path, posix.F_OK) and not posix.access(path, posix.R_OK)
        ]
        where_to = " or ".join(files) + "".join(f" ({path} is not readable)" for path in unreadable)
        raise UsageError(
            f"--via {conceal(where)}: neither file nor socket, an engine's URL, nor a target of "
            f"{where_to}"
        )
    return known[where]


def parse_url(url: str) -> Target:
    """Return the Target of an engine's URL. Raises UsageError."""
    try:
        # urllib's urlsplit() is of no use: versions of Python differ on `h,[::1]:3`.
        scheme, _, rest = url.partition("://")
        scheme = ALIASES.get(scheme.lower(), scheme.lower())
        if not is_scheme(scheme) or "#" in url or not unquote(url).isprintable():
            raise ValueError
        rest, mark, query = rest.partition("?")
        netloc, slash, path = rest.partition("/")
        path = shown_path = slash + path
        if scheme not in ENGINES:
            way = next(
                (way for part, way in WAYS.items() if part in scheme),
                f"there are {', '.join(ENGINES)}",
            )
            raise UsageError(f"--via {scheme}://: no such engine ({way})")
        login, at, hosts = netloc.rpartition("@")
        user, colon, password = login.partition(":")
        pairs = [part.split("=", 1) for part in query.replace("+", " ").split("&")] if query else []
        settings = {unquote(key): unquote(value) for key, value in pairs}
        if scheme == UNIX:
            if hosts or not path:
                raise ValueError
            addresses, path = [(unquote(path), 0)], ""
        elif ENGINES[scheme] is POSTGRESQL and not hosts:
            addresses = [("", 0)]
        else:
            addresses = [split_host(host, ENGINES[scheme].port) for host in hosts.split(",")]
        if ENGINES[scheme] is REDIS:
            path = settings.pop("db", path)  # as the libraries of Redis take it
    except UsageError:
        raise
    except ValueError:
        raise UsageError(
            "--via: not the URL of an engine (like etcd://h1:2379,h2:2379/prefix)"
        ) from None
    login, question = "@" * bool(user), "?" * bool(query)
    query = hide_secrets(query, ENGINES[scheme].settings)
    shown = f"{scheme}://{user}{login}{hosts}{shown_path}{question}{query}"
    secrets = unquote(user) if at else None, unquote(password) if colon else None
    file = settings.pop(PASSWORD_FILE, None)
    return Target(
        scheme, addresses, unquote(path).strip("/"), settings, shown, *secrets, password_file=file
    )


def hide_secrets(query: str, known: "tuple[str, ...] | None") -> str:
    """Return a query without the values that may be secrets: of `known` settings, those of a URL in
    them; if any are accepted (None), those whose keys look like one.
    """
    shown = []
    for part in query.split("&"):
        key, mark, value = part.partition("=")
        name = unquote(key).lower()
        is_hidden = any(map(name.__contains__, SECRETS)) if known is None else name not in known
        is_hidden = is_hidden and bool(mark) and name not in (PASSWORD_FILE, "db")
        shown.append(f"{key}{mark}{'...' if is_hidden else conceal(value)}")
    return "&".join(shown)


def is_secret(key: str) -> bool:
    return "password" in key and key != PASSWORD_FILE


def is_scheme(text: str) -> bool:
    return (
        text[:1].isalpha()
        and text.isascii()
        and text.translate(dict.fromkeys(map(ord, "+.-"))).isalnum()
    )


def read_configuration(path: str) -> "dict[str, Target]":
    """Return the targets of one file by name, none if there is no such file. Raises SoloError."""
    try:
        data, mode = read_trusted(path)
        text = data.decode()
    except (FileNotFoundError, PermissionError):  # there is none, or it has root's secrets
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SoloError(f"cannot read {path}: {describe(error)}") from None
    try:
        targets = load_toml(text).get("via", {})
    except (ValueError, RecursionError) as error:
        raise SoloError(f"{path}: {error}") from None
    if not isinstance(targets, dict):
        raise SoloError(f"{path}: via: not a table (like [via.prod])")
    for name in LOCAL_BACKENDS:
        if name in targets:
            raise SoloError(f"{path}: [via.{name}]: the name of a backend without an engine")
    targets = {name: make_target(path, name, table) for name, table in targets.items()}
    if mode & OTHERS_READ and any(map(has_secret, targets.values())):
        raise SoloError(f"cannot use {path}: everybody can read the password in it (chmod o-r)")
    return targets


def has_secret(target: Target) -> bool:
    return target.password is not None or any(map(is_secret, target.settings))


def load_toml(data: str) -> "dict[str, object]":
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    loaded: dict[str, object] = tomllib.loads(data)
    return loaded


def make_target(path: str, name: str, table: object) -> Target:
    """Return the Target of one table [via.NAME]. Raises SoloError."""
    where = f"{path}: [via.{name}]"
    if (
        not isinstance(table, dict)
        or not all(isinstance(value, str) for value in table.values())
        or "url" not in table
    ):
        raise SoloError(f"{where}: not a table of strings with a url")
    for key in table:
        if key not in KEYS:
            raise SoloError(f"{where}: {key}: no such key (there are {', '.join(KEYS)})")
    try:
        target = parse_url(table["url"])
    except UsageError as error:
        raise SoloError(f"{where}: {error}") from None
    return target._replace(**{key: table[key] for key in KEYS[1:] if key in table})
