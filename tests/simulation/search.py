"""Searches of a scene: every interleaving, by replay with a set of seen states; or random
schedules, by seed.
"""

import gc
import random
import time
from errno import errorcode

from simulation import modules

LONGEST = 6000  # steps: more is taken for an endless run
SIGNALS = {
    "kill": "SIGKILL",
    "group": "SIGKILL, with its process group",
    "container": "SIGKILL, with its pid namespace",
    "stop": "SIGSTOP",
    "suspend": "SIGTSTP, and its launcher too",
    "continue": "SIGCONT",
}
UNCOUNTED = ("kill", "group", "container", "stop", "suspend", "fail")


class Search:
    """A search of one scene, and what it found: `violation` with its `trace` in words, `outcomes`
    of the contenders.
    """

    is_hashing = is_complete = False
    violation = seed = None
    states = runs = steps = 0
    seconds = 0.0  # of CPU

    def __init__(self, scene):
        self.scene, self.trace, self.outcomes, self.checked = scene, [], set(), set()

    def run(self, seconds):
        """Run schedules until there is none left, no time, or a broken promise."""
        gc.disable()
        begin = time.process_time()
        while self.has_more() and not self.violation and self.seconds <= seconds:
            modules.kernel = kernel = self.scene.make_kernel()
            kernel.is_reduced, kernel.is_hashing = self.scene.is_reducible, self.is_hashing
            self.take(kernel)
            self.runs, self.steps = self.runs + 1, self.steps + kernel.calls
            if kernel.calls > LONGEST:
                kernel.violation = kernel.violation or "endless"
            if kernel.violation:
                self.violation, self.trace = (
                    kernel.violation,
                    [describe_step(kernel, *step) for step in kernel.trace],
                )
            kernel.close_all()
            if self.runs % 1000 == 0:
                gc.collect()
            self.seconds = time.process_time() - begin
        gc.enable()
        return self

    def finish(self, kernel):
        """Check what must hold in the end, once for each state."""
        key = make_key(kernel) if self.is_hashing else self.runs
        if kernel.violation is None and key not in self.checked:
            self.checked.add(key)
            self.outcomes.add(tuple([process.status for process in kernel.contenders]))
            self.scene.check_end(kernel, lambda: run_on(kernel))


def run_on(kernel):
    """Run to the end without further choice."""
    kernel.faults = {}
    end = kernel.calls + LONGEST
    while (choices := kernel.list_choices()) and kernel.violation is None and kernel.calls < end:
        kernel.step(next((choice for choice in choices if choice[0] == "run"), choices[0]))


class Random(Search):
    """Random schedules, each from its own seed, beginning with `seed`; at most `most`."""

    def __init__(self, scene, seed, most):
        super().__init__(scene)
        self.seed, self.most = seed - 1, most

    def has_more(self):
        return self.runs != self.most

    def take(self, kernel):
        """Run to the end: often the same process again, a fault now and then."""
        self.seed += 1
        chance = random.Random(self.seed)
        stay, fault_rate = chance.choice((0.0, 0.5, 0.8, 0.95)), chance.choice((0.005, 0.02, 0.08))
        kernel.lifetime = chance.choice((1, 10, 60))
        last = None
        while kernel.violation is None and kernel.calls <= LONGEST:
            choices = kernel.list_choices()
            steps = [choice for choice in choices if choice[0] not in UNCOUNTED]
            if not steps:
                return self.finish(kernel)
            faults = [choice for choice in choices if choice[0] in UNCOUNTED]
            if faults and chance.random() < fault_rate:
                last = chance.choice(faults)
            elif last not in steps or chance.random() >= stay:
                last = chance.choice(steps)
            kernel.step(last)


class Exhaustive(Search):
    """Every schedule. States seen before, found by a hash, are not searched again. A node is the
    node before it and a choice.
    """

    is_hashing = True

    def __init__(self, scene):
        super().__init__(scene)
        self.seen, self.left = set(), [None]

    def has_more(self):
        self.is_complete, self.states = not self.left, len(self.seen)
        return self.left

    def take(self, kernel):
        """Go to a node, then take the first choice until the end or a known state; the other
        choices are nodes for later.
        """
        kernel.lifetime = 0  # a command that has not ended yet works
        node = before = self.left.pop()
        choices = []
        while before is not None:
            before, choice = before
            choices.append(choice)
        bound = Bound(self.scene)
        for choice in reversed(choices):
            bound.take(kernel, choice)
            kernel.step(choice)
        while kernel.violation is None and kernel.calls <= LONGEST:
            choices = kernel.list_choices()
            if all(choice[0] in UNCOUNTED for choice in choices):
                return self.finish(kernel)
            choices = bound.order(kernel, choices)
            key = make_key(kernel), bound.last, bound.left
            if key in self.seen:
                return
            self.seen.add(key)
            self.left += [(node, choice) for choice in choices[1:]]
            node = (node, choices[0])
            bound.take(kernel, choices[0])
            kernel.step(choices[0])


