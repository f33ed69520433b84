"""The subcommands: the only table of what may be typed after the name of each. typer draws
help from it (by_typer.py), and the parser of a run reads words by it (dispatch.py).
"""

from time import time

from solo import kinds
from solo.errors import UsageError
from solo.kernel import FOREVER
from solo.kinds import AGE, FLAG, Kind, read_age
from solo.options import DIR, LAUNCHER_OPTIONS, OUTPUT, VIA, Option


def read_since(flag: str, text: str) -> float:
    """Return the moment that a duration ago, a date or the begin of a day means. Raises
    UsageError.
    """
    from datetime import datetime, timedelta

    if text in ("today", "yesterday"):
        text = (datetime.now().date() - timedelta(days=text == "yesterday")).isoformat()
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except ValueError:
        pass
    try:
        return max(0.0, time() - read_age(flag, text))
    except UsageError:
        examples = "(like 12h, 2d, yesterday, 2026-01-31 or '2026-01-31 03:00')"
        raise UsageError(f"{flag} {text}: not a duration or a date {examples}") from None


def read_positive(flag: str, text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text):
        return int(text)
    raise UsageError(f"{flag} {text}: not a number above 0")


def read_within(flag: str, text: str) -> "tuple[float | None, float]":
    """Return (None or the seconds after which to warn, those that are critical). Raises
    UsageError.
    """
    try:
        *warn, critical = [read_age(flag, part) for part in text.split(",")]
    except UsageError:
        warn, critical = [], FOREVER
    if len(warn) > 1 or critical == FOREVER or warn and warn[0] > critical:
        raise UsageError(f"{flag} {text}: not CRIT or WARN,CRIT (like 26h or 25h,26h)")
    return warn[0] if warn else None, critical


SINCE, POSITIVE = Kind(read_since), Kind(read_positive)
WITHIN = Kind(read_within, sample="25h,26h")


class Names:
    """The words of a subcommand that are no options: what they are, and what they are called, [in
    brackets] if there may be none.
    """

    def __init__(self, help: str, metavar: str = "NAME...") -> None:
        self.help = help
        self.metavar = metavar
        self.are_files = "FILE" in metavar
        self.may_lack = metavar[0] == "["


def declare(
    flags: str, help: str, kind: Kind = FLAG, metavar: "str | None" = None, text: str = "",
    excludes: "tuple[str, ...]" = (),
) -> Option:  # fmt: skip
    """Return an Option of a subcommand: `flags` are its short one, if any, and its long one."""
    *short, long = flags.split()
    return Option(
        long, short[0] if short else None, kind, metavar, OUTPUT, help, text, excludes=excludes
    )


class Subcommand:
    """A subcommand: a line about it, what the manual says of it, its Names, its own Options, and
    the flags of those that it has of a run.
    """

    def __init__(
        self, name: str, summary: str, text: str, names: Names, *options: Option, of_run: str = ""
    ) -> None:
        self.name = name
        self.summary = summary
        self.text = text
        self.names = names
        flags = of_run.split()
        self.options = *options, *[one for one in LAUNCHER_OPTIONS if one.flag in flags]


HELP = Option("help", "h", FLAG, None, OUTPUT, "Print this help and exit")
ONLY_NAMES = Names(
    "Only these names, and all names nested in them. Default: all names.", "[NAME]..."
)
ALLOW_UNKNOWN = declare("allow-unknown", "Accept a name that was never used")
JSON = declare("json", "Print a JSON array")

