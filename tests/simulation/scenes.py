"""Scenes: command lines of solo in a simulated kernel, and the promises that are checked at every
step.

Imported once solo was loaded over the simulated kernel.
"""

import posix
import sys
from contextlib import suppress
from copy import copy
from types import SimpleNamespace

from simulation import memory, modules, proc
from simulation.files import Inode
from simulation.kernel import SIG_IGN, SIGKILL, Kernel
from solo import acquire, launcher, main, plan, queue, supervise, tickets
from solo.argv import parse
from solo.command import make_name
from solo.commands import clean
from solo.contention.judge import Rehearsal, Waits, refuse_wait
from solo.directories import Directory
from solo.errors import SoloError
from solo.identity import read_origin, read_self
from solo.kernel import FOREVER, NO_WAIT, close
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.record import Record, parse_record
from solo.start import ALL_SIGNALS
from solo.text import describe

PLACE = "/locks"
NOBODY = SimpleNamespace(pid=0, made=0)
HOST, ONE, OTHER = proc.FIRST_PID_NAMESPACE, "4026532999", "4026533000"  # pid namespaces
KEEPER = 50  # a process that belongs to no contender; `solo hold` holds for it


def run_solo():
    sys.argv = list(modules.getcurrent().process.words)
    main.main()


def run_lock():
    """Acquire a name as solo.Lock does, wait for it unless the second word forbids it, and release
    it.
    """
    name, *rest = modules.getcurrent().process.words[1:]
    base = acquire.make_base(PLACE, False)
    try:
        origin = read_origin()
        found = acquire.open_queue(base, name, origin)
        record = Record(read_self(), origin, 0, Claim(EXCLUSIVE), [name], [b"lock"])
        hold = queue.Attempt(
            found, record, NO_WAIT if rest else FOREVER, queue.wait_silently
        ).acquire()
    except SoloError as error:
        return error.status
    process, enter = modules.getcurrent().process, modules.kernel.enter
    enter("keep_running", (process.pid, [name]), {})
    process.is_asking = False
    enter("work", (), {})
    process.is_asking = process.name == "probe"
    hold.release()


def run_probe():
    """Try to acquire a name in one step, at any moment in which its gate is free, and release it in
    another.
    """
    process, enter = modules.getcurrent().process, modules.kernel.enter
    enter("wait_for_gate", (process.words[1],), {})
    process.is_asking = True
    try:
        return run_lock()
    finally:
        process.is_asking = False


def run_clean():
    """Be `solo clean NAME`."""
    base = acquire.make_base(PLACE, False)
    try:
        [name] = modules.getcurrent().process.words[1:]
        clean.clean(
            name, Directory(base.fd, base.path, base.mode, base.shared), clean.Asked(dir=PLACE)
        )
    except SoloError as error:
        main.say(str(error))
        return error.status
    finally:
        close(base.fd)


def run_rm():
    """Be `rm FILE`."""
    with suppress(FileNotFoundError):
        posix.unlink(modules.getcurrent().process.words[1])


def rest():
    """Be a process until the schedule ends it."""
    for _ in range(modules.kernel.lifetime):
        modules.kernel.enter("work", (), {})


def leave_daemon():
    """Be a command that leaves a process in a session of its own, which outlives it or not."""
    if posix.fork() == 0:
        posix.setsid()
    if "endless" in modules.getcurrent().process.words:
        modules.kernel.enter("serve", (), {})
    rest()


PROGRAMS = {
    "/bin/solo": run_solo,
    "/bin/lock": run_lock,
    "/bin/probe": run_probe,
    "/bin/clean": run_clean,
    "/bin/rm": run_rm,
    "/bin/job": rest,
    "/bin/tree": leave_daemon,
}


def replace(place, word, part, make=lambda: None):
    """Leave out a part of solo in a scene that does without."""
    call = getattr(place, word)
    setattr(
        place, word, lambda *words: call(*words) if part in modules.kernel.scene.parts else make()
    )


replace(launcher, "Journal", "journal", launcher.Observer)
replace(queue.Attempt, "refuse_deadlock", "looks")
replace(describe, "explain_busy", "looks")
# An attempt without a starter leaves out the handoff.
queue.Attempt.starter = property(
    lambda attempt: attempt.given if "handoff" in modules.kernel.scene.parts else None,
    lambda attempt, starter: setattr(attempt, "given", starter),
)


