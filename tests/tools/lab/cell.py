"""Run one scene with one peer. `python -m lab.cell PEER SCENE PLACE` runs inside its own
namespaces.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from measured import ROOT

from .peers import Peer
from .scenes import SCENES
from .trial import NONE, TWO, UNKNOWN, VERDICTS, Outcome, Stuck, Trial, bad

LIMIT = 180  # seconds; a cell that takes longer is the lab's failure, not the peer's


def measure(peer, scene) -> Outcome:
    """Return the outcome, even if the peer hangs: all its processes end with their namespace."""
    if SCENES[scene].needs and getattr(peer, SCENES[scene].needs) is None:
        return Outcome(NONE, VERDICTS[NONE][1])
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    isolated = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with tempfile.TemporaryDirectory(prefix="lab.") as place:
        words = [*isolated, sys.executable, "-m", "lab.cell", json.dumps(peer), scene, place]
        options = {
            "cwd": ROOT / "tests/tools",
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "text": True,
        }
        try:
            done = subprocess.run(words, timeout=LIMIT, **options)
        except subprocess.TimeoutExpired:
            return Outcome(UNKNOWN, f"no outcome within {LIMIT} s")
    if done.returncode:
        return Outcome(
            UNKNOWN, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        )
    return Outcome(*json.loads(done.stdout))


def play(peer, scene, place) -> Outcome:
    """Run the scene in this process. An overlap outweighs every other outcome."""
    trial = Trial(peer, place)
    try:
        outcome = SCENES[scene].run(trial)
    except Stuck as reason:
        outcome = bad(str(reason))
    return Outcome(TWO, VERDICTS[TWO][1]) if trial.read("overlap") else outcome


if __name__ == "__main__":
    for number in (
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
    ):  # a shell may start background jobs with them ignored
        signal.signal(number, signal.SIG_DFL)
    print(json.dumps(play(Peer(*json.loads(sys.argv[1])), sys.argv[2], Path(sys.argv[3]))))
