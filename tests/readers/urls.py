"""The URL of an engine, and the configuration file."""

import os
import re

from readers.target import attempt, expect, fuzzed, put_into_file, same
from solo import kernel
from solo.engines import targets
from solo.errors import SoloError, UsageError

SECRET = "S3cr3tXyz"
LOGINS = f"||u@|u:{SECRET}@|:{SECRET}@|u%40:@".split("|")
HOSTS = "h|h1:2379,h2|[::1]:5|[::1]|h:0|h:65536|h:x||a b|%2Frun".split("|")
PATHS = "|/|/a/b|/%20/|/a%2fb".split("|")
QUERIES = f"||table=x|password={SECRET}|sslpassword={SECRET}&a=b|pass%77ord={SECRET}|a|PASSWORD={SECRET}|=&=".split(
    "|"
)
HOST = r"[a-z0-9.]{1,20}(?::\d{1,4})?"
ENGINE = "|".join(filter(str.isalnum, targets.ENGINES))  # not redis+unix
PLAIN_URL = re.compile(rf"({ENGINE})://(?:([a-z]+)@)?({HOST}(?:,{HOST})*)(/[a-z/]*)?", re.A)


def make_url(rng) -> bytes:
    login, host, query = rng.choice(LOGINS), rng.choice(HOSTS), rng.choice(QUERIES)
    mark = "?" if query else ""
    return f"{rng.choice(tuple(targets.ENGINES))}://{login}{host}{rng.choice(PATHS)}{mark}{query}".encode()


@fuzzed(3, f"://|@|{SECRET}|password=|%70assword=|[::1]|?|etcd://".encode())
def check_url(data: bytes):
    url = kernel.decode(data)
    target, plain = attempt(targets.parse_url, url, may=UsageError), PLAIN_URL.fullmatch(url)
    if isinstance(target, UsageError):
        expect(not plain or re.search(r":0+(?:,|\Z)", plain[3]), "a plain URL is refused", target)
        return
    expect(target.scheme in targets.ENGINES and target.hosts)
    if target.hosts[0][1]:
        expect(all(host and 0 < port < 1 << 16 for host, port in target.hosts))
    else:
        expect(
            target.scheme == "postgresql"
            and not target.hosts[0][0]
            or target.scheme == targets.UNIX,
            target,
        )
    expect(target.path == target.path.strip("/") and target.shown.isprintable())
    secrets = [
        target.password or "",
        *(value for key, value in target.settings.items() if targets.is_secret(key)),
    ]
    if url.count(SECRET) == 1 and any(SECRET in secret for secret in secrets):
        expect(SECRET not in target.shown, "a secret is shown", target.shown)
    has_password = target.password is not None
    expect(
        has_password or not re.match(rf"[a-z]+://[a-z]*:{SECRET}@[a-z]", url),
        "a password is not recognized",
    )
    if targets.has_secret(target):
        refused = attempt(targets.find_target, url, may=UsageError)
        expect(isinstance(refused, UsageError) or "://" not in url)
    if plain:
        port = targets.ENGINES[plain[1]].port
        parts = [one.partition(":") for one in plain[3].split(",")]
        hosts = [(host, int(digits) if colon else port) for host, colon, digits in parts]
        same(
            (target.hosts, target.path, target.user, target.password, target.settings),
            (hosts, (plain[4] or "").strip("/"), plain[2], None, {}),
        )


def make_toml(rng) -> bytes:
    tables = []
    for name in rng.sample(("prod", "test", "a b"), rng.randrange(3)):
        keys = [f'password = "{SECRET}"', 'user = "u"', 'cafile = "/x"', "port = 5", 'x = "y"']
        lines = [
            f'[via."{name}"]',
            f'url = "{make_url(rng).decode()}"',
            *rng.sample(keys, rng.choice((0, 0, 1, 2))),
        ]
        tables.append("\n".join(lines))
    return (
        "\n".join([*rng.choice(([], ["x = 1"], ["via = 5"], ["a = [[1], {}]"])), *tables]).encode()
        + b"\n"
    )


@fuzzed(0.5, b"[via.x]\n|url = \"etcd://h\"\n|password = |'''|" + b"[" * 50)
def check_toml(data: bytes):
    read = attempt(targets.read_configuration, put_into_file(data), may=SoloError)
    if isinstance(read, SoloError):
        expect(not isinstance(read, UsageError), read)
        has_secret = data.count(SECRET.encode()) == 1 and b"password =" in data
        expect(not has_secret or SECRET not in str(read), "a secret is shown", read)
        return
    for name, target in read.items():
        expect(isinstance(name, str) and isinstance(target, targets.Target) and target.hosts)
        expect(all(value is None or isinstance(value, str) for value in target[5:]))


def trip_toml(rng):
    url = "etcd://h1,h2:5/x"
    path = put_into_file(
        f'# a comment\n[via.prod]\nurl = "{url}"\nuser = "u"\npassword = "{SECRET}"\n'.encode()
    )
    expected = targets.parse_url(url)._replace(user="u", password=SECRET)
    same(list(targets.read_configuration(path).items()), [("prod", expected)])
    os.chmod(path, rng.choice((0o644, 0o660, 0o602)))
    refused = attempt(targets.read_configuration, path, may=SoloError)
    expect(isinstance(refused, SoloError) and SECRET not in str(refused))
