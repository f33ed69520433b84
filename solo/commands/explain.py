"""`solo --explain`: what a run would do now. Makes nothing, joins no queue and asks no engine."""

from __future__ import annotations

import posix
from time import monotonic
from typing import Any

from solo.acquire import order_claims
from solo.argv import read_variables
from solo.command import find_command
from solo.commands.lookup import open_queue
from solo.contention.progress import describe_wait, format_ordinal
from solo.directories import find_base
from solo.errors import Busy, SoloError, UsageError
from solo.identity import read_origin, read_self
from solo.kernel import FOREVER, NO_WAIT, encode, occupy_standard_descriptors
from solo.modes import find_conflicts
from solo.obstacles import find_own_ancestors, list_living, read_claim
from solo.options import DIR, SOCKET, VIA
from solo.plan import Plan
from solo.record import Record
from solo.text.describe import cut_command, describe_holders, format_duration
from solo.text.stdout import replace_stdout
from solo.text.tables import describe_claim
from solo.text.users import find_user
from solo.text.width import clean, pad, print_clean
from solo.tickets import SEAT

UNASKED = ("flock", "fcntl", "once_per")


def run(typed: dict[str, Any], words: list[str]) -> int:
    """Print what a run with these options would do. Return 0, or the status of busy. Raises what the run would."""
    occupy_standard_descriptors()
    replace_stdout()
    by_flag = {*typed}
    read_variables(typed, posix.environ)
    chosen = [option for option in (DIR, VIA) if option.key in typed]
    sources = {one.key: f"--{one.flag}" if one.key in by_flag else str(one.variable) for one in chosen}
    if not words or not words[0]:
        raise UsageError("no command given (see solo --help)")
    plan = Plan(typed, words, posix.environ)
    path = find_command(words[0], posix.environ.get(b"PATH"), *words[1:2])
    print_row("command", cut_command([path, *words[1:]]))
    print_names(plan)
    claim = describe_claim(plan.claim, None)
    print_row("mode", f"{claim['take']} of {claim['slots']} slots" if plan.slots else claim["mode"])
    print_place(plan, sources)
    return print_outcome(plan, words)


def print_row(title: str, text: str) -> None:
    print_clean(f"{pad(clean(title), 9)}  {text}")


def print_names(plan: Plan) -> None:
    if not plan.is_generated:
        return print_row("names" if plan.names[1:] else "name", f"{' '.join(plan.names)}, by --name")
    print_row("name", f"{plan.names[0]}, made from the words of the command")
    for second in plan.names[1:]:
        print_row("", f"{second}, made from the real path of the program, is acquired too")


def print_place(plan: Plan, sources: dict[str, str]) -> None:
    """Print the directory and the backend, each with the option, variable or default that chose it."""
    backend, source = plan.via, sources.get("via", "the default")
    if plan.is_remote:
        from solo.engines.targets import find_target

        backend = f"{find_target(plan.via).shown}, which is not asked"
    if plan.via != SOCKET:
        base = find_base(plan.dir)
        missing = "" if posix.access(base, posix.F_OK) else "; it is missing: the run makes it"
        default = f"the default of {find_user(posix.geteuid())}"
        print_row("directory", f"{base}, by {sources.get('dir', default)}{missing}")
    print_row("backend", f"{backend}, by {source}")


def print_outcome(plan: Plan, words: list[str]) -> int:
    """Print who is in the way, and what the run would do now. Return the exit status."""
    origin = read_origin()
    ours = Record(read_self(), origin, posix.geteuid(), plan.claim, plan.names, list(map(encode, words)))
    ours.is_generated = plan.is_generated
    skipped = [f"--{option.replace('_', '-')}" for option in UNASKED if getattr(plan, option)]
    but = f" (not looked at: {', '.join(skipped)})" if skipped else ""
    for name, claim in order_claims(ours):
        queue = open_queue(name, {"dir": plan.dir, "via": SOCKET if plan.is_socket else "file"}, origin)
        if queue is None:
            continue
        try:
            tickets = list_living(queue, sorted(queue.list_files()))
            holds = [one for one in tickets if one.is_hold]
            waiters = [one for one in tickets if one.file.startswith(SEAT)]
            conflicts = [holds[at] for at in find_conflicts(claim, list(map(read_claim, holds)))]
            if find_own_ancestors(queue, conflicts):
                raise SoloError(f"{name}: held by an ancestor of this process: it would wait for itself")
            if conflicts or waiters:
                print_row(name, describe_holders(conflicts or waiters, claim))
                print_row("now", describe_blocked(plan, queue, ours.claiming(claim), waiters) + but)
                return 0 if may_wait(plan, waiters) else Busy.status if plan.busy_exit is None else plan.busy_exit
        finally:
            queue.leave()
    print_row("now", "it runs at once" + but)
    return 0


def may_wait(plan: Plan, waiters: list[Any]) -> bool:
    """Return whether the run would not be busy at once: it waits, or ends what is in the way."""
    return plan.deadline != NO_WAIT and (plan.max_waiting is None or len(waiters) < plan.max_waiting)


def describe_blocked(plan: Plan, queue: Any, ours: Record, waiters: list[Any]) -> str:
    """Return what the run would do, as `queue` has tickets in its way."""
    after = "; --replace-after may end the holder first" if plan.replace_after is not None else ""
    if plan.replace:
        return "it ends the holder and the waiters in its way, and runs"
    if not may_wait(plan, waiters):
        why = "without --wait" if plan.deadline == NO_WAIT else f"as {len(waiters)} wait (N of --wait)"
        return f"busy {why}: it is skipped{after}"
    limit = "" if plan.deadline == FOREVER else f" up to {format_duration(plan.deadline - monotonic() + 0.5)}"
    if plan.latest:
        return f"it makes all earlier waiters exit as busy, and waits{limit}"
    place, _, forecast = describe_wait(queue, ours, None)
    return f"it waits{limit}: {format_ordinal(place or 1)} in the queue{f'; {forecast}' if forecast else ''}{after}"
