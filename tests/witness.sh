#!/bin/sh
# The command of the torture: finds out from within whether it runs alone, and recorded. $1 is its tag,
# $2 how long it runs: seconds, or until stdin gives a line or ends.
lives() {
    grep -qs "^State:.[^ZX]" "/proc/$1/status" 9>&-
}
exec 9>>"$LAB/alone"
# What a killed one had started may have its lock for a moment longer: that is no command.
if flock -n 9 || { ! lives "$(cat "$LAB/alone" 9>&-)" && flock 9; }; then
    echo $$ >"$LAB/alone"
    echo "${SOLO_TOKEN%% *}" >>"$LAB/tokens"
else
    echo "overlap:$1" >>"$LAB/log"
fi
case $SOLO_VIA in
socket) grep -q "/job/hold\..*\.$$\$" /proc/net/unix 9>&- ;;
*) grep -q "^child $$ " "$SOLO_DIR"/job/.hold.* 9>&- ;;
esac || echo "unrecorded:$1" >>"$LAB/log"
echo "start:$1" >>"$LAB/log"
case $2 in line) read -r _ ;; *) sleep "$2" 9>&- ;; esac
echo "end:$1" >>"$LAB/log"
