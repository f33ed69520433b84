"""Rewrite the lists of options, subcommands and statuses in the manual and the completions: `python packaging/tables.py FILE...`.

They come from options.py and the table in cli.py. In a FILE they are the lines between `made from TABLE` and
`end`; the rest of it is left alone. No shell runs a name: the completions read names NUL-terminated, compare them as text
and quote them for the command line.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from solo.commands.cli import SUBCOMMANDS, Subcommand
from solo.commands.dispatch import OF_SCRIPTS
from solo.errors import EXIT_STATUSES
from solo.kinds import list_signals
from solo.options import GROUPS, LAUNCHER_OPTIONS, LOCAL_BACKENDS, SUBCOMMAND_NAMES, Option

BACKENDS = " ".join(LOCAL_BACKENDS)
SIGNALS = " ".join(
    name[3:] for name in list_signals() if name != "SIGSTKFLT"
)  # which Python 3.10 lacks


class Typed:
    """An option as it is typed: its `flags`, long ones first, its metavar, what completes its value, and its help."""

    def __init__(self, option: Option) -> None:
        self.long = f"--{option.flag}"
        self.short = f"-{option.short}" if option.short else ""
        self.flags = [flag for flag in (self.long, self.short) if flag]
        self.metavar = option.metavar
        self.value = option.kind.completes
        self.help = option.help
        self.many = option.many


def list_typed(options: Iterable[Option]) -> list[Typed]:
    return [Typed(one) for one in options]


def offer(one: Subcommand) -> str:
    """Return what completes the words of a subcommand, as a Kind says it."""
    return "files" if one.names.are_files else "names"


RUN = list_typed(LAUNCHER_OPTIONS)

# --- the manual --------------------------------------------------------------------------------------------------


def make_options() -> str:
    """Return a list for each group of the options of a run, as --help has them."""
    lists = [
        make_manual([one for one in LAUNCHER_OPTIONS if one.group == group], LAUNCHER_OPTIONS)
        for group in GROUPS
    ]
    return "".join(
        f".Ss {group}\n.Bl -tag -width 4n\n{items}.El\n" for group, items in zip(GROUPS, lists)
    )


def make_manual(options: Iterable[Option], beside: Iterable[Option]) -> str:
    """Return the entries of these options of options.py, with their rules `beside` others."""
    return "".join(
        f".It {format_flags(*list_typed([one]))}\n"
        + format_text(one.text + describe_rules(one, beside))
        for one in options
    )


def describe_rules(option: Option, beside: Iterable[Option]) -> str:
    """Return which other options this one needs, and which exclude it, as argv checks it."""
    needs = [f"--{flag}" if flag != "via" else "an engine" for flag in option.needs]
    others = [one for whole in beside for one in (whole, whole.part) if one is not None]
    excluded = [
        one.title for one in others if one.flag in option.excludes or option.flag in one.excludes
    ]
    return (f" Needs {join(needs, 'or')}." if needs else "") + (
        f" Excludes {join(excluded, 'and')}." if excluded else ""
    )


def join(words: list[str], last: str) -> str:
    return ", ".join(words[:-1]) + f" {last} " * (len(words) > 1) + words[-1]


def format_flags(option: Typed) -> str:
    short = f"Fl {option.short[1:]} , " if option.short else ""
    return f"{short}Fl {option.long[1:]}" + (f" Ar {option.metavar}" if option.metavar else "")


def format_text(text: str) -> str:
    """Return the text with one sentence per line, as mdoc wants it."""
    return text.replace(". ", ".\n").replace("\\", "\\e") + "\n"


def format_usage(one: Subcommand) -> str:
    if one.name == "hold":
        return "Ar OPTION ... NAME ..."  # solo-hold(1) has them
    # The text below has --dir and --via.
    shown = [option for option in one.options if option.flag not in ("dir", "via")]
    options = "".join(f"Oo {format_flags(Typed(option))} Oc " for option in shown)
    words = f"Ar {one.names.metavar.strip('[].')} ..."
    return options + (f"Oo {words} Oc" if one.names.may_lack else words)


def make_subcommands() -> str:
    return "".join(
        f".It Nm Cm {one.name} {format_usage(one)}\n{format_text(one.text)}"
        for one in SUBCOMMANDS.values()
    )


def make_hold() -> str:
    """Return the options that only `solo hold` and `solo release` have."""
    kept = [SUBCOMMANDS[name].options for name in OF_SCRIPTS]
    return "".join(
        make_manual([one for one in options if one not in LAUNCHER_OPTIONS], options)
        for options in kept
    )


def make_statuses() -> str:
    return "".join(f".It {status}\n{meaning}\n" for status, meaning in EXIT_STATUSES)


# --- completions -------------------------------------------------------------------------------------------------


def make_bash() -> str:
    values: dict[str, dict[str, None]] = {}
    for option in [
        *RUN,
        *(Typed(option) for one in SUBCOMMANDS.values() for option in one.options),
    ]:
        values.setdefault(option.value, {}).update(dict.fromkeys(option.flags))
    del values[""]
    kinds = "".join(f"    {'|'.join(flags)}) values={kind} ;;\n" for kind, flags in values.items())
    cases = "".join(
        f"    {one.name}) flags='{join_flags(list_typed(one.options))}' names={offer(one)} ;;\n"
        for one in SUBCOMMANDS.values()
    )
    return f"""_solo_flags='{join_flags(RUN)}'
