"""The README's table of what goes wrong with whom is what is measured here; and the measure tells good from bad."""

import re

import pytest
from conftest import ROOT
from peers import PEERS, ROWS, Peer, goes_wrong

pytestmark = pytest.mark.tool("flock")

BROKEN = {  # in just that way
    "two_run_after_kill": 'exec flock -n -o "$0" "$@"',
    "two_run_after_term": 'exec flock -n -o "$0" "$@"',
    "stays_locked": 'mkdir "$0" || exit; "$@"; code=$?; rmdir "$0"; exit $code',
    "daemon_keeps_the_lock": 'exec flock -n -F "$0" "$@"',
    "failure_is_success": 'flock -n "$0" "$@"; exit 0',
    "signals_are_lost": 'exec flock -n "$0" "$@"',
    "nobody_says_who": 'flock -n "$0" "$@" || echo busy',
    "hang_is_silent": 'exec flock -n "$0" "$@"',
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ROWS[row].__name__)
def test_the_measure_tells_a_broken_wrapper_from_a_good_one(lab, row, monkeypatch):
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))
    script = lab.path / "broken.sh"
    script.write_text(f'lock=$1; shift\nexec sh -c \'{BROKEN[ROWS[row].__name__]}\' "$lock" "$@"\n')
    good = next(peer for peer in PEERS if peer.name == "solo")
    words, quiet = (" ".join([lab.script, *words[1:]]) for words in (good.words, good.quiet))

    assert goes_wrong(Peer("broken", f"sh {script} {{lock}}", f"sh {script} {{lock}}"), row)
    assert not goes_wrong(Peer("solo", words, quiet), row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ROWS[row].__name__)
def test_the_table_of_the_readme_is_what_is_measured(row):
    [cell] = re.findall(rf"^\| {row} \| (.*) \|$", (ROOT / "README.md").read_text(), re.M)
    others = [peer for peer in PEERS if peer.is_installed() and peer.name != "solo"]
    told = {peer.name for peer in others if cell == "all others" or peer.name in cell.split(", ")}

    assert {peer.name for peer in others if goes_wrong(peer, row)} == told


def test_every_peer_of_the_readmes_table_is_one_that_is_measured():
    named = re.findall(rf"^\| (?:{'|'.join(ROWS)}) \| (.*) \|$", (ROOT / "README.md").read_text(), re.M)

    assert {name for cell in named for name in cell.split(", ")} <= {peer.name for peer in PEERS} | {"all others"}
