"""`solo hold` and `solo release`: the hold of a running process, or for a time, without a
launcher.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
import tally
from conftest import (
    PATIENCE,
    count_switches,
    finish,
    inject,
    kill,
    list_open,
    read_line,
    read_state,
    until,
    wait_dead,
)
from fleet import find_children
from observed import parse_metrics

from solo.record import parse_record
from solo.text.users import find_user

SHELLS = [["dash"], ["bash"], ["bash", "--posix"], ["ksh"], ["zsh", "-f"], ["busybox", "ash"]]
OTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SAMPLE = 12  # system calls that are hit in one run of a sweep


@pytest.fixture(
    params=[
        pytest.param(words, marks=pytest.mark.tool(words[0]), id=" ".join(words))
        for words in SHELLS
    ]
)
def shell(request):
    return request.param


def run_in(lab, shell, script):
    return finish(lab.start_words(*shell, "-c", script))


def start_waiting_hold(lab, target, *words):
    """Start a hold of `job` for the process that waits in the queue."""
    waiter = lab.start("hold", "--pid", str(target.own), "--wait", "forever", *words, "job")
    until(lambda: lab.count_waiting("job") == 1)
    return waiter


@pytest.fixture
def target(lab):
    return start_target(lab)


def start_target(lab, *prefix):
    """Start a process that lives until its stdin is closed."""
    process = lab.start_words(*prefix, "sh", "-c", "echo $$; read line; exit 0")
    process.own = int(read_line(process))
    return process


@pytest.fixture
def held(lab, target):
    """A process for which the name `job` is held."""
    assert hold(lab, target, "job").returncode == 0
    return target


def end_target(target):
    target.stdin.close()
    target.wait(PATIENCE)


def hold(lab, target, *words, **options):
    return lab.run("hold", "--pid", str(target.own), *words, **options)


def find_row(lab, name):
    return next((row for row in lab.list() if row["name"] == name), None)


def try_job(lab, name="job"):
    result = lab.run("-n", name, "--", "echo", "ran")
    return result.returncode, result.stderr.decode()


# --- a process------------------------------------------------------------------------------------


def test_hold_lives_as_long_as_its_process(lab, held):
    status, text = try_job(lab)
    assert status == 75
    assert re.fullmatch(
        rf"solo: job: busy: held for \ds by pid {held.own} \(sh -c echo .*\)\n", text
    )
    row = find_row(lab, "job")
    assert (row["state"], row["launcher"], row["child"]) == ("held", None, held.own)
    assert row["command"][:2] == ["sh", "-c"]

    end_target(held)
    assert try_job(lab) == (0, "")
    assert lab.list() == []


@pytest.mark.host
def test_no_process_of_solo_stays(lab, held):
    def is_of_the_lab(pid):
        with contextlib.suppress(OSError):
            return str(lab.path).encode() in open(f"/proc/{pid}/environ", "rb").read()

    assert [int(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if is_of_the_lab(pid)] == [
        held.own
    ]


def test_script_holds_through_exec_until_it_ends_even_by_sigkill(lab):
    script = lab.start_shell("$SOLO hold --pid $$ job && exec sh -c 'echo again; read line'")
    assert read_line(script) == "again"
    assert try_job(lab)[0] == 75

    kill(script)

    assert try_job(lab) == (0, "")


def test_zombie_does_not_hold(lab):
    parent = lab.start_words("sh", "-c", "sh -c 'echo $$; exec sleep 1000' & exec sleep 1000")
    child = int(read_line(parent))
    assert lab.run("hold", "--pid", str(child), "job").returncode == 0
    os.kill(child, signal.SIGKILL)
    until(lambda: read_state(child) == "Z")

    assert try_job(lab) == (0, "")
    result = lab.run("hold", "--pid", str(child), "job")
    refusal = f"solo: cannot hold for pid {child}: the process has ended\n"
    assert (result.returncode, result.stderr.decode()) == (125, refusal)
    parent.kill()


@pytest.mark.parametrize(
    "words, most", [(("--slots", "2"), 2), (("--shared",), 3)], ids=["slots", "shared"]
)
def test_hold_takes_the_mode_that_it_asks_for(lab, target, words, most):
    """One process may have several holds; release ends one of them."""
    assert [hold(lab, target, *words, "job").returncode for _ in range(3)] == [
        0,
        0,
        0 if most == 3 else 125,
    ]
    assert lab.run("release", "job").returncode == 0 and len(lab.list()) == most - 1
    assert lab.run("-n", "job", *words, "--", "true").returncode == 0
    assert lab.run("-n", "job", "--", "true").returncode == 75


def test_several_and_nested_names_are_held(lab, target):
    assert hold(lab, target, "a/b", "c").returncode == 0
    assert [try_job(lab, name)[0] for name in ("a", "a/b", "a/c", "c")] == [75, 75, 0, 75]
    end_target(target)
    assert [try_job(lab, name)[0] for name in ("a", "a/b", "c")] == [0, 0, 0]


def test_hold_of_several_names_keeps_none_if_one_is_busy(lab, target):
    holder = lab.hold("b")
    assert hold(lab, target, "a", "b").returncode == 75
    assert try_job(lab, "a") == (0, "")
    assert finish(holder)[0] == 0


@pytest.mark.tool("strace")
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_signal_leaves_all_names_held_or_none(lab, target, name):
    outcomes = set()
    for when in range(1, 9):
        result = hold(
            lab, target, "a", "b", prefix=inject(lab, f"pwrite64:signal=SIG{name}:when={when}")
        )
        held = {row["name"] for row in lab.list()}
        outcomes.add((result.returncode, tuple(sorted(held))))
        for each in held:
            assert lab.run("release", each).returncode == 0

    assert outcomes == {(0, ("a", "b")), (-getattr(signal, f"SIG{name}"), ())}


# --- waiting--------------------------------------------------------------------------------------


def test_hold_waits_in_the_queue(lab, target):
    holder = lab.hold("job")
    waiter = start_waiting_hold(lab, target)
    assert finish(holder)[0] == 0
    assert finish(waiter)[0] == 0
    assert find_row(lab, "job")["child"] == target.own


def test_hold_that_waits_too_long_says_so(lab, target):
    holder = lab.hold("job")
    result = hold(lab, target, "--wait", "100ms", "-E", "3", "job")
    assert result.returncode == 3 and b"; waited 100ms" in result.stderr
    result = hold(lab, target, "-q", "job")
    assert (result.returncode, result.stderr) == (75, b"")
    assert finish(holder)[0] == 0


def test_waiting_hold_ends_when_its_process_ends(lab, target):
    holder = lab.hold("job")
    waiter = start_waiting_hold(lab, target)
    end_target(target)
    assert finish(waiter) == (
        125,
        "",
        f"solo: cannot hold for pid {target.own}: the process has ended\n",
    )
    assert finish(holder)[0] == 0
    assert lab.list() == []


@pytest.mark.parametrize("event", ["end", "release"])
def test_waiter_behind_kept_hold_sleeps_and_wakes(lab, held, event):
    waiter = lab.start_waiter("job", tag="ran")
    before = count_switches(waiter.pid)
    time.sleep(1)
    assert count_switches(waiter.pid) == before

    if event == "end":
        end_target(held)
    else:
        assert lab.run("release", "job").returncode == 0

    assert waiter.wait(PATIENCE) == 0 and lab.read_log() == ["ran"]


def test_waiter_without_inotify_still_sees_a_release(lab, held):
    prefix = inject(lab, "inotify_init1:error=EMFILE")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "true", prefix=prefix)
    until(lambda: lab.count_waiting("job") == 1)
    assert lab.run("release", "job").returncode == 0
    assert waiter.wait(PATIENCE) == 0


def test_waiter_for_slots_wakes_on_release(lab, target):
    other = start_target(lab)
    for process in (target, other):
        assert hold(lab, process, "--slots", "2", "job").returncode == 0
    waiter = lab.start_waiter("job", "--slots", "2", tag="ran")
    assert lab.run("release", "--pid", str(other.own), "job").returncode == 0
    assert waiter.wait(PATIENCE) == 0
    assert find_row(lab, "job")["child"] == target.own


def test_program_that_waits_wakes_on_release(lab, held):
    program = lab.start_code("with solo.Lock('job', wait=math.inf): print('held', flush=True)")
    until(lambda: lab.count_waiting("job") == 1)
    assert lab.run("release", "job").returncode == 0
    assert finish(program)[:2] == (0, "held\n")


# --- who may, and who would wait for itself-------------------------------------------------------


def test_process_that_asks_again_is_refused(lab, held):
    result = hold(lab, held, "--wait", "forever", "job")
    assert result.returncode == 125
    assert (
        f"held by pid {held.own}, for which it was asked: it would wait for itself"
        in result.stderr.decode()
    )


def test_command_below_the_process_is_refused(lab):
    script = lab.start_shell("$SOLO hold --pid $$ job && $SOLO -n job -w forever -- true; echo $?")
    status, out, text = finish(script)
    assert out == "125\n" and "an ancestor of this process: it would wait for itself" in text


@pytest.mark.parametrize(
    "words, text",
    [
        ("job", "hold needs --pid, --fd or --for (in a script: solo hold --pid $$ job)"),
        ("--pid 0 job", "--pid 0: not a process id"),
        ("--pid x job", "--pid x: not a process id"),
        ("--pid 999999999 job", "cannot hold for pid 999999999: there is no such process"),
        ("--pid 1 --for 1s job", "--pid and --for exclude each other"),
        (
            "--for 1s --via socket job",
            "--via: no such option of solo hold (an engine could not end the process",
        ),
        (
            "--for 1s --flock f job",
            "--flock: no such option of solo hold (no descriptor of solo stays open)",
        ),
        (
            "--for 1s --timeout 1s job",
            "--timeout: no such option of solo hold (solo does not end the process",
        ),
        ("--for 1s -t 1s job", "-t: no such option of solo hold (solo does not end the process"),
        ("--for 1s -n x job", "-n: no such option of solo hold (type the name as it is"),
        ("--for 1s --tree job", "--tree: no such option of solo hold (solo runs no command)"),
        (
            "--for 1s --notify true job",
            "--notify: no such option of solo hold (the script gets the status",
        ),
        ("--for 1s --take 2 job", "--take needs --slots"),
        ("--for 1s --export -E 0 job", "--export and --busy-exit 0 exclude each other"),
        ("--for 2 hours deploy", "--for 2 hours: a duration is one word"),
        ("--for 5 deploy -- echo hi", "a subcommand runs no command"),
        ("--for 0 deploy", "--for must be longer than 0s"),
        ("--for 5 deploy ''", "a name may not be empty"),
    ],
)
def test_bad_options_are_refused_in_one_line(lab, words, text):
    result = lab.run("hold", *shlex.split(words))
    assert result.returncode == 125
    assert text in result.stderr.decode() and result.stderr.count(b"\n") == 1
    assert lab.list() == []


@pytest.mark.parametrize("via", ["socket", "etcd://127.0.0.1:1"])
def test_other_backend_of_the_environment_is_refused(lab, target, via):
    lab.environment["SOLO_VIA"] = via
    result = hold(lab, target, "job")
    assert result.returncode == 125 and b"hold works only with files" in result.stderr


def test_thread_is_refused(lab):
    program = lab.start_code(
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(os.getpid(), *os.listdir('/proc/self/task'), flush=True); sys.stdin.read()"
    )
    pid, *threads = map(int, read_line(program).split())
    [thread] = [each for each in threads if each != pid]
    result = lab.run("hold", "--pid", str(thread), "job")
    assert (
        result.stderr
        == f"solo: cannot hold for pid {thread}: it is a thread of pid {pid}\n".encode()
    )
    assert result.returncode == 125


def test_replace_of_another_users_hold_says_only_that_it_cannot(shared):
    process, mine = start_target(shared), start_target(shared, *OTHER)
    assert hold(shared, process, "job").returncode == 0
    result = hold(shared, mine, "--replace", "job", prefix=OTHER)
    assert result.returncode == 125
    assert (
        result.stderr.decode()
        == f"solo: job: cannot end pid {process.own}: Operation not permitted\n"
    )


def test_forged_names_do_not_stop_root_from_releasing(shared):
    process = start_target(shared)
    assert hold(shared, process, "job").returncode == 0
    [file] = (shared.directory / "job").glob(".hold.*")
    file.write_bytes(file.read_bytes().replace(b"names job\n", b"names job ../../x\n"))
    assert shared.run("release", "job").returncode == 0
    assert try_job(shared) == (0, "")


def test_other_users_process_is_refused(shared):
    process = start_target(shared)
    result = hold(shared, process, "job", prefix=OTHER)
    assert result.returncode == 125
    assert (
        result.stderr
        == f"solo: cannot hold for pid {process.own}: it is another user's process\n".encode()
    )


def test_only_the_same_user_and_root_may_release(shared):
    process, theirs = start_target(shared), start_target(shared, *OTHER)
    assert hold(shared, process, "job").returncode == 0
    result = shared.run("release", "job", prefix=OTHER)
    assert result.returncode == 125 and b"only root can release it\n" in result.stderr
    assert try_job(shared)[0] == 75

    assert try_job(shared, "theirs") == (0, "")  # makes the name root's, else root refuses it
    assert hold(shared, theirs, "theirs", prefix=OTHER).returncode == 0
    assert shared.run("release", "theirs").returncode == 0
    assert try_job(shared, "theirs") == (0, "")


# --- release--------------------------------------------------------------------------------------


def test_release_while_the_process_lives(lab, held):
    result = lab.run("release", "job")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert read_state(held.own) == "S" and lab.list() == [] and try_job(lab) == (0, "")
    result = lab.run("release", "job")
    assert (result.returncode, result.stderr) == (125, b"solo: job: not held by solo hold\n")


def test_command_of_an_ended_shell_goes_on_without_the_name(lab):
    """As solo-hold(1) says: the hold is that of the shell."""
    script = "$SOLO hold --pid $$ job || exit; sh -c 'echo $$; read line'; echo end"
    shell = lab.start_shell(script)
    command = int(read_line(shell))
    assert lab.run("stop", "-k", "1ms", "job").returncode == 0
    assert try_job(lab, "job") == (0, "") and read_state(command) == "S"
    assert finish(shell)[1] == ""


def test_release_does_not_end_a_command(lab):
    holder = lab.hold("job")
    refused = lab.run("release", "job")
    lab.find_hold("job").write_bytes(b"garbage")
    unreadable = lab.run("release", "job")

    assert refused.returncode == unreadable.returncode == 125 and finish(holder)[0] == 0
    assert f"job: not held by solo hold; it is held by pid {holder.pid}" in refused.stderr.decode()
    problem = b"solo: job: not held by solo hold, and the record of its holder cannot be read\n"
    assert unreadable.stderr == problem


def test_release_of_a_parent_names_a_nested_name_that_is_held(lab, target):
    hold(lab, target, "other", "n/a", "n/b")
    lab.run("release", "n/a")

    result = lab.run("release", "n")

    assert result.returncode == 125
    assert (
        result.stderr
        == b"solo: n: not held by solo hold, but n/b is, which is nested in it (release that)\n"
    )


def test_release_takes_the_hold_of_the_caller(lab, target):
    assert hold(lab, target, "-s", "job").returncode == 0
    status, _, text = finish(lab.start_shell("$SOLO hold --pid $$ -s job && $SOLO release job"))
    assert (status, text) == (0, "")
    assert find_row(lab, "job")["child"] == target.own


def test_release_of_one_of_several_asks_which(lab, target):
    other = start_target(lab)
    for process in (target, other):
        assert hold(lab, process, "-s", "job").returncode == 0
    result = lab.run("release", "job")
    choose = f"held for 2 processes: pids {target.own}, {other.own} (choose one with --pid)"
    assert (result.returncode, result.stderr.decode()) == (125, f"solo: job: {choose}\n")
    assert lab.run("release", "--pid", str(other.own), "job").returncode == 0
    assert [row["child"] for row in lab.list()] == [target.own]


@pytest.mark.root
@pytest.mark.tool("setpriv")
def test_root_without_the_capability_for_other_users_processes_gets_its_name(lab):
    other = start_target(lab, *OTHER)
    denied = hold(
        lab,
        other,
        "job",
        prefix=("setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace"),
    )
    allowed = hold(lab, other, "job")
    end_target(other)
    assert (denied.returncode, allowed.returncode) == (125, 0)
    assert b"Permission denied (root needs CAP_SYS_PTRACE for it)\n" in denied.stderr


def test_release_keeps_parents_that_other_names_need(lab, target):
    assert hold(lab, target, "a/b", "a/c").returncode == 0
    assert lab.run("release", "a/b").returncode == 0
    assert [try_job(lab, name)[0] for name in ("a", "a/b", "a/c")] == [75, 0, 75]
    assert lab.run("release", "a/c").returncode == 0
    assert [try_job(lab, name)[0] for name in ("a", "a/c")] == [0, 0]


def test_release_of_a_parent_before_its_nested_name_is_refused(lab, target):
    assert hold(lab, target, "a", "a/b").returncode == 0
    result = lab.run("release", "a")
    assert (
        result.returncode == 125
        and b"a/b, held with it, is nested in it (release that first)" in result.stderr
    )
    assert lab.run("release", "a", "a/b").returncode == 0
    assert lab.list() == [] and try_job(lab, "a") == (0, "")


# --- for a time-----------------------------------------------------------------------------------


def test_hold_for_a_time_ends_by_itself(lab):
    begin = time.monotonic()
    assert lab.run("hold", "--for", "1s", "job").returncode == 0
    result = lab.run("-n", "job", "-w", "forever", "--", "true")
    assert result.returncode == 0 and time.monotonic() - begin >= 1


def test_hold_that_cannot_fork_names_what_it_does_not_hold(lab):
    result = lab.run("hold", "--for", "1h", "job", prefix=inject(lab, "clone:error=EAGAIN"))

    error = "solo: job: cannot hold it: Resource temporarily unavailable\n"
    assert (result.returncode, result.stderr.decode()) == (125, error)


def test_release_ends_the_timer(lab):
    """Also if its caller ignored signals and had no stdout."""
    script = lab.start_shell("trap '' TERM INT HUP; exec $SOLO hold --for 1h a b >&-")
    assert finish(script) == (0, "", "") and try_job(lab, "a")[0] == 75
    assert find_row(lab, "a")["command"] == ["solo", "hold", "--for", "1h"]
    timer = find_row(lab, "a")["child"]
    assert lab.run("release", "a").returncode == 0 and read_state(timer) == "S"
    assert lab.run("release", "b").returncode == 0
    wait_dead(timer)
    assert lab.list() == []


def test_timer_is_apart_from_the_caller(lab):
    """It keeps no pipe, session, directory or lock of the caller, so $(solo hold) returns at
    once.
    """
    script = lab.start_shell('out=$($SOLO hold --for 1h job 2>&1); echo "<$out>"')
    assert finish(script)[:2] == (0, "<>\n")
    timer = find_row(lab, "job")["child"]
    until(
        lambda: (
            os.readlink(f"/proc/{timer}/exe").endswith("sleep")
            or "busybox" in os.readlink(f"/proc/{timer}/exe")
        )
    )
    assert os.readlink(f"/proc/{timer}/cwd") == "/" and os.getsid(timer) == timer
    assert set(list_open(timer)) == {"/dev/null"}
    assert lab.run("release", "job").returncode == 0


def test_timer_ends_with_a_hold_that_was_killed_while_it_waited(lab):
    holder = lab.hold("job")
    waiter = lab.start("hold", "--for", "1h", "--wait", "forever", "job")
    until(lambda: lab.count_waiting("job") == 1)
    [timer] = find_children(waiter.pid)
    waiter.kill()
    wait_dead(timer)
    assert finish(holder)[0] == 0 and lab.list() == []


# --- stop, replace, views-------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("stop", "job"), ("--replace", "-n", "job", "true")], ids=["stop", "replace"]
)
def test_stop_or_replace_ends_the_process_and_says_so(lab, held, words):
    result = lab.run(*words)
    assert result.returncode == 0
    assert f"job: ending pid {held.own} (sh -c" in result.stderr.decode()
    assert words[0] != "stop" or f"job: ended pid {held.own} (sh -c" in result.stdout.decode()
    assert held.wait(PATIENCE) == -signal.SIGTERM


@pytest.mark.root
def test_stop_names_the_user_of_the_process(lab):
    target = start_target(lab, *OTHER)
    assert hold(lab, target, "job").returncode == 0
    assert f" of {find_user(65534)}, for which solo hold".encode() in lab.run("stop", "job").stderr


def test_replace_spares_the_process_that_it_is_for(lab, target):
    other = start_target(lab)
    assert [hold(lab, each, "--slots", "2", "job").returncode for each in (target, other)] == [0, 0]
    result = hold(lab, target, "--slots", "2", "--replace", "job")
    assert result.returncode == 0, result.stderr
    assert read_state(target.own) == "S" and other.wait(PATIENCE) == -signal.SIGTERM


def test_replace_gives_up_when_the_process_that_it_is_for_ends(lab, target):
    stubborn = start_target(lab, "env", "--ignore-signal=TERM")
    assert hold(lab, stubborn, "job").returncode == 0
    contender = lab.start("hold", "--pid", str(target.own), "--replace", "-k", "1h", "job")
    assert b"ending pid" in contender.stderr.readline()
    end_target(target)
    assert contender.wait(PATIENCE) == 125
    assert read_state(stubborn.own) == "S"


def test_stop_of_a_waiting_hold_ends_solo_and_not_the_process(lab, target):
    holder = lab.hold("job")
    waiter = start_waiting_hold(lab, target)
    assert lab.run("stop", "--waiting", "job").returncode == 0
    assert finish(waiter)[0] == -signal.SIGTERM and read_state(target.own) == "S"
    assert finish(holder)[0] in (-signal.SIGTERM, 143)


def test_views_and_clean_know_a_kept_hold(lab, held):
    assert lab.run("clean").returncode == 0
    [shown] = json.loads(lab.run("show", "--json", "job").stdout)
    [row] = shown["holds"]
    assert (row["state"], row["launcher"], row["child"]) == ("held", None, held.own)
    assert held.own in [process["pid"] for process in row["processes"]]
    assert b"held for" in lab.run("show", "job").stdout
    samples = parse_metrics(lab.run("metrics", "job").stdout.decode())
    assert samples["solo_held", "job", "file"] == 1 and not samples.get(
        ("solo_runs_total", "job", "file")
    )
    assert lab.run("top", "job").returncode == 0


def test_history_shows_how_a_kept_hold_ended(lab, target):
    assert hold(lab, target, "a", "b").returncode == 0
    skipped = lab.start_words(lab.script, "hold", "--for", "1m", "a")
    assert finish(skipped)[0] == 75
    assert lab.run("release", "a").returncode == 0
    end_target(target)

    rows = {(row["name"], row["outcome"]): row for row in lab.history()}

    released, ended, skip = rows["a", "released"], rows["b", "ended"], rows["a", "skipped"]
    assert released["ran"] >= 0 and ended["ran"] is None
    pids = [(row["launcher"], row["child"]) for row in (released, ended, skip)]
    assert pids == [(None, target.own), (None, target.own), (skipped.pid, None)]
    assert f" {skipped.pid} ".encode() in lab.run("history").stdout


INNER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def start_holding_shell(lab, *prefix):
    """Start a shell in another namespace that holds `job` until its stdin is closed."""
    script = f"{shlex.quote(lab.script)} hold --pid $$ job && echo held; read line"
    shell = lab.start_words(*prefix, "sh", "-c", script)
    assert read_line(shell) == "held"
    return shell


@pytest.mark.root
@pytest.mark.parametrize("prefix", [(), INNER], ids=["outside", "sibling"])
def test_hold_that_cannot_be_seen_is_busy_until_it_is_released(lab, prefix):
    """Another container does not see the process, nor that it has ended: it must not run beside
    it.
    """
    outer = start_holding_shell(lab, *prefix)
    result = lab.run("-n", "job", "--", "echo", "ran", prefix=INNER)
    assert (result.returncode, result.stdout) == (75, b"")
    waiter = lab.start("-n", "job", "-w", "forever", "--", "echo", "ran", prefix=INNER)
    until(lambda: lab.count_waiting("job") == 1)
    assert lab.run("release", "job", prefix=INNER).returncode == 0
    assert finish(waiter)[:2] == (0, "ran\n")
    finish(outer)


@pytest.mark.root
def test_process_of_a_nested_namespace_is_refused_inside_another(lab):
    script = f"""
        unshare --pid --fork --kill-child sleep 60 &
        until pid=$(cat /proc/$!/task/$!/children) && [ "$pid" ]; do sleep 0.1; done
        {shlex.quote(lab.script)} hold --pid $pid job; echo $?
        kill -KILL $!
    """
    status, out, text = finish(lab.start_words(*INNER, "bash", "-c", script))
    assert out == "125\n" and "it is in another pid namespace (run solo hold there)" in text


@pytest.mark.host
@pytest.mark.root
def test_process_of_another_pid_namespace_holds(lab):
    """It is seen from outside, where it has another pid; from inside a namespace the outer process
    is not.
    """
    start_holding_shell(lab, *INNER)
    assert try_job(lab)[0] == 75
    waiter = lab.start_waiter("job", tag="ran")
    assert lab.run("stop", "-k", "1", "job").returncode == 0
    assert waiter.wait(PATIENCE) == 0 and lab.read_log() == ["ran"]


# --- a descriptor, and the parent-----------------------------------------------------------------


class Opened:
    """A block that holds names by descriptor 9 of `file`: its `shell`, its `holder`, and `job`,
    which it left running.
    """

    def __init__(self, lab, shell=("sh",), words="job", file="opened"):
        self.file = lab.path / file
        block = f'( "$SOLO" hold --fd 9 {words} || exit; sleep 1000 & echo $!; read line; exit 0 ) 9>>{self.file}'
        self.process = lab.start_words(*shell, "-c", f"{block}; exit $?")
        self.job = int(read_line(self.process) or 0)

    def find(self, lab, name="job"):
        record = parse_record(lab.find_hold(name).read_bytes())
        self.shell, self.holder = record.child[0], record.descriptor[0]
        return self

    def kill_shells(self):
        for pid in {self.shell, self.process.pid}:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_dead(self.shell)

    def end(self):
        os.kill(self.job, signal.SIGKILL)


@pytest.fixture
def opened(lab):
    block = Opened(lab).find(lab)
    yield block
    with contextlib.suppress(ProcessLookupError):
        block.end()


def test_descriptor_holds_while_anything_in_the_block_lives(lab, shell):
    block = Opened(lab, shell).find(lab)
    block.kill_shells()
    waiter = lab.start_waiter("job", tag="ran")

    status, text = try_job(lab)
    block.end()

    assert (
        status == 75
        and re.match(r"solo: job: busy: held for \d+s by pid ", text)
        and f" of {block.file}" in text
    )
    assert waiter.wait(PATIENCE) == 0 and lab.read_log() == ["ran"]
    wait_dead(block.holder)
    assert lab.list() == []


def test_descriptor_holds_though_its_holder_was_killed(lab, opened):
    os.kill(opened.holder, signal.SIGKILL)
    wait_dead(opened.holder)
    opened.kill_shells()
    waiter = lab.start_waiter("job", tag="ran")

    assert try_job(lab)[0] == 75
    opened.end()

    assert waiter.wait(PATIENCE) == 0 and lab.read_log() == ["ran"]


def test_descriptor_that_the_shell_closes_is_released(lab):
    script = f'{{ "$SOLO" hold --fd 9 job || exit; }} 9>>{lab.path}/opened; echo; read line'
    shell = lab.start_shell(script)
    read_line(shell)

    assert lab.run("-w", "1m", "-n", "job", "echo", "ran").stdout == b"ran\n"
    assert finish(shell)[0] == 1


def test_holder_of_a_descriptor_keeps_nothing_of_its_caller(lab, opened):
    """It closes what it inherited a moment after the caller goes on."""
    kept = {opened.file, lab.directory / "job", lab.find_hold("job"), "anon_inode:inotify"}

    until(lambda: set(list_open(opened.holder)) == set(map(str, kept)))
    assert os.getsid(opened.holder) != os.getsid(opened.shell)


def test_release_wakes_the_waiter_of_one_of_two_names(lab):
    block = Opened(lab, words="one two").find(lab, "one")
    waiter = lab.start_waiter("one", tag="ran")

    assert lab.run("release", "one").returncode == 0
    assert waiter.wait(PATIENCE) == 0 and [row["name"] for row in lab.list()] == ["two"]
    assert lab.run("release", "two").returncode == 0
    wait_dead(block.holder)
    assert lab.list() == [] and read_state(block.job) == "S"
    block.end()


def test_stop_of_a_descriptor_names_the_file_that_is_still_open(lab, opened):
    result = lab.run("stop", "-k", "1ms", "job")

    text = f"started has {opened.file} open (list them: fuser {opened.file})"
    assert result.returncode == 125 and text in result.stderr.decode() and try_job(lab)[0] == 75


@pytest.mark.parametrize("words", ["--shared", "--slots 2"])
def test_two_blocks_may_share_one_file(lab, words):
    blocks = [Opened(lab, words=f"{words} job") for _ in range(2)]

    assert [row["state"] for row in lab.list()] == ["held", "held"]
    for left, block in enumerate(blocks[::-1]):
        end_target(block.process)
        assert len(lab.list()) == 2 - left
        block.end()
        until(lambda left=left: len(lab.list()) == 1 - left)


@pytest.mark.parametrize(
    "redirection, reason",
    [
        ("9>&-", "Bad file descriptor (open it: 9>>FILE)"),
        ("9</etc/passwd", "it is not a file open for writing (9>>FILE)"),
        ("9>/dev/null", "it is not a file open for writing (9>>FILE)"),
    ],
)
def test_descriptor_of_no_file_is_refused(lab, redirection, reason):
    status, _, text = run_in(lab, ["sh"], f'"$SOLO" hold --fd 9 job {redirection}')

    assert (status, text) == (125, f"solo: cannot hold by descriptor 9: {reason}\n")


def test_descriptor_of_a_locked_file_is_refused(lab):
    with open(lab.path / "file", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        status, _, text = run_in(lab, ["sh"], f'"$SOLO" hold --fd 9 job 9>>{file.name}')

    assert (status, text) == (
        125,
        "solo: job: cannot hold by descriptor 9: another process has locked its file\n",
    )
    assert try_job(lab) == (0, "")


def test_parent_is_the_subshell_that_called(lab, shell):
    """But ksh runs ( ... ) in its own process."""
    script = '( "$SOLO" hold --pid parent job || exit; echo; sleep 1000; true ) & wait'
    process = lab.start_words(*shell, "-c", script)
    assert read_line(process) == ""
    [row] = lab.list()

    kill(process)

    assert row["child"] != process.pid and try_job(lab)[0] == 75
    for pid in (row["child"], *find_children(row["child"])):
        os.kill(pid, signal.SIGKILL)
    wait_dead(row["child"])
    assert try_job(lab) == (0, "")


@pytest.mark.parametrize(
    "script, warns",
    [
        ('( "$SOLO" hold --pid $$ job || exit; true )', True),
        ('( "$SOLO" hold -q --pid $$ job || exit; true )', False),
        ('( "$SOLO" hold --pid parent job || exit; true )', False),
        ('"$SOLO" hold --pid $$ job; true', False),
        ('code=$("$SOLO" hold --pid $$ --export job); true', False),
    ],
)
def test_hold_for_the_shell_of_the_subshell_that_called_warns(lab, script, warns):
    status, _, text = run_in(lab, ["bash"], script)

    assert (status, ", not for its subshell, pid " in text, text.count("\n")) == (0, warns, warns)


# --- eval-----------------------------------------------------------------------------------------


def test_export_sets_the_variables_of_the_hold_alone(lab, shell):
    script = """
        export SOLO_TTL=15 SOLO_VIA_KEY=key
        eval "$("$SOLO" hold --pid $$ --slots 4 --export "it's a" gpu)" || exit 9
        sh -c 'echo "$SOLO_NAME:$SOLO_TOKEN:$SOLO_SLOT:$SOLO_TTL:$SOLO_VIA_KEY"'
        "$SOLO" list --json
    """
    status, out, text = run_in(lab, shell, script)
    assert (status, text) == (0, "")
    first, _, rows = out.partition("\n")
    names, tokens, *others = first.split(":")
    assert names == "it's a gpu" and others == ["0 0", "", ""]
    assert {int(token) for token in tokens.split()} == {row["ticket"] for row in json.loads(rows)}


def test_eval_fails_with_the_status_of_a_hold_that_failed(lab, shell):
    holder = lab.hold("busy")
    lines = ("--pid $$ busy", "--pid $$ -q -E 7 busy", "--pid $$ --bogus j")
    evals = [f'eval "$("$SOLO" hold --export {words} 2>/dev/null)"' for words in lines]

    assert run_in(lab, shell, "".join(f"{words}; echo $?; " for words in evals))[:2] == (
        0,
        "75\n7\n125\n",
    )
    assert run_in(lab, shell, f"set -e; {evals[0]}; echo went on")[:2] == (75, "")
    assert finish(holder)[0] == 0


def test_eval_fails_if_solo_was_killed(lab, shell):
    holder = lab.hold("busy")
    hold_busy = (
        'eval "$("$SOLO" hold --pid $$ --wait forever --export busy)" && echo went on; exit 0'
    )
    script = lab.start_words(*shell, "-c", hold_busy)
    until(lambda: lab.count_waiting("busy") == 1)
    [waiter] = [row["launcher"] for row in lab.list() if row["state"] == "waiting"]
    os.kill(waiter, signal.SIGKILL)
    assert finish(script)[1] == ""
    assert finish(holder)[0] == 0


def test_hold_whose_shell_has_gone_holds_nothing(lab, target):
    holder = lab.hold("job")
    waiting = start_waiting_hold(lab, target, "--export")
    waiting.stdout.close()
    finish(holder)

    assert waiting.wait(PATIENCE) == 125 and lab.list() == []


def test_hold_without_stdout_for_its_variables_holds_nothing(lab, target):
    with open("/dev/full", "w") as full:
        result = hold(
            lab,
            target,
            "--export",
            "job",
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert (result.returncode, result.stderr) == (
        125,
        b"solo: cannot write to stdout: No space left on device\n",
    )
    assert lab.list() == []


@pytest.mark.full
@pytest.mark.tool("strace")
def test_shell_that_has_read_the_variables_has_the_name(lab, target):
    """A kill before the last byte is written leaves code that fails."""
    points = list_calls(lab, "hold", "--pid", str(target.own), "--export", "job")
    for point in tally.choose(points, SAMPLE):
        assert lab.run("release", "job").returncode in (0, 125)
        out = hold(lab, target, "--export", "job", prefix=inject(lab, point)).stdout.decode()
        if "SOLO_TOKEN" in out:
            assert find_row(lab, "job"), point
        else:
            assert subprocess.run(["sh", "-c", out]).returncode, (point, out)


# --- kills and faults-----------------------------------------------------------------------------


def list_calls(lab, *words):
    """Return a kill, as `inject` takes it, at each system call of a run of solo from its first
    access to the directory on.
    """
    trace = lab.path / "trace"
    lab.run(*words, prefix=("strace", "-qq", "-s", "200", "-o", trace))
    return read_calls(lab, trace)


def read_calls(lab, trace):
    counts, points, has_accessed = {}, [], False
    for row in trace.read_text().splitlines():
        if match := re.match(r"(\w+)\(", row):
            counts[match[1]] = counts.get(match[1], 0) + 1
            has_accessed = has_accessed or str(lab.directory) in row
            if has_accessed:
                points.append(f"{match[1]}:signal=KILL:when={counts[match[1]]}")
    return points


@pytest.mark.full
@pytest.mark.tool("strace")
def test_sigkill_at_every_system_call_of_a_timed_hold_holds_all_or_none(lab):
    names = ("a/b", "c")
    points = list_calls(lab, "hold", "--for", "1h", *names)
    lab.run("stop", "-k", "1ms", *names)
    for point in tally.choose(points, SAMPLE):
        status = lab.run("hold", "--for", "1h", *names, prefix=inject(lab, point)).returncode
        assert status in (0, -signal.SIGKILL), point
        # The process of a hold that is not complete ends, and leaves one name after the other.
        until(lambda: len(lab.list()) in ((0, 2) if status else (2,)))
        for pid in {row["child"] for row in lab.list()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: lab.list() == [])
        assert [try_job(lab, name) for name in names] == [(0, "")] * 2, point
        tally.add(kills=1, launchers=1)


@pytest.mark.full
@pytest.mark.tool("strace")
def test_sigkill_at_every_system_call_of_a_hold_by_descriptor_leaves_nothing_stuck(lab):
    """A block that goes on has all names; once it has ended they are free."""
    file = lab.path / "opened"

    def run_block(*prefix):
        script = f'( "$@"; echo $?; "$SOLO" list --json; exit 0 ) 9>>{file}'
        words = ("sh", "-c", script, "sh", *prefix, lab.script, "hold", "--fd", "9", "a/b", "c")
        status, rows = finish(lab.start_words(*words))[1].split("\n", 1)
        for name in ("a/b", "c"):
            assert lab.run("-w", "1m", "-n", name, "true").returncode == 0, prefix
        assert lab.list() == [], prefix
        return int(status), json.loads(rows)

    trace = lab.path / "trace"
    run_block("strace", "-qq", "-s", "200", "-o", trace)
    for point in tally.choose(read_calls(lab, trace), SAMPLE):
        status, rows = run_block(*inject(lab, point))
        assert status in (0, 128 + signal.SIGKILL) and (status or len(rows) == 2), (
            point,
            status,
            rows,
        )
        tally.add(kills=1, launchers=1)


# --- on a terminal--------------------------------------------------------------------------------


@pytest.fixture
def run_on_terminal(lab, terminal):
    """Return a function that runs `solo hold WORDS` with a terminal as its stderr and returns what
    it prints there.
    """

    def run(*words):
        script = 'cd "$LAB" && exec "$SOLO" hold "$@" >/dev/null'
        return terminal("sh", "-c", script, "sh", *words).read_to_end().decode()

    return run


def test_hold_on_a_terminal_prints_what_it_holds_until_when(lab, run_on_terminal):
    timed = run_on_terminal("--for", "5m", "no-program", "it's b")
    given = run_on_terminal("--pid", str(os.getpid()), "none/c")
    endless = run_on_terminal("--for", "forever", "none/d")

    until = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    released = r"no-program, it's b \(solo release no-program 'it'\"'\"'s b' releases earlier\)\r\n"
    assert re.fullmatch(rf"solo: held until {until}: {released}", timed)
    assert (
        given
        == f"solo: held until pid {os.getpid()} ends: none/c (solo release none/c releases earlier)\r\n"
    )
    assert endless == "solo: held: none/d (solo release none/d releases earlier)\r\n"
    assert lab.run("release", "no-program", "it's b", "none/c", "none/d").returncode == 0
    for words in (["-q"], ["--export"]):
        assert run_on_terminal("--for", "5m", *words, "job") == ""
        lab.run("release", "job")
    assert lab.run("hold", "--for", "5m", "job").stderr == b""
    lab.run("release", "job")


def test_the_end_of_the_session_does_not_end_a_timer_that_has_not_left_it_yet(lab):
    code = "from solo.main import main; import posix; fork = posix.fork; sys.argv = 'solo hold --for 5m job'.split()"
    code += (
        "; posix.fork = lambda: fork() or posix.kill(posix.getpid(), signal.SIGHUP) or 0; main()"
    )
    assert lab.run_code(code) == (0, "", "")
    assert lab.run("release", "job").returncode == 0
