"""--note: where its text shows, which texts it accepts, and what becomes of one that another program wrote."""

import json
import os
import re
import signal
import subprocess

import pytest
from conftest import PATIENCE, finish, read_line, until
from tmux import Tmux

import solo

NOTE = "migration until noon"
HOSTILE = "\x1b[2J\nroot\u202e" + "x" * 300
WAS_ESCAPED = r"\x1b[2J\nroot\u202e"


def find_busy_line(lab, *words):
    result = lab.run("-n", "job", *words, "true")
    assert result.returncode == 75 and result.stderr.count(b"\n") == 1
    return result.stderr.decode()


# --- where it shows ----------------------------------------------------------------------------------------------


def test_busy_line_ends_with_the_note_of_the_holder(lab, via):
    holder = lab.hold("job", "--note", NOTE)

    line = find_busy_line(lab)

    known = re.escape(f"by pid {holder.pid} (sh -c echo $$; read line; exit 0): {NOTE}")
    assert re.fullmatch(rf"solo: job: busy: held for \d+s {known}\n", line)


def test_note_is_between_the_skips_and_the_wait(lab):
    lab.hold("job", "--note", NOTE)
    find_busy_line(lab)

    line = find_busy_line(lab, "--wait", "200ms", "--note", "of the contender")

    assert line.endswith(f"exit 0), 1 skip since: {NOTE}; waited 200ms\n")


def test_busy_line_without_a_note_is_as_before(lab, via):
    lab.hold("job")

    assert find_busy_line(lab).endswith("exit 0)\n")


def test_note_of_the_first_of_several_holders_shows(lab, via):
    lab.hold("job", "--shared", "--note", "first")
    lab.hold("job", "--shared", "--note", "second")

    assert find_busy_line(lab).endswith(" and 1 more: first\n")


def test_note_of_an_orphan_shows(lab):
    holder = lab.hold("job", "--note", NOTE)
    holder.kill()
    holder.wait()

    assert find_busy_line(lab).endswith(f", whose launcher was killed: {NOTE}\n")


def test_note_of_each_nested_and_several_names_shows(lab):
    lab.hold("job/inner", "-n", "other", "--note", NOTE)

    assert find_busy_line(lab).endswith(f": {NOTE}\n")  # at the parent of a nested name
    assert {row["name"]: row["note"] for row in lab.list()} == {"job/inner": NOTE, "other": NOTE}


def test_waiter_shows_the_note_of_the_holder(lab, via):
    lab.hold("job", "--note", NOTE)

    line = lab.run("-v", "--wait", "2s", "-n", "job", "true").stderr.decode().splitlines()[0]

    assert line.startswith("solo: job: waiting: held for ") and line.endswith(f": {NOTE}")


def test_wait_prints_the_note_of_the_holder(lab, via):
    lab.hold("job", "--note", NOTE)
    words = ("--via", "socket") if "SOLO_VIA" in lab.environment else ()

    result = lab.run("wait", *words, "--timeout", "0", "job")

    assert (result.returncode, result.stderr.endswith(f": {NOTE}\n".encode())) == (75, True)


def test_views_have_the_notes_of_holders_and_waiters(lab, via):
    lab.hold("job", "--note", NOTE)
    lab.start_waiter("job", "--note", "me too")
    words = ("--via", "socket") if "SOLO_VIA" in lab.environment else ("--via", "file")

    head, *rows = lab.run("list", *words).stdout.decode().splitlines()
    shown = lab.run("show", *words, "job").stdout.decode()
    [known] = json.loads(lab.run("show", *words, "--json", "job").stdout)

    at = head.index("NOTE")
    assert [row[at:].startswith(note) for row, note in zip(rows, (NOTE, "me too"))] == [True] * 2
    assert [row["note"] for row in lab.list()] == [NOTE, "me too"]
    assert f"\nnote:    {NOTE}\n" in shown and re.search(r"\nPLACE .* NOTE +COMMAND\n1 .* me too  +sh -c", shown)
    assert [known[key][0]["note"] for key in ("holds", "waiting")] == [NOTE, "me too"]