def judge(attempt):
    """Return what --explain's judge says, in one step, that a new contender would do: publish a
    ticket, be busy or refused.
    """
    found = tickets.FileQueue(attempt.queue.place, attempt.queue.origin)
    record = attempt.record.claiming(attempt.record.claim)
    asked = Rehearsal(found, record, attempt.deadline, refuse_wait, copy(attempt.policy))
    asked.refuse_deadlock = lambda: None  # it comes after the step
    process = modules.getcurrent().process
    process.is_asking = True
    try:
        asked.advance()
        return tickets.HOLD
    except SoloError as error:
        return tickets.SEAT if isinstance(error, Waits) else type(error).__name__
    finally:
        asked.close()
        process.is_asking = False


def look_and_publish(attempt):
    """Compare the first step of a contender with what the judge says before it, and again just
    before it publishes.

    Nobody joins in between, but others may leave.
    """
    if (
        attempt.state is not queue.NEW
        or modules.kernel.is_hashing
        or isinstance(attempt, Rehearsal)
    ):
        return really_look_and_publish(attempt)
    verdicts, publish = [judge(attempt)], attempt.queue.publish
    attempt.queue.publish = lambda kind, record: (
        verdicts.append(judge(attempt)) or publish(kind, record)
    )
    step = None
    try:
        if not really_look_and_publish(attempt):
            return False
        step = tickets.HOLD if attempt.hold else tickets.SEAT
        return True
    except SoloError as error:
        step = type(error).__name__
        verdicts.append(judge(attempt))
        raise
    finally:
        del attempt.queue.publish
        has_failed = modules.kernel.faults.get("error") != modules.kernel.scene.faults.get("error")
        if step and not has_failed and not is_between(step, verdicts):
            modules.kernel.violate(f"misjudged: {step}, not {verdicts}")


def is_between(step, verdicts):
    """Return whether the step is one of the verdicts, or one between them as the others have left
    one by one.
    """
    order = [tickets.HOLD, tickets.SEAT, "Busy"]
    ranks = [order.index(verdict) for verdict in verdicts if verdict in order]
    return step in verdicts or step in order[min(ranks, default=0) : max(ranks, default=0)]


really_look_and_publish = queue.Attempt.look_and_publish
queue.Attempt.look_and_publish = look_and_publish


def read_line(words):
    """Return (names, claim, whether it waits without a limit) of a command line."""
    typed, subcommand, rest = parse(words[1:]) if words[0] == "solo" else ({}, None, [])
    if subcommand == "hold":
        return rest[3:], Claim(EXCLUSIVE), True
    if words[0] in ("lock", "probe"):
        return words[1:2], Claim(EXCLUSIVE), len(words) == 2
    generated = (
        [make_name(path, []) for path in (rest[0], "/bin/job")]
        if rest[:1] in (["job"], ["/bin/job"])
        else []
    )
    names = typed.get("name") or list(dict.fromkeys(generated))
    claim = plan.choose_claim(*map(typed.get, ("shared", "slots", "take")))
    return names, claim, typed.get("wait") == FOREVER or "replace" in typed


