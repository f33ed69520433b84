"""The scenes: one function for each, which does something to a wrapper and returns the outcome.

No scene looks for overlaps: every job does and logs them. An overlap outweighs every other outcome
of a scene.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .trial import MARK, bad, find_tree, good, is_alive, note, read_stat, send

GRACE = 3  # seconds for an event that may never come, such as a forwarded signal
WATCH = 3  # seconds of tracing a waiter: more than two rounds of a wrapper that polls once a second
QUEUE = 20
ROUNDS, ENOUGH = 20, 30  # at most so many rounds, in at most so many seconds
FIRST_PID = 4711


class Scene(NamedTuple):
    title: str
    good: str  # the good outcome and its reason
    run: Callable
    needs: str  # the form of command line, besides skip, that a wrapper must have; or ""


SCENES = {}


def scene(title, good, needs=""):
    def add(function):
        SCENES[function.__name__] = Scene(title, good, function, needs)
        return function

    return add


# --- Exit status and messages---------------------------------------------------------------------


@scene(
    "exit status when busy",
    "Distinct: not 0, not 1 like a failed job, and not that of an impossible lock.",
)
def busy_status(trial):
    trial.hold()

    status, _ = trial.finish(trial.start("end"))
    unusable, _ = trial.finish(trial.start("end", locks=trial.place / "file"))

    if status == 0:
        return bad("0, as if it had run")
    if status == 1:
        return note("1, like a failed job")
    return (
        note(f"{status}, as when the lock cannot be created")
        if status == unusable
        else good(f"{status}")
    )


@scene(
    "message when busy",
    "It names the holder's pid and program, for the administrator on call at 3 in the morning.",
)
def busy_message(trial):
    wrapper, job = trial.hold()

    _, output = trial.finish(trial.start("end"))

    if not output:
        return bad("no message")
    if (
        any(str(pid) in output.split() for pid in (wrapper.pid, job))
        and os.path.basename(sys.executable) in output
    ):
        return good("names pid and program")
    return note("reports busy, but not the holder")


@scene(
    "a hung job behind silent skips",
    "The fifth skip is reported: else nobody would notice for days.",
)
def silent_hang(trial):
    trial.hold()

    outputs = [trial.finish(trial.start("end", "quiet"))[1] for _ in range(5)]

    return good("reports the fifth") if outputs[-1] else bad("never reports a skip")


def run_impossible(trial, file, right):
    status, output = trial.finish(trial.start("end", job=[trial.place / file]))

    if not trial.admits_next():
        return bad("stays locked")
    if status == 0 or not output:
        return bad(f"{status}" + ("" if output else ", without a message"))
    return good(f"{status}") if status == right else note(f"{status}")


for name, file, right, title in (
    ("missing_command", "missing", 127, "a command that does not exist"),
    ("command_not_executable", "file", 126, "a command that is not executable"),
):
    reason = f"Exit status {right}, as from every shell, with a message; the lock is free again."
    SCENES[name] = Scene(title, reason, partial(run_impossible, file=file, right=right), "")


@scene("a job that exits with 3", "Exit status 3.")
def exit_status(trial):
    status = trial.start("fail").wait()

    return good("3") if status == 3 else bad("0, success") if status == 0 else note(f"{status}")


@scene(
    "a job that dies of SIGTERM",
    "The wrapper dies of it too: a shell loop ends on Ctrl-C only if it sees that.",
)
def signal_status(trial):
    status = trial.start("die").wait()

    if status == -signal.SIGTERM:
        return good("dies of SIGTERM")
    return bad("0, success") if status == 0 else note(f"exits {status}")


# --- Signals--------------------------------------------------------------------------------------


def signal_wrapper(trial, number, action="stay"):
    wrapper, job = trial.hold(action)

    wrapper.send_signal(number)
    trial.comes_true(lambda: wrapper.poll() is not None or number in trial.read("signal"), GRACE)
    send(job, MARK)
    trial.until(
        lambda: MARK in trial.read("signal") or not is_alive(job), "keeps the job from running"
    )
    ended, got = wrapper.poll() is not None, set(trial.read("signal")) - {MARK}
    trial.admits_next()
    killed = not is_alive(job)
    trial.end_job(wrapper, job)

    if not trial.admits_next():
        return bad("stays locked")
    if not got:
        return bad("ends, the job gets no signal" if ended else "the signal is lost")
    if killed or number not in got:
        return note(
            f"the job gets {', '.join(signal.Signals(one).name for one in got)}"
            + killed * ", then SIGKILL"
        )
    return good("the job gets the signal")


for name, number, title, right in (
    (
        "term",
        signal.SIGTERM,
        "SIGTERM to the wrapper",
        "The job gets it, to clean up; the lock holds until it ends.",
    ),
    (
        "interrupt",
        signal.SIGINT,
        "SIGINT to the wrapper",
        "The same: a CI runner that cancels signals only the wrapper.",
    ),
    (
        "hang_up",
        signal.SIGHUP,
        "SIGHUP to the wrapper",
        "The same: a connection is lost or a terminal closed.",
    ),
):
    SCENES[name] = Scene(title, right, partial(signal_wrapper, number=number), "")


@scene(
    "SIGTERM with the job in its own session",
    "The same: the wrapper finds the job in the other session too.",
)
def own_session(trial):
    return signal_wrapper(trial, signal.SIGTERM, "session")


@scene(
    "SIGKILL to the wrapper",
    "No two jobs run at once: the job dies too, or the next run is refused until then.",
)
def kill_wrapper(trial):
    wrapper, job = trial.hold()

    wrapper.kill()
    wrapper.wait()
    died = wrapper.pid == job or not is_alive(job)
    trial.admits_next()
    trial.end_job(wrapper, job)

    if not trial.comes_true(trial.admits_next):  # what waits for the job needs a moment
        return bad("stays locked")
    return good("the job dies with the wrapper" if died else "the next run is refused")


@scene(
    "SIGKILL to the wrapper of a job's tree",
    "No second tree starts: a daemon that the job left keeps the lock.",
    "tree",
)
def kill_wrapper_of_tree(trial):
    wrapper = trial.start("daemon", "tree")
    trial.until(lambda: trial.read("daemon"), "starts no job")
    trial.until(lambda: not is_alive(trial.read("started")[-1]), "does not let the job end")
    [daemon] = trial.read("daemon")

    wrapper.kill()
    wrapper.wait()
    if not is_alive(daemon):
        return good("the daemon dies with the wrapper")
    if trial.admits_next("tree"):
        return bad("a second run starts beside the daemon")
    send(daemon, signal.SIGKILL)
    trial.until(lambda: not is_alive(daemon), "does not die of SIGKILL")

    if not trial.comes_true(lambda: trial.admits_next("tree")):
        return bad("stays locked")
    return good("the next run is refused")


@scene("SIGKILL to the job", "The wrapper does not report success, and the next run starts.")
def kill_job(trial):
    wrapper, job = trial.hold()

    send(job, signal.SIGKILL)
    trial.until(lambda: wrapper.poll() is not None, "does not end")

    if not trial.admits_next():
        return bad("stays locked")
    return bad("0, success") if wrapper.returncode == 0 else good("reports a failure")


@scene("SIGKILL to wrapper and job", "The next run starts at once, as after a crash.")
def kill_all(trial):
    wrapper, job = trial.hold()

    kill_tree(trial, wrapper, job)

    return good("the next run starts") if trial.admits_next() else bad("stays locked")


def kill_tree(trial, wrapper, job):
    """SIGKILL all processes of one run; return their pids, which are free for reuse."""
    pids = sorted({*find_tree(wrapper.pid), job})
    for pid in pids:
        send(pid, signal.SIGKILL)
    wrapper.wait()
    trial.until(lambda: not any(map(is_alive, pids)), "does not die of SIGKILL")
    for pid in pids:
        if (
            read_stat(pid)[1] == os.getpid()
        ):  # orphans become children of the first process of the namespace
            os.waitpid(pid, 0)
    return pids


@scene(
    "SIGSTOP to the wrapper, for a while", "No two jobs run meanwhile; afterwards nothing is stuck."
)
def stopped(trial):
    wrapper, job = trial.hold()
    stop(trial, wrapper)
    trial.admits_next()
    kill_tree(trial, wrapper, job)
    if not trial.admits_next():
        return bad("stays locked after SIGKILL")

    wrapper, job = trial.hold()
    waiter = trial.start_waiter("waiter") if trial.peer.wait else None
    stop(trial, wrapper)
    send(job, signal.SIGUSR1)
    trial.comes_true(
        lambda: not is_alive(job), GRACE / 10
    )  # a stopped wrapper that became the job by exec stays alive
    wrapper.send_signal(signal.SIGCONT)
    trial.until(lambda: wrapper.poll() is not None, "does not continue")
    if waiter and not trial.comes_true(lambda: "waiter" in trial.read_tags()):
        return bad("the waiter is stuck")
    if waiter:
        trial.finish(waiter)
    return good("nothing is stuck") if trial.admits_next() else bad("stays locked")


def stop(trial, wrapper):
    wrapper.send_signal(signal.SIGSTOP)
    trial.until(lambda: read_stat(wrapper.pid)[0] == "T", "does not stop")


# --- Descriptors of the lock----------------------------------------------------------------------


@scene(
    "a daemon left behind by the job",
    "The next run starts: the job has ended, and a daemon may live for years.",
)
def daemon(trial):
    wrapper = trial.start("daemon")
    trial.until(lambda: trial.read("daemon"), "starts no job")
    trial.until(lambda: wrapper.poll() is not None, "does not end before the daemon")

    return good("the next run starts") if trial.admits_next() else bad("keeps the lock")


@scene(
    "a descriptor of the lock in the job",
    "None: it has the descriptors that it would have without the wrapper.",
)
def visible_descriptor(trial):
    trial.hold()

    seen = trial.read("sees")

    return note(f"descriptor {', '.join(map(str, seen))}") if seen else good("none")


@scene(
    "a job that closes inherited descriptors",
    "The lock holds: sudo, ssh and many daemons close them first.",
)
def closed_descriptors(trial):
    wrapper, job = trial.hold("close")
    send(job, MARK)
    trial.until(lambda: MARK in trial.read("signal"), "does not run")

    return bad("the next run starts") if trial.admits_next() else good("the lock holds")


# --- The queue------------------------------------------------------------------------------------


@scene(
    f"order of {QUEUE} waiters",
    "Order of arrival; each waiter arrives once the one before it sleeps.",
    needs="wait",
)
def order(trial):
    wrapper, job = trial.hold()
    waiters = [trial.start_waiter(number) for number in range(QUEUE)]

    trial.end_job(wrapper, job)
    trial.comes_true(lambda: all(waiter.poll() is not None for waiter in waiters), 60)

    ran = trial.read_tags()[1:]
    if len(ran) < QUEUE:
        return bad(f"{QUEUE - len(ran)} of {QUEUE} did not run within a minute")
    out_of_turn = sum(tag != str(number) for number, tag in enumerate(ran))
    return bad(f"{out_of_turn} of {QUEUE} out of turn") if out_of_turn else good("order of arrival")


@scene(
    "waiters behind a stopped waiter",
    "They acquire the lock while the one ahead is stopped.",
    needs="wait",
)
def stopped_waiter(trial):
    wrapper, job = trial.hold()
    first = trial.start_waiter("first")
    waiters = [first, trial.start_waiter("second")]
    stop(trial, first)

    trial.end_job(wrapper, job)
    passes = trial.comes_true(lambda: "second" in trial.read_tags(), GRACE)
    for member in find_tree(first.pid):
        send(member, signal.SIGCONT)
    trial.until(
        lambda: all(waiter.poll() is not None for waiter in waiters), "starts no further run"
    )

    return good("they acquire the lock") if passes else note("it keeps its place and they wait")


@scene(
    "newcomers that overtake a waiter", "None acquires a freed lock before a waiter.", needs="wait"
)
def overtaking(trial):
    deadline = time.monotonic() + ENOUGH
    for number in range(1, ROUNDS + 1):
        if time.monotonic() > deadline:
            break
        _, job = trial.hold()
        waiting = trial.start_waiter("waiting")
        ran = len(trial.read_tags())

        send(job, signal.SIGUSR1)
        trial.until(
            lambda ran=ran: send_newcomers(trial) and len(trial.read_tags()) > ran, "starts no run"
        )
        if trial.read_tags()[ran] == "newcomer":
            return bad(f"a newcomer ran first, in round {number}")
        trial.finish(waiting)
        tried = number
    return good(f"none in {tried} rounds")


def send_newcomers(trial):
    return [
        trial.finish(newcomer)
        for newcomer in [trial.start("end", tag="newcomer") for _ in range(3)]
    ]


@scene(
    f"{WATCH} seconds of waiting",
    "No system call: the waiter sleeps until the lock is free.",
    needs="wait",
)
def waiting_cost(trial):
    trial.hold()
    trace = trial.place / "trace"
    waiting = trial.start_waiter(prefix=("strace", "-I1", "-f", "-ttt", "-o", trace))

    begin = time.time()
    time.sleep(WATCH)
    end = time.time()
    waiting.terminate()
    waiting.wait()
    calls = [line.split(None, 2)[1:] for line in trace.read_text().splitlines()]
    begun = [call for at, call in calls if begin <= float(at) <= end and call[0] not in "+-<"]

    return note(f"{len(begun)} system calls") if begun else good("no system call")


# --- Leftovers------------------------------------------------------------------------------------


@scene("a reboot during the job", "The next run starts: nobody has to remove anything.")
def reboot(trial):
    first = boot(trial, "first", "stay", FIRST_PID)
    trial.until(lambda: trial.read("started") or first.poll() is not None, "starts no job")
    [init] = find_tree(first.pid)[1:2]
    send(init, signal.SIGKILL)  # which ends all processes of its namespace
    first.wait()

    boot(trial, "second", "end", 100).wait()

    return good("the next run starts") if "second" in trial.read_tags() else bad("stays locked")


def boot(trial, boot_id, action, pid):
    """Start the peer with `pid` in a new pid namespace that has its own boot_id."""
    (trial.place / boot_id).write_text(f"{boot_id}\n")
    script = f"""
        mount --bind {trial.place}/{boot_id} /proc/sys/kernel/random/boot_id || exit
        echo {pid - 1} >/proc/sys/kernel/ns_last_pid
        "$@" & wait
    """
    isolated = (
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
        "sh",
    )
    return trial.start(action, tag=boot_id, prefix=isolated)


@scene("pids reused after SIGKILL", "The next run starts: a pid alone does not identify a process.")
def reused_pid(trial):
    wrapper, job = trial.hold()
    pids = kill_tree(trial, wrapper, job)
    time.sleep(0.05)  # the kernel does not reuse a pid within one clock tick

    for pid in pids:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        assert subprocess.Popen(["sleep", "inf"]).pid == pid

    return good("the next run starts") if trial.admits_next() else bad("stays locked")


@scene(
    "a full disk",
    "It refuses with a message, or runs and excludes others; with space again, the next run starts.",
)
def full_disk(trial):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", trial.locks], check=True)
    filler = trial.locks / "filler"
    try:
        filler.write_bytes(bytes(1 << 16))
    except OSError:
        pass
    wrapper = trial.start("stay")
    if not trial.comes_true(lambda: trial.read("started") or wrapper.poll() is not None):
        return bad("hangs")
    ran = trial.read("started")
    if ran:
        trial.admits_next()
        trial.end_job(wrapper, ran[0])
    status, output = trial.finish(wrapper)
    filler.unlink()

    if not trial.admits_next():
        return bad("stays locked, with space again")
    if ran:
        return good("runs and excludes others")
    if status and output:
        return good(f"refuses with {status}")
    return bad(f"does not run: {status}, {output or 'without a message'}")
