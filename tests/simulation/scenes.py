"""Scenes: contenders of solo's real code in a simulated kernel, and the promises that are checked at every step.

Imported once solo was loaded over the simulated kernel.
"""

from types import SimpleNamespace

from simulation import modules, proc
from simulation.kernel import SIG_IGN, Kernel
from solo import acquire, launcher, queue, start, supervise
from solo.commands import hold as hold_command
from solo.commands import prune, release
from solo.directories import Directory
from solo.errors import SoloError
from solo.identity import Origin, read_origin, read_self
from solo.kernel import FOREVER, close
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.record import Record, parse_record

PLACE = "/locks"
COMMAND = "/bin/job"
NOBODY = SimpleNamespace(pid=0, made=0, umask=0)
POLICIES = dict(max_waiting=None, latest=False, replace=False, replace_after=None, kill_after=10.0)
BOOT_ID = proc.BOOT_ID.decode()
OTHER_NAMESPACE = "4026532999"


def call(name, *words):
    return modules.kernel.enter(name, words, {})


# --- programs -----------------------------------------------------------------------------------------------------


def make_plan(names, mode, wait, policy, slots=1, take=1):
    deadline = FOREVER if wait is True else queue.NO_WAIT if wait is False else call("monotonic") + wait
    return SimpleNamespace(
        dir=PLACE,
        names=names,
        claim=Claim(mode, slots, take),
        is_socket=False,
        verbose=False,
        quiet=True,
        wait=None,
        deadline=deadline,
        **{**POLICIES, **policy},
    )


class InheritedNothing(start.InheritedState):
    """The state of a launcher whose parent changed nothing, without the calls that find that out."""

    def __init__(self):
        self.umask, self.mask, self.pending, self.child_disposition, self.ignored = 0o022, frozenset(), (), 0, 0


def contend(
    names,
    mode=EXCLUSIVE,
    wait=True,
    handoff=True,
    namespace=None,
    slots=1,
    take=1,
    policy=(),
    generated=False,
    die_with=False,
):
    """Return the program of a launcher: acquire, start, wait and release, as solo.launcher does, without the rest of a launcher."""

    def run():
        plan = make_plan(names, mode, wait, dict(policy), slots, take)
        origin = Origin(BOOT_ID, namespace or proc.FIRST_PID_NAMESPACE, proc.FIRST_TIME_NAMESPACE, "host")
        process = modules.getcurrent().process  # as read_self, without its calls; a fork of it says the same
        record = Record(process.launcher, origin, 0, plan.claim, names, None, [b"job"])
        record.is_generated = generated
        holds, inherited = acquire.Holds(), InheritedNothing()
        dies = (lambda pid: call("set_death_signal", 9)) if die_with else None
        starter = start.Starter(COMMAND, ["job"], {b"SOLO_NAME": b"a"}, inherited, dies)
        if origin.pid_namespace != proc.FIRST_PID_NAMESPACE:
            from solo.process.holder import Holder

            starter.holder = Holder(origin)
        try:
            named = acquire.acquire_names(
                record, plan, queue.wait_silently, holds, starter=starter if handoff else None
            )
            child = starter.start(holds, acquire.make_variables(names, named), None)
        except (OSError, SoloError) as error:
            starter.dismiss()
            holds.refused(error)
            if starter.holder is not None:
                starter.holder.refused(error)
            call("mark", "outcome", f"{type(error).__name__}: {error}")
            return getattr(error, "status", 125)
        acquire.settle_all(named.values())
        acquire.remove_unseen_holds(named.values())
        supervise.close_descriptors([fd for hold in holds for fd in hold.descriptors])
        supervise.wait(child)
        holds.ended(None)
        if starter.holder is not None:
            starter.holder.ended(None)
        call("mark", "outcome", "ran")
        return 0

    return Program(run, names, Claim(mode, slots, take), wait, namespace)


