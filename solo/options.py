"""Options, declared once: parser, --help, completions, manual and Python keywords use this
table.
"""

from solo import kinds

GROUPS = LOCK, SHARE, BUSY, LIMITS, REMOTE, OUTPUT = (
    "What to lock",
    "How to share",
    "When busy",
    "The command and its limits",
    "Several machines",
    "Output",
)


class Option:
    """One option: how it is typed, what its value is, and how it is explained.

    `kind`, one of kinds.py, decides how a value is read, completed and tested. `many` lets it be
    repeated; `variable` is its environment variable; `keyword` that of solo.run(), None if it has
    none. It needs one of the flags `needs` beside it, and goes with none of the flags `excludes`.
    `group` is its heading in --help, `help` its line there, and `text` what the manual says of it,
    by default the same. Its `part` is what may follow its value after a comma.
    """

    __slots__ = (
        "excludes flag group help key keyword kind many metavar needs part short text title "
        "variable"
    ).split()

    # fmt: off
    def __init__(
        self, flag: str, short: "str | None", kind: kinds.Kind, metavar: "str | None", group: str, help: str, text: str = "",
        many: bool = False, variable: "str | None" = None, needs: "tuple[str, ...]" = (),
        excludes: "tuple[str, ...]" = (), keyword: "str | None" = "", part: "Option | None" = None,
    ) -> None:
        # fmt: on
        self.flag = flag
        self.short = short
        self.kind = kind
        self.metavar = metavar
        self.group = group
        self.help = help
        self.text = text or f"{help}."
        self.many = many
        self.variable = variable
        self.part = part
        self.needs = needs
        self.excludes = excludes
        self.title = f"--{flag}"  # in messages
        self.key = flag.replace("-", "_")
        self.keyword = self.key if keyword == "" else keyword
        if part is not None:
            part.title = f"{part.metavar} of --{flag}"
            part.needs = (flag,)
            self.metavar = f"{metavar}[,{part.metavar}]"


def make_part(
    flag: str, kind: kinds.Kind, metavar: str, excludes: "tuple[str, ...]" = ()
) -> Option:
    """Return the part of another option. Earlier releases had it as an option of its own, which is
    still accepted.
    """
    return Option(flag, None, kind, metavar, "", "", excludes=excludes)


# fmt: off
LOCAL_BACKENDS = FILE, SOCKET = ("file", "socket")  # of the lock, for --via

NAME = Option("name", "n", kinds.NAME, "NAME", LOCK, "Lock NAME (may be repeated); x/y is nested in x", many=True,
    text="Lock NAME; repeat it to hold several names. Names nest: x excludes x/y and x/z, which can run together. Default: "
    "names made from the command and its arguments; see solo(7).")
DIR = Option("dir", None, kinds.DIRECTORY, "DIR", LOCK, "Use DIR as the directory of names", variable="SOLO_DIR",
    keyword="directory",
    text="Keep the names in DIR. Default: SOLO_DIR, else /run/solo for root and ~/.local/state/solo for other users.")
VIA = Option("via", None, kinds.BACKEND, "WHERE", REMOTE, "Lock backend: file, socket, engine URL or name",
    variable="SOLO_VIA",
    text="Choose the backend that keeps the lock: file, or socket, which needs no file at all. To lock on several "
    "machines, choose an engine: by URL, as etcd://h1,h2,h3/prefix, postgresql://..., zookeeper://h1,h2/chroot, "
    "redis://... or s3://bucket/prefix, or by its name in solo.toml (see FILES). Default: SOLO_VIA, else file.")
TTL = Option("ttl", None, kinds.DURATION, "DURATION", REMOTE, "Life of an engine's lease after a renewal (15s)",
    needs=("via",),
    text="Let the engine keep the lock DURATION (15s) after each renewal. If renewals fail, the command is ended before "
    "this time is over.")
