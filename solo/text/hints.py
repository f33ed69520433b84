"""Hints for users of flock(1) and other tools: what to type instead of their options and words. For
errors only.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from solo.kernel import say
from solo.options import LAUNCHER_OPTIONS, PARTS, SUBCOMMAND_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.commands.cli import Subcommand

# The answer to `solo` alone.
INTRODUCTION = b"""\
solo: no command given
solo runs a command so that it never runs twice at once. In a crontab:

    */5 * * * * solo -n backup -- backup.sh --full

See solo --help, man solo, and solo doctor, which checks this machine.
"""
# Options of flock(1) that solo does not have.
FLOCK_OPTIONS = {
    "-x -e --exclusive": "a hold is exclusive by default; -s makes it shared",
    "-c --command": "for a line of shell type: solo -- sh -c 'LINE'",
    "-o --close": "COMMAND never inherits the lock, so it is not needed",
    "-F --no-fork": "solo always forks, so that it can release the lock when COMMAND ends",
    "-u --unlock": "the lock is released when COMMAND ends; solo stop NAME ends it earlier",
    "--nb --nonblock": "solo waits only with --wait",
}
# Options that people type in vain, another option of the same command, and what to type; the first
# row that fits.
MISTAKES = (
    ("--lockf --posix", "--fcntl", "did you mean --fcntl?"),
    ("-V", "-v", "did you mean --version?"),
    ("-f --file --lock --lockfile", "--flock", "did you mean --flock? -n NAME needs no file"),
    ("--nowait --no-wait", "--wait", "solo waits only with --wait"),
    ("--block --blocking", "--wait", "did you mean --wait forever?"),
    ("--retry --retries", "--once-per", "solo repeats no command"),
    ("--every --interval", "--once-per", "solo starts nothing by itself: cron and systemd do"),
    ("-j -P -N --jobs --max --limit --concurrency", "--slots", "did you mean --slots?"),
    ("--force --kill", "--replace", "did you mean --replace?"),
    ("-C --cd --cwd --workdir", "--chdir", "did you mean --chdir?"),
    ("--dry-run --dryrun --test", "--explain", "did you mean --explain?"),
    ("--silent", "--quiet", "did you mean --quiet?"),
    ("--mail", "--notify", "cron mails what is printed, --notify runs a line"),
    ("--user", "--chdir", "type: runuser -u USER -- solo ..."),
    ("-d --daemon --background", "--chdir", "solo waits for the command: & of a shell does not"),
    ("--output --log --logfile", "--capture", "did you mean --capture? COMMAND >>FILE keeps all"),
    ("-o", "--output", "did you mean --output?"),
    ("-n", "--limit", "did you mean --limit? A name is typed as it is: solo history NAME"),
    ("--tail --last --lines", "--limit", "did you mean --limit?"),
    ("--errors --failures", "--failed", "did you mean --failed?"),
    ("-n --name", "--dir", "type the NAME alone, without an option"),
    ("-w -c --warning --critical", "--within", "did you mean --within 25h,26h?"),
    ("--watch --follow", "--null", "did you mean solo top?"),
    ("--format", "--json", "did you mean --json?"),
    ("-t --timeout", "--waiting", "did you mean --kill-after?"),
    ("-a", "--all", "did you mean --all?"),
    ("-w --wait", "--allow-unknown", "did you mean --timeout?"),
    ("--all --pid", "--allow-unknown", "type each NAME: solo list shows them"),
    ("--all", "--pid", "type each NAME: solo list shows them"),
    ("--all", "--history", "it is the default"),
    ("--holders --waiting", "--null", "both are listed"),
    ("-9 -s -f --signal --force", "--waiting", "to end it at once: -k 0"),
    # of -port=N of another program named solo, which binds a port
    ("-p", "-n", "no port is needed: solo -- COMMAND; -n NAME chooses the name of the lock"),
)
# Words of other tools, by solo's subcommands.
OTHER_WORDS = {
    "show": "status info inspect",
    "list": "ls ps locks jobs queue",
    "stop": "kill end cancel",
    "release": "unlock resume",
    "hold": "keep pause",
    "history": "log logs",
    "clean": "prune delete remove rm",
    "--help": "help",
    "--explain": "explain dry-run",
    "--timeout DURATION,SIG": "KILL TERM INT",
    "--version": "version",
    "-- COMMAND": "run exec lock start",
}
MEANINGS = {word: f"solo {meant}" for meant, words in OTHER_WORDS.items() for word in words.split()}
# Options of a guarded run that `solo hold` cannot have, by the reason.
HOLD_REASONS = {
    "an engine could not end the process before its lease is over, and a socket ends with its "
    "process": "--via",
    "an engine could not end the process before its lease is over": "--ttl",
    "no descriptor of solo stays open": "--flock --fcntl",
    "solo does not end the process; --for limits the hold": "--timeout",
    "solo runs no command": "--tree --no-orphan --chdir --once-per",
    "the script gets the status, and can report it": "--notify --syslog",
    "nothing runs; solo list shows the hold": "--verbose",
    "type the name as it is: solo hold --pid PID NAME": "--name",
}
SHELL_WORDS = (
    "cd export source . : eval set unset ulimit umask alias exec trap read shift exit if for while "
    "case [["
).split()
SHELL_SIGNS = frozenset(" ;|&<>$`*")
UNITS_OF_TIME = frozenset(
    "s sec secs second seconds m min mins minute minutes h hour hours d day days".split()
)
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
SHORTEST_GUESS = 3  # letters
ALIKE = 0.65  # below it the nearest word is another one: --flock for --nonblock


def explain_missing_command(word: str, folders: str, following: str) -> str:
    """Return ` (HINT)` about the probable meaning of a word that is no program in `folders`, the
    PATH, "" for a path; else the PATH.
    """
    hint = guess_meaning(word, following)
    if hint:
        return f" ({hint})"
    guess = suggest(word, SUBCOMMAND_NAMES, "solo ")
    return guess or (f" (in the PATH {folders})" if word and folders else "")


def guess_meaning(word: str, following: str) -> str:
    if word == "help" and following in SUBCOMMAND_NAMES:
        return f"did you mean solo {following} -h?"
    if word in MEANINGS:
        return f"it was taken as COMMAND; did you mean {MEANINGS[word]}?"
    if word in SHELL_WORDS:
        return "it is a word of the shell: use sh -c"
    if word and word[0] in DASHES:
        return "it starts with a typographic dash, which was taken as COMMAND: type -"
    if word[:1] == "-":
        return "it was taken as COMMAND: options come first, then --, then COMMAND"
    if word.lower() in UNITS_OF_TIME:
        return "it was taken as COMMAND; a duration is one word, like 30s, 5m, 2h"
    if following == "--":
        return "it was taken as COMMAND; a name needs -n, a value with blanks quotes or a comma"
    if not SHELL_SIGNS.isdisjoint(word):
        return "it is a line for the shell: use sh -c"
    if "=" in word:
        return "to set a variable use env"
    return f"did you mean ./{word}?" if word and os.path.isfile(word) else ""


def explain_refused_command(path: str) -> str:
    """Return ` (HINT)` for a file that nobody may execute."""
    is_plain = os.path.isfile(path) and not os.stat(path).st_mode & 0o111
    return f" (chmod +x {path})" if is_plain else ""


def explain_lock_file(word: str, following: str) -> str:
    """Return a hint if `solo FILE COMMAND` was typed as for flock(1): FILE looks like a lock file,
    or is empty.
    """
    try:
        is_lock = not os.stat(word).st_size
    except (OSError, ValueError):
        is_lock = False
    is_lock = (
        is_lock or ("/" in word and "lock" in word) or word.endswith((".lock", ".lck", ".pid"))
    )
    return (
        f" (solo needs no lock file, as flock(1) does: solo -- {following} ...)"
        if following and is_lock
        else ""
    )


def explain_option(
    flag: str, known: "Collection[str]", subcommands: "Mapping[str, Subcommand]"
) -> str:
    """Return ` (HINT)` about the probable meaning of an option that is not `known`, or where the
    known ones are.
    """
    if "--for" in known:
        long = next(
            (f"--{option.flag}" for option in LAUNCHER_OPTIONS if flag == f"-{option.short}"), flag
        )
        for reason, options in HOLD_REASONS.items():
            if long in options.split():
                return f" of solo hold ({reason})"
    for flags, beside, hint in MISTAKES:
        if flag in flags.split() and beside in known:
            return f" ({hint})"
    for flags, hint in FLOCK_OPTIONS.items():
        if flag in flags.split() and "--flock" in known:
            return f" (of flock(1): {hint})"
    earlier = [f"--{part.flag}" for part in PARTS]
    return (
        find_subcommand(flag, subcommands)
        or suggest(flag, [one for one in known if one not in earlier])
        or " (--help lists the options)"
    )


def find_subcommand(flag: str, subcommands: "Mapping[str, Subcommand]") -> str:
    """Return ` (did you mean solo SUBCOMMAND --OPTION?)` for an option of another subcommand; else
    "".
    """
    for name, one in subcommands.items():
        if flag in [f"--{option.flag}" for option in one.options]:
            return f" (did you mean solo {name} {flag}?)"
    return ""


def report_earlier_spellings(words: "list[str]") -> None:
    """On a terminal print what find_earlier_spellings yields: not in the mail of cron."""
    for text in find_earlier_spellings(words) if os.isatty(2) else ():
        say(text)


def find_earlier_spellings(words: "Iterable[str]") -> "Iterator[str]":
    """Yield how an option among `words` is typed now that is the part of another."""
    flags = {word.partition("=")[0] for word in words}
    for option in LAUNCHER_OPTIONS:
        if option.part and f"--{option.part.flag}" in flags:
            part = option.part
            yield f"--{part.flag} is {part.title} now: --{option.flag} {option.metavar}"


def suggest(word: str, words: "Collection[str]", prefix: str = "") -> str:
    """Return ` (did you mean X?)` if one of `words` looks like `word`; else ""."""
    from difflib import get_close_matches

    if len(word) < SHORTEST_GUESS or "/" in word:
        return ""
    bare = {valid.lstrip("-"): valid for valid in words}
    near = [longer for longer in words if longer.startswith(word)]
    near += [bare[valid] for valid in get_close_matches(word.lstrip("-"), bare, 1, ALIKE)]
    return f" (did you mean {prefix}{near[0]}?)" if near else ""
