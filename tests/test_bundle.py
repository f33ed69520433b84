"""The launcher in one file, as `make install` makes it: it does all that the source tree does, lazy imports included."""

import os
import re
import signal
import sys

import pytest
from conftest import ROOT, finish, make_bundled, read_line, until
from ordinary_run import record

from solo.generate.bundle import read_recorded


def test_recorded_functions_are_what_an_ordinary_run_calls(lab):
    assert record(lab.environment, lab.path) == read_recorded(), "python tests/ordinary_run.py"


@pytest.fixture
def bundled(lab):
    lab.plain, lab.script = lab.script, str(make_bundled(lab.path))
    lab.bundle = lab.path / f"launcher-{sys.implementation.cache_tag}"
    return lab


def test_only_the_bundle_is_read(bundled):
    trace = bundled.path / "trace"

    result = bundled.run(
        "-n", "job", "-w", "1", "echo", "ran", prefix=("strace", "-qq", "-f", "-e", "trace=openat", "-o", trace)
    )

    assert result.stdout == b"ran\n" and trace.read_text().count(str(bundled.bundle)) == 1
    assert str(ROOT / "solo") not in trace.read_text()


def test_bundle_names_the_holder_to_a_skipped_contender(bundled):
    holder = bundled.hold("job")

    result = bundled.run("-n", "job", "true")

    assert (result.returncode, f"pid {holder.pid}".encode() in result.stderr) == (75, True)


def test_bundle_queues_in_order_and_forwards_signals(bundled):
    holder = bundled.hold("job")
    bundled.start_waiter("job", tag="first")
    catcher = "trap 'echo term; exit 7' TERM; echo up; while :; do sleep 0.01; done"
    second = bundled.start("-n", "job", "-w", "1h", "sh", "-c", catcher)
    until(lambda: bundled.count_waiting("job") == 2)

    holder.communicate()
    assert read_line(second) == "up" and bundled.read_log() == ["first"]
    second.terminate()

    assert finish(second)[:2] == (7, "term\n")


def test_bundle_sees_orphans_and_mirrors_death_by_signal(bundled):
    holder = bundled.hold("job")
    holder.kill()
    holder.wait()

    assert b"orphan" in bundled.run("-n", "job", "true").stderr
    os.kill(holder.child, signal.SIGKILL)

    assert bundled.run("-n", "job", "-w", "10", "sh", "-c", "kill -USR1 $$").returncode == -signal.SIGUSR1


@pytest.mark.parametrize(
    "words, status",
    [
        (("--wait", "soon", "true"), 125),
        (("-n", ".", "true"), 125),
        (("/proc/nowhere",), 127),
        (("/etc/passwd",), 126),
        ((), 125),
        (("-t", "0.1", "sleep", "9"), 124),
        (("--slots", "2", "true"), 0),
        (("-n", "a/b/c", "true"), 0),
    ],
)
def test_bundle_prints_and_exits_like_the_source(bundled, words, status):
    results = [bundled.run(*words) for bundled.script in (bundled.plain, bundled.script)]

    assert [result.returncode for result in results] == [status, status]
    assert len({re.sub(rb"pid \d+", b"pid", result.stderr) for result in results}) == 1


def test_missing_or_foreign_bundle_is_ignored(bundled):
    whole = bundled.bundle.read_bytes()
    for content in (None, b"", b"of another Python", whole[:-100], whole + b"of a later version"):
        bundled.bundle.unlink(missing_ok=True)
        if content is not None:
            bundled.bundle.write_bytes(content)

        assert bundled.run("-n", "job", "echo", "ran").stdout == b"ran\n"