FLOCK = Option("flock", None, kinds.FILE, "PATH", LOCK, "Lock PATH by flock(2) too, as flock(1) does", many=True,
    text="Also lock the file or directory PATH by flock(2), so that flock(1) and solo exclude each other; with --shared or "
    "--slots the lock is shared. If the file is missing, solo creates it empty. solo never writes to it and never "
    "removes it. Implies --no-orphan, unless with --tree.")
FCNTL = Option("fcntl", None, kinds.FILE, "PATH", LOCK, "Lock PATH by fcntl(2) too, as lckdo does", many=True,
    text="As --flock, but lock the file PATH by fcntl(2), as lckdo, s6-setlock and lockf(3) do; see solo(7).")
NOTE = Option("note", None, kinds.NOTE, "TEXT", LOCK, "Show TEXT in list, show, history and when busy",
    text="Show TEXT in list, show, history and when busy (200 characters).")
SHARED = Option("shared", "s", kinds.FLAG, None, SHARE, "Share NAME with other shared holders", excludes=("slots",))
SLOTS = Option("slots", None, kinds.COUNT, "N", SHARE, "Let at most N hold NAME; occupy K slots (1)",
    part=make_part("take", kinds.COUNT, "K"),
    text="Let at most N hold NAME at once. With K, occupy K of the N slots instead of one.")
WAIT = Option("wait", "w", kinds.DURATION, "DURATION", BUSY, "Wait up to DURATION (1h, forever) unless N wait",
    part=make_part("max-waiting", kinds.COUNT, "N", excludes=("latest", "replace")),
    text="Wait up to DURATION in the queue (500ms, 30 = 30s, 1h30m, forever). With N, exit as busy if N waiters are in the "
    "queue already.")
LATEST = Option("latest", None, kinds.FLAG, None, BUSY, "Make all earlier waiters exit as busy", needs=("wait",),
    excludes=("replace",),
    text="Make all earlier waiters exit with the busy status.")
REPLACE = Option("replace", None, kinds.FLAG, None, BUSY, "First end the holder and waiters in the way",
    text="First end the holder and the waiters in the way (see --kill-after).")
REPLACE_AFTER = Option("replace-after", None, kinds.LIMIT, "N|DURATION", BUSY, "Replace after N skips, or if held for DURATION",
    excludes=("max-waiting", "latest", "replace"),
    text="Replace after N skips in a row, or once the holder has run for DURATION; see solo(7). A bare number is N, as in "
    "--loud-after.")
BUSY_EXIT = Option("busy-exit", "E", kinds.STATUS, "CODE", BUSY, "Exit with CODE instead of 75 when busy", keyword=None)
QUIET = Option("quiet", "q", kinds.FLAG, None, BUSY, "Print nothing when busy", keyword=None)
LOUD_AFTER = Option("loud-after", None, kinds.LIMIT, "N|DURATION", BUSY, "Ignore -q, -E after N skips or if held DURATION",
    needs=("quiet", "busy-exit", "notify"), keyword=None,
    text="Ignore --quiet and --busy-exit after N skips in a row, or once the holder has run for DURATION. Every later skip "
    "is reported too.")
TIMEOUT = Option("timeout", "t", kinds.DURATION, "DURATION", LIMITS, "End COMMAND after DURATION by SIG; status 124",
    part=make_part("signal", kinds.SIGNAL, "SIG"),
    text="End the command after DURATION: SIGTERM, or SIG (INT, SIGINT or 2), and after --kill-after SIGKILL. The exit "
    "status is 124.")
KILL_AFTER = Option("kill-after", "k", kinds.DURATION, "DURATION", LIMITS, "Time from SIGTERM to SIGKILL (10s)",
    needs=("timeout", "replace", "replace-after", "tree", "via"),
    text="Wait DURATION between SIGTERM and SIGKILL. Default: 10s, or a fifth of --ttl when the lease of an engine is "
    "lost.")
