"""What a contender does about others: --max-waiting, --latest, --replace, --loud-after and the count of skips."""

import os
import re
import signal

import pytest
from conftest import NOBODY, PATIENCE, finish, read_line, read_state, until, wait_dead

IGNORE_TERM = "trap '' TERM; echo $$; while :; do sleep 0.05; done"


@pytest.fixture(params=["file", "socket"])
def via(request, lab):
    if request.param == "socket":
        lab.use_sockets()
    return request.param


# --- --max-waiting -----------------------------------------------------------------------------------------------


def test_no_more_than_so_many_stand_in_line(lab, via):
    holder = lab.hold("job")
    first = lab.wait_in_line("job", "--max-waiting", "2", tag="first")
    second = lab.wait_in_line("job", "--max-waiting", "2", tag="second")

    third = lab.run("-w", "forever", "--max-waiting", "2", "-n", "job", "true")

    assert (third.returncode, third.stderr.count(b"\n")) == (75, 1)
    finish(holder)
    assert (finish(first)[0], finish(second)[0]) == (0, 0)


def test_the_line_is_never_longer_however_many_come_at_once(lab):
    holder = lab.hold("job")
    crowd = [lab.start("-w", "forever", "--max-waiting", "3", "-n", "job", "true") for _ in range(20)]
    until(lambda: sum(process.poll() is not None for process in crowd) == 17)
    assert lab.count_waiting("job") == 3

    finish(holder)

    assert sorted(process.wait(PATIENCE) for process in crowd) == [0] * 3 + [75] * 17


def test_dead_seats_take_no_room(lab):
    lab.hold("job")
    dead = lab.wait_in_line("job", tag="dead")
    dead.kill()
    dead.wait()

    lab.start("-w", "forever", "--max-waiting", "1", "-n", "job", "true")

    until(lambda: [row["state"] for row in lab.list()] == ["held", "waiting"])


def test_none_may_wait_is_the_same_as_not_waiting(lab, via):
    assert lab.run("-w", "1h", "--max-waiting", "0", "-n", "job", "true").returncode == 0
    lab.hold("job")

    assert lab.run("-w", "1h", "--max-waiting", "0", "-n", "job", "true").returncode == 75


def test_those_who_wait_for_another_child_of_the_same_parent_do_not_count(lab):
    lab.hold("a")
    lab.start("-w", "forever", "-n", "a/b", "true")
    until(lambda: lab.count_waiting("a") == 1)

    other = lab.start("-w", "forever", "--max-waiting", "1", "-n", "a/c", "true")

    until(lambda: lab.count_waiting("a") == 2)
    assert lab.run("-w", "forever", "--max-waiting", "1", "-n", "a/c", "true").returncode == 75
    assert other.poll() is None


# --- --latest ----------------------------------------------------------------------------------------------------


def test_the_newest_in_line_wins_and_the_others_say_who_superseded_them(lab, via):
    holder = lab.hold("job")
    old = [lab.wait_in_line("job", *words, tag=f"old{at}") for at, words in enumerate([(), ()])]
    new = lab.start("-w", "forever", "--latest", "-n", "job", "--", "sh", "-c", "echo new >>$LAB/log")

    ends = [finish(process) for process in old]
    finish(holder)

    assert finish(new)[0] == 0 and lab.read_log() == ["new"]
    assert [status for status, _, _ in ends] == [75, 75]
    assert re.fullmatch(rf"solo: job: superseded by pid {new.pid} \(sh -c .*\)\n", ends[1][2])


def test_the_newest_wins_over_a_whole_line(lab, via):
    holder = lab.hold("job")
    line = [lab.wait_in_line("job", "-w", "1h", tag=number) for number in range(10)]
    new = lab.start("-w", "forever", "--latest", "-n", "job", "--", "sh", "-c", "echo new >>$LAB/log")

    assert [process.wait(PATIENCE) for process in line] == [75] * 10
    finish(holder)
    assert finish(new)[0] == 0 and lab.read_log() == ["new"]


def test_a_stopped_one_in_line_does_not_hold_up_the_newest(lab, via):
    holder = lab.hold("job")
    old = lab.wait_in_line("job", tag="old")
    old.send_signal(signal.SIGSTOP)
    until(lambda: read_state(old.pid) == "T")
    new = lab.start("-w", "forever", "--latest", "-n", "job", "--", "sh", "-c", "echo new >>$LAB/log")
    until(lambda: lab.count_waiting("job") == 2)

    finish(holder)
    assert finish(new)[0] == 0
    old.send_signal(signal.SIGCONT)

    assert finish(old)[0] == 75
    assert lab.read_log() == ["new"]


