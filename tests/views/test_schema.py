"""docs/solo.schema.json describes all that is printed with --json: keys are added, never removed or
given another type.
"""

import json
import re
from datetime import datetime

import jsonschema
import pytest
import schema
from conftest import ROOT, finish, kill, until

SCHEMA = json.loads((ROOT / "docs/solo.schema.json").read_text())
OBJECTS = {key: known for key, known in SCHEMA["$defs"].items() if "properties" in known}
# Each key of 0.2.0 and later. A line of this table only grows.
KEYS = {
    "ticket": "name state mode slot slots take launcher child since user host command note via ticket claims directory usual overdue usual_range renewed_ago free_in silent names processes",
    "name": "name via path journal skips holds waiting runs state reason days",
    "day": "first last runs skips failures mean longest",
    "job": "name state states reason last ago outcome code signal usual usual_range skipped starts due missed command",
    "verdict": "command names mode slots take directory via outcome name reason place status",
    "process": "pid depth state cpu_seconds resident_bytes seconds command",
    "run": "name outcome time end waited ran code signal reason names mode slot slots take token launcher child user host command note",
    "check": "check state text",
    "line": "file line state tool call lock findings use",
}


def check(kind, printed):
    """Return the rows of a view, which must have all keys of the schema and no other."""
    rows = json.loads(printed)
    jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"}).validate(rows)
    return rows


def test_schema_is_made_from_the_rows():
    assert schema.SCHEMA.read_text() == schema.make_schema()  # else: make man


def test_schema_is_one_and_requires_every_key():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for kind, known in OBJECTS.items():
        assert set(known["required"]) == known["properties"].keys() >= set(KEYS[kind].split())


def test_views_print_what_the_schema_says(lab):
    lab.run("-n", "pool", "--slots", "2", "--", "sh", "-c", "exit 3")
    lab.run("-n", "pool", "--", "sh", "-c", "kill -TERM $$")
    holder = lab.hold("job", "--note", "until noon")
    lab.start_waiter("job", tag="waiter")
    assert lab.run("-n", "job", "true").returncode == 75
    launcher = lab.hold("orphan")
    until(lambda: lab.history("orphan"))  # its start is recorded once the command runs
    kill(launcher)
    lab.hold("damaged")
    lab.find_hold("damaged").write_bytes(b"garbage")

    for words in ("-n", "job"), ("-n", "job", "-w", "5"), ("--via", "socket", "--slots", "2"):
        check("explain", lab.run("--explain", "--json", *words, "true").stdout)
    rows = {kind: check(kind, lab.run(kind, "--json").stdout) for kind in ("list", "history")}
    shown, *others = check("show", lab.run("show", "--json", "job", "orphan", "damaged").stdout)

    assert [row["state"] for row in rows["list"]] == [
        "held",
        "held",
        "waiting",
        "orphaned",
    ] and len(others) == 2
    outcomes = {"failed", "signaled", "running", "skipped", "orphaned", "unknown"}
    assert {row["outcome"] for row in rows["history"]} == outcomes
    assert [row["signal"] for row in rows["history"] if row["outcome"] == "signaled"] == [15]
    assert datetime.fromisoformat(shown["holds"][0]["since"]).tzinfo is not None
    assert shown["waiting"] and shown["holds"][0]["processes"]
    found = {
        "ticket": rows["list"],
        "run": rows["history"],
        "name": [shown],
        "process": shown["holds"][0]["processes"],
    }
    for kind, objects in found.items():
        assert all(row.keys() == OBJECTS[kind]["properties"].keys() for row in objects), kind
    finish(holder)


def test_list_all_prints_what_the_schema_says(lab):
    lab.run("-n", "failed", "--", "sh", "-c", "exit 3")
    lab.run("-n", "killed", "--", "sh", "-c", "kill -TERM $$")
    holder = lab.hold("held")
    assert lab.run("-n", "held", "true").returncode == 75

    rows = check("jobs", lab.run("list", "--all", "--json").stdout)

    assert [(row["name"], row["states"]) for row in rows] == [
        ("failed", ["failing", "new"]),
        ("killed", ["failing", "new"]),
        ("held", ["running", "new"]),
    ]
    assert all(row.keys() == OBJECTS["job"]["properties"].keys() for row in rows)
    assert [(row["code"], row["signal"]) for row in rows] == [(3, None), (None, 15), (None, None)]
    assert (rows[2]["skipped"], rows[2]["starts"], rows[2]["outcome"]) == (1, 2, "running")
    finish(holder)


@pytest.mark.parametrize("field", ["uid", "launcher", "slots", "take", "child", "token"])
def test_line_of_a_journal_with_a_negative_number_is_skipped(lab, field):
    for status in "56":
        lab.run("-n", "job", "--", "sh", "-c", f"exit {status}")
    journal = lab.directory / ".journals/job/.journal"
    *lines, last = journal.read_text().splitlines(True)
    journal.write_text("".join(lines) + re.sub(rf" {field}=\d+ ", f" {field}=-1 ", last))

    rows = check("history", lab.run("history", "--json").stdout)

    assert f" {field}=-1 " in journal.read_text() and [row["code"] for row in rows] == [5, None]


@pytest.mark.parametrize(
    "kind, words", [("doctor", []), ("crontab", ["--crontab"]), ("crontab", ["--unit"])]
)
def test_doctor_prints_what_the_schema_says(lab, kind, words):
    file = lab.path / ("a.service" if words == ["--unit"] else "tab")
    file.write_text(
        ("[Service]\nExecStart=" if words == ["--unit"] else "* * * * * ")
        + "flock -n /run/x a.sh\n"
    )

    rows = check(kind, lab.run("doctor", "--json", *words, *([file] if words else [])).stdout)

    assert rows and all(
        row.keys() == OBJECTS["line" if words else "check"]["properties"].keys() for row in rows
    )
