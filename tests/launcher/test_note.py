"""--note: where its text shows, which texts it accepts, and what becomes of one that another
program wrote.
"""

import json
import os
import re

import pytest
from conftest import finish, kill, read_line, until

import solo

NOTE = "migration until noon"
HOSTILE = "\x1b[2J\nroot\u202e" + "x" * 300
WAS_ESCAPED = r"\x1b[2J\nroot\u202e"


def find_busy_line(lab, *words):
    result = lab.run("-n", "job", *words, "true")
    assert result.returncode == 75 and result.stderr.count(b"\n") == 1
    return result.stderr.decode()


# --- where it shows-------------------------------------------------------------------------------


def test_note_is_between_the_skips_and_the_wait(lab):
    lab.hold("job", "--note", NOTE)
    find_busy_line(lab)

    line = find_busy_line(lab, "--wait", "200ms", "--note", "of the contender")

    assert line.endswith(f"exit 0), 1 skip since: {NOTE}; waited 200ms\n")


def test_note_of_the_first_of_several_holders_shows(lab, via):
    lab.hold("job", "--shared", "--note", "first")
    lab.hold("job", "--shared", "--note", "second")

    assert find_busy_line(lab).endswith(" and 1 more: first\n")


def test_note_of_each_nested_and_several_names_shows(lab):
    holder = lab.hold("job/inner", "-n", "other", "--note", NOTE)

    assert find_busy_line(lab).endswith(f": {NOTE}\n")  # at the parent of a nested name
    assert {row["name"]: row["note"] for row in lab.list()} == {"job/inner": NOTE, "other": NOTE}
    kill(holder)
    assert ", whose launcher was killed" in (line := find_busy_line(lab)) and line.endswith(
        f": {NOTE}\n"
    )


def test_waiter_and_wait_print_the_note_of_the_holder(lab, via):
    lab.hold("job", "--note", NOTE)

    waiting = lab.start("-v", "--wait", "forever", "-n", "job", "true").stderr.readline().decode()
    waited = lab.run("wait", "--timeout", "0", "job")

    assert waiting.startswith("solo: job: waiting: held for ") and waiting.endswith(f": {NOTE}\n")
    assert (waited.returncode, waited.stderr.endswith(f": {NOTE}\n".encode())) == (75, True)


def test_views_have_the_notes_of_holders_and_waiters(lab, via):
    lab.hold("job", "--note", NOTE)
    lab.start_waiter("job", "--note", "me too")

    head, *rows = lab.run("list", "--via", via).stdout.decode().splitlines()
    shown = lab.run("show", "job").stdout.decode()
    [known] = json.loads(lab.run("show", "--json", "job").stdout)

    at = head.index("NOTE")
    assert [row[at:].startswith(note) for row, note in zip(rows, (NOTE, "me too"))] == [True] * 2
    assert [row["note"] for row in lab.list()] == [NOTE, "me too"]
    assert f"\nnote:    {NOTE}\n" in shown and re.search(
        r"\nPLACE .* NOTE +COMMAND\n1 .* me too  +sh -c", shown
    )
    assert [known[key][0]["note"] for key in ("holds", "waiting")] == [NOTE, "me too"]


def test_run_without_a_note_has_no_line_or_column_for_one(lab):
    holder = lab.hold("job")

    assert b"\nnote" not in lab.find_hold("job").read_bytes() and find_busy_line(lab).endswith(
        "exit 0)\n"
    )
    assert (
        b"NOTE"
        not in lab.run("list").stdout + lab.run("show", "job").stdout + lab.run("history").stdout
    )
    assert [row["note"] for row in (*lab.list(), *lab.history())] == [None] * 3
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


def test_python_has_the_note_of_a_holder_and_shows_its_own(lab):
    holder = lab.hold("job", "--note", NOTE)
    code = """
print([holder.note for holder in solo.holders("job")])
for act in (lambda: solo.Lock("job").acquire(), lambda: solo.run(["true"], name="job")):
    try:
        act()
    except solo.Busy as busy:
        print(busy.holders[0].note, str(busy).endswith(": " + busy.holders[0].note))
"""

    assert lab.run_code(code)[1:] == (f"['{NOTE}']\n{NOTE} True\n{NOTE} True\n", "")
    finish(holder)
    program = lab.start_code(
        "with solo.Lock('job', note='mine'): print(flush=True); sys.stdin.read()"
    )
    read_line(program)
    assert find_busy_line(lab).endswith(": mine\n")