def test_superseded_is_quiet_and_has_the_status_that_was_asked_for(lab):
    lab.hold("job")
    old = lab.wait_in_line("job", "-q", "-E", "3", tag="old")
    lab.start("-w", "forever", "--latest", "-n", "job", "true")

    assert finish(old) == (3, "", "")


def test_a_superseded_one_gives_back_the_names_it_had(lab):
    lab.hold("b")
    old = lab.start("-w", "forever", "-n", "a", "-n", "b", "true")
    until(lambda: lab.count_waiting("b") == 1)
    lab.start("-w", "forever", "--latest", "-n", "b", "true")
    assert old.wait(PATIENCE) == 75

    assert lab.run("-n", "a", "true").returncode == 0


def test_a_stray_bell_does_no_harm_to_a_holder(lab):
    holder = lab.hold("job")
    holder.send_signal(signal.SIGURG)

    assert finish(holder)[0] == 0


# --- --replace ---------------------------------------------------------------------------------------------------


def test_replace_ends_the_holder_whose_status_stays_true(lab, via):
    holder = lab.hold("job")

    assert lab.run("--replace", "-n", "job", "true").returncode == 0

    assert holder.wait(PATIENCE) == -signal.SIGTERM
    wait_dead(holder.child)


def test_replace_where_nothing_is_held_just_runs(lab, via):
    assert lab.run("--replace", "-n", "job", "true").returncode == 0


def test_replace_ends_those_in_line_too_and_the_last_of_several_wins(lab, via):
    holder = lab.hold("job")
    line = [lab.wait_in_line("job", tag=number) for number in range(3)]
    first = lab.start("--replace", "-n", "job", "--", "sh", "-c", "echo first; exec sleep 99")
    assert read_line(first) == "first"
    second = lab.start("--replace", "-n", "job", "--", "sh", "-c", "echo second")

    assert read_line(second) == "second"

    statuses = [process.wait(PATIENCE) for process in (holder, *line, first)]
    assert statuses == [-signal.SIGTERM] * 5 and lab.read_log() == []


def test_a_command_that_does_not_heed_sigterm_is_killed_and_the_launcher_tells_so(lab, via):
    holder = lab.start("-n", "job", "--", "sh", "-c", IGNORE_TERM)
    read_line(holder)

    assert lab.run("--replace", "-k", "200ms", "-n", "job", "true").returncode == 0

    assert holder.wait(PATIENCE) == -signal.SIGKILL


def test_a_command_may_end_in_its_own_way_and_time(lab):
    holder = lab.start("-n", "job", "--", "sh", "-c", "trap 'echo bye; exit 7' TERM; echo $$; while :; do sleep 0.05; done")
    read_line(holder)

    assert lab.run("--replace", "-n", "job", "true").returncode == 0

    assert finish(holder)[:2] == (7, "bye\n")


def test_replace_ends_an_orphan(lab):
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; exec sleep 99")
    child = int(read_line(holder))
    holder.kill()
    holder.wait()

    assert lab.run("--replace", "-n", "job", "true").returncode == 0

    assert read_state(child) in ("gone", "Z")


@pytest.mark.parametrize("which", ["launcher", "command", "both"])
def test_replace_ends_what_is_stopped(lab, via, which):
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; exec sleep 99")
    child = int(read_line(holder))
    for pid in {"launcher": [holder.pid], "command": [child], "both": [holder.pid, child]}[which]:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: read_state(pid) == "T")

    assert lab.run("--replace", "-k", "300ms", "-n", "job", "true").returncode == 0

    wait_dead(child)
    assert holder.wait(PATIENCE) in (-signal.SIGTERM, -signal.SIGKILL)


def test_replace_ends_a_launcher_that_waits_for_its_second_name(lab, via):
    lab.hold("b")
    first = lab.start("-w", "forever", "-n", "a", "-n", "b", "true")
    until(lambda: lab.count_waiting("b") == 1)

    assert lab.run("--replace", "-n", "a", "true").returncode == 0
    assert first.wait(PATIENCE) == -signal.SIGTERM


def test_replace_ends_only_as_many_as_it_needs(lab, via):
    holders = [lab.hold("job", "--slots", "3") for _ in range(3)]

    assert lab.run("--replace", "--slots", "3", "-n", "job", "true").returncode == 0

    assert [holder.poll() is None for holder in holders] == [False, True, True]


