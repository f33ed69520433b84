"""A random walk over real processes: contenders of several names and modes start, end, are killed, stopped and replaced.

Their files are damaged too. After each step three views must agree: the model's, the output of `list`, and the log of the
commands (witness.py). A waiter must have a reason to wait: a waiter before it, or a holder that conflicts with it.
"""

import contextlib
import os
import signal
import time

import pytest
import tally
from conftest import PATIENCE, SOCKET_IN_FULL, Lab, kill, make_witness, read_state
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from solo.commands.list import collect
from solo.options import FILE, SOCKET
from solo.text.tables import format_times

NAMES = ["a", "a/b", "a/c", "d"]
MODES = {"X": [], "S": ["-s"], "C": ["--slots", "2"]}
INDEX = st.integers(0, 60)
WAIT = ("-w", "forever")
STARTS = {  # the words of a contender, and its exit statuses besides 0
    "once": ((), {75}),
    "wait": (WAIT, ()),
    "wait 30 ms": (("-w", "30ms"), {75}),
    "wait in a short queue": (("-w", "forever,1"), {75}),
    "run for 100 ms": ((*WAIT, "-t", "100ms"), {124}),
    "latest": ((*WAIT, "--latest"), ()),
    # A holder with an unreadable record cannot be ended, so it is refused.
    "replace": (("--replace", "-k", "100ms"), {125}),
}


class Contender:
    """One launcher in the model. `child` is its command's pid, once that runs; `fates` are its allowed exit statuses,
    `imposed` those that it may give to waiters before it.
    """

    def __init__(self, number, name, mode, process, fates, imposed):
        self.number, self.name, self.mode, self.process = number, name, mode, process
        self.fates, self.imposed = {0, *fates}, set(imposed)
        self.child = None
        self.unreadable = False

    def __repr__(self):
        return f"<{self.number}: {self.mode} {self.name} pid {self.process.pid} child {self.child}>"

    @property
    def lives(self):
        return self.process.poll() is None

    @property
    def command_lives(self):
        return self.child is not None and read_state(self.child) not in ("gone", "Z", "X")

    def conflicts(self, other):
        related = (
            self.name == other.name or self.name.startswith(other.name + "/") or other.name.startswith(self.name + "/")
        )
        return related and (self.mode, other.mode) != ("S", "S")


ACTS = {  # what a step does to a contender, and which contenders it may choose
    "end": lambda it: it.command_lives,
    "kill_launcher": lambda it: it.lives and not it.unreadable,
    "kill_command": lambda it: it.command_lives,
    "stop_launcher": lambda it: it.lives and it.command_lives,
    "stop_command": lambda it: it.lives and it.command_lives,
    "corrupt_record": lambda it: it.lives and it.command_lives and not it.unreadable,
}


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

    @rule(how=st.sampled_from(sorted(STARTS)), name=st.sampled_from(NAMES), mode=st.sampled_from("XXSC"))
    def start(self, how, name, mode):
        words, fates = STARTS[how]
        imposed = {"latest": {75}, "replace": {-signal.SIGTERM, -signal.SIGKILL}}.get(how, set())
        for other in self.all:
            if how == "replace" or other.name == name:
                other.fates |= imposed
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
        self.settle()

    @rule(act=st.sampled_from(sorted(ACTS)), index=INDEX)
    def act_on_one(self, act, index):
        """The draws of hypothesis must not depend on the state of processes."""
        fitting = [contender for contender in self.all if ACTS[act](contender)]
        if fitting:
            getattr(self, act)(fitting[index % len(fitting)])
            self.settle()

    def end(self, contender):
        contender.process.stdin.close()

    def kill_launcher(self, contender):
        tally.add(kills=1)
        contender.fates.add(-signal.SIGKILL)
        kill(contender.process)

    def kill_command(self, contender):
        tally.add(kills=1)
        contender.fates.add(-signal.SIGKILL)
        self.signal_command(contender, signal.SIGKILL)

    def stop_launcher(self, contender):
        contender.process.send_signal(signal.SIGSTOP)
        self.settle()
        contender.process.send_signal(signal.SIGCONT)

    def stop_command(self, contender):
        self.signal_command(contender, signal.SIGSTOP)
        self.settle()
        self.signal_command(contender, signal.SIGCONT)

    def signal_command(self, contender, number):
        if contender.command_lives:
            with contextlib.suppress(ProcessLookupError):  # its time limit has just ended it
                os.kill(contender.child, number)

    def corrupt_record(self, contender):
        """While its owner lives, no other contender may run beside an unreadable record. Sockets have none."""
        for hold in (self.lab.directory / contender.name).glob(".hold.*"):
            with contextlib.suppress(FileNotFoundError):
                file = os.open(hold, os.O_RDWR)  # never make it: its owner may have just ended
                if f"launcher {contender.process.pid} ".encode() in os.read(file, 1 << 20):
                    os.ftruncate(file, os.pwrite(file, b"garbage", 0))
                    contender.unreadable, contender.mode = True, "X"
                    tally.add(faults={"record corrupted": 1})
                os.close(file)

    @rule(name=st.sampled_from(NAMES), garbage=st.sampled_from([b"", b"garbage", b"\n" * 99]))
    def corrupt_a_gate(self, name, garbage):
        gate = self.lab.directory / name / ".gate"
        if gate.exists():  # never with sockets
            tally.add(faults={"gate corrupted": 1})
            gate.write_bytes(garbage)

    # --- invariants -----------------------------------------------------------------------------------------------

    def settle(self):
        """Wait until all contenders are in the states that the rule demands."""
        deadline = time.monotonic() + PATIENCE
        while (wrong := self.find_wrong()) is not None:
            assert time.monotonic() < deadline, (wrong, self.all, self.list())
            time.sleep(0.003)

    def find_wrong(self):
        for contender in self.all:
            if contender.child is None:
                line = contender.process.stdout.read() if not contender.process.stdout.closed else None
                contender.child = int(line) if line else None
        rows = {}
        for row in self.list():
            rows.setdefault(row["launcher"], []).append(row)
        expected = set()
        for contender in self.all:
            alive = contender.lives
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
        if len(rows.get(None, [])) != sum(it.unreadable and it.lives for it in self.all):
            return f"listed without a record: {rows.get(None)}"
        return self.find_idle_waiter()

    def find_idle_waiter(self):
        holders = [it for it in self.all if it.child and (it.lives or it.command_lives)]
        waiting = [it for it in self.all if it.child is None and it.lives]
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