def lock(name, wait=True):
    """Return the program of a process that acquires a name for itself, as solo.Lock does, and releases it."""

    def run():
        origin = Origin(BOOT_ID, proc.FIRST_PID_NAMESPACE, proc.FIRST_TIME_NAMESPACE, "host")
        process = modules.getcurrent().process
        record = Record(process.launcher, origin, 0, Claim(EXCLUSIVE), [name], None, [b"job"])
        base = acquire.make_base(PLACE, False)
        try:
            found = acquire.open_queue(base, name, origin)
            hold = queue.acquire_hold(found, record, FOREVER if wait else queue.NO_WAIT, queue.wait_silently)
        except SoloError as error:
            call("mark", "outcome", type(error).__name__)
            return error.status
        call("keep_running", process.pid, [name])
        call("stop_running", process.pid)
        hold.release()
        call("mark", "outcome", "ran")
        return 0

    return Program(run, [name], Claim(EXCLUSIVE), wait)


def launch(names, wait=True, **typed):
    """Return the program of a whole launcher, as `solo -n NAME -- job`."""

    def run():
        options = {
            "name": names,
            "dir": PLACE,
            **typed,
            **({} if wait is False else {"wait": 1e9 if wait is True else wait}),
        }
        try:
            launcher.run(options, ["job"], [])
        except (OSError, SoloError) as error:  # as main does
            call("mark", "outcome", f"{type(error).__name__}: {error}")
            return getattr(error, "status", 125)

    return Program(run, names, Claim(EXCLUSIVE), wait)


def hold_for(names, owner_pid, wait=True, then_release=False):
    """Return the program of `solo hold --pid owner_pid`, and of `solo release` after it."""

    def run():
        keeping = hold_command.Keeping.__new__(hold_command.Keeping)
        keeping.plan, keeping.origin = make_plan(names, EXCLUSIVE, wait, {}), read_origin()
        keeping.holds, keeping.pid, keeping.named = acquire.Holds(), owner_pid, {}
        keeping.journal = SimpleNamespace(started=lambda run: None, refused=lambda error: None)
        try:
            keeping.kept = kept = hold_command.GivenProcess(owner_pid)
            keeping.record = Record(
                read_self(), keeping.origin, 0, Claim(EXCLUSIVE), names, None, [b"job"], keep=kept.identity
            )
            keeping.acquire()
            keeping.keep(False)
            call("keep_running", owner_pid, names)
            if then_release:
                place = acquire.make_base(PLACE, False)
                found = acquire.open_queue(place, names[0], keeping.origin)
                call("stop_running", owner_pid)
                release.choose(names[0], found, {"pid": owner_pid}).remove()
            call("mark", "outcome", "ran")
        except SoloError as error:
            call("mark", "outcome", f"{type(error).__name__}: {error}")
            return error.status

    return Program(run, names, Claim(EXCLUSIVE), wait)


def clean(name):
    """Return the program of `solo clean NAME`."""

    def run():
        base = acquire.make_base(PLACE, False)
        try:
            prune.clean(name, Directory(base.fd, base.path, base.mode, base.shared), {"dir": PLACE})
        except SoloError as error:
            call("mark", "outcome", f"{type(error).__name__}: {error}")
            return error.status
        finally:
            close(base.fd)
        call("mark", "outcome", "cleaned")
        return 0

    return Program(run, [], None, False)


class Program:
    """A process of a scene: `run`, and what it wants."""

    def __init__(self, run, names, claim, wait=True, namespace=None):
        self.run, self.names, self.claim, self.wait, self.namespace = run, names, claim, wait, namespace


class Spared(Program):
    """A program that is not killed."""

    def __init__(self, program):
        super().__init__(program.run, program.names, program.claim, program.wait)


def nest(outer, inner):
    """Return the program `outer`, whose command runs `inner`: solo in a command of solo."""
    outer.inner = inner
    return outer


def rest():
    """Be a process until the schedule ends it."""
    for _ in range(modules.kernel.lifetime):
        call("work")
    return 0


def make_command(inner):
    """Return the program of a command, which may run another launcher."""

    def run():
        rest()
        if inner is None:
            return 0
        call("mark", "claims", inner)
        return inner.run()

    return run


