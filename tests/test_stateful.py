"""A random walk over real processes: contenders of several names and modes start, end, are killed, stopped and replaced.

Their files are damaged too. After each step three views must agree: the model's, the output of `list`, and the log of the
commands (witness.py). A waiter must have a reason to wait: a waiter before it, or a holder that conflicts with it.
"""

import os
import signal
import time

import pytest
import tally
from conftest import PATIENCE, SOCKET_IN_FULL, Lab, make_witness, read_state
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from solo.commands.list import collect
from solo.options import FILE, SOCKET
from solo.text.tables import format_times

NAMES = ["a", "a/b", "a/c", "d"]
MODES = {"X": [], "S": ["-s"], "C": ["--slots", "2"]}
INDEX = st.integers(0, 60)


class Contender:
    """One launcher in the model. `child` is its command's pid, once that runs; `fates` are its allowed exit statuses,
    `imposed` those that it may give to waiters before it.
    """

    def __init__(self, number, name, mode, process, fates, imposed):
        self.number, self.name, self.mode, self.process = number, name, mode, process
        self.fates, self.imposed = {0, *fates}, set(imposed)
        self.child = None
        self.killed = self.stopped = self.unreadable = False

    def __repr__(self):
        return f"<{self.number}: {self.mode} {self.name} pid {self.process.pid} child {self.child}>"

    @property
    def command_lives(self):
        return self.child is not None and read_state(self.child) not in ("gone", "Z", "X")

    def conflicts(self, other):
        related = (
            self.name == other.name or self.name.startswith(other.name + "/") or other.name.startswith(self.name + "/")
        )
        return related and (self.mode, other.mode) != ("S", "S")


