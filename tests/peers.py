"""What goes wrong with whom: real wrappers, killed, signalled, kept busy. `python tests/peers.py` prints the README's table.

Knows a wrapper only as words put before a job, and asks only what can be seen from outside: which jobs ran, what lives, what was
said. Each row is a function that gives True where it goes wrong.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 20  # seconds after which something is stuck; never a measurement
SIGMARK = signal.SIGRTMIN  # sent last: signals that wait are taken in the order of their numbers
JOB = """import os, signal, sys
what, log = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
os.write(log, b"started %d\\n" % os.getpid())
if what == "daemon" and not os.fork():
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    os.write(log, b"daemon %d\\n" % os.getpid())
    signal.sigwait({signal.SIGRTMIN})
while what == "stay":
    number = signal.sigwait(every)
    os.write(log, b"signal %d\\n" % number)
    if number == signal.SIGUSR1:
        break
os._exit(3 if what == "fail" else 0)
"""


class Peer:
    """A wrapper: the words that skip at once if the lock is held, `{lock}` in them, and those that skip in silence.

    Where `quiet` is None it has no such mode, and people send what it says to /dev/null.
    """

    def __init__(self, name, words, quiet=None):
        self.name = name
        self.words = words.split()
        self.quiet = quiet.split() if quiet else ["sh", "-c", '"$@" >/dev/null 2>&1', "quiet", *self.words]

    def is_installed(self):
        return shutil.which(self.name.split()[0]) is not None


PEERS = [
    Peer("flock", "flock -n {lock}"),
    Peer("flock -o", "flock -n -o {lock}"),
    Peer("flock -F", "flock -n -F {lock}"),
    Peer("lckdo", "lckdo {lock}", "lckdo -q {lock}"),
    Peer("lckdo -e", "lckdo -e {lock}", "lckdo -q -e {lock}"),
    Peer("setlock", "setlock -n {lock}", "setlock -nx {lock}"),
    Peer("chpst", "chpst -L {lock}"),
    Peer("s6-setlock", "s6-setlock -n {lock}"),
    Peer("with-lock-ex", "with-lock-ex -f {lock}", "with-lock-ex -q {lock}"),
    Peer("run-one", "run-one"),
    Peer("sem", "sem --fg --id {lock} --st -1"),
    Peer("dotlockfile", "dotlockfile -p -r 0 {lock}", "dotlockfile -q -p -r 0 {lock}"),
    # It takes no command: this is how its manual has it used, with a trap added so that a failed job is seen.
    Peer("lockfile", "sh {lockfile} {lock}"),
    Peer("solo", "solo -n {name} --", "solo -q -E 0 --loud-after 3 -n {name} --"),
]
LOCKFILE = 'lock=$1; shift\nlockfile -r 0 "$lock" || exit\ntrap \'rm -f "$lock"\' EXIT\n"$@"\n'


class Trial:
    """One peer, one lock, one log of what its jobs did."""

    def __init__(self, peer):
        self.peer = peer
        self.place = Path(tempfile.mkdtemp(prefix="peers."))
        self.log = self.place / "log"
        self.log.touch()
        (self.place / "job").write_text(JOB)
        (self.place / "lockfile").write_text(LOCKFILE)
        self.environment = {**os.environ, "HOME": str(self.place), "PARALLEL_HOME": str(self.place)}
        self.wrappers = []

    def start(self, what, words=None):
        """The peer in front of a job that stays, ends, fails, or leaves a daemon."""
        holes = {"lock": str(self.place / "lock"), "name": self.place.name, "lockfile": str(self.place / "lockfile")}
        if "sem" in self.peer.words:
            holes["lock"] = self.place.name  # an id
        words = [word.format(**holes) if "{" in word else word for word in words or self.peer.words]
        wrapper = subprocess.Popen([*words, sys.executable, "-IS", self.place / "job", what, self.log], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.wrappers.append(wrapper)
        return wrapper

    def hold(self):
        """(wrapper, pid of its job), which runs."""
        wrapper = self.start("stay")
        self.until(lambda: self.read("started") or wrapper.poll() is not None)
        assert self.read("started"), f"{self.peer.name} does not run: {wrapper.stdout.read()}"
        return wrapper, self.read("started")[0]

    def read(self, word):
        """The numbers that the jobs wrote after `word`, oldest first."""
        return [int(line.split()[1]) for line in self.log.read_text().splitlines() if line.startswith(word + " ")]

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.peer.name}: it never came true; {self.log.read_text()}")
            time.sleep(0.005)

    def lets_in(self):
        """Whether one who comes now runs."""
        before = len(self.read("started"))
        wrapper = self.start("end")
        self.until(lambda: wrapper.poll() is not None or len(self.read("started")) > before)
        return len(self.read("started")) > before

    def lets_in_beside(self, job):
        """Whether one who comes now runs while `job` still does."""
        return self.lets_in() and is_alive(job)

    def close(self):
        for wrapper in self.wrappers:
            wrapper.kill()
            wrapper.stdout.close()
            wrapper.wait()
        for pid in self.read("started") + self.read("daemon"):
            if is_ours(pid, self.place):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.place)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def is_ours(pid, place):
    """The pid may be someone else's by now."""
    try:
        return os.fsencode(place) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def two_run_after_kill(trial):
    wrapper, job = trial.hold()

    wrapper.kill()
    wrapper.wait()

    return trial.lets_in_beside(job)