class Watched(Kernel):
    """A kernel that checks the promises."""

    def __init__(self, scene):
        super().__init__(PROGRAMS, scene.faults, scene.reuses_pids)
        self.scene, self.seats, self.tokens = scene, {}, {}

    def wait_turn(self, process, name, words, named):
        """Let the history of a launcher that waits for a signal be what it remembers: the way there
        does not matter.
        """
        if self.is_hashing and name == "sigtimedwait" and words[0] == ALL_SIGNALS:
            remembered = memory.describe_frames(supervise.wait, "child", run_solo)
            signals = memory.describe([process.handlers, process.mask])
            process.history = hash((remembered, signals, words[1]))
        return super().wait_turn(process, name, words, named)

    def wait_for_gate(self, process, name):
        pass

    serve = wait_for_gate

    def can_serve(self, process):
        return False

    def can_wait_for_gate(self, process, name):
        gate = self.find_folder(name).entries.get(".gate")
        return gate is None or not gate.locks

    def keep_running(self, process, pid, names):
        owner = self.processes[pid]
        if owner.is_alive:
            owner.running = dict.fromkeys(names, Claim(EXCLUSIVE))
            self.check_exclusion(owner)

    def fork(self, process):
        """Let a child of a command of --tree count as running too."""
        pid = super().fork(process)
        if process.words[0] == "tree":
            child = self.processes[pid]
            child.running, child.is_spared = process.running, process.is_spared
        return pid

    def make_key(self):
        return tuple(self.tokens.items()), tuple(
            [(p.pid, p.running is not None) for p in self.processes.values()]
        )

    # `solo hold` has held the names once it exits; `solo release`, or a lock, gives them up as it
    # unlinks the first ticket
    def _exit(self, process, status):
        if status == 0 and process.words[1:2] == ["hold"]:
            self.keep_running(process, KEEPER, read_line(process.words)[0])
        super()._exit(process, status)

    # promise 5: the status is the command's
    def end(self, process, status):
        command = process.command
        is_own = modules.getcurrent() is process.greenlet  # nobody has killed it
        is_lost = status == SIGKILL and any(
            each.status == SIGKILL and each.parent == process.pid and is_reaping(each)
            for each in self.processes.values()
        )  # the lower process of --tree was killed before it could report what it had just reaped
        is_wrong = command is not None and (command.is_alive or command.status != status)
        if is_own and is_wrong and not is_lost:
            self.violate(
                f"pid {process.pid} ended with {status}, its command {command.pid} with {command.status}"
            )
        super().end(process, status)

    def unlink(self, process, path, **named):
        if process.words[0] in ("lock", "probe"):
            process.running = None
        elif process.words[1:2] == ["release"]:
            self.processes[KEEPER].running = None
        super().unlink(process, path, **named)

    # promise 6: first come, first served
    def published(self, process, folder, name):
        if name.startswith(".seat."):
            self.seats[folder.number, name] = process
        elif name.startswith(".hold.") and self.scene.is_fair:
            seats = {
                file: owner for (place, file), owner in self.seats.items() if place == folder.number
            }
            ours = max(
                (file for file, owner in seats.items() if owner is process), default=".seat.~"
            )
            holders = {process.pid, *[record.launcher[0] for record in self.read_holds(folder)]}
            for file, other in seats.items():
                waits = file in folder.entries and other.is_alive and other.running is None
                if file < ours and waits and other.pid not in holders:
                    self.violate(
                        f"overtaken: pid {process.pid} has a hold, pid {other.pid} waited longer as {file}"
                    )

    def read_holds(self, folder):
        records = [
            parse_record(inode.data)
            for file, inode in folder.entries.items()
            if file.startswith(".hold.")
        ]
        return [record for record in records if record]

    # promises 1, 3 and 4, and the order of tokens
    def executed(self, process, line):
        names, claim, _ = read_line(line)
        process.running = dict.fromkeys(names, claim)
        # to be killed is one more way to end
        process.is_spared = process.is_spared or self.scene.preemptions is not None
        launcher = self.processes.get(process.parent)
        while launcher is not None:
            launcher.has_run, launcher.command = True, process
            # the upper process of --tree
            launcher = None if launcher.has_executed else self.processes.get(launcher.parent)
        self.check_exclusion(process)
        for name in names:
            records = self.read_holds(self.find_folder(name))
            if (process.pid, process.start) not in [record.child for record in records]:
                self.violate(f"unrecorded: pid {process.pid} runs, and no hold of {name} says so")
        left = sorted(fd for fd in process.descriptors if fd > 2)
        if left or process.mask or any(handler != SIG_IGN for handler in process.handlers.values()):
            self.violate(
                f"not transparent: pid {process.pid} has {left}, {set(process.mask)}, {process.handlers}"
            )
        if claim.mode == EXCLUSIVE:
            tokens = list(map(int, process.environment[b"SOLO_TOKEN"].split()))
            # A pair has one token, that of its second name, which all spellings share.
            for name, token in zip(names[-len(tokens) :], tokens):
                if token <= self.tokens.get(name, 0):
                    self.violate(f"token {token} of {name} comes after {self.tokens[name]}")
                self.tokens[name] = token

    def check_exclusion(self, process):
        running = [each for each in self.processes.values() if each.running and each.is_alive]
        for other in running:
            is_same = other.running is process.running  # of one tree
            for name, claim in () if is_same else process.running.items():
                for held, theirs in other.running.items():
                    if is_within(name, held) and not is_compatible(claim, theirs, name == held):
                        self.violate(
                            f"overlap: pids {other.pid} and {process.pid} run at once, by {held} and {name}"
                        )
        for name in process.running:
            taken = [each.running[name] for each in running if name in each.running]
            if (
                taken[1:]
                and taken[0].mode == SLOTS
                and sum(claim.take for claim in taken) > taken[0].slots
            ):
                self.violate(f"overlap: {len(taken)} commands in {taken[0].slots} slots")

    def find_folder(self, name):
        return self.look_up(*self.find_place(NOBODY, f"{PLACE}/{name}"))


