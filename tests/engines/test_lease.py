"""Leases and URLs, without servers."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from solo.engines.lease import LATENCY, MARGIN, RATE, Terms
from solo.engines.targets import open_engine, parse_url
from solo.errors import UsageError

pytestmark = pytest.mark.quick


@given(some.floats(0.5, 1000), some.one_of(some.none(), some.floats(0, 1000)))
def test_accepted_terms_allow_one_failed_renewal(ttl, grace):
    terms = Terms(ttl, grace)
    try:
        terms.check()
    except UsageError as error:
        shortest = Terms(terms.find_shortest(), terms.grace)
        shortest.check()
        assert f"--ttl {terms.find_shortest()}s" in str(error) and "\n" not in str(error)
        return

    assert terms.period + terms.timeout + terms.grace + MARGIN + LATENCY + RATE * ttl < ttl
    # Even if the engine's clock is the faster one, the command is dead before the lease expires.
    assert (terms.life + LATENCY) / (1 - RATE / 2) <= ttl / (1 - RATE / 2)


@pytest.mark.parametrize(
    "url, hosts, path, user, password, shown",
    [
        ("etcd://h", [("h", 2379)], "", None, None, None),
        (
            "etcd://h1:1,h2,[::1]:3/a/b/",
            [("h1", 1), ("h2", 2379), ("::1", 3)],
            "a/b",
            None,
            None,
            None,
        ),
        ("etcd://127.0.0.1:1,[::1]:3/a", [("127.0.0.1", 1), ("::1", 3)], "a", None, None, None),
        (
            "etcd://[fe80::1%25eth0],[::2]",
            [("fe80::1%eth0", 2379), ("::2", 2379)],
            "",
            None,
            None,
            None,
        ),
        ("redis://h?db=3", [("h", 6379)], "3", None, None, None),
        ("redis+unix:///run/r?db=3", [("/run/r", 0)], "3", None, None, None),
        ("redis://u:p%40ss@h/0", [("h", 6379)], "0", "u", "p@ss", "redis://u@h/0"),
        ("redis://:pass@h", [("h", 6379)], "", "", "pass", "redis://h"),
        (
            "postgresql://h/db?password=x&t=1",
            [("h", 5432)],
            "db",
            None,
            None,
            "postgresql://h/db?password=...&t=1",
        ),
        ("postgresql://h/d?pwd=x", [("h", 5432)], "d", None, None, "postgresql://h/d?pwd=..."),
        ("redis://h/0?auth=x", [("h", 6379)], "0", None, None, "redis://h/0?auth=..."),
        (
            "s3://b/p?region=r&secret_key=x&endpoint=http://k:x@h:1",
            [("b", 443)],
            "p",
            None,
            None,
            "s3://b/p?region=r&secret_key=...&endpoint=...@h:1",
        ),
    ],
)
def test_url_is_parsed_and_shown_without_secrets(url, hosts, path, user, password, shown):
    target = parse_url(url)

    assert (target.hosts, target.path, target.user, target.password) == (
        hosts,
        path,
        user,
        password,
    )
    assert target.shown == (shown or url)


@pytest.mark.parametrize(
    "url",
    [
        "redis//:secret@h",
        "redis:/:secret@h/0",
        "s3://b/p?region=r&endpoint=ftp://k:secret@h",
        "redis://h?passwd=secret",
    ],
)
def test_refusal_of_a_url_does_not_print_a_secret(url):
    with pytest.raises(UsageError) as error:
        open_engine(url, Terms(15.0))

    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "hosts", ["", *"h: h:0 h:65536 h:x h:1:2 [::1 ::1] [::1]3 [::1]: [h]:3 [] h]:1 h,,i h#".split()]
)
def test_invalid_host_list_is_refused(hosts):
    with pytest.raises(UsageError, match="not the URL of an engine"):
        parse_url(f"etcd://{hosts}/a")


@pytest.mark.parametrize(
    "scheme, way",
    [("etcd+srv", "members"), ("redis+sentinel", "primary"), ("redis-cluster", "single")],
)
def test_scheme_of_what_solo_does_not_speak_names_a_way(scheme, way):
    with pytest.raises(UsageError, match=rf"no such engine \(name .*{way}"):
        parse_url(f"{scheme}://h")
