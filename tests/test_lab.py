"""The lab tells good from bad in every row; docs show what was measured."""

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
GOES_AROUND = 'case $LAB_TAG in *[13579]) flock "$0" true ;; esac; exec flock "$0" "$@"'  # every other one, twice
POLLS = 'until mkdir "$0" 2>/dev/null; do sleep 0.1; done; "$@"; rmdir "$0"'
BROKEN = {  # in just that way: what comes of it, and a wrapper that has its lock as $0 and the job after it
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
    "order": (BAD, GOES_AROUND),
    "stopped_in_line": (NOTE, 'exec 9>"$0.turn"; flock 9; exec flock "$0" "$@"'),
    "overtaking": (BAD, POLLS),
    "waiting_cost": (NOTE, POLLS),
    "reboot": (BAD, 'mkdir "$0" || exit; "$@"; rmdir "$0"'),
    "reused_pid": (BAD, IN_FILE),
    "full_disk": (TWO, '[ -s "$0" ] && exit 1; echo $$ >"$0"; "$@"; rm "$0"'),
}

KEPT = "stopped_in_line"  # the price of a line that nobody overtakes


@pytest.fixture
def solo(solo_script, monkeypatch):
    """solo as the lab calls it; the script is that of the tests."""
    monkeypatch.setenv("PATH", f"{solo_script.parent}:{os.environ['PATH']}")
    return next(peer for peer in PEERS if peer.name == "solo")


@pytest.fixture(scope="module")
def report():
    return Report(json.loads((ROOT / "docs/lab.json").read_text()))


def make_broken(script):
    words = ["sh", "-c", script, "{lock}"]
    return make_peer("broken", words, words, words)


@pytest.mark.parametrize("scene", SCENES)
def test_a_wrapper_broken_in_just_that_way_is_told_from_solo(scene, solo):
    verdict, script = BROKEN[scene]

    assert measure(make_broken(script), scene).verdict is verdict
    assert measure(next(peer for peer in PEERS if peer.name == "flock") if scene == KEPT else solo, scene).verdict is GOOD


def test_with_solo_one_that_is_stopped_in_line_keeps_its_place(solo):
    assert measure(solo, KEPT).verdict is NOTE


def test_one_that_can_not_wait_is_not_blamed_for_its_line():
    assert measure(make_peer("flock", "flock -n {lock}"), "order").verdict is NONE


def test_what_the_lab_itself_can_not_do_is_nobodys_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in ("unshare", "sh", "flock"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")

    assert measure(make_peer("flock", "flock -n {lock}", "flock {lock}"), "waiting_cost").verdict is UNKNOWN


FAST = ["busy_status", "term", "kill_wrapper", "daemon", "closed_descriptors", "reused_pid", "full_disk"]


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.name in ("flock", "chpst")], ids=lambda peer: peer.name)
@pytest.mark.parametrize("scene", FAST)
def test_what_was_measured_is_so_still(scene, peer, report):
    if not peer.is_installed():
        pytest.skip(f"needs {peer.name}: make test-deps")

    assert measure(peer, scene) == report.get(scene, peer.name)


def test_nothing_goes_wrong_with_solo_alone(report):
    assert report.find_faultless() == ["solo"]
    assert not report.has_gaps()


def test_every_scene_and_every_wrapper_of_debian_is_measured(report):
    assert list(report.scenes) == list(SCENES)
    assert set(report.peers) == {peer.name for peer in PEERS} - {"run-one"}


def test_docs_are_made_from_what_was_measured(report):
    [told] = re.findall(r"<!-- lab -->\n(.*?)\n<!-- end -->", (ROOT / "docs/evidence.md").read_text(), re.S)

    assert told == report.to_evidence()
    assert (ROOT / "docs/lab.md").read_text() == report.to_markdown()
    assert (ROOT / "docs/lab.svg").read_text() == report.to_svg()


def test_red_in_the_picture_is_two_at_once_and_nothing_else(report):
    cells = [element for element in ElementTree.fromstring(report.to_svg()).iter() if element.get("fill") == TWO.colour]
    told = [cell[0].text for cell in cells if ": " in cell[0].text]

    assert len(told) == sum(len(report.find(scene, TWO)) for scene in report.scenes)
    assert len(cells) == len(told) + 1  # the legend's


def test_the_lab_knows_nothing_of_solos_inside():
    imports = re.compile(r"^\s*(?:from|import) solo\b", re.M)

    assert not [file.name for file in (ROOT / "tests/lab").glob("*.py") if imports.search(file.read_text())]


def test_a_name_that_is_neither_wrapper_nor_scene_is_refused():
    done = subprocess.run(["python3", "-m", "lab", "nobody"], cwd=ROOT / "tests", capture_output=True, text=True)

    assert done.returncode == 1
    assert "nobody" in done.stderr