class Bound:
    """How often a schedule may still leave a process that could go on, for another one: the
    `preemptions` of its scene, without limit if that has none. Those by a probe do not count.
    """

    last = left = None  # the process that ran, the preemptions left

    def __init__(self, scene):
        self.left = scene.preemptions

    def order(self, kernel, choices):
        """Return the choices that are left, that of the same process first."""
        if self.left is None:
            return choices
        same = [choice for choice in choices if choice == ("run", self.last)]
        others = [
            choice
            for choice in choices
            if choice not in same and (not same or self.left or self.is_free(kernel, choice))
        ]
        return same + others

    def is_free(self, kernel, choice):
        return choice[0] != "run" or kernel.processes[choice[1]].name == "probe"

    def take(self, kernel, choice):
        if self.left is None or self.is_free(kernel, choice):
            return
        if kernel.is_reduced and kernel.is_alone(kernel.processes[choice[1]]):
            return  # it is no choice
        last = kernel.processes.get(self.last)
        if (
            choice[1] != self.last
            and last is not None
            and last.state == "R"
            and kernel.can_run(last)
        ):
            self.left -= 1
        self.last = choice[1]


def make_key(kernel):
    """Return a hash of the kernel's state, and of what each process has got from its calls, on
    which all that it does depends.
    """
    opened = number_files(kernel)
    seen, files = set(), []
    left = [kernel.root, *[file.target for file in opened if file.kind == "file"]]
    while left:
        inode = left.pop()
        if inode.number not in seen:
            seen.add(inode.number)
            entries = tuple(sorted((name, other.number) for name, other in inode.entries.items()))
            locks = tuple(sorted((opened[file], mode) for file, mode in inode.locks.items()))
            files.append((inode.number, inode.links, inode.data, entries, locks))
            left += inode.entries.values()
    processes = tuple([key_process(each, opened) for each in kernel.processes.values()])
    return hash(
        (
            tuple(sorted(files)),
            processes,
            tuple(kernel.faults.values()),
            kernel.now,
            kernel.make_key(),
        )
    )


def number_files(kernel):
    """Return {open file: number}, in an order that does not depend on when they were opened."""
    found = {}
    for process in kernel.processes.values():
        for _, (file, _) in sorted(process.descriptors.items()):
            found.setdefault(file, len(found))
            for _, sent in file.target.messages if file.kind == "socket" else ():
                for each in sent:
                    found.setdefault(each, len(found))
    return found


def key_process(process, opened):
    state = (
        process.pid,
        process.state,
        process.is_reaped,
        process.status,
        process.has_run,
        process.left_early,
    )
    if not process.is_alive:
        return state
    files = tuple(
        [
            (fd, opened[file], *key_file(file, opened))
            for fd, (file, _) in sorted(process.descriptors.items())
        ]
    )
    more = (
        process.history,
        process.parent,
        process.call[0],
        process.alarm,
        process.wake,
        tuple(process.pending.items()),
        process.change,
        process.group,
        process.death_signal,
        process.is_subreaper,
    )
    return state, files, more, process.has_executed


def key_file(file, opened):
    if file.kind == "file":
        return (file.target.number,)
    if file.kind == "proc":
        return (file.target,)
    if file.kind == "pidfd":
        return (file.target.pid,)
    if file.kind == "links":
        return (tuple(file.offset),)
    if file.kind == "socket":
        messages = [(data, *[opened[each] for each in sent]) for data, sent in file.target.messages]
        return (tuple(messages), file.target.peer.ends["socket"])
    return (file.target.data, *file.target.ends.values())


def describe_step(kernel, kind, rest, call):
    """Return a step in words, for a person who reads how a promise was broken."""
    if kind == "time":
        return "nothing else can happen: time passes until the next timer"
    name, *words = call
    shown = f"{name}({', '.join([repr(word)[:60] for word in words])})"
    who = f"pid {rest[0]} ({kernel.processes[rest[0]].name})"
    if kind in SIGNALS:
        return f"{who} gets {SIGNALS[kind]}, before {shown}"
    return f"{who} {shown}" + (f" fails with {errorcode[rest[1]]}" if kind == "fail" else "")