_solo_subcommands='{" ".join(SUBCOMMAND_NAMES)}'
_solo_backends='{BACKENDS}'
_solo_signals='{SIGNALS}'

# What follows option $1: sets `values`, to nothing for an option without a value.
_solo_find_values() {{
    case $1 in
{kinds}    *) values= ;;
    esac
}}

# The options of subcommand $1 and what its words are: sets `flags` and `names`. Status 1: it is none.
_solo_find_flags() {{
    case $1 in
{cases}    *) return 1 ;;
    esac
}}
"""


def join_flags(options: list[Typed]) -> str:
    return " ".join(flag for option in options for flag in option.flags)


ZSH_VALUES = {
    "directories": "_files -/",
    "files": "_files",
    "backends": f"({BACKENDS})",
    "signals": f"({SIGNALS})",
    "names": "_solo_names",
    "nothing": " ",
}


def make_zsh() -> str:
    names = " ".join(f"'{name}:{escape_zsh(one.summary)}'" for name, one in SUBCOMMANDS.items())
    cases = "".join(
        f"    {one.name}) _arguments -s -S {join_zsh(list_typed(one.options))}"
        f" '*:{offer(one)[:-1]}:{ZSH_VALUES[offer(one)]}' ;;\n"
        for one in SUBCOMMANDS.values()
    )
    return f"""_solo_command() {{
    local -a subcommands
    subcommands=({names})
    _describe subcommand subcommands
    [[ -z $PREFIX ]] || _command_names -e
}}
_solo_rest() {{
    case $words[1] in
{cases}    *) _normal ;;
    esac
}}
_arguments -s -S {join_zsh(RUN)} \\
    '(-):command:_solo_command' \\
    '*::argument:_solo_rest'
"""


def join_zsh(options: list[Typed]) -> str:
    """Return the words for _arguments, one per line."""
    lines = []
    for option in options:
        value = f":{option.metavar}:{ZSH_VALUES[option.value]}" if option.value else ""
        head = "'*'" if option.many else f"'({' '.join(option.flags)})'"
        flags = [
            flag + ("" if not value else "=" if flag[:2] == "--" else "+") for flag in option.flags
        ]
        tails = "{" + ",".join(flags) + "}" if len(flags) > 1 else flags[0]
        lines.append(f"{head}{tails}'[{escape_zsh(option.help)}]{value}'")
    return " ".join(f"\\\n    {line}" for line in lines)


def escape_zsh(text: str) -> str:
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


FISH_VALUES = {
    "": "",
    "directories": " -x -a '(__fish_complete_directories)'",
    "files": " -r -F",
    "backends": f" -x -a '{BACKENDS}'",
    "signals": f" -x -a '{SIGNALS}'",
    "names": " -x -a '(__solo_names)'",
    "nothing": " -x",
}


def make_fish() -> str:
    lines = [format_fish("__fish_use_subcommand", option) for option in RUN]
    for one in SUBCOMMANDS.values():
        typed = f"'__fish_seen_subcommand_from {one.name}'"
        summary = quote_fish(one.summary)
        words = " -F" if offer(one) == "files" else " -f -a '(__solo_names)'"
        lines.append(f"complete -c solo -n __fish_use_subcommand -a {one.name} -d {summary}")
        lines.append(f"complete -c solo{words} -n {typed}")
        lines += [format_fish(typed, Typed(option)) for option in one.options]
    return "\n".join(lines) + "\n"


def format_fish(condition: str, option: Typed) -> str:
    short = f" -s {option.short[1:]}" if option.short else ""
    value = FISH_VALUES[option.value]
    return f"complete -c solo -n {condition}{short} -l {option.long[2:]}{value} -d {quote_fish(option.help)}"


def quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


TABLES = {
    "options": make_options,
    "subcommands": make_subcommands,
    "statuses": make_statuses,
    "hold": make_hold,
    "bash": make_bash,
    "zsh": make_zsh,
    "fish": make_fish,
}
MARKED = re.compile(r'(?ms)^(.\\"|#) made from (\w+)\n(.*?)^(?=\1 end\n)')


def rewrite(text: str) -> str:
    """Return the text of a file with every table made anew."""
    return MARKED.sub(lambda found: f"{found[1]} made from {found[2]}\n{TABLES[found[2]]()}", text)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path) as file:
            text = rewrite(file.read())
        with open(path, "w") as file:
            file.write(text)
