"""Every scene of the lab can fail, and its reports show what failed: else its table in
docs/evidence.md would prove nothing.
"""

import os
import re

import pytest
from conftest import ROOT, need_namespaces
from lab.__main__ import Report
from lab.cell import measure
from lab.peers import PEERS, make_peer
from lab.scenes import SCENES
from lab.trial import BAD, GOOD, NONE, NOTE, TWO, UNKNOWN, Outcome, good, note

pytestmark = [pytest.mark.full, pytest.mark.root, pytest.mark.tool("flock", "unshare", "strace")]

IN_FILE = '[ -e "$0" ] && kill -0 $(cat "$0") && exit 1; echo $$ >"$0"; "$@"; rm "$0"'
QUEUES_TWICE = (
    'case $LAB_TAG in *[13579]) flock "$0" true ;; esac; exec flock "$0" "$@"'  # every other waiter
)
POLLS = 'until mkdir "$0" 2>/dev/null; do sleep 0.1; done; "$@"; rmdir "$0"'
BROKEN = {  # {scene: (verdict, a wrapper that gets it)}; $0 is the lock, then the words of the job
    "busy_status": (BAD, 'exec flock -n -E 0 "$0" "$@"'),
    "busy_message": (BAD, 'exec flock -n "$0" "$@"'),
    "silent_hang": (BAD, 'exec flock -n "$0" "$@"'),
    "missing_command": (BAD, 'flock -n "$0" "$@"; exit 0'),
    "command_not_executable": (BAD, 'flock -n "$0" "$@" 2>/dev/null'),
    "exit_status": (BAD, 'flock -n "$0" "$@"; exit 0'),
    "signal_status": (NOTE, 'flock -n "$0" "$@"; exit'),
    "term": (BAD, 'exec flock -n "$0" "$@"'),
    "interrupt": (TWO, 'exec flock -n -o "$0" "$@"'),
    "hang_up": (BAD, 'trap : HUP; flock -n "$0" "$@"'),
    "own_session": (BAD, 'exec timeout 1h flock -n "$0" "$@"'),
    "kill_wrapper": (TWO, 'exec flock -n -o "$0" "$@"'),
    "kill_wrapper_of_tree": (BAD, 'exec flock -n -o "$0" "$@"'),
    "kill_job": (BAD, 'flock -n "$0" "$@"; exit 0'),
    "kill_all": (BAD, 'mkdir "$0" || exit; "$@"; rmdir "$0"'),
    "stopped": (TWO, 'grep -qs "^State:.T" /proc/$(cat "$0")/status && rm "$0"; ' + IN_FILE),
    "daemon": (BAD, 'exec flock -n -F "$0" "$@"'),
    "visible_descriptor": (NOTE, 'exec flock -n "$0" "$@"'),
    "closed_descriptors": (TWO, 'exec flock -n -F "$0" "$@"'),
    "order": (BAD, QUEUES_TWICE),
    "stopped_waiter": (NOTE, 'exec 9>"$0.turn"; flock 9; exec flock "$0" "$@"'),
    "overtaking": (BAD, POLLS),
    "waiting_cost": (NOTE, POLLS),
    "reboot": (BAD, 'mkdir "$0" || exit; "$@"; rmdir "$0"'),
    "reused_pid": (BAD, IN_FILE),
    "full_disk": (TWO, '[ -s "$0" ] && exit 1; echo $$ >"$0"; "$@"; rm "$0"'),
}
KEPT = "stopped_waiter"  # solo gets a note: without overtaking, a stopped waiter keeps its place
NAMED = {peer.name: peer for peer in PEERS}


@pytest.fixture(autouse=True)
def cell():
    need_namespaces(["unshare", "--mount", "--pid", "--fork", "--mount-proc"])


@pytest.fixture
def solo(solo_script, monkeypatch):
    """solo as the lab calls it, by the script of the tests."""
    monkeypatch.setenv("PATH", f"{solo_script.parent}:{os.environ['PATH']}")
    return NAMED["solo"]


def make_broken(script):
    words = ["sh", "-c", script, "{lock}"]
    return make_peer("broken", words, words, words, tree=words)


@pytest.mark.parametrize("scene", SCENES)
def test_scene_fails_a_broken_wrapper_and_not_solo(scene, solo):
    verdict, script = BROKEN[scene]

    assert measure(make_broken(script), scene).verdict == verdict
    assert measure(NAMED["flock"] if scene == KEPT else solo, scene).verdict == GOOD


def test_stopped_waiter_of_solo_keeps_its_place(solo):
    assert measure(solo, KEPT).verdict == NOTE


def test_wrapper_that_cannot_wait_has_no_queue_verdict():
    assert measure(make_peer("flock", "flock -n {lock}"), "order").verdict == NONE


def test_failure_of_the_lab_itself_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in ("unshare", "sh", "flock"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")

    assert (
        measure(make_peer("flock", "flock -n {lock}", "flock {lock}"), "waiting_cost").verdict
        == UNKNOWN
    )


def test_reports_show_overlaps_and_who_fails_in_no_scene():
    run = dict.fromkeys(("date", "commit", "kernel", "python", "distribution"), "x")
    peers = {name: {"version": name, "skip": [name], "wait": None} for name in ("flock", "solo")}
    scenes = {
        "kill": {"title": "SIGKILL", "good": "none"},
        "queue": {"title": "queue", "good": "order"},
    }
    two, fine = Outcome(TWO, "both"), good("yes")
    outcomes = {"kill": {"flock": two, "solo": fine}, "queue": {"flock": fine, "solo": note("yes")}}
    report = Report({**run, "peers": peers, "scenes": scenes, "outcomes": outcomes})

    assert report.find_faultless() == ["solo"] and not report.has_gaps()
    assert (
        report.conclusion()
        == "solo is the only one that fails in no scene. It has a note (~) in: queue."
    )
    assert (
        "| SIGKILL | flock |" in report.to_evidence() and "| SIGKILL | 2 | ✓ |" in report.matrix()
    )
    outcomes["kill"]["solo"] = Outcome(UNKNOWN, "?")
    assert report.has_gaps() and report.find_faultless() == []


def test_lab_imports_nothing_of_solo():
    imports = re.compile(r"^\s*(?:from|import) solo\b", re.M)

    assert not [
        file.name
        for file in (ROOT / "tests/tools/lab").glob("*.py")
        if imports.search(file.read_text())
    ]
