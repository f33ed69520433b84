# bash completion for solo

# Offer each of "$@" that starts with $word, quoted the way that $word is.
_solo_offer() {
    local one quoted typed=${word#[\'\"]} cut=
    [[ $word != *[:=]* ]] || cut=${word%"${word##*[:=]}"}  # bash replaces only what follows the last : or =
    for one; do
        case $word in
        \'*) quoted=${one//\'/\'\\\'\'} ;;
        \"*)
            [[ $one != *\!* ]] || continue  # nothing quotes it there
            quoted=${one//\\/\\\\}; quoted=${quoted//\"/\\\"}; quoted=${quoted//\$/\\\$}; quoted=${quoted//\`/\\\`}
            ;;
        *) printf -v quoted %q "$one" ;;
        esac
        if [[ $one == "$typed"* || $quoted == "$typed"* ]]; then
            [[ -z $cut || $word == [\'\"]* ]] || quoted=${quoted#"$cut"}
            COMPREPLY+=("$quoted")
        fi
    done
}

_solo_offer_names() {
    local one names=()
    while IFS= read -r -d '' one; do names+=("$one"); done < <(solo list --null 2>/dev/null)
    _solo_offer "${names[@]}"
}

# made from bash
_solo_flags='--name -n --dir --via --flock --fcntl --note --shared -s --slots --wait -w --latest --replace --replace-after --busy-exit -E --quiet -q --loud-after --timeout -t --kill-after -k --tree --no-orphan --chdir --ttl --once-per --syslog --capture --notify --notify-on --verbose -v --explain --json --help -h --version'
_solo_subcommands='list show wait stop hold release history check metrics top clean doctor'
_solo_backends='file socket'
_solo_signals='ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ'

# What follows option $1: sets `values`, to nothing for an option without a value.
_solo_find_values() {
    case $1 in
    --name|-n) values=names ;;
    --dir|--chdir) values=directories ;;
    --via) values=backends ;;
    --flock|--fcntl|--output) values=files ;;
    --note|--slots|--wait|-w|--replace-after|--busy-exit|-E|--loud-after|--timeout|-t|--kill-after|-k|--ttl|--once-per|--capture|--notify|--notify-on|--pid|--fd|--for|--via|--since|--limit|--within|--history) values=nothing ;;
    *) values= ;;
    esac
}

# The options of subcommand $1 and what its words are: sets `flags` and `names`. Status 1: it is none.
_solo_find_flags() {
    case $1 in
    list) flags='--all --dir --via --json --null -0' names=names ;;
    show) flags='--dir --via --json' names=names ;;
    wait) flags='--dir --via --timeout -t --allow-unknown' names=names ;;
    stop) flags='--dir --via --kill-after -k --waiting --allow-unknown' names=names ;;
    hold) flags='--pid --fd --for --export --dir --note --shared -s --slots --wait -w --latest --replace --replace-after --busy-exit -E --quiet -q --loud-after --kill-after -k' names=names ;;
    release) flags='--pid --via --dir' names=names ;;
    history) flags='--dir --via --since --failed --limit --captured --json' names=names ;;
    check) flags='--dir --within' names=names ;;
    metrics) flags='--dir --via --output' names=names ;;
    top) flags='--dir --via' names=names ;;
    clean) flags='--dir --generated --history' names=names ;;
    doctor) flags='--dir --via --crontab --unit --fix --json' names=files ;;
    *) return 1 ;;
    esac
}
# end

_solo_offer_values() {
    case $values in
    names) _solo_offer_names ;;
    backends) _solo_offer $_solo_backends ;;
    signals) _solo_offer $_solo_signals ;;
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
    local word previous= values= names= flags=$_solo_flags subcommand= at line=$COMP_LINE piece
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
        _solo_find_values "${word%%=*}"
        previous=${word%%=*} word=${word#*=}
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
        _solo_offer $_solo_subcommands
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
        if ! _solo_find_flags "$word"; then
            ((at--)); word=${COMP_WORDS[COMP_CWORD]}; _solo_offer_command "$at"; return 1
        fi
    fi
}
complete -F _solo solo
