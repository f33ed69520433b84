"""Searches of a scene: every interleaving, by replay with a set of seen states; or random schedules, by seed."""

import gc
import random
import time

from simulation import modules
from simulation.words import describe_step

LONGEST = 6000  # steps: more is taken for an endless run
UNCOUNTED = ("kill", "stop", "fail")


class Result:
    def __init__(self):
        self.runs, self.steps, self.ends, self.states, self.seconds = 0, 0, 0, 0, 0.0
        self.is_complete, self.violation, self.path, self.trace, self.seed = False, None, "", [], None
        self.outcomes, self.checked = set(), set()


class Clock:
    def __init__(self, seconds):
        self.begin, self.seconds = time.process_time(), seconds

    @property
    def spent(self):
        return time.process_time() - self.begin

    def is_over(self):
        return self.spent > self.seconds


def begin(scene, is_reduced=True, is_hashing=False):
    modules.kernel = kernel = scene.make_kernel()
    kernel.is_reduced, kernel.is_hashing = is_reduced and scene.is_reducible, is_hashing
    return kernel


def finish(scene, kernel, result):
    """Check what must hold in the end."""
    result.ends += 1
    key = make_key(kernel) if kernel.is_hashing else None
    if kernel.violation is None and (key is None or key not in result.checked):
        result.checked.add(key)
        result.outcomes.add(scene.read_outcome(kernel))
        scene.check_end(kernel, lambda: run_on(kernel))


def run_on(kernel):
    """Run to the end without further choice."""
    kernel.faults = {}
    steps = 0
    while (choices := kernel.list_choices()) and kernel.violation is None and steps < LONGEST:
        kernel.step(next((choice for choice in choices if choice[0] == "run"), choices[0]))
        steps += 1


def report(result, kernel, path, seed=None):
    """Keep a violation, with what replays it."""
    result.violation, result.seed = kernel.violation, seed
    result.path = path
    result.trace = [describe_step(kernel, *step) for step in kernel.trace]


def explore(scene, seconds, is_reduced=True):
    """Take every path of a scene. States seen before, found by a hash, are not searched again."""
    result, clock = Result(), Clock(seconds)
    seen, stack = (
        set(),
        [None],
    )  # a node is (the node before, the number of its choice, or of how many that were the first)
    gc.disable()
    while stack and not clock.is_over() and not result.violation:
        node = stack.pop()
        kernel = begin(scene, is_reduced, True)
        kernel.lifetime = 0  # a command that has not ended yet works
        for choice in unroll(node):
            kernel.step(choice)
        node = follow(scene, kernel, node, seen, stack, result)
        result.runs, result.steps = result.runs + 1, result.steps + kernel.calls
        if kernel.violation:
            report(result, kernel, unroll(node))
        kernel.close_all()
        if result.runs % 2000 == 0:
            gc.collect()
    result.states, result.is_complete, result.seconds = len(seen), not stack and not result.violation, clock.spent
    gc.enable()
    return result


def follow(scene, kernel, node, seen, stack, result):
    """Take the first choice until the end or a known state; put the others on the stack. Return the last node."""
    while kernel.violation is None:
        choices = kernel.list_choices()
        if all(choice[0] in UNCOUNTED for choice in choices):
            finish(scene, kernel, result)
            break
        key = make_key(kernel)
        if key in seen:
            break
        seen.add(key)
        stack += [(node, choice) for choice in choices[1:]]
        node = (node, choices[0])
        kernel.step(choices[0])
        if kernel.calls > LONGEST:
            kernel.violation = "endless"
    return node


def unroll(node):
    choices = []
    while node is not None:
        node, choice = node
        choices.append(choice)
    return choices[::-1]


def make_key(kernel):
    """Return a hash of the kernel's state, and of what each process has got from its calls, on which all that it does depends."""
    seen, left, files = set(), [kernel.root], []
    for process in kernel.processes.values():
        left += [file.target for file, _ in process.descriptors.values() if file.kind == "file"]
    while left:
        inode = left.pop()
        if inode.number not in seen:
            seen.add(inode.number)
            entries = tuple(sorted((name, other.number) for name, other in inode.entries.items()))
            locks = tuple(sorted((file.number, mode) for file, mode in inode.locks.items()))
            files.append((inode.number, inode.links, inode.data, entries, locks))
            left += inode.entries.values()
    return hash(
        (
            tuple(sorted(files)),
            tuple(map(key_process, kernel.processes.values())),
            tuple(kernel.faults.values()),
            kernel.now,
            kernel.make_key(),
        )
    )


def key_process(process):
    if not process.is_alive:
        return process.pid, process.is_reaped, process.status, process.outcome
    descriptors = tuple([(fd, file.number, key_pipe(file)) for fd, (file, _) in sorted(process.descriptors.items())])
    state = (
        process.pid,
        process.state,
        process.is_reaped,
        process.history,
        process.parent,
        process.call[0],
        process.outcome,
    )
    return state, descriptors, process.alarm, process.wake, tuple(process.pending), process.has_executed


def key_pipe(file):
    return (file.target.data, *file.target.ends.values()) if file.kind.startswith("pipe") else None


def walk(scene, seconds, seed, runs=None):
    """Take random schedules, each from its own seed, beginning with `seed`."""
    result, clock, number = Result(), Clock(seconds), 0
    gc.disable()
    while not clock.is_over() and not result.violation and number != runs:
        kernel = begin(scene)
        path = wander(kernel, random.Random(seed + number))
        if kernel.violation is None:
            finish(scene, kernel, result)
        result.runs, result.steps = result.runs + 1, result.steps + kernel.calls
        if kernel.violation:
            report(result, kernel, path, seed + number)
        kernel.close_all()
        number += 1
        if number % 500 == 0:
            gc.collect()
    result.seconds = clock.spent
    gc.enable()
    return result


def wander(kernel, chance):
    """Run to the end: often the same process again, a fault now and then. Return the choices."""
    stay, fault_rate = chance.choice((0.0, 0.5, 0.8, 0.95)), chance.choice((0.005, 0.02, 0.08))
    kernel.lifetime = chance.choice((1, 10, 60))
    last, path = None, []
    while kernel.violation is None:
        choices = kernel.list_choices()
        steps = [choice for choice in choices if choice[0] not in UNCOUNTED]
        if not steps:
            break
        faults = [choice for choice in choices if choice[0] in UNCOUNTED]
        if faults and chance.random() < fault_rate:
            pick = chance.choice(faults)
        else:
            pick = last if last in steps and chance.random() < stay else chance.choice(steps)
        last = pick
        path.append(pick)
        kernel.step(pick)
        if kernel.calls > LONGEST:
            kernel.violation = "endless"
    return path
