#!/bin/sh
# The command of the torture tests: log an overlap, and a start that is not in the record. $1 is its tag, $2 its duration:
# seconds, or `line` for until a line or the end of stdin.
lives() {
    grep -qs "^State:.[^ZX]" "/proc/$1/status" 9>&-
}
exec 9>>"$LAB/alone"
# A child of a killed command may keep the lock for a moment: that is no overlap.
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
case $2 in
line) read -r _ ;;
*) sleep "$2" 9>&- ;;
esac
echo "end:$1" >>"$LAB/log"
