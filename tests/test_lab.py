"""Every scene of the lab can fail, and docs/ has its recorded results."""

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import ROOT
from lab.cell import measure
from lab.peers import PEERS, make_peer
from lab.report import Report
from lab.scenes import SCENES
from lab.verdicts import BAD, GOOD, NONE, NOTE, TWO, UNKNOWN

pytestmark = [pytest.mark.root, pytest.mark.tool("flock", "unshare", "strace")]

IN_FILE = '[ -e "$0" ] && kill -0 $(cat "$0") && exit 1; echo $$ >"$0"; "$@"; rm "$0"'
QUEUES_TWICE = 'case $LAB_TAG in *[13579]) flock "$0" true ;; esac; exec flock "$0" "$@"'  # every other waiter
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


@pytest.fixture
def solo(solo_script, monkeypatch):
    """solo as the lab calls it, by the script of the tests."""
    monkeypatch.setenv("PATH", f"{solo_script.parent}:{os.environ['PATH']}")
    return next(peer for peer in PEERS if peer.name == "solo")


@pytest.fixture(scope="module")
def report():
    return Report(json.loads((ROOT / "docs/lab.json").read_text()))


def make_broken(script):
    words = ["sh", "-c", script, "{lock}"]
    return make_peer("broken", words, words, words)


@pytest.mark.parametrize("scene", SCENES)
def test_scene_fails_a_broken_wrapper_and_not_solo(scene, solo):
    verdict, script = BROKEN[scene]

    assert measure(make_broken(script), scene).verdict is verdict
    assert (
        measure(next(peer for peer in PEERS if peer.name == "flock") if scene == KEPT else solo, scene).verdict is GOOD
    )


def test_stopped_waiter_of_solo_keeps_its_place(solo):
    assert measure(solo, KEPT).verdict is NOTE


def test_wrapper_that_cannot_wait_has_no_queue_verdict():
    assert measure(make_peer("flock", "flock -n {lock}"), "order").verdict is NONE


def test_failure_of_the_lab_itself_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in ("unshare", "sh", "flock"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")

    assert measure(make_peer("flock", "flock -n {lock}", "flock {lock}"), "waiting_cost").verdict is UNKNOWN


FAST = ["busy_status", "term", "kill_wrapper", "daemon", "closed_descriptors", "reused_pid", "full_disk"]


@pytest.mark.parametrize(
    "peer", [peer for peer in PEERS if peer.name in ("flock", "chpst")], ids=lambda peer: peer.name
)
@pytest.mark.parametrize("scene", FAST)
def test_recorded_outcome_is_reproduced(scene, peer, report):
    if not peer.is_installed():
        pytest.skip(f"needs {peer.name}: make test-deps")

    assert measure(peer, scene) == report.get(scene, peer.name)


def test_only_solo_fails_in_no_scene(report):
    assert report.find_faultless() == ["solo"]
    assert not report.has_gaps()


def test_every_scene_and_debian_wrapper_is_recorded(report):
    assert list(report.scenes) == list(SCENES)
    assert set(report.peers) == {peer.name for peer in PEERS} - {"run-one"}


def test_docs_match_the_recorded_results(report):
    [block] = re.findall(r"<!-- lab -->\n(.*?)\n<!-- end -->", (ROOT / "docs/evidence.md").read_text(), re.S)

    assert block == report.to_evidence()
    assert (ROOT / "docs/lab.md").read_text() == report.to_markdown()
    assert (ROOT / "docs/lab.svg").read_text() == report.to_svg()


def test_red_cells_are_overlaps(report):
    cells = [element for element in ElementTree.fromstring(report.to_svg()).iter() if element.get("fill") == TWO.colour]
    outcomes = [cell[0].text for cell in cells if ": " in cell[0].text]

    assert len(outcomes) == sum(len(report.find(scene, TWO)) for scene in report.scenes)
    assert len(cells) == len(outcomes) + 1  # the legend has one


def test_lab_imports_nothing_of_solo():
    imports = re.compile(r"^\s*(?:from|import) solo\b", re.M)

    assert not [file.name for file in (ROOT / "tests/lab").glob("*.py") if imports.search(file.read_text())]


def test_unknown_wrapper_or_scene_is_refused():
    done = subprocess.run(["python3", "-m", "lab", "nobody"], cwd=ROOT / "tests", capture_output=True, text=True)

    assert done.returncode == 1
    assert "nobody" in done.stderr