def test_views_have_no_column_of_notes_without_one(lab):
    holder = lab.hold("job")

    assert b"NOTE" not in lab.run("list").stdout + lab.run("show", "job").stdout + lab.run("history").stdout
    assert [row["note"] for row in (*lab.list(), *lab.history())] == [None, None]
    finish(holder)
    assert b" note=" not in lab.find_journal("job").read_bytes()


def test_history_has_the_note_of_each_run_and_skip(lab):
    holder = lab.hold("job", "--note", NOTE)
    find_busy_line(lab, "--note", "me = 50% ☃")
    lab.run("-n", "job", "--note", "no such", "/no/such/file")
    running = [row["note"] for row in lab.history()]
    finish(holder)

    assert running == [row["note"] for row in lab.history()] == [NOTE, "me = 50% ☃", "no such"]
    table = lab.run("history").stdout.decode().splitlines()
    assert re.search(r" NOTE +COMMAND$", table[0]) and f"  {NOTE}  " in table[1]
    assert b" note=migration%20until%20noon " in lab.find_journal("job").read_bytes()


@pytest.mark.tool("tmux")
@pytest.mark.parametrize("words", [("list",), ("history",)], ids=" ".join)
def test_note_leaves_room_for_other_columns_on_a_terminal(lab, words):
    holder = lab.hold("job", "--note", "word " * 40)
    screen = Tmux([lab.script, *words], {**lab.environment, "LC_ALL": "C.UTF-8"}, 120, 30)

    lines = screen.wait_for("ended:0")

    screen.close()
    [row] = [row for row in lines if row.startswith("job") and "word" in row]
    assert len(row) <= 120 and "…" in row and f" {holder.pid} " in row
    finish(holder)


def test_python_has_the_note_of_a_holder(lab):
    lab.hold("job", "--note", NOTE)
    code = """
print([holder.note for holder in solo.holders("job")])
for act in (lambda: solo.Lock("job").acquire(), lambda: solo.run(["true"], name="job")):
    try:
        act()
    except solo.Busy as busy:
        print(busy.holders[0].note, str(busy).endswith(": " + busy.holders[0].note))
"""

    assert lab.run_code(code)[1:] == (f"['{NOTE}']\n{NOTE} True\n{NOTE} True\n", "")


# --- from Python -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        'lock = solo.Lock("job", note=sys.argv[1]); lock.acquire(); print(flush=True); sys.stdin.read()',
        'solo.run(["sh", "-c", "echo; read line"], name="job", note=sys.argv[1])',
    ],
    ids=["Lock", "run"],
)
def test_note_of_a_python_program_shows(lab, act):
    program = lab.start_code(act, NOTE)
    read_line(program)

    assert find_busy_line(lab).endswith(f": {NOTE}\n")
    assert finish(program)[0] == 0


def test_program_that_holds_by_a_socket_shows_no_note(lab):
    lab.use_sockets()
    program = lab.start_code('with solo.Lock("job", note=sys.argv[1]): print(flush=True); sys.stdin.read()', NOTE)
    read_line(program)

    assert [row["note"] for row in lab.list()] == [None]
    assert finish(program)[0] == 0


# --- which texts it accepts --------------------------------------------------------------------------------------

BAD = ["", " ", "two\nlines", "tab\t", "\x1b[2J", "bell\a", "\u202e", "\u2028", "x" * 201, "é" * 201]


