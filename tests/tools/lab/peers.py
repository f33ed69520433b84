"""The wrappers, each with its words to skip, to wait, and to skip in silence, as its manual shows
them.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

# lockfile takes no command: this is its manual's script, with a trap added so that the exit status
# of the job survives.
LOCKFILE = 'lock=$1; shift; lockfile {} "$lock" || exit; trap \'rm -f "$lock"\' EXIT; "$@"'
SILENCED = ["sh", "-c", '"$@" >/dev/null 2>&1', "silenced"]


class Peer(NamedTuple):
    """The words before a job. {lock} in them is the path of a lock file, {name} its last
    component.
    """

    name: str
    program: str
    skip: list  # if the lock is held, do not run
    wait: list | None  # wait forever; None: it cannot
    quiet: list  # like skip, without a message
    tree: list | None = (
        # like skip, but hold the lock until the last descendant of the job has ended; None: it
        # cannot
        None
    )

    def is_installed(self) -> bool:
        return shutil.which(self.program) is not None

    def find_version(self) -> str:
        if self.program == "solo":
            return read("solo", "--version")
        package = read("dpkg-query", "-S", shutil.which(self.program)).partition(":")[0]
        return (
            read("dpkg-query", "-W", "-f", "${Package} ${Version}", package)
            or f"{self.program}, version unknown"
        )


def read(*words) -> str:
    """Return the stdout of a program, or "" if it is not installed."""
    if not shutil.which(words[0]):
        return ""
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def make_peer(name, skip, wait=None, quiet=None, program=None, tree=None) -> Peer:
    """Make a Peer. Without a `quiet` mode, redirect its output to /dev/null, as people do."""
    forms = (skip, wait, quiet, tree)
    skip, wait, quiet, tree = (
        words.split() if isinstance(words, str) else words for words in forms
    )
    return Peer(name, program or name.split()[0], skip, wait, quiet or [*SILENCED, *skip], tree)


def make_dotlockfile(flag) -> Peer:
    """It polls; once a second is its shortest interval."""
    words = f"dotlockfile{flag} -p"
    return make_peer(
        f"dotlockfile{flag}",
        f"{words} -r 0 {{lock}}",
        f"{words} -i 1 -r -1 {{lock}}",
        f"{words} -q -r 0 {{lock}}",
    )


def shell(text) -> list:
    """Return words that run the script `text` with the lock as $1 and the job after it."""
    return ["sh", "-c", text, "sh", "{lock}"]


PEERS = [
    make_peer("flock", "flock -n -E 75 {lock}", "flock {lock}", tree="flock -n -E 75 {lock}"),
    make_peer("flock -o", "flock -n -E 75 -o {lock}", "flock -o {lock}"),
    make_peer("flock -F", "flock -n -E 75 -F {lock}", "flock -F {lock}"),
    make_peer(
        "timeout flock",
        "timeout 1h flock -n -E 75 {lock}",
        "timeout 1h flock {lock}",
        program="flock",
    ),
    make_peer("lckdo", "lckdo {lock}", "lckdo -w {lock}", "lckdo -q {lock}"),
    make_peer("lckdo -e", "lckdo -e {lock}", "lckdo -w -e {lock}", "lckdo -q -e {lock}"),
    make_peer(
        "setlock",
        "setlock -n {lock}",
        "setlock {lock}",
        "setlock -nx {lock}",
        tree="setlock -n {lock}",
    ),
    make_peer("chpst", "chpst -L {lock}", "chpst -l {lock}", tree="chpst -L {lock}"),
    make_peer("s6-setlock", "s6-setlock -n {lock}", "s6-setlock {lock}"),
    make_peer(
        "with-lock-ex", "with-lock-ex -f {lock}", "with-lock-ex -w {lock}", "with-lock-ex -q {lock}"
    ),
    make_peer("run-one", "run-one"),
    # runlock waits at least one second; -t 0 means forever.
    make_peer("runlock", "runlock -t 1 -f {lock}", "runlock -t 0 -f {lock}"),
    make_peer("sem", "sem --fg --id {name} --st -1", "sem --fg --id {name}"),
    make_dotlockfile(""),
    make_dotlockfile(" -P"),
    make_peer(
        "lockfile",
        shell(LOCKFILE.format("-r 0")),
        shell(LOCKFILE.format("-1 -r -1")),
        program="lockfile",
    ),
    make_peer(
        "solo",
        "solo -n {name} --",
        "solo -w forever -n {name} --",
        "solo -q -E 0 --loud-after 3 -n {name} --",
        tree="solo --tree -n {name} --",
    ),
]
