"""`solo --explain`: what a run would do now. It takes the steps of launcher.Run, and leaves out
what they do to others.
"""

import os
from collections.abc import Callable
from fcntl import LOCK_EX

from solo.acquire import acquire_further
from solo.command import explain_interpreter
from solo.commands.lookup import Asked, describe_engine, look_at_names
from solo.commands.writable import find_existing, write_file
from solo.contention.flocks import FILE_LOCKS, choose_lock, fail, lock_files
from solo.contention.judge import Waits, refuse_wait
from solo.contention.progress import format_ordinal
from solo.directories import Directory, explain, find_base, open_base
from solo.errors import Busy, NotFound, RanAlready, SoloError
from solo.journal_files import find_journals
from solo.kernel import FOREVER, occupy_standard_descriptors
from solo.options import DIR, VIA, Option
from solo.plan import Plan
from solo.process import ofd
from solo.process.watch import find_lock_owner
from solo.text.describe import cut_command, format_duration
from solo.text.rows import Verdict, describe_claim
from solo.text.stdout import replace_stdout
from solo.text.tables import format_json
from solo.text.users import find_user
from solo.text.width import clean, pad, print_clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.argv import Typed
    from solo.launcher import Run

RUNS, WAITS, REPLACES, BUSY, RAN = "runs", "waits", "replaces", "busy", "ran"  # outcomes
REFUSED = "refused"


def run(
    typed: "Typed", words: "list[str]", make_run: "type[Run]", find_status: "Callable[..., int]"
) -> int:
    """Print what a run of these options would do. Return its exit status, 0 if it would wait.
    Raises what it would.
    """
    occupy_standard_descriptors()
    replace_stdout()
    plan, guarded = Plan(typed), None  # without a command: a missing one is refused below
    kind = RUNS
    outcome = None
    status = 0
    try:
        guarded = make_run(typed, words, [], False)
        plan = guarded.plan
        rehearse(guarded)
    except SoloError as error:
        if "json" not in typed and not isinstance(error, (Waits, Busy)):
            raise
        kind = name_outcome(plan, error)
        outcome = error
        status = find_status(error, typed)
    path = guarded.starter.path if guarded and guarded.starter else words[0]
    mode, _, slots, take = describe_claim(plan.claim)
    facts = Verdict(
        [path, *words[1:]],
        plan.names,
        mode,
        slots,
        take,
        directory=None if plan.is_socket else find_base(plan.dir),
        via=describe_engine(Asked(via=plan.via)) if plan.is_remote else plan.via,
        outcome=kind,
        name=outcome.name or None if outcome else None,
        reason=str(outcome) if outcome else None,
        place=outcome.place if isinstance(outcome, Waits) else None,
        status=status,
    )
    if "json" in typed:
        print(format_json(facts), flush=True)
    elif guarded:
        print_facts(guarded, typed, facts, describe_outcome(plan, kind, outcome))
    return status


# --- the steps of a run


def rehearse(guarded: "Run") -> None:
    """Do as Run.acquire, but act on nothing. Raises Waits, Busy, and what refuses the run."""
    guarded.prepare()
    plan = guarded.plan
    named = look_at_names(guarded.record, plan, refuse_wait, find_place, check_parts)
    if not plan.is_socket:
        check_room(find_base(plan.dir), plan.names)
    if plan.once_per is not None:
        find_existing(find_journals(plan.dir)[0], plan.dir)
    if plan.locks_files:
        acquire_further(plan.names[0], named, lambda: look_at_files(plan, guarded.inherited.umask))
    hold = guarded.remote
    if hold is not None:
        from solo.commands import remote

        acquire_further(
            plan.names[0], named, lambda: remote.rehearse(hold, guarded.once, refuse_wait)
        )
    if guarded.starter is not None:
        check_interpreter(guarded.command[0], guarded.starter.path)


def check_interpreter(word: str, path: str) -> None:
    """Raise NotFound if the kernel would not execute the script `path`, as of a carriage return."""
    try:
        missing = explain_interpreter(path)
    except OSError:
        return  # the kernel may execute what we cannot read
    if missing:
        raise NotFound(f"{word}: {missing}")


def find_place(asked: "str | None", is_verbose: bool) -> "Directory | None":
    """Return the directory of all names, None if the run would make it. Raises SoloError as
    make_base.
    """
    path = find_base(asked)
    try:
        return open_base(path, asked)
    except FileNotFoundError:
        find_existing(path, asked)
        return None


def check_parts(base: Directory, parts: "list[str]") -> None:
    """Raise SoloError if a run could not make the first of the nested directories that is
    missing.
    """
    path = base.path
    while os.path.isdir(f"{path}/{parts[0]}"):
        path += f"/{parts.pop(0)}"
    try:
        write_file(path)
    except OSError as error:
        raise SoloError(f"cannot create {path}/{parts[0]}: {explain(path, error)}") from None