def two_run_after_term(trial):
    wrapper, job = trial.hold()

    wrapper.terminate()
    trial.until(lambda: wrapper.poll() is not None or trial.read("signal"))

    return trial.lets_in_beside(job)


def stays_locked(trial):
    wrapper, job = trial.hold()
    for pid in {wrapper.pid, job}:
        os.kill(pid, signal.SIGKILL)
    wrapper.wait()
    trial.until(lambda: not is_alive(job))

    return not trial.lets_in()


def daemon_keeps_the_lock(trial):
    wrapper = trial.start("daemon")
    trial.until(lambda: trial.read("daemon"))
    wrapper.wait(PATIENCE)

    return not trial.lets_in()


def failure_is_success(trial):
    return trial.start("fail").wait(PATIENCE) == 0


def signals_are_lost(trial):
    wrapper, job = trial.hold()

    wrapper.terminate()
    trial.until(lambda: wrapper.poll() is not None or signal.SIGTERM in trial.read("signal"))
    os.kill(job, SIGMARK)
    trial.until(lambda: SIGMARK in trial.read("signal"))

    return signal.SIGTERM not in trial.read("signal")


def nobody_says_who(trial):
    """The one who is turned away tells neither the pid nor the program of the one who holds the lock."""
    wrapper, job = trial.hold()

    said = read_all(trial.start("end"))

    return not (any(str(pid) in said.split() for pid in (wrapper.pid, job)) and os.path.basename(sys.executable) in said)


def hang_is_silent(trial):
    """The fifth skip in a row says as little as the first, where that one is silent."""
    trial.hold()

    said = [read_all(trial.start("end", trial.peer.quiet)) for _ in range(5)]

    return said[-1] == ""


def read_all(wrapper):
    """All it says until it ends."""
    said = b""
    while select.select([wrapper.stdout], [], [], PATIENCE)[0]:
        part = os.read(wrapper.stdout.fileno(), 65536)
        if not part:
            break
        said += part
    wrapper.wait(PATIENCE)
    return said.decode(errors="replace")


ROWS = {
    "the wrapper is SIGKILLed, and two run": two_run_after_kill,
    "the wrapper gets a SIGTERM, and two run": two_run_after_term,
    "wrapper and job are SIGKILLed, and the lock stays": stays_locked,
    "a daemon left behind by the job keeps the lock": daemon_keeps_the_lock,
    "a failed job is reported as success": failure_is_success,
    "a SIGTERM to the wrapper does not reach the job": signals_are_lost,
    "who is turned away is not told by whom": nobody_says_who,
    "a job that hangs is skipped in silence for ever": hang_is_silent,
}


def goes_wrong(peer, row) -> bool:
    trial = Trial(peer)
    try:
        return ROWS[row](trial)
    finally:
        trial.close()


def make_table(peers) -> str:
    lines = ["| what can go wrong | with whom |", "|---|---|"]
    for row in ROWS:
        wrong = [peer.name for peer in peers if goes_wrong(peer, row)]
        names = "all others" if len(wrong) == len(peers) - 1 and "solo" not in wrong else ", ".join(wrong)
        lines.append(f"| {row} | {names or 'nobody'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    installed = [peer for peer in PEERS if peer.is_installed()]
    print(make_table(installed))
    print("\nMeasured: " + ", ".join(peer.name for peer in installed) + ".")