# --- the kernel of a scene, with what it checks -------------------------------------------------------------------


class Watched(Kernel):
    """A kernel that checks the promises."""

    def __init__(self, scene):
        super().__init__(None, scene.faults, scene.reuses_pids)
        self.scene, self.seats, self.tokens, self.newcomer = scene, {}, {}, 0
        self.programs = {COMMAND: rest}

    def keep_running(self, process, pid, names):
        owner = self.processes[pid]
        if owner.is_alive:
            owner.running = {name: Claim(EXCLUSIVE) for name in names}
            self.check_exclusion(owner)

    def stop_running(self, process, pid):
        self.processes[pid].running = None

    def make_key(self):
        return tuple(self.tokens.items()), tuple([(p.pid, p.running is not None) for p in self.processes.values()])

    # promise 6: first come, first served
    def published(self, process, folder, name):
        if name.startswith(".seat."):
            self.seats[folder.number, name] = process
        elif name.startswith(".hold.") and self.scene.is_fair:
            ours = max(
                (file for (place, file), owner in self.seats.items() if place == folder.number and owner is process),
                default=".seat.~",
            )
            for (place, file), other in self.seats.items():
                is_ahead = place == folder.number and file < ours and file in folder.entries
                if (
                    is_ahead
                    and other.is_alive
                    and other is not process
                    and other.running is None
                    and not self.has_hold(folder, other)
                ):
                    self.violate(
                        f"overtaken: pid {process.pid} gets a hold before pid {other.pid}, which has waited longer as {file}"
                    )

    def has_hold(self, folder, process):
        return any(record and record.launcher[0] == process.pid for record in self.read_holds(folder))

    def read_holds(self, folder):
        return [parse_record(inode.data) for file, inode in folder.entries.items() if file.startswith(".hold.")]

    def violate(self, text):
        self.violation = self.violation or text

    # promises 1, 3 and 4, and the order of tokens
    def executed(self, process):
        program = process.claims
        process.program = make_command(getattr(program, "inner", None))
        process.running = dict.fromkeys(program.names, program.claim)
        self.check_exclusion(process)
        places = [self.find_folder(name) for name in program.names]
        for name, place in zip(program.names, places):
            if not any(record and record.child == (process.pid, process.start) for record in self.read_holds(place)):
                self.violate(f"unrecorded: pid {process.pid} runs, and no hold of {name} says so")
        left = sorted(fd for fd in process.descriptors if fd > 2)
        if left or process.mask or any(handler != SIG_IGN for handler in process.handlers.values()):
            self.violate(
                f"not transparent: pid {process.pid} has descriptors {left}, mask {set(process.mask)}, handlers {process.handlers}"
            )
        if program.claim.mode == EXCLUSIVE and process.environment.get(b"SOLO_TOKEN"):
            for name, token in zip(program.names, process.environment[b"SOLO_TOKEN"].split()):
                if int(token) <= self.tokens.get(name, 0):
                    self.violate(f"token {token.decode()} of {name} comes after {self.tokens[name]}")
                self.tokens[name] = int(token)

    def check_exclusion(self, process):
        for other in self.processes.values():
            if other is not process and other.running and other.is_alive:
                for name, claim in process.running.items():
                    for held, theirs in other.running.items():
                        if is_within(name, held) and not is_compatible(claim, theirs, name == held):
                            self.violate(
                                f"overlap: pids {other.pid} and {process.pid} run at once, by {held} and {name}"
                            )
        taken = [claim for each in self.processes.values() if each.is_alive for claim in (each.running or {}).values()]
        if taken[1:] and taken[0].mode == SLOTS and sum(claim.take for claim in taken) > taken[0].slots:
            self.violate(f"overlap: {len(taken)} commands in {taken[0].slots} slots")

    def find_folder(self, name):
        folder = self.root.entries["locks"]
        for part in name.split("/"):
            folder = folder.entries[part]
        return folder


def is_within(name, other):
    return name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/")