class Walk(RuleBasedStateMachine):
    via = FILE
    script = directory = None
    walks = 0

    def __init__(self):
        super().__init__()
        Walk.walks += 1
        path = self.directory / str(Walk.walks)
        path.mkdir()
        self.lab = Lab(self.script, path)
        if self.via == SOCKET:
            self.lab.use_sockets()
        # Sockets have no directory: other names keep the walks apart.
        self.prefix = f"walk{os.getpid()}-{Walk.walks}-" if self.via == SOCKET else ""
        self.all = []

    # --- steps ----------------------------------------------------------------------------------------------------

    def start(self, name, mode, words, fates, imposed=()):
        number = len(self.all)
        witness = make_witness(mode, [name], 2, 1, number, "line")
        process = self.lab.start(*words, "-n", self.prefix + name, *MODES[mode], "--", *witness, start_new_session=True)
        os.set_blocking(process.stdout.fileno(), False)
        contender = Contender(number, name, mode, process, fates, imposed)
        if "/" in name:  # waiters for the parent may join the queue of the name in another order: CAVEATS of solo(1)
            for other in self.all:
                if other.name == name and other.child is None:
                    contender.fates |= other.imposed
        self.all.append(contender)
        self.settle(contender)
        return contender

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XXSC"))
    def try_once(self, name, mode):
        self.start(name, mode, (), {75})

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XXSC"))
    def wait_forever(self, name, mode):
        self.start(name, mode, ("-w", "forever"), ())

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XSC"))
    def wait_30_ms(self, name, mode):
        self.start(name, mode, ("-w", "30ms"), {75})

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XSC"), limit=st.integers(0, 2))
    def wait_in_a_short_queue(self, name, mode, limit):
        self.start(name, mode, ("-w", "forever", "--max-waiting", str(limit)), {75})

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XSC"))
    def run_for_100_ms(self, name, mode):
        self.start(name, mode, ("-w", "forever", "-t", "100ms"), {124})

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XSC"))
    def wait_as_the_latest(self, name, mode):
        for other in self.all:
            if other.name == name:
                other.fates.add(75)
        self.start(name, mode, ("-w", "forever", "--latest"), (), {75})

    @rule(name=st.sampled_from(NAMES), mode=st.sampled_from("XSC"))
    def replace_holders(self, name, mode):
        ended = {-signal.SIGTERM, -signal.SIGKILL}
        for other in self.all:
            other.fates |= ended
        # A holder with an unreadable record cannot be ended, so it is refused.
        self.start(name, mode, ("--replace", "-k", "100ms"), {125}, ended)

    def choose(self, index, condition):
        """Return a contender that fits, or None. The draws of hypothesis must not depend on the state of processes."""
        fitting = [contender for contender in self.all if condition(contender)]
        return fitting[index % len(fitting)] if fitting else None

    def signal_command(self, contender, number):
        if contender.command_lives:
            try:
                os.kill(contender.child, number)
            except ProcessLookupError:
                pass  # its time limit has just ended it

    def is_running(self, contender):
        return contender.process.poll() is None and contender.command_lives

    def is_orphan(self, contender):
        return contender.process.poll() is not None and contender.command_lives

    @rule(index=INDEX)
    def end_by_itself(self, index):
        contender = self.choose(index, lambda it: self.is_running(it) or self.is_orphan(it))
        if contender is None:
            return
        contender.process.stdin.close()
        self.settle()

    @rule(index=INDEX)
    def kill_a_launcher(self, index):
        contender = self.choose(index, lambda it: it.process.poll() is None and not it.unreadable)
        if contender is None:
            return
        tally.add(kills=1)
        contender.killed = True
        contender.fates.add(-signal.SIGKILL)
        contender.process.kill()
        contender.process.wait(PATIENCE)
        self.settle()

    @rule(index=INDEX)
    def kill_a_command(self, index):
        contender = self.choose(index, lambda it: it.command_lives)
        if contender is None:
            return
        tally.add(kills=1)
        contender.fates.add(-signal.SIGKILL)
        self.signal_command(contender, signal.SIGKILL)
        self.settle()

    @rule(index=INDEX)
    def stop_and_continue_a_launcher(self, index):
        contender = self.choose(index, lambda it: self.is_running(it) and not it.stopped)
        if contender is None:
            return
        contender.process.send_signal(signal.SIGSTOP)
        self.settle()
        contender.process.send_signal(signal.SIGCONT)
        self.settle()

    @rule(index=INDEX)
    def stop_and_continue_a_command(self, index):
        contender = self.choose(index, self.is_running)
        if contender is None:
            return
        self.signal_command(contender, signal.SIGSTOP)
        self.settle()
        self.signal_command(contender, signal.SIGCONT)
        self.settle()

    @rule(name=st.sampled_from(NAMES), garbage=st.sampled_from([b"", b"garbage", b"\n" * 99]))
    def corrupt_a_gate(self, name, garbage):
        gate = self.lab.directory / name / ".gate"
        if gate.exists():  # never with sockets
            tally.add(faults={"gate corrupted": 1})
            gate.write_bytes(garbage)

    @rule(index=INDEX)
    def corrupt_a_record(self, index):
        """While its owner lives, no other contender may run beside an unreadable record."""
        if self.via == SOCKET:
            return
        contender = self.choose(index, lambda it: self.is_running(it) and not it.unreadable)
        if contender is None:
            return
        for hold in (self.lab.directory / contender.name).glob(".hold.*"):
            try:
                with open(hold, "r+b") as file:  # never create it: its owner may have just ended
                    if f"launcher {contender.process.pid} ".encode() in file.read():
                        file.truncate(0)
                        file.seek(0)
                        file.write(b"garbage")
                        contender.unreadable, contender.mode = True, "X"
                        tally.add(faults={"record corrupted": 1})
            except FileNotFoundError:
                continue

    # --- invariants -----------------------------------------------------------------------------------------------

    def settle(self, newcomer=None):
        """Wait until all contenders are in the states that the rule demands. Fails with a contender that is not."""
        deadline = time.monotonic() + PATIENCE
        while True:
            wrong = self.find_wrong(newcomer)
            if wrong is None:
                return
            assert time.monotonic() < deadline, (wrong, self.all, self.list())
            time.sleep(0.003)

    def find_wrong(self, newcomer):
        for contender in self.all:
            if contender.child is None:
                line = contender.process.stdout.read() if not contender.process.stdout.closed else None
                contender.child = int(line) if line else None
        rows = {}
        for row in self.list():
            rows.setdefault(row["launcher"], []).append(row)
        expected = set()
        for contender in self.all:
            alive = contender.process.poll() is None
            if alive:
                state = "held" if contender.child else "waiting"
            elif contender.command_lives:
                state = "orphaned"
            else:
                continue
            expected.add(contender.process.pid)
            if contender.unreadable:
                continue
            listed = [(row["state"], row["child"]) for row in rows.get(contender.process.pid, [])]
            if listed != [(state, contender.child)]:
                return f"{contender} is {state} and listed as {listed}"
        others = rows.keys() - expected - {None}
        if others:
            return f"listed but not alive: {others}"
        if len(rows.get(None, [])) != sum(it.unreadable and it.process.poll() is None for it in self.all):
            return f"listed without a record: {rows.get(None)}"
        return self.find_idle_waiter()

    def find_idle_waiter(self):
        holders = [it for it in self.all if it.child and (it.process.poll() is None or it.command_lives)]
        waiting = [it for it in self.all if it.child is None and it.process.poll() is None]
        for contender in waiting:
            conflicts = [it for it in holders if it.conflicts(contender)]
            has_slots = contender.mode == "C" and all(it.mode == "C" and it.name == contender.name for it in conflicts)
            if has_slots and len(conflicts) < 2:
                conflicts = []
            parent = contender.name.split("/")[0]
            waiters = [it for it in waiting if it is not contender and it.name.split("/")[0] == parent]
            if not conflicts and not waiters:
                return f"{contender} waits for nothing"
        return None

    def list(self):
        rows, complete = collect(str(self.lab.directory), self.via, [])
        return [row for row in rows if row["name"].startswith(self.prefix)]

    @invariant()
    def no_overlap_and_allowed_statuses(self):
        log = self.lab.read_log()
        assert not [line for line in log if line.startswith("overlap")]
        assert len(os.listdir("/proc/self/fd")) < 500
        for contender in self.all:
            status = contender.process.poll()
            assert status is None or status in contender.fates, (contender, status, contender.process.stderr.read())

    def teardown(self):
        log = self.lab.read_log()
        tally.add(
            walks=1,
            launchers=len(self.all),
            commands=sum(line.startswith("start:") for line in log),
            overlaps=sum(line.startswith("overlap") for line in log),
        )
        for contender in self.all:
            self.signal_command(contender, signal.SIGKILL)
        self.lab.close()
        deadline = time.monotonic() + PATIENCE
        while self.list():
            assert time.monotonic() < deadline, self.list()
            time.sleep(0.01)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("via", SOCKET_IN_FULL)
def test_random_walk_agrees_with_the_model(solo_script, tmp_path, via):
    """Six walks a round, each round with its own seed."""
    for number in tally.rounds(1, 12):
        tally.note(number)
        walk = type("Walk", (Walk,), {"via": via, "script": solo_script, "directory": tmp_path})
        how = settings(
            max_examples=6,
            stateful_step_count=40 if tally.WHOLE else 25,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink] if tally.POINT else [Phase.generate],
        )
        run_state_machine_as_test(seed(f"{tally.SEED} {number}")(walk), settings=how)


def test_collect_returns_the_rows_that_list_prints(lab):
    lab.hold("a/b", "-s")
    rows, complete = collect(str(lab.directory), FILE, [])

    listed = [{key: row[key] for key in rows[0]} for row in lab.list("--via", "file")]
    assert complete and listed == format_times(rows)
