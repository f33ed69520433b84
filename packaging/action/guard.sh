# The step of action.yml: its inputs, from the environment, become words of solo, which takes the place of this shell.
fail() {
    echo "solo: action: $1" >&2
    exit 125
}

command -v solo >/dev/null || fail "solo is not installed on this runner"
[ -n "$INPUT_NAME" ] || fail "name is empty"
[ -n "$INPUT_RUN" ] || fail "run is empty"

words=("--name=$INPUT_NAME" --tree)
[ -z "$INPUT_WAIT" ] || words+=("--wait=$INPUT_WAIT")
[ -z "$INPUT_TIMEOUT" ] || words+=("--timeout=$INPUT_TIMEOUT")
for flag in latest replace; do
    input=INPUT_${flag^^}
    case ${!input} in
        true) words+=("--$flag") ;;
        false | "") ;;
        *) fail "$flag is '${!input}', neither true nor false" ;;
    esac
done
run=$INPUT_RUN
unset "${!INPUT_@}"

exec solo "${words[@]}" -- bash --noprofile --norc -e -o pipefail -c "$run"