# In the order of the manual.
# fmt: off
TABLE = (
    Subcommand(
        "list", "List the holders and waiters of each name",
        "List the holders and waiters of each name, or of the NAMEs and the names nested in "
        "them; with --all the last run and the health of each job, held or not.",
        ONLY_NAMES, declare("all", "A row for each name known, bad states first"), DIR, VIA, JSON,
        declare("0 null", "Print only the names, each ended by a NUL byte", excludes=("json",)),
    ),
    Subcommand(
        "show", "Show the holders, processes, queue and files of a name",
        "Show the holders of each NAME and their processes, the queue, the last runs, and the "
        "paths of its files.",
        Names("The names to show."), DIR, VIA, JSON,
    ),
    Subcommand(
        "wait", "Wait until a name is free",
        "Wait until no process holds or wants any of the names. The exit status is 0 then, 75 "
        "after --timeout, 125 if one is unknown.",
        Names("The names to wait for."), DIR, VIA,
        declare("t timeout", "Give up after DURATION, with status 75", kinds.DURATION, "DURATION"),
        ALLOW_UNKNOWN,
    ),
    Subcommand(
        "stop", "End the holders of a name",
        "End the holders of the names, by SIGTERM and then SIGKILL, and print what was done; it "
        "is an error if only nested ones are held.",
        Names("The names whose holders are to end."), DIR, VIA,
        declare("k kill-after", "Time from SIGTERM to SIGKILL (10s)", kinds.DURATION, "DURATION"),
        declare("waiting", "End the waiters too, not only the holders"),
        ALLOW_UNKNOWN,
    ),
    Subcommand(
        "hold", "Hold names for the rest of a script, or for a time",
        "Hold the names until the end of --pid, --fd or --for (one is needed), or until solo "
        "release; see solo-hold(1).",
        Names("The names to hold."),
        declare(
            "pid", "Hold until the process PID ends", kinds.PID, "PID",
            "Hold the names until the process PID ends, however it ends. It must be a process "
            "of the caller's user, unless the caller is root. In a script, $$ is the pid of its "
            "shell, also in a subshell; the word parent is the process that called solo.",
            ("for", "fd"),
        ),
        declare(
            "fd", "Hold until descriptor FD is closed everywhere", kinds.COUNT, "FD",
            "Hold the names until all processes that inherited the caller's descriptor FD have "
            "closed it or ended, as the lock of flock 9 in ( ... ) 9>>FILE. FILE must be open "
            "for writing; solo writes nothing into it.",
            ("for",),
        ),
        declare("for", "Hold for DURATION, or until solo release", kinds.DURATION, "DURATION"),
        declare(
            "export", "Print shell code that sets SOLO_TOKEN and so on", FLAG, None,
            "Print shell code that exports SOLO_NAME, SOLO_TOKEN and, with --slots, SOLO_SLOT. If "
            "the names were not acquired, that code fails with the status of solo. Use it as eval "
            '"$(solo hold --export ...)".',
        ),
        of_run="note dir shared slots wait latest replace replace-after kill-after busy-exit quiet "
        "loud-after",
    ),
    Subcommand(
        "release", "Release names kept by 'solo hold'", "Release names kept by 'solo hold'.",
        Names("The names to release."),
        declare(
            "pid", "Release only the hold of the process PID", kinds.PID, "PID",
            "With solo release: release only the hold of the process PID.",
        ),
        declare(
            "via", "Remove the lock of a dead host at an engine", kinds.LINE, "URL",
            "With solo release: remove the locks of the names at an engine that nobody renews, as "
            "their host is dead; see solo-engines(7).",
            ("pid", "dir"),
        ),
        DIR,
    ),
    Subcommand(
        "history", "Show each run and each skip",
        "Show each run and each skip: when it started or was skipped, how long it waited and "
        "ran, and how it ended.",
        ONLY_NAMES, DIR,
        declare("via", "Show the last runs that an engine keeps", kinds.BACKEND, "WHERE"),
        declare("since", "Omit what ended before (12h, 2d, yesterday)", SINCE, "DURATION|DATE"),
        declare("failed", "Only runs that failed, or whose end is unknown"),
        declare("limit", "Only the last N", POSITIVE, "N"),
        declare(
            "captured", "Print the output of the last run with --capture",
            excludes=("json", "limit"),
        ),
        JSON,
    ),
    Subcommand(
        "check", "Print the health of jobs for a monitor",
        "Print the health of all jobs, or the NAMEs and the names nested in them, in a line for a "
        "monitor. The status is 0, 1 (warning), 2 (critical) or 3 (unknown).",
        ONLY_NAMES, DIR,
        declare("within", "2 without a success within CRIT, 1 within WARN", WITHIN, "[WARN,]CRIT"),
    ),
    Subcommand(
        "metrics", "Print metrics for Prometheus",
        "Print the numbers of holds, waiters, runs, skips and failures, and their times, as "
        "text for Prometheus.",
        ONLY_NAMES, DIR, VIA,
        declare("output", "Write to FILE, replacing it atomically", kinds.FILE, "FILE"),
    ),
    Subcommand(
        "top", "Show holders and waiters live",
        "Show holders and waiters live, with CPU time and memory; the key s stops the selected "
        "one.",
        ONLY_NAMES, DIR, VIA,
    ),
    Subcommand(
        "clean", "Remove idle names and files of dead processes",
        "Remove idle names (--generated: only those made from commands), and files left by dead "
        "processes. Jobs may start meanwhile.",
        ONLY_NAMES, DIR, declare("generated", "Only names that solo made from commands"),
        declare("history", "Also remove journals of names idle for DURATION", AGE, "DURATION"),
    ),
    Subcommand(
        "doctor", "Check the machine, crontabs or units",
        "Check that this machine and user, and with --via the engine, have all that solo needs; "
        "with --crontab or --unit check FILEs, see solo(7). The status is 1 if a check fails. "
        "With --fix, as root, make a place for the names of the given users, else of all "
        "without a home directory of their own.",
        Names(
            "Crontabs or units, or directories of them; - is standard input. With --fix users.",
            "[FILE]...",
        ),
        DIR, VIA,
        declare("crontab", "Check crontabs: FILEs, or those of cron", excludes=("unit", "fix")),
        declare("unit", "Check units: FILEs, names, or the local ones"),
        declare(
            "fix", "Make places for users without a home", excludes=("unit", "dir", "via", "json"),
        ),
        JSON,
    ),
)
# fmt: on
SUBCOMMANDS = {one.name: one for one in TABLE}