@pytest.mark.parametrize("text", BAD, ids=map(ascii, BAD))
def test_bad_note_is_refused_in_one_line(lab, text):
    result = lab.run("--note", text, "-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    message = b"solo: --note must be one line of 1 to 200 printable characters\n"
    assert (result.returncode, result.stderr, lab.read_log()) == (125, message, [])
    with pytest.raises(solo.UsageError, match="^note must be one line"):
        solo.Lock("job", note=text)
    with pytest.raises(solo.UsageError, match="--note must be one line"):
        solo.run(["true"], name="job", note=text, directory=lab.directory)


def test_note_that_is_not_text_is_refused(lab):
    result = lab.run("--note", b"\xff", "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    with pytest.raises(solo.UsageError, match="^note must be one line"):
        solo.Lock("job", note=b"bytes")


@pytest.mark.parametrize("text", ["x", "é" * 200, "☃ 50% %20 = \\n 'q' $(id)", "--wait", "-"])
def test_any_printable_line_is_shown_as_it_is(lab, via, text):
    lab.hold("job", "--note", text)

    assert find_busy_line(lab).endswith(f"): {text}\n")
    assert [row["note"] for row in lab.list()] == [text]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_note_is_the_same_in_every_locale(lab, locale):
    lab.environment["LC_ALL"] = locale
    lab.hold("job", "--note", "été")

    assert find_busy_line(lab).endswith(": été\n") and [row["note"] for row in lab.list()] == ["été"]


# --- a note that another program wrote ---------------------------------------------------------------------------


def edit_file(path, old, new):
    """Replace bytes in a file in place: its owner keeps its lock."""
    data = path.read_bytes()
    assert data.count(old) == 1
    fd = os.open(path, os.O_WRONLY)
    os.truncate(fd, os.pwrite(fd, data.replace(old, new), 0))
    os.close(fd)


def quote(text):
    return "".join(f"%{byte:02X}" for byte in text.encode()).encode()


def test_hostile_note_of_a_record_is_escaped_and_cut(lab):
    lab.hold("job", "--note", "N")
    edit_file(lab.find_hold("job"), b"\nnote N\n", b"\nnote " + quote(HOSTILE) + b"\n")

    line = find_busy_line(lab)
    [row] = lab.list()

    assert row["note"].startswith(WAS_ESCAPED + "xxx") and len(row["note"]) == 200 and row["note"].endswith("x…")
    assert line.endswith(f": {row['note']}\n")
    assert b"\x1b" not in lab.run("list").stdout + lab.run("show", "job").stdout


@pytest.mark.parametrize("note", [b"", b"%FF%00", b"\xff\xfe", b"plain text"], ids=ascii)
def test_damaged_note_does_not_damage_its_record(lab, note):
    holder = lab.hold("job", "--note", "N")
    edit_file(lab.find_hold("job"), b"\nnote N\n", b"\nnote " + note + b"\n")

    assert f"by pid {holder.pid} (sh" in find_busy_line(lab)
    assert [row["launcher"] for row in lab.list()] == [holder.pid]


def test_hostile_note_of_a_journal_is_escaped_and_cut(lab):
    lab.run("-n", "job", "--note", "N", "true")
    path = lab.find_journal("job")
    path.write_bytes(path.read_bytes().replace(b" note=N ", b" note=" + quote(HOSTILE) + b" "))

    [row] = lab.history()

    assert row["note"].startswith(WAS_ESCAPED + "xxx") and len(row["note"]) == 200
    assert b"\x1b" not in lab.run("history").stdout


def test_record_has_a_line_for_a_note_only_if_there_is_one(lab):
    lab.hold("without")
    lab.hold("with", "--note", NOTE)

    assert b"\nnote" not in lab.find_hold("without").read_bytes()
    assert b"\nnote migration%20until%20noon\n" in lab.find_hold("with").read_bytes()


def test_note_reaches_a_hold_that_was_waited_for(lab):
    """The handoff writes the record before its turn."""
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "--note", NOTE, "-n", "job", "--", "sh", "-c", "echo up; read line")
    until(lambda: lab.count_waiting("job") == 1)
    finish(holder)
    read_line(waiter)

    assert find_busy_line(lab).endswith(f": {NOTE}\n")
    waiter.send_signal(signal.SIGTERM)
    assert waiter.wait(PATIENCE) == -signal.SIGTERM


@pytest.mark.tool("script")
def test_live_line_of_a_waiter_has_the_note(lab):
    lab.hold("job", "--note", NOTE)
    line = f"{lab.script} --wait 1 -n job true"

    shown = subprocess.run(
        ["script", "-qec", line, "/dev/null"],
        env={**lab.environment, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    ).stdout.decode()

    assert re.search(rf"solo: job: waiting for 0s, .*1st in the queue.*: {NOTE[:4]}", shown)
