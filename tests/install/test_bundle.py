"""The program of an installation: all modules in one file, opened once, read to the end of a run
whatever is installed.
"""

import os
import re
import subprocess
import sys
import sysconfig

import conftest
import pytest
from conftest import PATIENCE, finish, is_blocked, make_bundled, read_line, until
from observed import until_blocked

from solo.commands.cli import SUBCOMMANDS
from solo.options import SUBCOMMAND_NAMES


@pytest.fixture(scope="session")
def bundled_script(tmp_path_factory):
    return make_bundled(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def bundled(lab, bundled_script):
    return use(lab, bundled_script)


def use(lab, script):
    lab.use_modules()
    lab.plain, lab.script = lab.script, str(script)
    lab.program = script.parent / "program"
    return lab


def trace(bundled, *words):
    """Return the system calls on the program, as strace prints them."""
    output = bundled.path / "trace"
    strace = ("strace", "-qq", "-f", "-y", "-e", "trace=openat,read,pread64", "-o", output)
    assert bundled.run(*words, prefix=strace).stdout == b"ran\n"
    return [call for call in output.read_text().splitlines() if str(bundled.program) in call]


@pytest.mark.host
@pytest.mark.tool("strace")
def test_run_opens_the_program_once_and_reads_no_source(bundled):
    calls = trace(bundled, "-n", "job", "echo", "ran")

    assert [re.search(r"(\w+)\(", call)[1] for call in calls] == ["openat", "read", "read"]
    assert f'"{conftest.source}/solo' not in (bundled.path / "trace").read_text()


@pytest.mark.tool("strace")
def test_module_that_few_runs_need_comes_from_the_same_descriptor(bundled):
    calls = trace(bundled, "-n", "job", "-t", "9", "echo", "ran")

    assert sum("openat" in call for call in calls) == 1
    assert any("pread64" in call for call in calls)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_program_is_no_standard_descriptor_and_close_on_exec(bundled, closed):
    look = 'ls -l /proc/$PPID/fd >"$LAB/launcher"; ls -l /proc/self/fd/ >"$LAB/command"'
    words = ["sh", "-c", f'exec "$SOLO" -n job -- sh -c "$1" {closed}', "sh", look]

    assert os.spawnvpe(os.P_WAIT, "sh", words, {**bundled.environment, "SOLO": bundled.script}) == 0

    [number] = re.findall(
        rf" (\d+) -> {bundled.program}\n", (bundled.path / "launcher").read_text()
    )
    assert int(number) > 2
    assert str(bundled.program) not in (bundled.path / "command").read_text()


def test_waiter_loads_what_it_needs_from_the_removed_program(lab):
    """Everything is removed and replaced by another version while they wait: each ends as it would
    have.
    """
    bundled = use(lab, make_bundled(lab.path))
    holder = bundled.hold("job")
    served = bundled.start("-n", "job", "-w", "1h", "-t", "0.1", "--", "sleep", "99")
    busy = bundled.start("-n", "job", "-w", "2", "true")
    until(
        lambda: bundled.count_waiting("job") == 2 or busy.poll() is not None
    )  # before its time is over
    bundled.program.unlink()
    bundled.program.write_bytes(b"of another version")

    status, _, stderr = finish(busy)
    assert status == 75 and re.search(r"busy: held for \d+s by pid \d+ .*; waited 2.0s\n$", stderr)
    finish(holder)

    assert served.wait(PATIENCE) == 124


GIVING_UP = [
    "-n job",
    "-q -E 75 -n job",
    "--slots 2 -n job",
    "-n job/part",
    "-v -n job",
    "--flock {file} -n free",
]


def test_waiter_that_gives_up_loads_nothing_of_a_removed_python(lab):
    """A new release of the distribution removes the library of the old Python."""
    bundled = use(lab, make_bundled(lab.path))
    library, locked = lab.path / "library", lab.path / "locked"
    library.symlink_to(sysconfig.get_path("stdlib"))
    first, rest = (lab.path / "solo").read_text().split("\n", 1)
    paths = [str(library), f"{library}/lib-dynload"]
    (lab.path / "solo").write_text(f"{first}\nimport sys; sys.path[:] = {paths}\n{rest}")
    holds = [bundled.hold("job"), bundled.hold("other", "--flock", locked)]
    words = [f"-w 2s {each}".format(file=locked).split() for each in GIVING_UP]
    waiters = [bundled.start(*each, "true") for each in words]
    waiters.append(bundled.start("hold", "--wait", "2s", "--pid", str(os.getpid()), "job"))
    superseded = bundled.start("-w", "1h", "-n", "other", "true")
    until(lambda: bundled.count_waiting("other") and all(map(is_waiting, [*waiters, superseded])))

    library.unlink()

    for each in waiters:
        status, _, err = finish(each)
        assert (status, "busy: " in err) == (75, "-q" not in each.args), err
    newer = bundled.start_words(bundled.plain, "-w", "1h", "--latest", "-n", "other", "true")
    status, _, err = finish(superseded)
    assert (status, err) == (75, f"solo: other: superseded by pid {newer.pid} (true)\n")
    for hold in holds:
        finish(hold)
    assert newer.wait(PATIENCE) == 0


def is_waiting(process):
    return is_blocked(process.pid) or process.poll() is not None


@pytest.mark.tool("strace")
def test_turn_loads_nothing(bundled):
    """Between the end of the holder and its own command a waiter reads nothing of the program."""
    holder = bundled.hold("job")
    output = bundled.path / "trace"
    calls = ("strace", "-qq", "-f", "-y", "-e", "trace=pread64", "-o", output)
    waiter = bundled.start(
        "-w", "1h", "-n", "job", "--", "sh", "-c", "echo runs; read line", prefix=calls
    )
    until_blocked(waiter)
    before = output.read_text().count(str(bundled.program))

    finish(holder)

    assert read_line(waiter) == "runs"
    assert output.read_text().count(str(bundled.program)) == before > 0
    finish(waiter)


def test_traceback_names_files_and_lines_of_the_source(bundled_script):
    head = bundled_script.read_text().partition("    from solo.main")[0]
    fail = "    import solo.kernel\n    solo.kernel.read_file('/nowhere')\nfinally: pass\n"

    failed = subprocess.run(
        [sys.executable, "-IS", "-c", head + fail], capture_output=True, text=True
    )

    assert re.search(
        rf'File "{conftest.source}/solo/kernel.py", line \d+, in read_file\n    fd = posix.open',
        failed.stderr,
    )


@pytest.mark.parametrize("name", SUBCOMMAND_NAMES)
def test_help_of_a_subcommand_is_that_of_the_source(bundled, name):
    """The bundle has no docstrings: what a subcommand does must not be one."""
    shown = bundled.run(name, "--help").stdout.decode()

    bundled.script = bundled.plain
    assert shown == bundled.run(name, "--help").stdout.decode()
    assert " ".join(SUBCOMMANDS[name].text.split()[:4]) in shown


@pytest.mark.parametrize(
    "damage", ["missing", "empty", "cut", "of another Python", "of another source"]
)
def test_unusable_program_is_ignored(lab, damage):
    bundled = use(lab, make_bundled(lab.path))
    whole = bundled.program.read_bytes()
    bundled.program.unlink()
    if damage != "missing":
        other = {"empty": b"", "cut": whole[:1000], "of another Python": b"\0" + whole[1:]}
        bundled.program.write_bytes(other.get(damage, whole[:4] + bytes(8) + whole[12:]))

    assert bundled.run("-n", "job", "echo", "ran").stdout == b"ran\n"


def test_doctor_says_that_the_program_is_unusable(lab):
    bundled = use(lab, make_bundled(lab.path))
    before = bundled.run("doctor").stdout
    bundled.program.write_bytes(b"\0" + bundled.program.read_bytes()[1:])

    after = bundled.run("doctor").stdout

    note = b"installed for another version of Python, and starts slower (install it again)\n"
    assert (note in before, note in after) == (False, True)
