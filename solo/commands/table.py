"""The subcommands in a line each, and the options of hold and release; cli.py declares those of the
others.
"""

from solo import kinds
from solo.options import DIR, LAUNCHER_OPTIONS, LIMITS, OUTPUT, Option

# fmt: off
PID = Option("pid", None, kinds.PID, "PID", LIMITS, "Hold until the process PID "
                                                    "ends", excludes=("for", "fd"),
    text="Hold the names until the process PID ends, however it ends. It must be a process of the caller's user, unless "
    "the caller is root. In a script, $$ is the pid of its shell, also in a subshell; the word parent is the process that "
    "called solo.")
FD = Option("fd", None, kinds.COUNT, "FD", LIMITS, "Hold until descriptor FD is closed everywhere", excludes=("for",),
    text="Hold the names until all processes that inherited the caller's descriptor FD have closed it or ended, as the lock "
    "of flock 9 in ( ... ) 9>>FILE. FILE must be open for writing; solo writes nothing into it.")
FOR = Option("for", None, kinds.DURATION, "DURATION", LIMITS, "Hold for DURATION, or until solo release")
EXPORT = Option("export", None, kinds.FLAG, None, OUTPUT, "Print shell code that sets SOLO_TOKEN and so on",
    text="Print shell code that exports SOLO_NAME, SOLO_TOKEN and, with --slots, SOLO_SLOT. If the names were not acquired, "
    'that code fails with the status of solo. Use it as eval "$(solo hold --export ...)".')
RELEASE_PID = Option("pid", None, kinds.PID, "PID", LIMITS, "Release only the hold of the process PID",
    text="With solo release: release only the hold of the process PID.")
RELEASE_VIA = Option("via", None, kinds.LINE, "URL", LIMITS, "Remove the lock of a dead host at an engine", excludes=("pid", "dir"),
    text="With solo release: remove the locks of the names at an engine that nobody renews, as their host is dead; see "
    "solo-engines(7).")
KEPT_HELP = Option("help", "h", kinds.FLAG, None, OUTPUT, "Print this help and exit")
# fmt: on


class Kept:
    """A subcommand about kept holds: its options, what its names are, and what the manual says of
    it.
    """

    def __init__(self, names: str, text: str, *options: Option) -> None:
        self.names = names
        self.text = text
        self.options = options


OF_HOLD = "note dir shared slots wait latest replace replace-after kill-after busy-exit quiet loud-after".split()
KEPT = {
    "hold": Kept(
        "The names to hold.",
        "Hold the names until the end of --pid, --fd or --for (one is needed), or until solo release; see solo-hold(1).",
        PID, FD, FOR, *[option for option in LAUNCHER_OPTIONS if option.flag in OF_HOLD], EXPORT,
    ),
    "release": Kept("The names to release.", "Release names kept by 'solo hold'.", DIR, RELEASE_PID, RELEASE_VIA),
}  # fmt: skip

SUMMARIES = {
    "list": "List the holders and waiters of each name",
    "show": "Show the holders, processes, queue and files of a name",
    "wait": "Wait until a name is free",
    "stop": "End the holders of a name",
    "hold": "Hold names for the rest of a script, or for a time",
    "release": "Release names kept by 'solo hold'",
    "history": "Show each run and each skip",
    "metrics": "Print metrics for Prometheus",
    "top": "Show holders and waiters live",
    "clean": "Remove idle names and files of dead processes",
    "doctor": "Check the machine, crontabs or units",
}
