"""Messages that no other test has: one line in plain English, with the remedy at its end."""

import pickle
import re
from typing import NamedTuple

import pytest
from conftest import finish

from solo.errors import Busy

NOWHERE = "etcd://127.0.0.1:1"
REMEDY = re.compile(r" \(.+\)$")


def hold_slots(lab):
    for _ in range(2):
        lab.hold("job", "--slots", "2")


def hold_with_waiter(lab):
    lab.hold("job", "-s")
    lab.start_waiter("job", tag="waiter")


def damage_record(lab):
    lab.hold("job")
    lab.find_hold("job").write_bytes(b"garbage")


def damage_journal(lab):
    lab.run("-n", "job", "true")
    lab.find_journal("job").unlink()
    lab.find_journal("job").mkdir()


def open_name_to_all(lab):
    lab.run("-n", "job", "true")
    (lab.directory / "job").chmod(0o777)


def put_file_at_directory(lab):
    lab.directory.write_text("a file")


class Row(NamedTuple):
    """`words` are those after `solo`, with the lab's path for PATH. `remedy`: does the message end
    with one?
    """

    words: str
    remedy: bool = False
    prepare: object = None


ROWS = (
    Row("--", True),
    Row("--wait"),
    Row("--slots many true", True),
    Row("--slots 2,3 true"),
    Row("--wait 1s --latest --replace true"),
    Row("--replace-after soon true", True),
    Row(f"-n {'a' * 256} true"),
    Row("-n job --slots 2 true", False, hold_slots),
    Row("-n job true", False, hold_with_waiter),
    Row("-n job -s true", False, hold_with_waiter),
    Row("-n job true", False, damage_record),
    Row("-n job --replace true", False, damage_record),
    Row("-n job true", False, put_file_at_directory),
    Row("--dir /proc/nonexistent -n job true", True),
    Row("--via bogus -n job true"),
    Row("--via nosuch://h -n job true", True),
    Row("--via etcd://h:port -n job true", True),
    Row("--via redis://h/x -n job true", True),
    Row(f"--via {NOWHERE} -n job true"),
    Row(f"--via {NOWHERE} true", True),
    Row(f"--via {NOWHERE} -n job --wait 1s --latest true", True),
    Row(f"--via {NOWHERE} -n job --ttl 1s true", True),
    Row("--via etcd://user:secret@h -n job true", True),
    Row(f"list --via {NOWHERE}"),
    Row("list --dir PATH", False, lambda lab: lab.path.chmod(0o777)),
    Row("list --via bogus"),
    Row("list", False, open_name_to_all),
    Row("list", False, put_file_at_directory),
    Row("show ''", True),
    Row(f"stop --via {NOWHERE} -k 1s job"),
    Row("history job", False, damage_journal),
    Row("metrics", False, damage_journal),
    Row("clean", False, open_name_to_all),
    Row(f"top --via {NOWHERE}", True),
    Row("top ../x"),
)


def name_row(row):
    return f"{row.words[:40]}{' ' if row.prepare else ''}{getattr(row.prepare, '__name__', '')}"


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_a_message_is_one_plain_line_with_its_remedy_at_the_end(lab, row):
    """lint finds the idioms that no message may have: see tests/tools/idiom.txt."""
    if row.prepare:
        row.prepare(lab)

    words = row.words.replace("PATH", str(lab.path))
    status, _, text = finish(lab.start_shell(f"exec $SOLO {words}"))

    line, newline, rest = text.partition("\n")
    assert status and (newline, rest) == ("\n", ""), text
    assert line.startswith("solo: ") and line.isprintable()
    assert REMEDY.search(line) or not row.remedy, line


def test_the_rule_sees_a_missing_remedy():
    assert REMEDY.search("solo: lsit: command not found (did you mean solo list?)")
    assert not REMEDY.search("solo: use (this) now")


def test_text_of_an_error_is_made_from_its_fields_in_another_process_too():
    error = Busy("busy: held for 3s", " (if it has ended: solo release job)")
    error.name = error.shown = "job"
    error.skips, error.own_skips, error.waited, error.note = 2, 5, "1.0s", "until noon"

    text = (
        "job: busy: held for 3s, 2 skips since: until noon; this command line was skipped 6 times in a row"
        "; waited 1.0s (if it has ended: solo release job)"
    )
    assert str(error) == text and repr(error) == f"Busy({text!r})"
    assert str(pickle.loads(pickle.dumps(error))) == text
