"""The story of a guarded run, on one screen: find the command, take every hold, start it, wait for it, let go."""

import posix
from time import monotonic

from solo import child
from solo.command import find_command, make_name
from solo.errors import SoloError
from solo.identity import read_self, read_world
from solo.kernel import close, encode, occupy_standard_descriptors, read_file, say
from solo.places import make_base, open_name, split_name
from solo.queue import NO_WAIT, take_hold
from solo.record import Record
from solo.rule import plan_claims
from solo.tickets import Line

ENVIRONMENT_LIMIT = 1 << 24  # bytes; more than execve(2) lets through


def run(options: dict, command: list):
    """Guard `command` (a list of str) as `options` say, and end as it ends. Raises SoloError if nothing ran."""
    occupy_standard_descriptors()
    deadline = monotonic() + options["wait"] if "wait" in options else NO_WAIT
    tell = say if "verbose" in options else tell_nothing
    given = child.Given()
    environment = read_environment()
    path = find_command(command[0], environment.get(b"PATH"))
    names = options.get("name") or [make_name(path, command)]
    holds = []
    try:
        take_holds(names, options, command, deadline, tell, holds)
        environment[b"SOLO_NAME"] = encode(" ".join(names))
        environment[b"SOLO_TOKEN"] = b"%d" % holds[-1].number
        process = start(path, command, environment, given, holds)
    except BaseException:
        release(holds)
        raise
    tell(f"{names[0]}: started {command[0]} as pid {process.pid}")
    kept = [hold.fd for hold in holds] + [hold.line.place.fd for hold in holds]
    child.let_go_of_descriptors(kept if tell is tell_nothing else [*kept, 2])
    status = child.wait(process)
    release(holds)
    tell(f"{names[0]}: pid {process.pid} ended with status {posix.waitstatus_to_exitcode(status)}")
    child.mirror(status)


def take_holds(names: list, options: dict, command: list, deadline, tell, holds: list):
    """Take what exclusive use of `names` needs, in the order that everybody uses; appended to `holds` one by one."""
    claims = plan_claims(names)
    for name, _ in claims:
        split_name(name)  # a bad one is told before any is waited for
    world = read_world()
    launcher = read_self()
    words = list(map(encode, command))
    base = make_base(options.get("dir"))
    for name, mode in claims:
        record = Record(launcher, world, posix.geteuid(), mode, words)
        try:
            line = Line(open_name(base, name), world)
            holds.append(take_hold(line, record, deadline, make_wait_teller(tell, name)))
            line.close_gate()
        except SoloError as error:
            error.args = (f"{name}: {error}",)
            raise
        except OSError as error:
            raise SoloError(f"{name}: can not be held: {error.strerror}") from None
    close(base.fd)


def start(path: str, command: list, environment: dict, given, holds: list):
    try:
        return child.start(path, command, environment, given, holds)
    except OSError as error:
        raise SoloError(f"can not start {command[0]}: {error.strerror}") from None


def release(holds: list):
    for hold in reversed(holds):
        hold.release()


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


def make_wait_teller(tell, name: str):
    """What is told of each ticket that is waited for; its words are loaded only if someone wants them."""
    if tell is tell_nothing:
        return tell_nothing

    def tell_wait(ticket):
        from solo.words import describe_holder

        tell(f"{name}: waiting: {describe_holder(ticket)}")

    return tell_wait
