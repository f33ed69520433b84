"""Shell completions, generated from the tables of options.py: `python -m solo.generate.completions bash|zsh|fish`.

A name may contain any byte except NUL, also text that a shell would run. So the completions read names NUL-terminated,
compare them as text and quote them for the command line; no shell expands them.
"""

import sys

from solo.commands.table import SUBCOMMANDS
from solo.kinds import FLAG, list_signals
from solo.options import LAUNCHER_OPTIONS, LOCAL_BACKENDS

SIGNALS = " ".join(name[3:] for name in list_signals())
LIST_NAMES = "solo list --null 2>/dev/null"


def list_flags(options) -> list:
    """Return the flags of the options, long and short."""
    return [flag for option in options for flag in (f"--{option.flag}", option.short and f"-{option.short}") if flag]


def find_offered(subcommand) -> str:
    """Return what completes the words of a subcommand, a word of kinds.py; "" if it has none."""
    return "files" if subcommand.takes_files else "names" if subcommand.arguments else ""


def make_bash() -> str:
    values = {}
    for options in (LAUNCHER_OPTIONS, *(subcommand.options for subcommand in SUBCOMMANDS)):
        for option in options:
            for flag in list_flags([option]):
                values.setdefault(option.kind.completes, {})[flag] = True
    del values[""]
    kinds = "\n".join(f"    {'|'.join(flags)}) values={kind} ;;" for kind, flags in values.items())
    cases = "\n".join(
        f"    {subcommand.name}) flags='{' '.join(list_flags(subcommand.options))}' names={find_offered(subcommand)} ;;"
        for subcommand in SUBCOMMANDS
    )
    names = " ".join(subcommand.name for subcommand in SUBCOMMANDS)
    return BASH % {
        "values": kinds,
        "cases": cases,
        "flags": " ".join(list_flags(LAUNCHER_OPTIONS)),
        "subcommands": names,
        "backends": " ".join(LOCAL_BACKENDS),
        "signals": SIGNALS,
        "list": LIST_NAMES,
    }


BASH = r"""# bash completion for solo

# Offer each of "$@" that starts with $word, quoted the way that $word is.
_solo_offer() {
    local one quoted typed=${word#[\'\"]} cut=
    [[ $word != *[:=]* ]] || cut=${word%%"${word##*[:=]}"}  # bash replaces only what follows the last : or =
    for one; do
        case $word in
        \'*) quoted=${one//\'/\'\\\'\'} ;;
        \"*)
            [[ $one != *\!* ]] || continue  # nothing quotes it there
            quoted=${one//\\/\\\\}; quoted=${quoted//\"/\\\"}; quoted=${quoted//\$/\\\$}; quoted=${quoted//\`/\\\`}
            ;;
        *) printf -v quoted %%q "$one" ;;
        esac
        if [[ $one == "$typed"* || $quoted == "$typed"* ]]; then
            [[ -z $cut || $word == [\'\"]* ]] || quoted=${quoted#"$cut"}
            COMPREPLY+=("$quoted")
        fi
    done
}

_solo_offer_names() {
    local one names=()
    while IFS= read -r -d '' one; do names+=("$one"); done < <(%(list)s)
    _solo_offer "${names[@]}"
}

# What follows option $1: sets `values`, to nothing for an option without a value.
_solo_find_values() {
    case $1 in
%(values)s
    *) values= ;;
    esac
}

_solo_offer_values() {
    case $values in
    names) _solo_offer_names ;;
    backends) _solo_offer %(backends)s ;;
    signals) _solo_offer %(signals)s ;;
    files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    esac
}

# Leave the words from number $1 on to the completion of that command.
_solo_offer_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        [[ -z $word ]] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$word")
    else
        compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

_solo() {
    local word previous= values= names= flags='%(flags)s' subcommand= at line=$COMP_LINE piece
    COMPREPLY=() word=
    # bash also splits words at : and =: join pieces without blanks between them. `at` is the number of the command's
    # first word.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        piece=${COMP_WORDS[at]}
        if ((at > 0)) && [[ $line == [[:space:]]* ]]; then
            _solo_take_word || return
            word=
        fi
        word+=$piece line=${line#*"$piece"}
    done
    if [[ $word == --*=* ]]; then
        _solo_find_values "${word%%%%=*}"
        previous=${word%%%%=*} word=${word#*=}
        _solo_offer_values
    elif [[ $values ]]; then
        _solo_offer_values
    elif [[ $word == -* ]]; then
        _solo_offer $flags
    elif [[ $subcommand ]]; then
        values=$names
        _solo_offer_values
    else
        [[ -z $word ]] || _solo_offer_command "$COMP_CWORD"
        _solo_offer %(subcommands)s
    fi
}

# A whole word before the cursor: an option, its value, the subcommand, or the command, which gets the rest: status 1.
_solo_take_word() {
    if [[ -z $previous ]]; then
        previous=solo
    elif [[ $values ]]; then
        values=
    elif [[ $word == -- && -z $subcommand ]]; then
        word=${COMP_WORDS[COMP_CWORD]} values= ; _solo_offer_command "$at"; return 1
    elif [[ $word == -* ]]; then
        _solo_find_values "$word"
    elif [[ -z $subcommand ]]; then
        subcommand=$word
        case $word in
%(cases)s
        *) ((at--)); word=${COMP_WORDS[COMP_CWORD]}; _solo_offer_command "$at"; return 1 ;;
        esac
    fi
}
complete -F _solo solo
"""


