"""Every option and subcommand, declared once: parser, --help, completions and manual are made from these tables."""


class Option:
    """One option: how it is typed, what its value is, and the sentence that explains it everywhere.

    `kind` is one of flag, name, backend, directory, file, duration, count, limit (a count or a duration), status (0-255): it decides
    how a value is read, completed and tested. `many` lets it be repeated; `variable` is its environment variable; `keyword` that of
    solo.run(), None if it has none. It needs one of the flags `needs` beside it, and goes with none of the flags `excludes`.
    """

    __slots__ = ("excludes", "flag", "help", "keyword", "kind", "many", "metavar", "needs", "short", "variable")

    def __init__(self, flag, short, kind, metavar, help, many=False, variable=None, needs=(), excludes=(), keyword=""):
        self.flag = flag
        self.short = short
        self.kind = kind
        self.metavar = metavar
        self.help = help
        self.many = many
        self.variable = variable
        self.needs = needs
        self.excludes = excludes
        self.keyword = self.key if keyword == "" else keyword

    @property
    def key(self):
        return self.flag.replace("-", "_")


KEEPERS = FILE, SOCKET = ("file", "socket")  # of the lock, for --via

NAME = Option(
    "name", "n", "name", "NAME", many=True,
    help="What to guard; repeat it to hold several names. a/b nests: holding a excludes a/b and a/c, which run together."
    " Default: a name made from the command and its arguments.",
)
DIR = Option(
    "dir", None, "directory", "DIR", variable="SOLO_DIR", keyword="directory",
    help="Where names live. Default: SOLO_DIR, else /run/solo for root and ~/.local/state/solo for others.",
)
VIA = Option(
    "via", None, "backend", "WHERE", variable="SOLO_VIA",
    help="Who keeps the lock: file (default), or socket, which needs no file at all; or beyond this machine an engine, as"
    " etcd://h1,h2,h3/prefix, postgresql://..., zookeeper://h1,h2/chroot, redis://..., or a target of /etc/solo.toml."
    " Default: SOLO_VIA.",
)
TTL = Option(
    "ttl", None, "duration", "DURATION", needs=("via",),
    help="With an engine: how long it keeps the lock for us when it hears nothing of us (15s). The command is dead before that.",
)
FLOCK = Option(
    "flock", None, "file", "PATH", many=True,
    help="Also hold flock(2) on the file or directory PATH, so that flock(1) and solo exclude each other; with --shared or"
    " --slots a shared one. Created empty if it is missing, never written to, never removed. Implies --no-orphan.",
)
SHARED = Option("shared", "s", "flag", None, excludes=("slots",), help="Run together with others that are shared.")
SLOTS = Option("slots", None, "count", "N", help="Let at most N run at once.")
TAKE = Option("take", None, "count", "K", needs=("slots",), help="Count as K of the N slots instead of one.")
WAIT = Option(
    "wait", "w", "duration", "DURATION",
    help="If busy, stand in line that long (500ms, 30, 30s, 5m, 1h30m, 2d, or forever).",
)
MAX_WAITING = Option(
    "max-waiting", None, "count", "N", needs=("wait",), excludes=("latest", "replace"),
    help="Leave as busy if N stand in line already.",
)
LATEST = Option(
    "latest", None, "flag", None, needs=("wait",), excludes=("replace",),
    help="The newest in line wins: those who stand there already leave as busy.",
)
REPLACE = Option(
    "replace", None, "flag", None,
    help="End the holder and those in line, then run. They get SIGTERM, and after --kill-after SIGKILL.",
)
BUSY_EXIT = Option(
    "busy-exit", "E", "status", "CODE", keyword=None,
    help="Exit with CODE instead of 75 when busy.",
)
QUIET = Option("quiet", "q", "flag", None, keyword=None, help="Say nothing when busy.")
LOUD_AFTER = Option(
    "loud-after", None, "limit", "N|DURATION", keyword=None,
    help="After N skips in a row, or once the holder has run that long (6h), --quiet and --busy-exit stop applying.",
)
TIMEOUT = Option(
    "timeout", "t", "duration", "DURATION",
    help="End the command after that long: SIGTERM, and after --kill-after SIGKILL. The exit status is 124.",
)
KILL_AFTER = Option(
    "kill-after", "k", "duration", "DURATION", needs=("timeout", "replace", "tree", "via"),
    help="How long after SIGTERM comes SIGKILL (10s; where the lease of an engine is lost, a fifth of --ttl).",
)
ONCE_PER = Option(
    "once-per", None, "duration", "DURATION",
    help="Run at most once in each period of that length, on all hosts together with an engine. Who comes second exits with 0, or"
    " --busy-exit.",
)
ONCE_RETRY = Option(
    "once-retry", None, "flag", None, needs=("once-per",), help="If the command fails, it did not run in this period.",
)
TREE = Option(
    "tree", None, "flag", None,
    help="Hold the name until every descendant of the command has ended, and when it is ended, end them all.",
)
NO_ORPHAN = Option("no-orphan", None, "flag", None, help="If solo is killed (SIGKILL), the command is killed too.")
CHDIR = Option(
    "chdir", None, "directory", "DIR",
    help="Run the command in DIR. COMMAND and the paths of other options are still looked up from the current directory.",
)
SYSLOG = Option("syslog", None, "flag", None, keyword=None, help="Tell syslog of starts, skips and ends.")
VERBOSE = Option("verbose", "v", "flag", None, keyword=None, help="Tell stderr of waits, starts and ends.")
HELP = Option("help", "h", "flag", None, keyword=None, help="Show this message and exit.")
VERSION = Option("version", None, "flag", None, keyword=None, help="Show the version and exit.")
JSON = Option("json", None, "flag", None, help="Print a JSON array.")
NULL = Option(
    "null", "0", "flag", None, excludes=("json",),
    help="Print only the names, each ended by a NUL byte: for xargs -0 and other scripts.",
)
PATIENCE = Option("timeout", "t", "duration", "DURATION", help="Give up after that long, with status 75.")
STOP_KILL_AFTER = Option("kill-after", "k", "duration", "DURATION", help="How long after SIGTERM comes SIGKILL (10s).")
ALLOW_UNKNOWN = Option("allow-unknown", None, "flag", None, help="Count a name that was never used as free; else that is an error.")
WAITING = Option("waiting", None, "flag", None, help="End those who stand in line as well.")
SINCE = Option("since", None, "duration", "DURATION", help="Only what ended within that time until now (12h, 7d).")
OUTPUT = Option("output", None, "file", "FILE", help="Put them into FILE, which always is whole for those who read it.")
HISTORY = Option("history", None, "duration", "DURATION", help="Forget as well what ran, of names that nobody used for that long.")