def test_replace_spares_those_in_line_who_would_run_beside_it(lab):
    holder = lab.hold("a")
    for child in ("a/b", "a/c"):
        lab.start("-w", "forever", "-n", child, "--", "sh", "-c", f"echo {child} >>$LAB/log")
    until(lambda: lab.count_waiting("a") == 2)

    assert lab.run("--replace", "-n", "a/c", "--", "sh", "-c", "echo new >>$LAB/log").returncode == 0

    assert holder.wait(PATIENCE) == -signal.SIGTERM
    until(lambda: lab.list() == [])
    assert sorted(lab.read_log()) == ["a/b", "new"]


def test_replace_ends_a_whole_tree(lab):
    holder = lab.start("--tree", "-n", "job", "--", "sh", "-c", f"setsid sh -c \"{IGNORE_TERM}\" & exec sleep 99")
    inner = int(read_line(holder))

    assert lab.run("--replace", "-k", "300ms", "-n", "job", "true").returncode == 0

    assert read_state(inner) in ("gone", "Z")
    assert holder.wait(PATIENCE) == -signal.SIGTERM


def test_replace_refuses_its_own_ancestor(lab):
    result = lab.run("-n", "job", lab.script, "--replace", "-n", "job", "true")

    assert result.returncode == 125 and b"an ancestor of this process" in result.stderr


def test_what_may_not_be_ended_is_said_in_one_line(common):
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    common.hold("job")

    result = common.run("--replace", "-n", "job", "true", user=NOBODY)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert b"can not end pid" in result.stderr and b"Operation not permitted" in result.stderr


def test_waiting_bounds_a_replace(lab):
    lab.start("-n", "job", "--", "sh", "-c", IGNORE_TERM)
    until(lambda: lab.list())

    result = lab.run("--replace", "-w", "200ms", "-n", "job", "true")

    assert result.returncode == 75


# --- skips -------------------------------------------------------------------------------------------------------


def test_the_busy_line_tells_the_skips_since_the_last_run(lab):
    holder = lab.hold("job")
    texts = [lab.run("-n", "job", "true").stderr.decode() for _ in range(3)]
    finish(holder)
    lab.hold("job")
    texts.append(lab.run("-n", "job", "true").stderr.decode())

    assert [re.search(r"\), (.*)\n", text) and re.search(r"\), (.*)\n", text)[1] for text in texts] == [
        None, "1 skip since", "2 skips since", None,
    ]


def test_quiet_skips_are_loud_after_so_many_in_a_row(lab):
    holder = lab.hold("job")
    words = ("-q", "-E", "0", "--loud-after", "2", "-n", "job", "true")
    ends = [lab.run(*words) for _ in range(4)]

    assert [(end.returncode, bool(end.stderr)) for end in ends] == [(0, False), (0, False), (75, True), (75, True)]
    finish(holder)
    assert lab.run(*words).returncode == 0
    lab.hold("job")
    assert (lab.run(*words).returncode, lab.run(*words).stderr) == (0, b"")


def test_quiet_skips_are_loud_once_the_holder_has_run_so_long(lab, via):
    holder = lab.hold("job")
    assert lab.run("-q", "-E", "0", "--loud-after", "1h", "-n", "job", "true").returncode == 0

    assert lab.run("-q", "-E", "0", "--loud-after", "0s", "-n", "job", "true").returncode == 75
    assert finish(holder)[0] == 0


def test_giving_up_in_line_and_a_full_line_are_skips_too(lab):
    lab.hold("job")
    lab.run("-w", "50ms", "-n", "job", "true")
    lab.run("-w", "1h", "--max-waiting", "0", "-n", "job", "true")

    assert b"2 skips since" in lab.run("-n", "job", "true").stderr


@pytest.mark.parametrize("garbage", [b"", b"x" * 100, b"\n\n\n", b"0" * 21 + b"\xff" * 50])
def test_a_damaged_count_starts_anew(lab, garbage):
    lab.hold("job")
    lab.run("-n", "job", "true")
    (lab.directory / "job/.gate").write_bytes(garbage)

    ends = [lab.run("-n", "job", "true") for _ in range(2)]

    assert [end.returncode for end in ends] == [75, 75]
    assert b"skip" not in ends[0].stderr and b", 1 skip since" in ends[1].stderr


def test_sockets_can_not_count_and_say_so(lab):
    result = lab.run("--via", "socket", "--loud-after", "3", "-n", "job", "true")

    assert result.returncode == 125 and b"give a duration" in result.stderr

