"""Subcommands and their own options, declared once: parser, --help, completions and manual use this table."""

from solo import kinds
from solo.options import (
    BUSY_EXIT,
    DIR,
    KILL_AFTER,
    LATEST,
    LIMITS,
    LOCK,
    LOUD_AFTER,
    MAX_WAITING,
    NOTE,
    OUTPUT,
    QUIET,
    REPLACE,
    REPLACE_AFTER,
    SHARED,
    SLOTS,
    TAKE,
    VIA,
    WAIT,
    Option,
)

PID = Option(
    "pid",
    None,
    kinds.PID,
    "PID",
    LIMITS,
    "Hold until the process PID ends",
    excludes=("for", "fd"),
    text="Hold the names until the process PID ends, however it ends. It must be a process of the caller's user,"
    " unless the caller is root. In a script, $$ is the pid of its shell, also in a subshell; the word parent is the process"
    " that called solo.",
)
FD = Option(
    "fd",
    None,
    kinds.COUNT,
    "FD",
    LIMITS,
    "Hold until descriptor FD is closed everywhere",
    excludes=("for",),
    text="Hold the names until all processes that inherited the caller's descriptor FD have closed it or ended, as the lock"
    " of flock 9 in ( ... ) 9>>FILE. FILE must be open for writing; solo writes nothing into it.",
)
FOR = Option("for", None, kinds.DURATION, "DURATION", LIMITS, "Hold for DURATION, or until solo release")
EXPORT = Option(
    "export",
    None,
    kinds.FLAG,
    None,
    OUTPUT,
    "Print shell code that sets SOLO_TOKEN and so on",
    text="Print shell code that exports SOLO_NAME, SOLO_TOKEN and, with --slots, SOLO_SLOT. If the names were not acquired,"
    ' that code fails with the status of solo. Use it as eval "$(solo hold --export ...)".',
)
RELEASE_PID = Option(
    "pid",
    None,
    kinds.PID,
    "PID",
    LIMITS,
    "Release only the hold of the process PID",
    text="With solo release: release only the hold of the process PID.",
)
TOP_VIA = Option(
    VIA.flag,
    None,
    VIA.kind,
    VIA.metavar,
    VIA.group,
    "Show only names of the backend file or socket",
    variable=VIA.variable,
)
HISTORY_VIA = Option(
    VIA.flag,
    None,
    VIA.kind,
    VIA.metavar,
    VIA.group,
    "Show the last runs that an engine keeps",
    text="Show the last runs on all hosts, which an engine keeps, see solo-engines(7). Default, whatever SOLO_VIA says: the runs"
    " and skips of this host.",
)
JSON = Option("json", None, kinds.FLAG, None, OUTPUT, "Print a JSON array")
NULL = Option(
    "null",
    "0",
    kinds.FLAG,
    None,
    OUTPUT,
    "Print only the names, each ended by a NUL byte",
    excludes=("json",),
    text="Print only the names, each ended by a NUL byte: for xargs -0 and other scripts.",
)
PATIENCE = Option("timeout", "t", kinds.DURATION, "DURATION", LIMITS, "Give up after DURATION, with status 75")
STOP_KILL_AFTER = Option("kill-after", "k", kinds.DURATION, "DURATION", LIMITS, "Time from SIGTERM to SIGKILL (10s)")
ALLOW_UNKNOWN = Option(
    "allow-unknown",
    None,
    kinds.FLAG,
    None,
    LOCK,
    "Accept a name that was never used",
    text="Accept a name that was never used; else it is an error.",
)
WAITING = Option("waiting", None, kinds.FLAG, None, LIMITS, "End the waiters in the queue as well")
SINCE = Option(
    "since",
    None,
    kinds.DURATION,
    "DURATION",
    OUTPUT,
    "Omit what ended more than DURATION ago",
    text="Show only runs and skips of the last DURATION (12h, 7d), and what still runs.",
)
OUTPUT_FILE = Option(
    "output",
    None,
    kinds.FILE,
    "FILE",
    OUTPUT,
    "Write to FILE, replacing it atomically",
    text="Write the metrics to FILE, replacing it atomically.",
)
HISTORY = Option(
    "history",
    None,
    kinds.DURATION,
    "DURATION",
    LIMITS,
    "Also remove journals of names idle for DURATION",
    text="Also remove the journals of names that have been idle for DURATION.",
)
GENERATED = Option("generated", None, kinds.FLAG, None, LOCK, "Only names that solo made from commands")

