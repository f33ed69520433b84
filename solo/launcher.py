"""The story of a guarded run: find the command, take every hold, start it, wait for it, let go."""

import posix
from time import monotonic

from solo import supervise
from solo.argv import is_engine
from solo.command import find_command, make_name
from solo.errors import LEASE_LOST, TIMED_OUT, Busy, SoloError, UsageError
from solo.acquire import KILL_AFTER, release, settle_all, take_files, take_more, take_names, take_over
from solo.identity import read_self, read_world
from solo.journal import Journal
from solo.kernel import FOREVER, encode, occupy_standard_descriptors, read_file, say, say_promptly
from solo.options import SOCKET
from solo.directories import check_new_name
from solo.queue import NO_WAIT, wait_unseen
from solo.record import Record
from solo.modes import COUNTED, EXCLUSIVE, SHARED, Claim

ENVIRONMENT_LIMIT = 1 << 24  # bytes; more than execve(2) lets through
CI_VARIABLES = (b"CI", b"JENKINS_URL", b"TEAMCITY_VERSION", b"TF_BUILD")  # set where a log is read by people, line by line


def run(options: dict, command: list, report=None):
    """Guard `command` (a list of str) as `options` say, and end as it ends. Raises SoloError if nothing ran.

    `report` is a Report to who started us by solo.run(), if that is how it was.
    """
    occupy_standard_descriptors()
    if options.get("dir", "/")[:1] != "/":
        options["dir"] = f"{posix.getcwd()}/{options['dir']}"  # the launcher will leave its working directory
    deadline = monotonic() + options["wait"] if "wait" in options else FOREVER if "replace" in options else NO_WAIT
    tell = say if "verbose" in options else tell_nothing
    given = supervise.Given()
    environment = read_environment()
    names = list(dict.fromkeys(options.get("name") or [find_name(command, environment)]))
    if "verbose" in options and "name" not in options:
        from solo.text.hints import warn_of_date

        warn_of_date(names[0], command)
    wanted = describe_wanted(options, names, command)
    journal = Journal(wanted, options.get("dir"), tell) if options.get("via") != SOCKET else None
    holds = []
    remote = once = starter = None
    try:
        path = find_command(command[0], environment.get(b"PATH"))
        ending, die_with = prepare_end(options, names[0])
        if is_engine(options):
            from solo.engines.acquire import EngineHold

            remote = EngineHold(options, wanted, given)
        if "once_per" in options:
            from solo.contention.period import Once

            once = Once(options, names)
        environment[b"SOLO_NAME"] = encode(" ".join(names))
        starter = supervise.Starter(path, command, environment, given, die_with)
        watch, prepare = make_watch(options, names, deadline), starter.prepare if remote is None else None
        taken = named = take_names(wanted, options, deadline, watch, holds, prepare=prepare)
        if "flock" in options:
            # Who else holds a file can not be replaced.
            patience = deadline if "wait" in options else NO_WAIT
            take_files(names[0], named, options["flock"], given.umask, patience, make_watch(options, names, patience), holds)
        if remote is not None:
            # After all that is local: so a host is one contender, and excludes itself whatever becomes of the engine.
            take_more(names[0], named, lambda: remote.take(deadline, make_watch(options, names, deadline), once))
            holds.append(remote)
            ending.lease = remote.lease
            remote.tell_command(environment)
            if remote.engine.caveat:
                tell(f"{names[0]}: {remote.engine.caveat}")
            named = remote.entries
        elif once is not None:
            once.claim()
        process = start(starter, command, holds, make_variables(names, named), ending)
    except BaseException as error:
        if starter is not None:
            starter.dismiss()
        if type(error) is Busy and options.get("wait") and monotonic() >= deadline:
            from solo.text.describe import describe_waited

            error.args = (f"{error}{describe_waited(options['wait'])}",)
        if once is not None:
            error = once.judge(error)
        release(holds)
        if journal is not None and isinstance(error, SoloError):
            journal.tell_error(error)
        raise error
    settle_all(taken.values())
    take_over(taken.values())
    tell = tell if tell is tell_nothing else say_promptly
    tell(f"{names[0]}: started {command[0]} as pid {process.pid}")
    if report is not None:
        report.tell_start()
    begin = monotonic()
    if journal is not None:
        journal.tell = tell
        journal.tell_start(named, process.pid)
    if "syslog" in options:
        log(f"{' '.join(names)}: started {' '.join(command)} as pid {process.pid}")
    kept = [fd for hold in holds for fd in hold.descriptors]
    if report is not None:
        kept.append(report.pipe)
    supervise.let_go_of_descriptors(kept if tell is tell_nothing and ending is None else [*kept, 2], remote and remote.inherited)
    if remote is None:
        supervise.leave_directory()  # a certificate that an engine asks for again may be named from it
    status = supervise.wait(process)
    if remote is not None:
        remote.lease.dead_man.disarm()  # nothing is left that it would have to end
    code = posix.waitstatus_to_exitcode(status)
    outcome = LEASE_LOST if ending and ending.loss else TIMED_OUT if ending and ending.is_timed_out else None
    if once is not None and (code or outcome):
        once.fail()
    is_new = remote is None and "name" not in options and taken[names[0]].line.is_new
    release(holds)
    if tell is not tell_nothing:
        tell(f"{names[0]}: pid {process.pid} ended {describe_code(code)}")
    if journal is not None:
        journal.tell_end(code, outcome)
    if "syslog" in options:
        log_end(names, process.pid, code, monotonic() - begin, outcome)
    if is_new and options.get("via") != SOCKET:
        prune(options.get("dir"))
    if outcome is not None:
        if report is not None:
            report.tell_outcome(outcome)
        posix._exit(outcome)
    supervise.mirror(status)


