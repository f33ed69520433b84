"""Every option and subcommand, declared once: parser, --help, completions and manual are made from these tables."""


class Option:
    """One option: how it is typed, what its value is, and the sentence that explains it everywhere.

    `kind` is one of flag, text, path, duration, status (0-255); `many` lets it be repeated.
    """

    __slots__ = ("flag", "help", "kind", "many", "metavar", "short", "variable")

    def __init__(self, flag, short, kind, metavar, help, many=False, variable=None):
        self.flag = flag
        self.short = short
        self.kind = kind
        self.metavar = metavar
        self.help = help
        self.many = many
        self.variable = variable

    @property
    def key(self):
        return self.flag.replace("-", "_")


NAME = Option(
    "name", "n", "text", "NAME", many=True,
    help="What to guard; repeat it to hold several names. a/b nests: holding a excludes a/b and a/c, which run together."
    " Default: a name made from the command and its arguments.",
)
DIR = Option(
    "dir", None, "path", "DIR", variable="SOLO_DIR",
    help="Where names live. Default: SOLO_DIR, else /run/solo for root and ~/.local/state/solo for others.",
)
WAIT = Option(
    "wait", "w", "duration", "DURATION",
    help="If busy, stand in line that long (500ms, 30, 30s, 5m, 1h30m, 2d, or forever).",
)
BUSY_EXIT = Option(
    "busy-exit", "E", "status", "CODE",
    help="Exit with CODE instead of 75 when busy.",
)
QUIET = Option("quiet", "q", "flag", None, help="Say nothing when busy.")
VERBOSE = Option("verbose", "v", "flag", None, help="Tell stderr of waits, starts and ends.")
HELP = Option("help", "h", "flag", None, help="Show this message and exit.")
VERSION = Option("version", None, "flag", None, help="Show the version and exit.")
JSON = Option("json", None, "flag", None, help="Print a JSON array.")

LAUNCHER_OPTIONS = (NAME, DIR, WAIT, BUSY_EXIT, QUIET, VERBOSE, HELP, VERSION)


class Subcommand:
    """One subcommand: its name, its positional arguments as usage shows them, its options and what it does."""

    __slots__ = ("arguments", "help", "name", "options")

    def __init__(self, name, arguments, options, help):
        self.name = name
        self.arguments = arguments
        self.options = options
        self.help = help


SUBCOMMANDS = (
    Subcommand(
        "list", "[NAME]...", (DIR, JSON),
        "Show who holds or waits for every name, or for the given ones and what nests in them.",
    ),
)
