# The step of action.yml: its inputs, from the environment, become words of solo, which takes the place of this shell.
fail() {
    echo "solo: action: $1" >&2
    exit 125
}

command -v solo >/dev/null || fail "solo is not installed on this runner"
[ -n "$SOLO_INPUT_NAME" ] || fail "name is empty"
[ -n "$SOLO_INPUT_RUN" ] || fail "run is empty"

words=("--name=$SOLO_INPUT_NAME" --tree)
[ -z "$SOLO_INPUT_WAIT" ] || words+=("--wait=$SOLO_INPUT_WAIT")
[ -z "$SOLO_INPUT_TIMEOUT" ] || words+=("--timeout=$SOLO_INPUT_TIMEOUT")
for flag in latest replace; do
    input=SOLO_INPUT_${flag^^}
    case ${!input} in
        true) words+=("--$flag") ;;
        false | "") ;;
        *) fail "$flag is '${!input}', neither true nor false" ;;
    esac
done
run=$SOLO_INPUT_RUN
unset "${!SOLO_INPUT_@}"

exec solo "${words[@]}" -- bash --noprofile --norc -e -o pipefail -c "$run"