def make_zsh() -> str:
    names = " ".join(f"'{subcommand.name}:{escape_zsh(subcommand.help)}'" for subcommand in SUBCOMMANDS)
    cases = "\n".join(
        f"    {subcommand.name}) _arguments -s -S {join_zsh(subcommand.options)}{format_zsh_words(subcommand)} ;;"
        for subcommand in SUBCOMMANDS
    )
    return f"""#compdef solo
_solo_names() {{
    local -a names
    names=("${{(@0)$({LIST_NAMES})}}")
    compadd -- "${{(@)names:#}}"
}}
_solo_command() {{
    local -a subcommands
    subcommands=({names})
    _describe subcommand subcommands
    [[ -z $PREFIX ]] || _command_names -e
}}
_solo_rest() {{
    case $words[1] in
{cases}
    *) _normal ;;
    esac
}}
_arguments -s -S {join_zsh(LAUNCHER_OPTIONS)} \\
    '(-):command:_solo_command' \\
    '*::argument:_solo_rest'
"""


def format_zsh_words(subcommand) -> str:
    """Return the word for _arguments that completes the words of a subcommand."""
    offered = find_offered(subcommand)
    return offered and " " + quote_zsh(f"*:{offered.rstrip('s')}:{ZSH_VALUES[offered]}")


ZSH_VALUES = {
    "directories": "_files -/",
    "files": "_files",
    "backends": f"({' '.join(LOCAL_BACKENDS)})",
    "signals": f"({SIGNALS})",
    "names": "_solo_names",
    "nothing": " ",
}


def join_zsh(options) -> str:
    """Return the words for _arguments, one per line."""
    lines = []
    for option in options:
        flags = list_flags([option])
        value = "" if option.kind is FLAG else f":{option.metavar}:{ZSH_VALUES[option.kind.completes]}"
        head = quote_zsh(f"({' '.join(flags)})") if not option.many else "'*'"
        flags = [flag + ("" if not value else "=" if flag[:2] == "--" else "+") for flag in flags]
        tails = "{" + ",".join(flags) + "}" if len(flags) > 1 else flags[0]
        lines.append(f"{head}{tails}" + quote_zsh(f"[{escape_zsh(option.help)}]{value}"))
    return " ".join(f"\\\n    {line}" for line in lines)


def quote_zsh(text: str) -> str:
    return f"'{text}'"


def escape_zsh(text: str) -> str:
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


FISH_VALUES = {
    "": "",
    "directories": " -x -a '(__fish_complete_directories)'",
    "files": " -r -F",
    "backends": f" -x -a '{' '.join(LOCAL_BACKENDS)}'",
    "signals": f" -x -a '{SIGNALS}'",
    "names": " -x -a '(__solo_names)'",
    "nothing": " -x",
}
# fish reads a candidate up to a tab, and a line each: it cannot offer names with a tab or a newline.
FISH_HEAD = f"""# fish completion for solo
function __solo_names
    set -l names ({LIST_NAMES} | string split0)
    string match -v -r '[\\t\\n]' -- $names
end
function __solo_programs
    test -n (commandline -ct); and __fish_complete_subcommand
end
complete -c solo -x -n __fish_use_subcommand -a '(__solo_programs)'"""


def make_fish() -> str:
    lines = [FISH_HEAD]
    lines += [format_fish("__fish_use_subcommand", option) for option in LAUNCHER_OPTIONS]
    for subcommand in SUBCOMMANDS:
        typed = f"'__fish_seen_subcommand_from {subcommand.name}'"
        lines.append(f"complete -c solo -n __fish_use_subcommand -a {subcommand.name} -d {quote_fish(subcommand.help)}")
        words = " -F" if subcommand.takes_files else " -f" + " -a '(__solo_names)'" * bool(subcommand.arguments)
        lines.append(f"complete -c solo{words} -n {typed}")
        lines += [format_fish(typed, option) for option in subcommand.options]
    return "\n".join(lines) + "\n"


def format_fish(condition: str, option) -> str:
    short = f" -s {option.short}" if option.short else ""
    value = FISH_VALUES[option.kind.completes]
    return f"complete -c solo -n {condition}{short} -l {option.flag}{value} -d {quote_fish(option.help)}"


def quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": make_bash, "zsh": make_zsh, "fish": make_fish}

if __name__ == "__main__":
    sys.stdout.write(SHELLS[sys.argv[1]]())