ONCE_PER = Option("once-per", None, kinds.AGE, "DURATION", LIMITS, "Run once per DURATION; retry: until it succeeds",
    part=make_part("once-retry", kinds.FLAG, "retry"),
    text="Run once per DURATION on average, however often started; with an engine, on one of all hosts. A later start in the period (see "
    "Once in a period) exits with status 0, or CODE of --busy-exit, and prints nothing. A run that was not executed does not "
    "count, nor, with the word retry, a failed one.")
TREE = Option("tree", None, kinds.FLAG, None, LIMITS, "Wait for all descendants, and signal them too",
    text="Hold the name until every descendant of the command has ended. When solo ends the command, it ends all "
    "descendants too.")
NO_ORPHAN = Option("no-orphan", None, kinds.FLAG, None, LIMITS, "Kill the command if solo is killed",
    text="Let the kernel kill the command if solo dies, even by SIGKILL. With --tree solo then kills its descendants too.")
CHDIR = Option("chdir", None, kinds.DIRECTORY, "DIR", LIMITS, "Run the command in DIR",
    text="Run the command in DIR. COMMAND and the paths of other options are still looked up from the current directory.")
SYSLOG = Option("syslog", None, kinds.FLAG, None, OUTPUT, "Log starts, skips and ends to syslog", keyword=None,
    text="Log starts, skips and ends to syslog; see solo(7).")
NOTIFY = Option("notify", None, kinds.LINE, "LINE", OUTPUT, "Run shell command LINE after a skip or bad end",
    text="Run the shell command LINE after a skip or a bad end; see solo(7).")
CAPTURE = Option("capture", None, kinds.CAPTURE, "WHEN[,SIZE]", OUTPUT, "failed: print output if it fails; keep: never",
    keyword=None,
    text="With failed, print the command's output, stdout and stderr in one order, only if the run fails; with keep, print "
    "nothing. Either way a file keeps the first and the last half of SIZE (64k) of it; see solo(7).")
NOTIFY_ON = Option("notify-on", None, kinds.ON, "EVENT,...", OUTPUT, "Events of --notify (failed,skipped,overdue)",
    needs=("notify",),
    text="Run LINE at these events: failed, skipped, overdue (by default these), ended (also a success), started.")
VERBOSE = Option("verbose", "v", kinds.FLAG, None, OUTPUT, "Print waits, starts and ends to stderr", keyword=None)
EXPLAIN = Option("explain", None, kinds.FLAG, None, OUTPUT, "Run nothing; print names, holders, outcome", keyword=None,
    text="Run nothing and change nothing: print what a run would do now, and why. The exit status is that of the run, 0 if it "
    "would run or wait.")
JSON = Option("json", None, kinds.FLAG, None, OUTPUT, "Print what --explain finds as JSON", needs=("explain",), keyword=None)
HELP = Option("help", "h", kinds.FLAG, None, OUTPUT, "Print this help and exit; -h: one screen of it", keyword=None,
    text="Print help and exit; -h prints one screen of it.")
VERSION = Option("version", None, kinds.FLAG, None, OUTPUT, "Print the version and exit", keyword=None)
LAUNCHER_OPTIONS = (
    NAME, DIR, VIA, FLOCK, FCNTL, NOTE, SHARED, SLOTS, WAIT, LATEST, REPLACE, REPLACE_AFTER, BUSY_EXIT, QUIET,
    LOUD_AFTER, TIMEOUT, KILL_AFTER, TREE, NO_ORPHAN, CHDIR, TTL, ONCE_PER, SYSLOG, CAPTURE, NOTIFY, NOTIFY_ON, VERBOSE, EXPLAIN, JSON, HELP,
    VERSION,
)
# fmt: on
PARTS = tuple([option.part for option in LAUNCHER_OPTIONS if option.part is not None])
EVERY_OPTION = (*LAUNCHER_OPTIONS, *PARTS)
SKIP_LIMITS = (LOUD_AFTER, REPLACE_AFTER)  # a number of skips, or a duration

# A run compares its first word with these; commands/cli.py declares each.
SUBCOMMAND_NAMES = "list show wait stop hold release history check metrics top clean doctor".split()