def check_room(base: str, names: "list[str]") -> None:
    """Raise SoloError if a run could not write its ticket in the directory of a name."""
    for name in names:
        path = f"{base}/{name}"
        try:
            if os.path.isdir(path):
                write_file(path)
        except OSError as error:
            text = f"{name}: cannot write in {path}: {explain(path, error)}"
            raise SoloError(text) from None


def look_at_files(plan: Plan, umask: int) -> None:
    """Do as lock_files, but lock and create nothing."""
    lock = choose_lock(plan.claim.mode)
    for kind, find in zip(FILE_LOCKS, (find_flock, find_fcntl)):
        kind.call = staticmethod(find)
        paths = getattr(plan, kind.option)
        for path in [path for path in paths if not os.path.lexists(path)]:
            try:
                write_file(os.path.dirname(path) or ".")
            except OSError as error:
                raise fail(path, kind, lock, error) from None
        setattr(plan, kind.option, list(filter(os.path.lexists, paths)))
    lock_files(plan, umask, refuse_wait, [])


def find_flock(fd: int, mode: int) -> None:
    """Raise BlockingIOError if flock(2) would find a lock in the way. Take none, as for a moment
    others would find it.
    """
    mark = " FLOCK " if mode & LOCK_EX else " FLOCK  ADVISORY  WRITE "
    if ofd.find_sharer(fd, mark) or find_lock_owner(fd, mark):
        raise BlockingIOError


def find_fcntl(fd: int, mode: int) -> None:
    """Do as find_flock for fcntl(2), which answers this question itself."""
    if ofd.find_conflict(fd, mode) is not None:
        raise BlockingIOError


# --- what is printed


def print_row(title: str, text: object) -> None:
    print_clean(f"{pad(clean(title), 9)}  {text}")


def print_facts(guarded: "Run", typed: "Typed", facts: Verdict, verdict: str) -> None:
    """Print the facts as a table, each with the option, variable or default that chose it."""
    plan, directory = guarded.plan, facts.directory
    print_row("command", cut_command(facts.command))
    print_names(plan)
    print_row("mode", f"{facts.take} of {facts.slots} slots" if facts.slots else facts.mode)
    if directory is not None:
        missing = "" if os.path.exists(directory) else "; it is missing: the run makes it"
        source = find_source(DIR, typed, f"the default of {find_user(os.geteuid())}")
        print_row("directory", f"{directory}, by {source}{missing}")
    print_row("backend", f"{facts.via}, by {find_source(VIA, typed, 'the default')}")
    if guarded.once is not None and facts.outcome != RAN:
        print_row("period", f"{guarded.once.describe_end([guarded.once.due])}, if it starts now")
    if plan.flock and not os.access("/proc/locks", os.R_OK):
        print_row(
            "files", "not known: /proc/locks cannot be read, which shows the locks of all users"
        )
    print_row("now", verdict)
    print_row("status", facts.status)


def print_names(plan: Plan) -> None:
    if not plan.is_generated:
        return print_row(
            "names" if plan.names[1:] else "name", f"{' '.join(plan.names)}, by --name"
        )
    print_row("name", f"{plan.names[0]}, made from the words of the command")
    for second in plan.names[1:]:
        print_row("", f"{second}, made from the real path of the program, is acquired too")


def find_source(option: Option, typed: "Typed", default: str) -> str:
    """Return the option or the variable that has set it, or `default`."""
    variable = str(option.variable)
    if option.key not in typed:
        return default
    return variable if typed[option.key] == os.environ.get(variable) else f"--{option.flag}"


def name_outcome(plan: Plan, error: SoloError) -> str:
    if isinstance(error, Busy):
        return RAN if isinstance(error, RanAlready) else BUSY
    if not isinstance(error, Waits):
        return REFUSED
    # Without --wait, --replace-after is due. No holder of a file is ended: there is no place in its
    # queue.
    return REPLACES if error.place and (plan.replace or plan.wait is None) else WAITS


def describe_outcome(plan: Plan, kind: str, outcome: "SoloError | None") -> str:
    """Return what the run would do, and why."""
    if outcome is None:
        return "it runs at once"
    if not isinstance(outcome, Waits):
        return f"it is skipped: {outcome}"
    if kind == REPLACES:
        return f"it ends the holder and the waiters in its way, and runs; {outcome}"
    words = ["it makes all earlier waiters exit as busy, and waits" if plan.latest else "it waits"]
    if plan.wait is not None and plan.wait != FOREVER:
        words.append(f"up to {format_duration(plan.wait)}")
    if outcome.place and not plan.latest:
        words[-1] += f": {format_ordinal(outcome.place)} in the queue"
    return "; ".join(filter(None, [" ".join(words), outcome.forecast, str(outcome)]))