# --- which texts it accepts-----------------------------------------------------------------------

BAD = ["", " ", "two\nlines", "\x1b[2J", "\u202e", "\u2028", "x" * 201, "é" * 201, b"\xff"]


@pytest.mark.parametrize("text", BAD, ids=map(ascii, BAD))
def test_bad_note_is_refused_in_one_line(lab, text):
    result = lab.run("--note", text, "-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    reason = (
        "must be one line of 1 to 200 printable characters"
        if text
        else "needs a value, not an empty word (is a variable unset?)"
    )
    message = f"solo: --note {reason}\n".encode()
    assert (result.returncode, result.stderr, lab.read_log()) == (125, message, [])
    with pytest.raises(solo.UsageError, match="^note must be one line"):
        solo.Lock("job", note=text)


@pytest.mark.parametrize("text", ["é" * 200, "☃ 50% %20 = \\n 'q' $(id)", "--wait"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_any_printable_line_is_shown_as_it_is_in_every_locale(lab, via, text, locale):
    lab.environment["LC_ALL"] = locale
    lab.hold("job", "--note", text)

    assert find_busy_line(lab).endswith(f"): {text}\n")
    assert [row["note"] for row in lab.list()] == [text]


# --- a note that another program wrote------------------------------------------------------------


def edit_file(path, old, new):
    """Replace bytes in a file in place: its owner keeps its lock."""
    data = path.read_bytes()
    assert data.count(old) == 1
    fd = os.open(path, os.O_WRONLY)
    os.truncate(fd, os.pwrite(fd, data.replace(old, new), 0))
    os.close(fd)


def quote(text):
    return "".join(f"%{byte:02X}" for byte in text.encode()).encode()


def test_hostile_note_of_a_record_or_journal_is_escaped_and_cut(lab):
    lab.hold("job", "--note", "N")
    until(lambda: lab.history())
    edit_file(lab.find_hold("job"), b"\nnote N\n", b"\nnote " + quote(HOSTILE) + b"\n")
    edit_file(lab.find_journal("job"), b" note=N ", b" note=" + quote(HOSTILE) + b" ")

    line = find_busy_line(lab)

    for row in (lab.list()[0], lab.history()[0]):
        assert (
            row["note"].startswith(WAS_ESCAPED + "xxx")
            and len(row["note"]) == 200
            and row["note"].endswith("x…")
        )
        assert line.endswith(f": {row['note']}\n")
    assert b"\x1b" not in b"".join(
        lab.run(*words).stdout for words in (["list"], ["show", "job"], ["history"])
    )


@pytest.mark.parametrize("note", [b"", b"%FF%00", b"\xff\xfe", b"plain text"], ids=ascii)
def test_damaged_note_does_not_damage_its_record(lab, note):
    holder = lab.hold("job", "--note", "N")
    edit_file(lab.find_hold("job"), b"\nnote N\n", b"\nnote " + note + b"\n")

    assert f"by pid {holder.pid} (sh" in find_busy_line(lab)
    assert [row["launcher"] for row in lab.list()] == [holder.pid]


def test_note_reaches_a_hold_that_was_waited_for(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", "--note", NOTE, script="echo up; read line")
    finish(holder)
    read_line(waiter)

    assert find_busy_line(lab).endswith(f": {NOTE}\n")


def test_live_line_of_a_waiter_has_the_note(lab, terminal):
    lab.hold("job", "--note", NOTE)

    wide = ("sh", "-c", 'stty columns 200 && exec "$@"', "sh")
    waiting = terminal(*wide, lab.script, "--wait", "forever", "-n", "job", "true", TERM="xterm")
    waiting.wait_for(NOTE)

    assert re.search(
        rf"solo: job: waiting for \d+s, 1st in the queue: [^\r]*: {NOTE}", waiting.screen.decode()
    )
