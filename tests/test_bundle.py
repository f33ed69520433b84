"""The launcher in one file, as `make install` makes it: it does all that the source tree does, lazy imports included."""

import os
import re
import signal
import sys

import pytest
from conftest import PATIENCE, ROOT, finish, is_blocked, make_bundled, read_line, until
from ordinary_run import record
from test_handoff import find_forked

from solo.generate import bundle


def test_recorded_functions_are_what_an_ordinary_run_calls(lab):
    recorded = bundle.read_recorded()
    if os.geteuid():
        recorded["solo.journal_files"].remove("is_same")  # only root's run compares its directory with /run/solo

    assert record(lab.environment, lab.path) == recorded, "python tests/ordinary_run.py"


@pytest.fixture(scope="session")
def bundled_script(tmp_path_factory):
    return make_bundled(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def bundled(lab, bundled_script):
    return use(lab, bundled_script)


def use(lab, script):
    lab.plain, lab.script = lab.script, str(script)
    lab.bundle = script.parent / f"launcher-{sys.implementation.cache_tag}"
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


def test_turn_loads_no_part(bundled):
    load = "            data = _read(key)"
    assert load in bundle.INDEX
    index = bundle.INDEX.replace(load, "            posix.write(2, b'loads %b\\n' % key.encode())\n" + load)
    bundled.script = str(make_bundled(bundled.path, index=index))
    log = bundled.path / "stderr"
    holder = bundled.hold("job")
    with open(log, "ab") as stderr:
        waiter = bundled.start("-w", "1h", "-n", "job", "--", "sh", "-c", "echo runs >&2", stderr=stderr)
        find_forked(waiter)
        until(lambda: is_blocked(waiter.pid))
        stderr.write(b"turn\n")

    finish(holder)

    assert waiter.wait(PATIENCE) == 0
    before, _, after = log.read_text().partition("turn\n")
    assert "loads solo.contention.handoff\n" in before and after.startswith("runs\n")


def test_parts_of_another_version_are_not_loaded(lab):
    """A waiter that began before an upgrade loads the modules of files then, as those that no bundle has."""
    bundled = use(lab, make_bundled(lab.path))
    holder = bundled.hold("job")
    waiter = bundled.start("-w", "1h", "-n", "job", "--", "sh", "-c", "sleep 99")
    until(lambda: bundled.count_waiting("job"))
    timed = bundled.start("-n", "other", "--", "sh", "-c", "echo; read line")
    read_line(timed)
    bundled.bundle.write_bytes(b"of another version")

    finish(holder)
    until(lambda: bundled.list("job")[0]["state"] == "held")
    waiter.terminate()

    assert waiter.wait(PATIENCE) == -signal.SIGTERM
    assert finish(timed, b"\n")[0] == 0


def test_missing_or_foreign_bundle_is_ignored(lab):
    bundled = use(lab, make_bundled(lab.path))
    whole = bundled.bundle.read_bytes()
    for content in (None, b"", b"of another Python", whole[:-100], whole + b"of a later version"):
        bundled.bundle.unlink(missing_ok=True)
        if content is not None:
            bundled.bundle.write_bytes(content)

        assert bundled.run("-n", "job", "echo", "ran").stdout == b"ran\n"