def is_compatible(one, other, is_same):
    """Whether commands with two claims may run at once: not by solo's table, which a fault may have changed."""
    modes = {one.mode, other.mode}
    return modes == {SHARED} or is_same and modes == {SLOTS}


class Scene:
    """Some programs, the faults that may come, and what must hold in the end.

    `is_fair`: waiters are served in order. `may_refuse`: the words of refusals that are right. `others`: processes of no contender, by pid.
    """

    def __init__(
        self,
        name,
        programs,
        faults=None,
        is_fair=True,
        may_refuse=(),
        others=(),
        reuses_pids=False,
        is_reducible=True,
        has_places=True,
        tick=0.0,
    ):
        self.name, self.programs, self.faults, self.is_fair = name, programs, dict(faults or {}), is_fair
        self.may_refuse, self.others, self.reuses_pids = may_refuse, others, reuses_pids
        self.is_reducible, self.has_places, self.tick = is_reducible, has_places, tick

    def make_kernel(self):
        kernel = Watched(self)
        NOBODY.made = 0
        kernel.mkdir(NOBODY, "/bin")
        kernel.root.entries["bin"].entries["job"] = kernel.make_inode(NOBODY, 0o100755)
        kernel.tick = self.tick
        kernel.watches_descriptors = "deadlock" in self.name
        if self.has_places:
            for name in ["", *self.list_names()]:
                kernel.mkdir(NOBODY, f"{PLACE}/{name}" if name else PLACE, 0o700)
        for pid in self.others:
            kernel.spawn(pid, rest, name="rest").outcome = "rested"
        kernel.contenders = [self.spawn(kernel, number + 2, program) for number, program in enumerate(self.programs)]
        return kernel

    def list_names(self):
        return list(dict.fromkeys(name for program in self.programs for name in program.names))

    def spawn(self, kernel, pid, program):
        process = kernel.spawn(pid, program.run)
        process.claims, process.is_spared = program, isinstance(program, Spared)
        if program.namespace:
            process.namespace = program.namespace
        return process

    def read_outcome(self, kernel):
        return tuple([process.outcome or "killed" for process in kernel.contenders])

    def check_end(self, kernel, run_on):
        """Check promises 2, 8 and 11: all have ended, each refusal is right, and the next contender acquires at once and finds nothing to clean up."""
        left = [process for process in kernel.processes.values() if process.is_alive]
        if left:
            waiting = "; ".join(
                f"pid {process.pid} ({process.name}) in {process.call[0]}{process.call[1:]}" for process in left
            )
            return kernel.violate(f"stuck: {waiting}")
        has_failed = any(kind in ("fail", "stop") for kind, _, _ in kernel.trace)
        for process, program in zip(kernel.contenders, self.programs):
            outcome, status = process.outcome, process.status or 0
            is_right = outcome in ("ran", "cleaned") or outcome is None and (status & 0x7F or status == 0 or has_failed)
            if not is_right and not (
                outcome and (has_failed or program.wait is not True or outcome.startswith(self.may_refuse))
            ):
                return kernel.violate(
                    f"pid {process.pid} was refused: {outcome} (status {status}): {process.output.decode()}"
                )
        names = self.list_names()
        kernel.faults = {}
        newcomer = self.spawn(kernel, 900, contend(names, wait=False))
        run_on()
        if kernel.violation is None and newcomer.outcome != "ran":
            kernel.violate(f"not free: the next contender is refused: {newcomer.outcome}")
        has_failed = any(kind == "fail" for kind, _, _ in kernel.trace)
        for name in names if not has_failed else ():
            if kernel.violation is None and (
                files := [file for file in kernel.find_folder(name).entries if file[:5] in (".seat", ".hold", ".new.")]
            ):
                kernel.violate(f"not clean: {files} in {name}")


KILLS, FAULTS, MORE = {"kill": 2}, {"kill": 2, "error": 1}, {"kill": 3, "stop": 1}
A = ["a"]


