"""What is done to each wrapper: a function a scene, which gives what came of it.

None of them looks for two that run at once: every job does, and tells; that outweighs whatever else came of a scene.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, NamedTuple

from .trial import MARK, find_tree, is_alive, read_stat, send
from .verdicts import bad, good, note

GRACE = 3  # seconds for what may never happen, as a signal that is passed on
WATCH = 3  # seconds for which one who waits is watched: more than two rounds of those that look once a second
LINE = 20
ROUNDS, ENOUGH = 20, 30  # or as many as there are in so many seconds
FIRST_PID = 4711


class Scene(NamedTuple):
    title: str
    good: str  # what is, and why
    run: Callable
    waits: bool  # needs one who stands in line


SCENES = {}


def scene(title, good, waits=False):
    def add(function):
        SCENES[function.__name__] = Scene(title, good, function, waits)
        return function

    return add


# --- What it says --------------------------------------------------------------------------------------------------


@scene("exit status when busy", "One of its own: not 0, not 1 as of a job that failed, not that of a lock that can not be made.")
def busy_status(trial):
    trial.hold()

    status, _ = trial.finish(trial.start("end"))
    unusable, _ = trial.finish(trial.start("end", locks=trial.place / "file"))

    if status == 0:
        return bad("0, as if it had run")
    if status == 1:
        return note("1, as of a job that failed")
    return note(f"{status}, as when the lock can not be made") if status == unusable else good(f"{status}")


@scene("message when busy", "It says which process holds the lock, and what that runs: at 3 in the morning somebody wants to know.")
def busy_message(trial):
    wrapper, job = trial.hold()

    _, said = trial.finish(trial.start("end"))

    if not said:
        return bad("nothing")
    if any(str(pid) in said.split() for pid in (wrapper.pid, job)) and os.path.basename(sys.executable) in said:
        return good("names pid and program")
    return note("that it is busy, not by whom")


@scene("a job that hangs, skipped in silence", "The fifth skip in a row is told of: nobody else would notice for days.")
def silent_hang(trial):
    trial.hold()

    said = [trial.finish(trial.start("end", "quiet"))[1] for _ in range(5)]

    return good("the fifth is told of") if said[-1] else bad("silent for ever")


@scene("a command that does not exist", "Exit status 127, as of every shell, a message, and the lock is free again.")
def missing_command(trial):
    return run_impossible(trial, trial.place / "missing", 127)


@scene("a command that is not executable", "Exit status 126, as of every shell, a message, and the lock is free again.")
def command_not_executable(trial):
    return run_impossible(trial, trial.place / "file", 126)


def run_impossible(trial, command, right):
    status, said = trial.finish(trial.start("end", job=[command]))

    if not trial.lets_in():
        return bad("stays locked")
    if status == 0 or not said:
        return bad(f"{status}" + ("" if said else ", and says nothing"))
    return good(f"{status}") if status == right else note(f"{status}")


@scene("a job that fails with 3", "Exit status 3.")
def exit_status(trial):
    status = trial.start("fail").wait()

    return good("3") if status == 3 else bad("0, success") if status == 0 else note(f"{status}")


@scene("a job that dies of SIGTERM", "It dies of SIGTERM too: a shell's loop ends on Ctrl-C only if it can see that.")
def signal_status(trial):
    status = trial.start("die").wait()

    if status == -signal.SIGTERM:
        return good("dies of it")
    return bad("0, success") if status == 0 else note(f"exits {status}")


# --- Signals -------------------------------------------------------------------------------------------------------


@scene("SIGTERM to the wrapper", "The job gets it, as it must to clean up, and the lock holds until the job has ended.")
def term(trial):
    return signal_wrapper(trial, signal.SIGTERM)


@scene("SIGINT to the wrapper", "The same: a CI runner that cancels signals the wrapper alone.")
def interrupt(trial):
    return signal_wrapper(trial, signal.SIGINT)


@scene("SIGHUP to the wrapper", "The same: a lost connection, or a terminal closed.")
def hang_up(trial):
    return signal_wrapper(trial, signal.SIGHUP)


@scene("SIGTERM, the job in a session of its own", "The same: the job is found there too.")
def own_session(trial):
    return signal_wrapper(trial, signal.SIGTERM, "session")


def signal_wrapper(trial, number, what="stay"):
    wrapper, job = trial.hold(what)

    wrapper.send_signal(number)
    trial.comes_true(lambda: wrapper.poll() is not None or number in trial.read("signal"), GRACE)
    send(job, MARK)
    trial.until(lambda: MARK in trial.read("signal") or not is_alive(job), "does not let the job go on")
    ended, got = wrapper.poll() is not None, set(trial.read("signal")) - {MARK}
    trial.lets_in()
    killed = not is_alive(job)
    trial.end_job(wrapper, job)

    if not trial.lets_in():
        return bad("stays locked")
    if not got:
        return bad("ends, the job is not told" if ended else "is lost")
    if killed or number not in got:
        return note(f"the job gets {', '.join(signal.Signals(one).name for one in got)}" + killed * ", then SIGKILL")
    return good("the job gets it")


@scene("SIGKILL to the wrapper", "No two run: the job dies with it or the next is kept out meanwhile; then the next gets in.")
def kill_wrapper(trial):
    wrapper, job = trial.hold()

    wrapper.kill()
    wrapper.wait()
    died = wrapper.pid == job or not is_alive(job)
    trial.lets_in()
    trial.end_job(wrapper, job)

    if not trial.lets_in():
        return bad("stays locked")
    return good("the job dies with it" if died else "the next is kept out")


@scene("SIGKILL to the job", "The wrapper does not tell of success, and the next gets in.")
def kill_job(trial):
    wrapper, job = trial.hold()

    send(job, signal.SIGKILL)
    trial.until(lambda: wrapper.poll() is not None, "does not end")

    if not trial.lets_in():
        return bad("stays locked")
    return bad("0, success") if wrapper.returncode == 0 else good("is told of")


@scene("SIGKILL to wrapper and job", "The next gets in at once, as after a crash.")
def kill_all(trial):
    wrapper, job = trial.hold()

    kill_tree(trial, wrapper, job)

    return good("the next gets in") if trial.lets_in() else bad("stays locked")


def kill_tree(trial, wrapper, job):
    """All of one run; returns its pids, which are free for others."""
    pids = sorted({*find_tree(wrapper.pid), job})
    for pid in pids:
        send(pid, signal.SIGKILL)
    wrapper.wait()
    trial.until(lambda: not any(map(is_alive, pids)), "does not die of SIGKILL")
    for pid in pids:
        if read_stat(pid)[1] == os.getpid():  # it came to us, as the first process of the namespace
            os.waitpid(pid, 0)
    return pids


@scene("SIGSTOP to the wrapper, for a while", "No two run meanwhile; afterwards, killed or continued, nobody is stuck.")
def stopped(trial):
    wrapper, job = trial.hold()
    stop(trial, wrapper)
    trial.lets_in()
    kill_tree(trial, wrapper, job)
    if not trial.lets_in():
        return bad("killed, it stays locked")

    wrapper, job = trial.hold()
    next_one = trial.stand_in_line("next") if trial.peer.wait else None
    stop(trial, wrapper)
    send(job, signal.SIGUSR1)
    trial.comes_true(lambda: not is_alive(job), GRACE / 10)  # not that of a wrapper which has become the job
    wrapper.send_signal(signal.SIGCONT)
    trial.until(lambda: wrapper.poll() is not None, "does not go on")
    if next_one and not trial.comes_true(lambda: "next" in trial.read_tags()):
        return bad("the next is stuck")
    if next_one:
        trial.finish(next_one)
    return good("nobody is stuck") if trial.lets_in() else bad("stays locked")


def stop(trial, wrapper):
    wrapper.send_signal(signal.SIGSTOP)
    trial.until(lambda: read_stat(wrapper.pid)[0] == "T", "does not stop")


# --- What the job has of it ----------------------------------------------------------------------------------------


@scene("a daemon left behind by the job", "The next gets in: the job has ended, and a daemon may live for years.")
def daemon(trial):
    wrapper = trial.start("daemon")
    trial.until(lambda: trial.read("daemon"), "starts no job")
    trial.until(lambda: wrapper.poll() is not None, "does not end before the daemon")

    return good("the next gets in") if trial.lets_in() else bad("keeps the lock")


@scene("a descriptor of the lock in the job", "None: the job has the descriptors that it would have had without the wrapper.")
def visible_descriptor(trial):
    trial.hold()

    seen = trial.read("sees")

    return note(f"{', '.join(map(str, seen))}, of the lock") if seen else good("none")


@scene("a job that closes what it did not open", "The lock holds: sudo, ssh and many daemons begin with that.")
def closed_descriptors(trial):
    wrapper, job = trial.hold("close")
    send(job, MARK)
    trial.until(lambda: MARK in trial.read("signal"), "does not run")

    return bad("lets the next in") if trial.lets_in() else good("holds")


# --- In line -------------------------------------------------------------------------------------------------------


@scene(f"order of {LINE} in line", "That of arrival; each comes once the one before it sleeps.", waits=True)
def order(trial):
    wrapper, job = trial.hold()
    line = [trial.stand_in_line(number) for number in range(LINE)]

    trial.end_job(wrapper, job)
    trial.comes_true(lambda: all(one.poll() is not None for one in line), 60)

    ran = trial.read_tags()[1:]
    if len(ran) < LINE:
        return bad(f"{LINE - len(ran)} of {LINE} did not get in within a minute")
    out_of_turn = sum(tag != str(number) for number, tag in enumerate(ran))
    return bad(f"{out_of_turn} of {LINE} out of turn") if out_of_turn else good("of arrival")


@scene("those behind one that is stopped in line", "Those behind it get in: not only when it goes on, but meanwhile.", waits=True)
def stopped_in_line(trial):
    wrapper, job = trial.hold()
    first = trial.stand_in_line("first")
    line = [first, trial.stand_in_line("second")]
    stop(trial, first)

    trial.end_job(wrapper, job)
    passes = trial.comes_true(lambda: "second" in trial.read_tags(), GRACE)
    for member in find_tree(first.pid):
        send(member, signal.SIGCONT)
    trial.until(lambda: all(one.poll() is not None for one in line), "nobody gets in any more")

    return good("they do") if passes else note("it keeps its place, and they wait for it")


@scene("newcomers overtaking one in line", "None who does not wait gets in before one who does, when the lock is free.", waits=True)
def overtaking(trial):
    deadline = time.monotonic() + ENOUGH
    for number in range(1, ROUNDS + 1):
        if time.monotonic() > deadline:
            break
        _, job = trial.hold()
        waiting = trial.stand_in_line("waiting")
        ran = len(trial.read_tags())

        send(job, signal.SIGUSR1)
        trial.until(lambda ran=ran: send_newcomers(trial) and len(trial.read_tags()) > ran, "lets nobody in")
        if trial.read_tags()[ran] == "newcomer":
            return bad(f"one got in first, in round {number}")
        trial.finish(waiting)
        tried = number
    return good(f"none in {tried} rounds")


def send_newcomers(trial):
    return [trial.finish(newcomer) for newcomer in [trial.start("end", tag="newcomer") for _ in range(3)]]


@scene(f"{WATCH} seconds of waiting in line", "No system call: it sleeps until the lock is free.", waits=True)
def waiting_cost(trial):
    trial.hold()
    trace = trial.place / "trace"
    waiting = trial.stand_in_line(prefix=("strace", "-I1", "-f", "-ttt", "-o", trace))

    begin = time.time()
    time.sleep(WATCH)
    end = time.time()
    waiting.terminate()
    waiting.wait()
    calls = [line.split(None, 2)[1:] for line in trace.read_text().splitlines()]
    begun = [call for at, call in calls if begin <= float(at) <= end and call[0] not in "+-<"]

    return note(f"{len(begun)} system calls") if begun else good("no system call")


# --- What was left -------------------------------------------------------------------------------------------------


@scene("a reboot in the middle", "The next gets in: nobody has to remove anything.")
def reboot(trial):
    first = boot(trial, "first", "stay", FIRST_PID)
    trial.until(lambda: trial.read("started") or first.poll() is not None, "starts no job")
    [init] = find_tree(first.pid)[1:2]
    send(init, signal.SIGKILL)  # and with it all of its namespace
    first.wait()

    boot(trial, "second", "end", 100).wait()

    return good("the next gets in") if "second" in trial.read_tags() else bad("stays locked")


def boot(trial, boot_id, what, pid):
    """The peer in a pid namespace of its own, with `pid`, and with a boot_id of its own."""
    (trial.place / boot_id).write_text(f"{boot_id}\n")
    script = f"""
        mount --bind {trial.place}/{boot_id} /proc/sys/kernel/random/boot_id || exit
        echo {pid - 1} >/proc/sys/kernel/ns_last_pid
        "$@" & wait
    """
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh")
    return trial.start(what, tag=boot_id, prefix=apart)


@scene("after SIGKILL, the pids given to others", "The next gets in: a pid is not a process.")
def reused_pid(trial):
    wrapper, job = trial.hold()
    pids = kill_tree(trial, wrapper, job)
    time.sleep(0.05)  # no pid comes around within a tick of the clock

    for pid in pids:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        assert subprocess.Popen(["sleep", "inf"]).pid == pid

    return good("the next gets in") if trial.lets_in() else bad("stays locked")


@scene("a full disk", "It refuses, and says so, or keeps the others out nevertheless; with space again, the next gets in.")
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
        trial.lets_in()
        trial.end_job(wrapper, ran[0])
    status, said = trial.finish(wrapper)
    filler.unlink()

    if not trial.lets_in():
        return bad("nobody gets in, with space again")
    if ran:
        return good("runs, and keeps others out")
    return good(f"refuses with {status}") if status and said else bad(f"does not run: {status}, says " + (said or "nothing"))