def prune(directory):
    """This run made a new name from its command, so remove a few of the same kind that are long idle. Never fails."""
    try:
        from solo.commands.prune import prune_generated_names

        prune_generated_names(directory)
    except Exception:
        pass  # the command's status counts


def find_name(command: list, environment: dict) -> str:
    """The name of a job that was given none. Raises NotFound, NotExecutable."""
    return make_name(find_command(command[0], environment.get(b"PATH")), command)


def describe_wanted(options: dict, names: list, command: list) -> Record:
    """A record of ours, with what is claimed of the names themselves. Raises UsageError."""
    for name in names:
        check_new_name(name)  # a bad one is told before any is waited for
    tree = options.get("kill_after", KILL_AFTER) if "tree" in options else None
    world, words = read_world(), list(map(encode, command))
    return Record(read_self(), world, posix.geteuid(), choose_claim(options), names, tree, words)


def describe_code(code: int) -> str:
    """`with status 3`, or `by SIGKILL`: a negative code is a signal."""
    if code >= 0:
        return f"with status {code}"
    try:
        from solo.text.describe import name_signal
    except (OSError, ImportError):
        return f"by signal {-code}"
    return f"by {name_signal(-code)}"


def log(text: str, is_bad: bool = False):
    """Tell syslog, if that can be: the command's status counts."""
    try:
        from solo.text import syslog

        syslog.log(text, is_bad)
    except (OSError, ImportError):
        pass


def log_end(names: list, pid: int, code: int, seconds: float, outcome):
    try:
        from solo.text.syslog import describe_end
    except (OSError, ImportError):
        return
    what = {TIMED_OUT: "timed out and ended", LEASE_LOST: "lost its lease and ended", None: "ended"}[outcome]
    log(f"{' '.join(names)}: pid {pid} {what} {describe_end(code, seconds)}", outcome is not None or code != 0)


def choose_claim(options: dict) -> Claim:
    """In what mode the names are wanted. Raises UsageError."""
    if "shared" in options:
        return Claim(SHARED)
    if "slots" not in options:
        return Claim(EXCLUSIVE)
    slots, take = options["slots"], options.get("take", 1)
    if not 0 < take <= slots:
        raise UsageError(f"--slots {slots} --take {take}: at least 1 must be taken, and at most all")
    return Claim(COUNTED, slots, take)


def prepare_end(options: dict, name: str) -> tuple:
    """How the command is made to end before its time: (an Ending or None, what makes it die with us or None)."""
    ending = die_with = None
    if "timeout" in options or "tree" in options or is_engine(options):
        from solo.process.limits import Ending

        kill_after = options.get("kill_after", KILL_AFTER)
        ending = Ending(name, options.get("timeout", FOREVER), kill_after, "tree" in options, is_engine(options))
    if "no_orphan" in options or "flock" in options or options.get("via") == SOCKET or is_engine(options):
        from solo.process.prctl import make_die_with

        die_with = make_die_with()
    return ending, die_with


def make_variables(names: list, named: dict) -> list:
    """What the command learns of its holds, in the order of the names as they were typed: a list of `NAME=value`."""
    slots = [b"%d" % named[name].record.slot[0][0] for name in names if named[name].record.slot]
    variables = [b"SOLO_TOKEN=" + b" ".join([b"%d" % named[name].number for name in names])]
    return [*variables, b"SOLO_SLOT=" + b" ".join(slots)] if slots else variables


def start(starter, command: list, holds: list, variables: list, ending):
    try:
        return starter.start(holds, variables, ending)
    except OSError as error:
        raise SoloError(f"can not start {command[0]}: {error.strerror}") from None


def read_environment() -> dict:
    """The environment as it was given to us, in bytes. Raises SoloError."""
    environment = dict(posix.environ)
    environment.pop(b"", None)  # execve would take it, Python's does not
    if b"LC_CTYPE" in environment:
        # In the C locale Python sets its own (PEP 538). The first one in what we were given counts, as for getenv(3).
        try:
            given = b"\0" + read_file("/proc/self/environ", ENVIRONMENT_LIMIT)
        except OSError as error:
            raise SoloError(f"can not read /proc: {error.strerror}") from None
        value = given.partition(b"\0LC_CTYPE=")[1:]
        environment[b"LC_CTYPE"] = value[1].partition(b"\0")[0]
        if not value[0]:
            del environment[b"LC_CTYPE"]
    return environment


def tell_nothing(_):
    pass


def make_watch(options: dict, names: list, deadline):
    """What blocks while we stand in line; it is loaded only if someone reads what it shows."""
    is_verbose = "verbose" in options
    is_terminal = is_log = False
    if deadline is not NO_WAIT and "quiet" not in options:
        is_log = any(posix.environ.get(variable, b"") not in (b"", b"0", b"false") for variable in CI_VARIABLES)
        is_terminal = not is_log and posix.isatty(2)
        if is_terminal and posix.environ.get(b"TERM", b"dumb") == b"dumb":
            is_terminal, is_log = False, True
    if deadline is NO_WAIT or not (is_verbose or is_terminal or is_log):
        return wait_unseen
    made = []

    def watch(*what):
        from solo.contention.progress import Watch

        if not made:
            made.append(Watch(names, deadline, is_verbose, is_terminal, is_log))
        return made[0](*what)

    return watch