def make_scenes():
    """Return {name: Scene}."""
    wait, plain, busy = contend(A), contend(A, handoff=False), contend(A, wait=False)
    timed = contend(A, wait=5.0)
    # fmt: off
    scenes = [
        Scene("locks", [lock("a"), lock("a")]),
        Scene("locks-skip", [lock("a"), lock("a", wait=False)]),
        Scene("locks-kill", [lock("a"), lock("a")], {"kill": 1}),
        Scene("two", [wait, wait]),
        Scene("two-plain", [plain, plain]),
        Scene("first", [plain, busy], has_places=False, is_reducible=False),
        Scene("two-kills", [plain, plain], KILLS),
        Scene("two-handoff-kills", [wait, wait], KILLS),
        Scene("busy", [plain, busy], KILLS),
        Scene("three", [wait, wait, plain], MORE),
        Scene("four", [wait, plain, wait, busy], MORE),
        Scene("deadlines", [plain, timed, wait], {"kill": 1, "stop": 1}),
        Scene("errors", [wait, wait], {"error": 2, "kill": 1}),
        Scene("errors-plain", [plain, busy, plain], {"error": 2, "kill": 1}),
        Scene("stops", [wait, plain, timed], {"stop": 2, "kill": 1}),
        Scene("readers", [contend(A, SHARED), contend(A, SHARED), plain], FAULTS),
        Scene("slots", [contend(A, SLOTS, slots=2)] * 3, FAULTS),
        Scene("slots-take", [contend(A, SLOTS, slots=3, take=2), contend(A, SLOTS, slots=3), contend(A, SLOTS, slots=3, take=3)], FAULTS),
        Scene("nested", [contend(["a/b"]), contend(A, SHARED), contend(["a/c"])], FAULTS, has_places=False),
        Scene("names", [contend(["a", "b"]), contend(["b", "a"])], FAULTS),
        Scene("pairs", [contend(["x", "y"], generated=True), contend(["x", "z"], generated=True), contend(["w", "y"], generated=True)], FAULTS),
        Scene("deadlock", [nest(contend(A), contend(["b"])), nest(contend(["b"]), contend(A))], {}, may_refuse="SoloError: a: a deadlock"),
        Scene("max-waiting", [plain, contend(A, policy={"max_waiting": 1}), contend(A, policy={"max_waiting": 1})], FAULTS, may_refuse="Busy"),
        Scene("latest", [plain, contend(A, policy={"latest": True}), contend(A, policy={"latest": True})], FAULTS, False, "Superseded"),
        Scene("replace", [plain, contend(A, policy={"replace": True}), plain], FAULTS, False),
        Scene("no-orphan", [contend(A, die_with=True), contend(A, die_with=True)], FAULTS),
        # Promise 1 has two exceptions: a command of the host seen from a container, and one whose holder was killed too.
        Scene("namespaces", [contend(A, namespace=OTHER_NAMESPACE), Spared(plain)], {"kill": 1}),
        Scene("two-namespaces", [contend(A, namespace=OTHER_NAMESPACE), contend(A, namespace="4026533000")], {"kill": 1}),
        Scene("hold", [hold_for(A, 50), plain], KILLS, may_refuse="SoloError", others=[50]),
        Scene("hold-release", [hold_for(A, 50, then_release=True), plain], KILLS, may_refuse="SoloError", others=[50]),
        Scene("hold-names", [hold_for(["a", "b"], 50), contend(["b"])], KILLS, may_refuse="SoloError", others=[50]),
        Scene("clean", [plain, clean("a"), wait], KILLS, is_reducible=False, has_places=False, tick=0.001),
        Scene("clean-twice", [plain, clean("a"), plain, clean("a"), wait], is_reducible=False, has_places=False),
        Scene("pids", [plain, wait, plain], MORE, reuses_pids=True),
        Scene("launchers", [launch(A), launch(A), launch(A, wait=False)], MORE),
        Scene("launchers-errors", [launch(A), launch(A)], {"error": 1, "kill": 1}),
    ]
    # fmt: on
    return {scene.name: scene for scene in scenes}
