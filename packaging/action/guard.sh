# The step of action.yml: turn its inputs, in the environment, into words of solo and replace this shell by it.
fail() {
    echo "solo: action: $1" >&2
    exit 125
}

command -v solo >/dev/null || fail "cannot find solo in PATH $PATH (on this runner: make install, or Debian's package solo-run)"
[ -n "$SOLO_INPUT_NAME" ] || fail "name is empty"
[ -n "$SOLO_INPUT_RUN" ] || fail "run is empty"

# The runner kills solo 10 s after a cancel: a process that ignores SIGTERM must be dead before, or it runs on without the lock.
words=("--name=$SOLO_INPUT_NAME" --tree --kill-after=5s)
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