LAUNCHER_OPTIONS = (
    NAME, DIR, VIA, FLOCK, SHARED, SLOTS, TAKE, WAIT, MAX_WAITING, LATEST, REPLACE, BUSY_EXIT, QUIET, LOUD_AFTER, TIMEOUT,
    KILL_AFTER, TREE, NO_ORPHAN, CHDIR, TTL, ONCE_PER, ONCE_RETRY, SYSLOG, VERBOSE, HELP, VERSION,
)


class Subcommand:
    """One subcommand: its name, its positional arguments as usage shows them, its options and what it does."""

    __slots__ = ("arguments", "help", "name", "options")

    def __init__(self, name, arguments, options, help):
        self.name = name
        self.arguments = arguments
        self.options = options
        self.help = help

    @property
    def needs_name(self):
        return self.arguments[:1] not in ("", "[")


SUBCOMMANDS = (
    Subcommand(
        "list", "[NAME]...", (DIR, VIA, JSON, NULL),
        "Show who holds or waits for every name, or for the given ones and what nests in them.",
    ),
    Subcommand(
        "show", "NAME...", (DIR, VIA, JSON),
        "Show all about the names: who holds them, in which processes, who stands in line, where their files are.",
    ),
    Subcommand(
        "wait", "NAME...", (DIR, VIA, PATIENCE, ALLOW_UNKNOWN),
        "Wait until nobody holds or wants the names: 0 when they are free, 75 when not in time, 125 if one was never used.",
    ),
    Subcommand(
        "stop", "NAME...", (DIR, VIA, STOP_KILL_AFTER, WAITING, ALLOW_UNKNOWN),
        "End those who hold the names, by SIGTERM and then SIGKILL, and say what was done.",
    ),
    Subcommand(
        "history", "[NAME]...", (DIR, SINCE, JSON),
        "Show every run and every skip: when it started, how long it waited and ran, and how it ended.",
    ),
    Subcommand(
        "metrics", "[NAME]...", (DIR, VIA, OUTPUT),
        "Print what is held, waits, ran, was skipped and failed, as OpenMetrics text for Prometheus.",
    ),
    Subcommand(
        "top", "[NAME]...", (DIR, VIA),
        "Show who holds and waits, live, with what their processes use; a key ends the selected one.",
    ),
    Subcommand(
        "clean", "[NAME]...", (DIR, HISTORY),
        "Remove what the dead left behind and what is idle; who comes meanwhile is not disturbed.",
    ),
    Subcommand(
        "doctor", "", (DIR, VIA, JSON),
        "Check in plain words whether this machine and user, or the engine of --via, have all that solo needs: 0, or 1 if something"
        " fails.",
    ),
)