CRONTAB = Option(
    "crontab", None, kinds.FLAG, None, OUTPUT, "Check crontabs: FILEs, or those of cron", excludes=("unit",)
)
UNIT = Option("unit", None, kinds.FLAG, None, OUTPUT, "Check systemd units: FILEs, or the local ones")


class Subcommand:
    """One subcommand: its name, its positional arguments as usage shows them and what they are, its options, its line
    in --help and what the manual says of it.
    """

    __slots__ = ("argument_help", "arguments", "help", "name", "options", "text")

    def __init__(
        self, name: str, arguments: str, argument_help: str, options: "tuple[Option, ...]", help: str, text: str
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.argument_help = argument_help
        self.options = options
        self.help = help
        self.text = text

    @property
    def takes_files(self) -> bool:
        return "FILE" in self.arguments

    @property
    def needs_name(self) -> bool:
        return self.arguments[:1] not in ("", "[")


ONLY_THESE = "Only these names, and all names nested in them. Default: all names."

SUBCOMMANDS = (
    Subcommand(
        "list",
        "[NAME]...",
        ONLY_THESE,
        (DIR, VIA, JSON, NULL),
        "List the holders and waiters of each name",
        "List the holders and waiters of each name, or of the NAMEs and the names nested in them.",
    ),
    Subcommand(
        "show",
        "NAME...",
        "The names to show.",
        (DIR, VIA, JSON),
        "Show the holders, processes, queue and files of a name",
        "Show the holders of each NAME and their processes, the queue, the last runs, and the paths of its files.",
    ),
    Subcommand(
        "wait",
        "NAME...",
        "The names to wait for.",
        (DIR, VIA, PATIENCE, ALLOW_UNKNOWN),
        "Wait until a name is free",
        "Wait until no process holds or wants any of the names. The exit status is 0 then,"
        " 75 after --timeout, 125 if one is unknown.",
    ),
    Subcommand(
        "stop",
        "NAME...",
        "The names whose holders are to end.",
        (DIR, VIA, STOP_KILL_AFTER, WAITING, ALLOW_UNKNOWN),
        "End the holders of a name",
        "End the holders of the names, by SIGTERM and then SIGKILL, and print what was done; it is"
        " an error if only nested ones are held.",
    ),
    Subcommand(
        "hold",
        "NAME...",
        "The names to hold.",
        (
            PID,
            FD,
            FOR,
            NOTE,
            DIR,
            SHARED,
            SLOTS,
            TAKE,
            WAIT,
            MAX_WAITING,
            LATEST,
            REPLACE,
            REPLACE_AFTER,
            KILL_AFTER,
            BUSY_EXIT,
            QUIET,
            LOUD_AFTER,
            EXPORT,
        ),
        "Hold names for the rest of a script, or for a time",
        "Hold the names until the end of --pid, --fd or --for (one is needed), or until solo release; see solo-hold(1).",
    ),
    Subcommand(
        "release",
        "NAME...",
        "The names to release.",
        (DIR, RELEASE_PID),
        "Release names kept by 'solo hold'",
        "Release names kept by 'solo hold'.",
    ),
    Subcommand(
        "history",
        "[NAME]...",
        ONLY_THESE,
        (DIR, HISTORY_VIA, SINCE, JSON),
        "Show each run and each skip",
        "Show each run and each skip: when it started or was skipped, how long it waited and ran, and how it ended.",
    ),
    Subcommand(
        "metrics",
        "[NAME]...",
        ONLY_THESE,
        (DIR, VIA, OUTPUT_FILE),
        "Print metrics for Prometheus",
        "Print the numbers of holds, waiters, runs, skips and failures, and their times, as text for Prometheus.",
    ),
    Subcommand(
        "top",
        "[NAME]...",
        ONLY_THESE,
        (DIR, TOP_VIA),
        "Show holders and waiters live",
        "Show holders and waiters live, with CPU time and memory; the key s stops the selected one.",
    ),
    Subcommand(
        "clean",
        "[NAME]...",
        ONLY_THESE,
        (DIR, GENERATED, HISTORY),
        "Remove idle names and files of dead processes",
        "Remove idle names (--generated: only those made from commands), and files left by dead processes."
        " Jobs may start meanwhile.",
    ),
    Subcommand(
        "doctor",
        "[FILE]...",
        "Crontabs or units, or directories of them; - is standard input.",
        (DIR, VIA, CRONTAB, UNIT, JSON),
        "Check the machine, crontabs or units",
        "Check that this machine and user, and with --via the engine, have all that solo needs;"
        " with --crontab or --unit check FILEs, see solo(7)."
        " The status is 1 if a check fails.",
    ),
)
