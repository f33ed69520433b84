"""`solo hold` in a pid namespace: a holder keeps the tickets, so that the name is free once the
container was killed.
"""

import contextlib
import os
import shlex
import signal

import pytest
from conftest import (
    PATIENCE,
    count_injected,
    finish,
    inject,
    read_line,
    read_state,
    until,
    wait_dead,
)
from fleet import find_children
from observed import INNER

pytestmark = [pytest.mark.root, pytest.mark.tool("unshare")]

KINDS = ["--pid $$", "--fd 9", "--for 1h"]
HOLDER = "solo-holder\n"


def name_process(pid):
    try:
        return open(f"/proc/{pid}/comm").read()
    except OSError:
        return ""


class Container:
    """A container whose process 1 holds names and then executes cat(1): `pid`, here. `holder` keeps
    its tickets.
    """

    def __init__(self, lab, words="--pid $$ job", host=None, prefix=""):
        rename = ("--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh") if host else ()
        script = (
            f'exec 9>>{lab.path}/opened; {prefix} "$SOLO" hold {words} && echo held && exec cat'
        )
        self.process = lab.start_words(*INNER, *rename, "sh", "-c", script)
        assert read_line(self.process) == "held"
        [self.pid] = find_children(self.process.pid)
        until(lambda: name_process(self.pid) == "cat\n" and self.find_holders())
        [self.holder] = self.find_holders()

    def find_holders(self):
        return [pid for pid in find_children(self.pid) if name_process(pid) == HOLDER]

    def kill(self):
        """Kill process 1, and with it all that is in the container."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def end(self):
        assert finish(self.process)[0] == 0


def try_job(lab, *words, prefix=()):
    return lab.run("-n", "job", *words, "true", prefix=prefix).returncode


def start_other(lab, *words):
    """Start a waiter for `job` in another container, with another pid namespace."""
    before = lab.count_waiting("job")
    process = lab.start("-n", "job", "-w", "forever", *words, "--", "echo", "ran", prefix=INNER)
    until(lambda: lab.count_waiting("job") > before)
    return process


# --- its end--------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [None, "web3"], ids=["same host", "other host"])
@pytest.mark.parametrize("kind", KINDS)
def test_name_of_a_killed_container_is_free(lab, kind, host):
    container = Container(lab, f"{kind} job", host)
    waiter = start_other(lab)
    assert (try_job(lab), try_job(lab, prefix=INNER)) == (75, 75)

    container.kill()

    assert finish(waiter)[:2] == (0, "ran\n")
    assert try_job(lab, prefix=INNER) == try_job(lab) == 0


def test_process_that_ends_in_a_living_container_frees_its_name(lab):
    script = '"$SOLO" hold --pid $$ a/job job; echo $$; read line'
    container = lab.start_words(
        *INNER, "sh", "-c", f"sh -c {shlex.quote(script)}; echo ended; exec cat"
    )
    read_line(container)
    waiter = start_other(lab)

    container.stdin.write(b"\n")
    container.stdin.flush()

    assert finish(waiter) == (0, "ran\n", "") and lab.list() == []
    assert read_line(container) == "ended"
    finish(container)


def test_shell_that_has_just_ended_holds_nothing(lab):
    """A contender of its container does not wait for the holder to notice."""
    stop = "until found=$(grep -lx solo-holder /proc/*/comm); do :; done; found=${found%/comm}; kill -STOP ${found##*/}"
    script = f"""sh -c '"$SOLO" hold --pid $$ job; {stop}'; "$SOLO" -n job echo ran"""

    assert finish(lab.start_words(*INNER, "sh", "-c", script)) == (0, "ran\n", "")


@pytest.mark.parametrize("place", ["host", "inside", "another container"])
@pytest.mark.parametrize("kind", KINDS)
def test_release_wakes_a_waiter_in_another_container(lab, kind, place):
    container = Container(lab, f"{kind} other job")
    enter = (
        "nsenter",
        f"--pid=/proc/{container.pid}/ns/pid",
        f"--mount=/proc/{container.pid}/ns/mnt",
        f"--root=/proc/{container.pid}/root",  # a chroot, perhaps
    )
    waiter = start_other(lab)

    released = lab.run("release", "job", prefix={"host": (), "inside": enter}.get(place, INNER))

    assert (released.returncode, released.stderr) == (0, b"")
    assert finish(waiter) == (0, "ran\n", "")
    assert [row["name"] for row in lab.list()] == ["other"] and read_state(container.holder) == "S"
    assert lab.run("release", "other").returncode == 0
    wait_dead(container.holder)
    container.end()


@pytest.mark.tool("strace")
@pytest.mark.parametrize("kind", KINDS)
def test_release_wakes_a_waiter_in_another_container_without_inotify(lab, kind):
    """As where other programs of the user have all its instances: the holder cannot be signalled
    from there.
    """
    strace, *words = map(str, inject(lab, "inotify_init1:error=EMFILE", follow=True))
    prefix = shlex.join([strace, "-D", *words])  # as a grandchild: the script goes on
    container = Container(lab, f"{kind} job", prefix=prefix)
    waiter = start_other(lab)

    assert lab.run("release", "job", prefix=INNER).returncode == 0

    assert finish(waiter) == (0, "ran\n", "") and count_injected(lab)
    container.kill()


def test_waiter_for_slots_wakes_on_release_and_on_the_end(lab):
    for act in (lambda container: lab.run("release", "job"), Container.kill):
        container = Container(lab, "--pid $$ --slots 2 job")
        other = lab.hold("job", "--slots", "2")
        waiter = lab.start_waiter("job", "--slots", "2", tag="ran")
        act(container)
        assert waiter.wait(PATIENCE) == 0 and finish(other)[0] == 0
    assert lab.read_log() == ["ran", "ran"]


def test_stop_ends_the_process_and_so_the_hold(lab):
    container = Container(lab, "--for 1h job")

    stopped = lab.run("stop", "job")

    assert stopped.returncode == 0 and b"job: ended pid " in stopped.stdout
    wait_dead(container.holder)
    container.end()


# --- the holder-----------------------------------------------------------------------------------


def test_holder_keeps_nothing_of_its_caller_and_survives_signals(lab):
    container = Container(lab)
    own = [
        lab.find_hold("job"),
        lab.directory / "job",
        lab.program,
    ]  # by inode: in a chroot the links have other paths

    def list_others():
        found = []
        for entry in os.scandir(f"/proc/{container.holder}/fd"):
            with contextlib.suppress(FileNotFoundError):  # it is closed meanwhile
                is_own = any(os.path.samefile(entry.path, path) for path in own)
                path = os.readlink(entry.path)
                if not is_own and not path.startswith("anon_inode:") and "/libffi.so" not in path:
                    found.append(entry.path)
        return found

    until(lambda: os.path.samefile(f"/proc/{container.holder}/cwd", "/") and not list_others())
    assert os.getsid(container.holder) == container.holder
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGURG, signal.SIGALRM):
        os.kill(container.holder, number)
    assert (try_job(lab, prefix=INNER), read_state(container.holder)) == (75, "S")
    container.end()


def test_caller_does_not_wait_for_the_holder(lab):
    """It has no pipe, and is no child of the script."""
    script = 'out=$("$SOLO" hold --pid $$ job 2>&1); echo "<$out>"; wait; echo over; exec cat'
    container = lab.start_words(*INNER, "sh", "-c", script)

    assert (read_line(container), read_line(container)) == ("<>", "over")
    finish(container)


def test_tree_does_not_wait_for_the_holder_of_a_process_outside(lab):
    script = '"$SOLO" -n job --tree -- "$SOLO" hold --pid $$ other; echo $?; exec cat'
    container = lab.start_words(*INNER, "sh", "-c", script)

    assert read_line(container) == "0" and [row["name"] for row in lab.list()] == ["other"]
    finish(container)
    until(lambda: not lab.list())


def test_killed_holder_leaves_the_name_held_where_its_process_is_seen(lab):
    """In another container the name is taken over, as that of an orphan without a holder."""
    container = Container(lab)
    os.kill(container.holder, signal.SIGKILL)
    wait_dead(container.holder)

    other = lab.run("-n", "job", "true", prefix=INNER)

    assert other.returncode == 0 and b"taking over from" in other.stderr
    assert try_job(lab) == 75
    container.end()
    assert try_job(lab) == 0


def test_open_descriptor_is_seen_from_another_container_without_its_holder(lab):
    container = Container(lab, "--fd 9 job")
    waiter = start_other(lab)
    os.kill(container.holder, signal.SIGKILL)
    wait_dead(container.holder)

    assert try_job(lab, prefix=INNER) == 75
    container.end()
    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_hold_without_a_holder_fails_and_holds_nothing(lab):
    """The first fork is that of the timer. With -D strace is no parent of its tracee, which keeps
    the pid 1.
    """
    prefix = (*INNER, *inject(lab, "clone:error=EAGAIN:when=2"), "-D")
    result = lab.run("hold", "--for", "1h", "job", prefix=prefix)

    assert (result.returncode, result.stderr) == (
        125,
        b"solo: job: cannot fork: Resource temporarily unavailable\n",
    )
    assert lab.list() == [] and try_job(lab) == 0


# --- a hold that nobody frees: of the host, or of an older solo-----------------------------------


@pytest.mark.host
def test_views_say_what_to_do_about_a_hold_that_cannot_be_seen(lab):
    keeper = lab.start_words("sleep", "1000")
    assert lab.run("hold", "--pid", str(keeper.pid), "up/it's").returncode == 0
    remedy = "(if it has ended: solo release 'up/it'\\''s')"

    def look(*words):
        result = lab.run(*words, prefix=INNER)
        return result.returncode, result.stderr.decode()

    busy, parent = look("-n", "up/it's", "true"), look("-n", "up", "true")
    seen = f"solo: up/it's: pid {keeper.pid} in another pid namespace (sleep 1000) cannot be seen from here {remedy}\n"
    assert (
        busy[0] == parent[0] == 75
        and busy[1].endswith(f" {remedy}\n")
        and parent[1].endswith(f" {remedy}\n")
    )
    assert look("list") == look("show", "up/it's") == (0, seen)
    assert look("list", "--json") == (0, "")
    assert look("stop", "up/it's")[1].endswith(f": it cannot be seen from here {remedy}\n")
    assert b"release" not in lab.run("-n", "up", "true").stderr and lab.run("list").stderr == b""
    assert look("release", "up/it's") == (0, "") and look("-n", "up", "true") == (0, "")


def test_hold_of_an_older_solo_stays_until_it_is_released(lab):
    container = Container(lab)
    os.kill(container.holder, signal.SIGKILL)
    wait_dead(container.holder)
    ticket = lab.find_hold("job")
    record = ticket.read_bytes()
    ticket.write_bytes(record.replace(b"guarded 1\n", b""))
    assert record.count(b"guarded 1\n") == 1
    pinned = os.open(
        f"/proc/{container.pid}/ns/pid", os.O_RDONLY
    )  # no later pid namespace gets its number
    container.kill()

    busy = lab.run("-n", "job", "true", prefix=INNER)

    assert busy.returncode == 75 and busy.stderr.endswith(b" (if it has ended: solo release job)\n")
    assert lab.run("release", "job", prefix=INNER).returncode == try_job(lab, prefix=INNER) == 0
    os.close(pinned)
