# The step of action.yml: turn its inputs, in the environment, into words of solo and replace this shell by it.
set -u

fail() {
    echo "solo: action: $1" >&2
    exit 125
}

# Put solo into the PATH of this step and the later ones. The file is solo.pyz beside this script, or is made from the source around it.
install_solo() {
    local folder=$RUNNER_TEMP/solo-bin pyz=$GITHUB_ACTION_PATH/solo.pyz source=$GITHUB_ACTION_PATH/../pyz.py
    command -v python3 >/dev/null || fail "cannot install solo: there is no python3 in PATH $PATH"
    mkdir -p "$folder" || fail "cannot install solo in $folder"
    if [ -e "$pyz" ]; then
        cp "$pyz" "$folder/solo" && chmod 755 "$folder/solo"
    elif [ -e "$source" ]; then
        python3 "$source" "$folder/solo" 2>"$folder/log" || { cat "$folder/log" >&2 && false; } # else it says what tables lack
    else
        fail "cannot find solo in PATH $PATH, nor $pyz (make pyz)"
    fi || fail "cannot install solo in $folder"
    echo "$folder" >>"$GITHUB_PATH"
    PATH=$folder:$PATH
}

[ -n "$SOLO_INPUT_NAME" ] || fail "name is empty"
case $SOLO_INPUT_HOLD in
    true) [ -z "$SOLO_INPUT_RUN$SOLO_INPUT_TIMEOUT" ] || fail "hold goes without run and timeout: later steps run the commands" ;;
    false | "") [ -n "$SOLO_INPUT_RUN" ] || fail "run is empty" ;;
    *) fail "hold is '$SOLO_INPUT_HOLD', neither true nor false" ;;
esac

words=()
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
command -v solo >/dev/null || install_solo
name=$SOLO_INPUT_NAME run=$SOLO_INPUT_RUN hold=$SOLO_INPUT_HOLD
unset "${!SOLO_INPUT_@}"

if [ "$hold" = true ]; then # the parent is the runner's process for this job
    [ "$PPID" -gt 1 ] || fail "hold does not work in a job container, which hides the runner's process"
    exec solo hold "--pid=$PPID" "${words[@]}" -- "$name"
fi
# The runner kills solo 10 s after a cancel: a process that ignores SIGTERM must be dead before, or it runs on without the lock.
exec solo "--name=$name" --tree --kill-after=5s "${words[@]}" -- bash --noprofile --norc -e -o pipefail -c "$run"
