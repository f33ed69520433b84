"""Shell completions, made from the tables of options.py: `python -m solo.completions bash|zsh|fish`. Cold."""

import sys

from solo.options import KEEPERS, LAUNCHER_OPTIONS, SUBCOMMANDS

# The first column of what `solo list` prints into a pipe.
LIST_NAMES = "solo list 2>/dev/null | awk 'NR > 1 { print $1 }' | sort -u"

VALUED = [option for option in LAUNCHER_OPTIONS if option.kind != "flag"]


def list_flags(options) -> list:
    return [flag for option in options for flag in (f"--{option.flag}", option.short and f"-{option.short}") if flag]


def join_flags(subcommand) -> str:
    return " ".join(list_flags(subcommand.options))


def make_bash() -> str:
    cases = "\n".join(
        f"        {subcommand.name}) _solo_offer '{join_flags(subcommand)}' {'names' if subcommand.arguments else ''} ;;"
        for subcommand in SUBCOMMANDS
    )
    names = " ".join(subcommand.name for subcommand in SUBCOMMANDS)
    return f"""# bash completion for solo
_solo_names() {{
    {LIST_NAMES}
}}
_solo_offer() {{
    local words=$1
    [[ $word == -* || -z $2 ]] || words=$(_solo_names)
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
_solo() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} at=1
    while ((at < COMP_CWORD)); do
        case ${{COMP_WORDS[at]}} in
        --) ((at++)); _command_offset "$at"; return ;;
        {"|".join(list_flags(VALUED))}) ((at++)) ;;
        -*) ;;
        *) break ;;
        esac
        ((at++))
    done
    if ((at < COMP_CWORD)); then
        case ${{COMP_WORDS[at]}} in
{cases}
        *) _command_offset "$at" ;;
        esac
    elif ((at > COMP_CWORD)); then
        case ${{COMP_WORDS[COMP_CWORD - 1]}} in
        --dir) COMPREPLY=($(compgen -d -- "$word")) ;;
        --flock) COMPREPLY=($(compgen -f -- "$word")) ;;
        --via) COMPREPLY=($(compgen -W '{" ".join(KEEPERS)}' -- "$word")) ;;
        -n|--name) COMPREPLY=($(compgen -W "$(_solo_names)" -- "$word")) ;;
        esac
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W '{' '.join(list_flags(LAUNCHER_OPTIONS))}' -- "$word"))
    else
        COMPREPLY=($(compgen -W '{names}' -- "$word") $(compgen -c -- "$word"))
    fi
}}
complete -F _solo solo
"""


ZSH_VALUES = {"dir": "_files -/", "flock": "_files", "via": f"({' '.join(KEEPERS)})", "name": "_solo_names"}


def make_zsh() -> str:
    lines = []
    for option in LAUNCHER_OPTIONS:
        flags = list_flags([option])
        text = escape_zsh(option.help)
        value = "" if option.kind == "flag" else f":{option.metavar}:{ZSH_VALUES.get(option.flag, '')}"
        head = f"'({' '.join(flags)})'" if not option.many else "'*'"
        tails = "{" + ",".join(flag + ("+" if value else "") for flag in flags) + "}" if len(flags) > 1 else flags[0]
        lines.append(f"    {head}{tails}'[{text}]{value}' \\")
    names = " ".join(f"'{subcommand.name}:{escape_zsh(subcommand.help)}'" for subcommand in SUBCOMMANDS)
    cases = "\n".join(
        f"        {subcommand.name}) compadd -- {join_flags(subcommand)}{'; _solo_names' if subcommand.arguments else ''} ;;"
        for subcommand in SUBCOMMANDS
    )
    return f"""#compdef solo
_solo_names() {{
    local -a names=(${{(f)"$({LIST_NAMES})"}})
    compadd -a names
}}
_solo_command() {{
    local -a subcommands=({names})
    _describe subcommand subcommands
    _command_names -e
}}
_solo_rest() {{
    case $words[1] in
{cases}
        *) _normal ;;
    esac
}}
_arguments -s -S \\
{chr(10).join(lines)}
    '(-):command:_solo_command' \\
    '*::argument:_solo_rest'
"""


def escape_zsh(text: str) -> str:
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


FISH_VALUES = {"name": " -x -a '(__solo_names)'", "via": f" -x -a '{' '.join(KEEPERS)}'"}


def make_fish() -> str:
    lines = [
        "# fish completion for solo", f"function __solo_names\n    {LIST_NAMES}\nend",
        "complete -c solo -x -n __fish_use_subcommand -a '(__fish_complete_subcommand)'",
    ]
    for option in LAUNCHER_OPTIONS:
        short = f" -s {option.short}" if option.short else ""
        value = "" if option.kind == "flag" else FISH_VALUES.get(option.flag, " -r" if option.kind == "path" else " -x")
        lines.append(f"complete -c solo -n __fish_use_subcommand{short} -l {option.flag}{value} -d {quote_fish(option.help)}")
    for subcommand in SUBCOMMANDS:
        lines.append(f"complete -c solo -n __fish_use_subcommand -a {subcommand.name} -d {quote_fish(subcommand.help)}")
        if subcommand.arguments:
            lines.append(f"complete -c solo -x -n '__fish_seen_subcommand_from {subcommand.name}' -a '(__solo_names)'")
        for option in subcommand.options:
            lines.append(
                f"complete -c solo -n '__fish_seen_subcommand_from {subcommand.name}' -l {option.flag}"
                f" -d {quote_fish(option.help)}"
            )
    return "\n".join(lines) + "\n"


def quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": make_bash, "zsh": make_zsh, "fish": make_fish}

if __name__ == "__main__":
    sys.stdout.write(SHELLS[sys.argv[1]]())
