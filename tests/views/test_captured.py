"""The output of --capture in show and history, and what clean removes."""

import os

import pytest
from conftest import kill, until

FAILS = "seq 12; printf 'a\\tb\\033[31m\\n'; exit 3"


def capture(lab, script, *words):
    return lab.run("-n", "job", *words, "--capture", "keep", "--", "sh", "-c", script).returncode


def read(lab, *words):
    """Return (status, stdout, stderr) of `solo history --captured`."""
    result = lab.run("history", "--captured", *words)
    return result.returncode, result.stdout, result.stderr


def show(lab):
    """Return the last lines that `solo show` prints."""
    text = lab.run("show", "job").stdout.decode()
    head, _, rest = text.partition("last lines (solo history --captured job has all):\n")
    return rest.partition("\n\n")[0].split("\n") if rest else []


def start(lab, *words):
    """Start a run that has printed a line and goes on; return its process."""
    script = "echo so far; echo ready >>$LAB/log; read line"
    process = lab.start("-n", "job", *words, "--capture", "failed", "--", "sh", "-c", script)
    until(lambda: lab.read_log() == ["ready"])
    return process


def test_show_has_the_last_lines_of_a_failed_run(lab):
    capture(lab, FAILS)

    assert show(lab) == [*map(str, range(4, 13)), "a       b\\x1b[31m"]


def test_show_has_no_lines_of_a_success(lab):
    capture(lab, FAILS)
    capture(lab, "echo fine")

    assert show(lab) == []


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_both_have_what_a_running_command_has_printed(lab, words):
    start(lab, *words)

    until(lambda: show(lab) == ["so far"])
    assert read(lab, "job") == (0, b"so far\n", b"")


def test_both_have_the_output_of_an_orphan(lab):
    process = start(lab)
    until(lambda: lab.history())  # written just after the start; without it nothing names the run
    kill(process)

    until(lambda: show(lab) == ["so far"])
    assert read(lab, "job") == (0, b"so far\n", b"")


def test_history_has_the_whole_output_byte_by_byte(lab):
    capture(lab, FAILS)

    assert read(lab, "job") == (
        0,
        b"".join(b"%d\n" % n for n in range(1, 13)) + b"a\tb\x1b[31m\n",
        b"",
    )


def test_history_has_the_output_of_the_last_run_that_was_captured(lab):
    capture(lab, "echo failed; exit 1")
    capture(lab, "echo fine")
    lab.run("-n", "job", "true")

    assert read(lab, "job")[1] == b"fine\n"
    assert read(lab, "--failed", "job")[1] == b"failed\n"


def test_output_does_not_control_a_terminal(lab, terminal):
    capture(lab, FAILS)

    screen = terminal(lab.script, "history", "--captured", "job").read_to_end()

    assert b"\x1b" not in screen and b"12\r\na       b\\x1b[31m\r\n" in screen


def test_name_without_output_is_an_error(lab):
    lab.run("-n", "job", "true")

    assert read(lab, "job") == (125, b"", b"solo: job: no output is kept (--capture keeps it)\n")
    assert read(lab)[0] == 125


def test_error_names_the_last_run_if_the_options_leave_out_all(lab):
    capture(lab, "echo fine")

    for option in ("--failed", "--since=1ms"):
        status, out, error = read(lab, option, "job")
        assert (status, out, b"--capture" in error) == (125, b"", False)
        assert error.startswith(b"solo: job: no ") and error.endswith(b", ok\n")


def test_each_name_is_asked_for_its_output(lab):
    lab.run("-n", "silent", "true")
    capture(lab, "echo out")

    silent = b"solo: silent: no output is kept (--capture keeps it)\n"
    assert read(lab, "silent", "job") == (125, b"out\n", silent)


def test_directory_called_as_an_output_does_not_keep_it_from_being_kept(lab):
    capture(lab, "exit 1")
    (lab.find_journal("job").parent / ".captured.1").mkdir()

    capture(lab, "echo out")

    assert read(lab, "job") == (0, b"out\n", b"")


def test_clean_removes_the_output_with_the_history(lab):
    capture(lab, "exit 1")
    capture(lab, "echo fine")
    folder = lab.find_journal("job").parent
    assert len(os.listdir(folder)) == 3

    lab.run("clean", "job")

    assert not folder.exists()


@pytest.mark.root
def test_reader_of_another_user_is_not_asked(common, tmp_path):
    """A process of another user could show anything."""
    lab = common
    lab.directory.mkdir()
    lab.directory.chmod(0o1777)
    start(lab)
    from solo.commands.captured import read_memory

    [token] = [
        int(file.name.rpartition(".")[2]) for file in (lab.directory / "job").glob(".hold.*")
    ]
    until(lambda: read_memory("job", token) == b"so far\n")
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(read_memory("job", token) is not None)
    assert os.waitpid(pid, 0)[1] == 0


def test_captured_output_is_text_of_one_run_and_refuses_json_and_limit(lab):
    lab.run("-n", "job", "true")
    for words in (("--json",), ("--limit", "1")):
        result = lab.run("history", "--captured", *words, "job")

        assert result.returncode == 125
        assert result.stderr.decode() == f"solo: --captured and {words[0]} exclude each other\n"