def is_reaping(process):
    """Return whether the last call of a process has reaped a child."""
    return [call for call, _, _ in process.log[-1:]] == ["waitpid"]


def is_within(name, other):
    return name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/")


def is_compatible(one, other, is_same):
    """Whether commands with two claims may run at once: not by solo's table, which a fault may have
    changed.
    """
    modes = {one.mode, other.mode}
    return modes == {SHARED} or is_same and modes == {SLOTS}


class Scene:
    """Some command lines, the faults that may come, and what must hold in the end.

    `may_refuse`: words of the refusals that are right. `namespaces`: those of the contenders;
    `spared`: those that are not killed.
    """

    is_fair = is_reducible = has_places = True
    reuses_pids = False
    parts = (
        "handoff",
        "looks",
    )  # of solo: the handoff in advance, the looks at other launchers; "journal"
    may_refuse, namespaces, spared, tick = None, (), (), 0.0
    preemptions = None  # of an exhaustive search, at most

    def __init__(self, name, lines, faults, special):
        self.name, self.lines, self.faults = name, [line.split() for line in lines], faults
        vars(self).update(special)
        self.names = list(
            dict.fromkeys(name for words in self.lines for name in read_line(words)[0])
        )

    def make_kernel(self):
        kernel = Watched(self)
        NOBODY.made = 0
        kernel.mkdir(NOBODY, "/bin")
        for path in PROGRAMS:
            kernel.root.entries["bin"].entries[path[5:]] = Inode(
                kernel.make_number(NOBODY), 0o100755
            )
        kernel.never_made = (
            ("/run/solo",) if "journal" in self.parts else ("/run/solo", ".journals")
        )
        kernel.tick = self.tick
        for name in ["", *self.names] if self.has_places else ():
            kernel.mkdir(NOBODY, f"{PLACE}/{name}".rstrip("/"), 0o700)
        if any("hold" in words for words in self.lines):
            keeper = kernel.spawn(KEEPER, ["job"])
            keeper.namespace = self.namespaces[0] if self.namespaces else HOST
        kernel.contenders = [
            kernel.spawn(number + 2, words) for number, words in enumerate(self.lines)
        ]
        for number, process in enumerate(kernel.contenders):
            is_tree = any("--tree" in words for words in self.lines)  # that looks at all processes
            process.is_unseen = "looks" not in self.parts and not is_tree
            process.is_spared = number in self.spared
            process.namespace = self.namespaces[number] if self.namespaces else HOST
        return kernel

    def check_end(self, kernel, run_on):
        """Check promises 2, 8 and 11: all have ended, each refusal is right, and the next contender
        acquires at once and finds nothing to clean up.
        """
        left = [process for process in kernel.processes.values() if process.is_alive]
        kinds = {kind for kind, _, _ in kernel.trace}
        if "kill" not in kinds and any("endless" in each.words for each in left):
            return None  # as it should
        if left:
            return kernel.violate(f"stuck: {[(each.pid, each.name, each.call) for each in left]}")
        for process, words in zip(kernel.contenders, self.lines):
            output, code = process.output.decode(), process.status >> 8
            is_meant = (
                self.may_refuse is not None
                and self.may_refuse in output
                or kinds & {"fail", "stop"}
            )
            is_busy = code == 75 and not read_line(words)[2]
            may_refuse = process.has_run or is_meant or is_busy or words[0] != "solo"
            if "bug in solo" in output or code and not may_refuse:
                return kernel.violate(f"pid {process.pid} was refused: {output} (status {code})")
        kernel.faults = {}
        newcomer = kernel.spawn(
            900, ["solo", *[word for name in self.names for word in ("-n", name)], "job"]
        )
        if "container" in kinds:
            newcomer.namespace = OTHER  # it cannot look for what ran there
        run_on()
        if not newcomer.has_run:
            kernel.violate(f"not free: the next contender is refused: {newcomer.output.decode()}")
        for name in () if kinds & {"fail", "container"} else self.names:
            entries = kernel.find_folder(name).entries
            if files := [file for file in entries if file[:5] in (".seat", ".hold", ".new.")]:
                kernel.violate(f"not clean: {files} in {name}")


