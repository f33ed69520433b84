"""The steps of a run: no message or listener changes its status, and its options alone decide what
it hands down.
"""

import re

import pytest
from conftest import count_injected, finish, inject, until


def test_unwritable_stderr_changes_no_status(lab):
    lab.hold("job")
    script = "($SOLO -n job true; echo $? >$LAB/log) 2>&1 | true; ulimit -f 0; $SOLO -n other true; echo $?"

    status, out, err = finish(lab.start_shell(script))
    until(lambda: lab.read_log())

    assert (lab.read_log(), out) == (["75"], "125\n")
    assert err.startswith("solo: other: cannot write in ") and err.count("\n") == 1


@pytest.mark.host
@pytest.mark.tool("strace")
@pytest.mark.parametrize("library, option", [("select", "-v"), ("syslog", "--syslog")])
def test_failed_import_for_a_message_does_not_end_launcher(lab, library, option):
    """The command runs: the launcher must keep the name and return the status."""
    path = getattr(__import__(library), "__file__", None) or pytest.skip(f"{library} is built in")
    fail = inject(lab, "openat:error=EMFILE", paths=(path,))

    result = lab.run(option, "-n", "job", "--", "sh", "-c", "exit 3", prefix=fail)

    assert (result.returncode, result.stderr.count(b"bug")) == (3, 0) and count_injected(lab)


def test_variables_of_an_outer_run_do_not_reach_a_run_without_their_options(lab):
    """Also if the outer run is of another host or an engine: only the options of a run say which of
    them apply.
    """
    lab.environment.update(SOLO_TTL="15", SOLO_VIA_KEY="solo/a", SOLO_MINE="kept")
    inner = "echo $SOLO_NAME-$SOLO_SLOT-$SOLO_TTL-$SOLO_VIA_KEY-$SOLO_MINE"

    result = lab.run(
        "-n",
        "a",
        "--slots",
        "2",
        "--",
        "sh",
        "-c",
        f"echo $SOLO_SLOT; $SOLO -n b -- sh -c '{inner}'",
    )

    assert result.stdout == b"0\nb----kept\n"


@pytest.mark.host
@pytest.mark.tool("strace")
def test_release_starts_with_what_was_acquired_last_and_the_journal_comes_after_it(lab):
    trace, file = lab.path / "trace", lab.path / "file"
    calls = f"strace -qq -y -s 9 -e trace=unlinkat,flock,write -o {trace}".split()

    lab.run("-n", "b", "-n", "a", "--flock", file, "--", "true", prefix=calls)

    ended = trace.read_text().rpartition('"!", 1)')[2]  # the last byte of the go message
    steps = re.findall(r"/(file)>, LOCK_UN|/(\w)>, \"\.hold|(\w+/\w)/\.journal>, \"ended", ended)
    assert ["".join(step) for step in steps] == ["file", "b", "a", "journals/b", "journals/a"]


@pytest.mark.parametrize("script, end", [("exit 3", "with status 3"), ("kill -9 $$", "by SIGKILL")])
def test_verbose_reports_the_end_of_the_command(lab, script, end):
    lines = lab.run("-v", "-n", "job", "--", "sh", "-c", script).stderr.decode().splitlines()

    assert re.fullmatch(rf"solo: job: pid \d+ ended {end}", lines[-1])