KILLS, FAULTS, MORE = {"kill": 2}, {"kill": 2, "error": 1}, {"kill": 3, "stop": 1}
A, BUSY, TIMED = "solo -w forever -n a job", "solo -n a job", "solo -w 5 -n a job"
LATEST, LIMITED = "solo -w forever --latest -n a job", "solo -w forever,1 -n a job"
PLAIN, BARE = {"parts": ("looks",)}, {"parts": ()}
TREE, DYING = "solo -w forever --tree -n a tree", "solo --tree --no-orphan -n a tree endless"
PAIRED = {"is_reducible": False, "may_refuse": "was killed"}
PROBE = "probe a at-once"
PROBED = {**BARE, "may_refuse": "was killed", "spared": [1], "preemptions": 0}
NO_ORPHAN, HOLD = "solo -w forever --no-orphan -n a job", f"solo hold --pid {KEEPER}"
# fmt: off
ROWS = [  # name, command lines, faults at most, what is special
    ("locks", ["lock a"] * 2, {}, {}),
    ("locks-skip", ["lock a", "lock a at-once"], {}, {}),
    ("locks-bare", ["lock a", "lock a at-once"], {}, BARE),
    ("locks-kill", ["lock a"] * 2, {"kill": 1}, {}),
    ("two", [A] * 2, {}, {"parts": ("handoff",)}),
    ("two-plain", [A] * 2, {}, BARE),
    ("first", [A, BUSY], {}, {**PLAIN, "has_places": False, "is_reducible": False}),
    ("two-kill", [A] * 2, {"kill": 1}, BARE),
    ("two-kills", [A] * 2, KILLS, BARE),
    ("two-handoff-kill", [A] * 2, {"kill": 1}, {"parts": ("handoff",)}),
    ("two-handoff-kills", [A] * 2, KILLS, {"parts": ("handoff",)}),
    ("busy", [A, BUSY], {"kill": 1}, BARE),
    ("three", [A] * 3, MORE, {}),
    ("four", [A, A, A, BUSY], MORE, {}),
    ("deadlines", [A, TIMED, A], {"kill": 1, "stop": 1}, {}),
    ("errors", [A] * 2, {"error": 2, "kill": 1}, {}),
    ("errors-plain", [A, BUSY, A], {"error": 2, "kill": 1}, PLAIN),
    ("stops", [A, A, TIMED], {"stop": 2, "kill": 1}, {}),
    ("suspends", [A, A, BUSY], {"suspend": 2, "stop": 1, "kill": 1}, {}),
    ("readers", ["solo -s -w forever -n a job"] * 2 + [A], FAULTS, {}),
    ("slots", ["solo --slots 2 -w forever -n a job"] * 3, FAULTS, {}),
    ("slots-take", [f"solo --slots 3,{take} -w forever -n a job" for take in (2, 1, 3)], FAULTS, {}),
    ("nested", ["solo -w forever -n a/b job", "solo -s -w forever -n a job", "solo -w forever -n a/c job"], FAULTS, {"has_places": False}),
    ("names", ["solo -w forever -n a -n b job", "solo -w forever -n b -n a job"], FAULTS, {}),
    ("mixed", ["solo -w forever -n e/f -n a job", "solo -s -w forever -n a/b -n e job", "solo --slots 2 -w forever -n e -n a/b job", "solo -w forever -n a -n e job"], FAULTS, {"has_places": False}),
    ("pairs", ["solo -w forever job", "solo -w forever /bin/job", "solo -w forever job"], FAULTS, {}),
    ("deadlock", ["solo -w forever -n a -- solo -w forever -n b job", "solo -w forever -n b -- solo -w forever -n a job"], {}, {}),
    ("knot", ["solo --slots 2 -w forever -n a -- solo -w forever -n b job"] * 2 + ["solo -w forever -n b -- solo --slots 2 -w forever -n a job"], {}, {}),
    ("max-waiting", [A, LIMITED, LIMITED], FAULTS, {"may_refuse": "busy"}),
    ("latest", [A, LATEST, LATEST], FAULTS, {"may_refuse": "superseded", "is_fair": False}),
    ("replace", [A, "solo --replace -n a job", A], FAULTS, {"is_fair": False, "is_reducible": False}),
    ("replace-after", [A, "solo -w forever --replace-after 5s -n a job", "solo --replace-after 1 -n a job", A], KILLS, {"is_fair": False, "is_reducible": False, "may_refuse": "busy"}),
    ("no-orphan", [NO_ORPHAN] * 2, FAULTS, {}),
    ("tree", [TREE, A], {}, {**PAIRED, **BARE}),
    ("tree-kill", [TREE, A], {"kill": 1}, {**PAIRED, **BARE, "spared": [1]}),
    ("tree-group", [TREE, A], {"group": 1}, {**PAIRED, **BARE, "spared": [1]}),
    ("tree-probe", [TREE, PROBE], {}, PROBED),
    ("tree-probe-kill", [TREE, PROBE], {"kill": 1}, PROBED),
    ("tree-probe-group", [TREE, PROBE], {"group": 1}, PROBED),
    ("tree-no-orphan-probe", [DYING, PROBE], {"kill": 1}, PROBED),
    ("trees", [TREE] * 2 + [A], {"kill": 1}, PAIRED),
    ("trees-group", [TREE] * 2 + [A], {"group": 1}, PAIRED),
    ("tree-stops", [TREE, A, TREE], {"stop": 2, "kill": 1}, PAIRED),
    ("tree-errors", [TREE, A], {"error": 1, "kill": 1}, PAIRED),
    ("tree-no-orphan", [TREE.replace("--tree", "--tree --no-orphan"), TREE], {"kill": 1}, PAIRED),
    # Promise 1 has two exceptions: a command of the host seen from a container, and one whose
    # holder was killed too.
    ("namespaces", [A] * 2, {"kill": 1}, {"namespaces": [ONE, HOST], "spared": [1]}),
    ("two-namespaces", [A] * 2, {"kill": 1}, {"namespaces": [ONE, OTHER]}),
    ("hold", [f"{HOLD} a", A], KILLS, {"may_refuse": ""}),
    ("hold-release", [f"{HOLD} a", f"solo release --pid {KEEPER} a", A], KILLS, {"may_refuse": ""}),
    ("hold-names", [f"{HOLD} a b", "solo -w forever -n b job"], KILLS, {"may_refuse": ""}),
    ("hold-probe", [f"{HOLD} a", PROBE], {"kill": 1}, {**BARE, "namespaces": [ONE, HOST], "spared": [1], "may_refuse": ""}),
    ("hold-container", [f"{HOLD} a", PROBE], {"container": 1}, {**BARE, "namespaces": [ONE, OTHER], "spared": [1], "may_refuse": ""}),
    ("stop-probe", [BUSY, PROBE], {"stop": 1}, {**BARE, "spared": [1]}),
    ("clean", [A, "clean a", A], KILLS, {"is_reducible": False, "has_places": False, "tick": 0.001}),
    ("clean-twice", [A, "clean a", A, "clean a", A], {}, {"is_reducible": False, "has_places": False}),
    ("gate-removed", [A, "rm /locks/a/.gate", A, BUSY], {"kill": 1}, {"is_reducible": False, "tick": 0.001}),
    ("pids", [A] * 3, KILLS, {"reuses_pids": True}),
    ("launchers", [A, A, BUSY], MORE, {"parts": (*Scene.parts, "journal")}),
    ("launchers-errors", [A] * 2, {"error": 1, "kill": 1}, {"parts": (*Scene.parts, "journal")}),
]
# fmt: on


def make_scenes():
    """Return {name: Scene}."""
    return {row[0]: Scene(*row) for row in ROWS}
