#!/bin/sh
# The command of the torture: logs if it runs beside another one, or if no ticket records it. $1 is its tag,
# $2 its duration: seconds, or `line` to run until stdin has a line or ends.
lives() {
    grep -qs "^State:.[^ZX]" "/proc/$1/status" 9>&-
}
exec 9>>"$LAB/alone"
# A child of a killed witness may keep the lock for a moment: then wait, as no other witness lives.
if flock -n 9 || { ! lives "$(cat "$LAB/alone" 9>&-)" && flock 9; }; then
    echo $$ >"$LAB/alone"
    echo "${SOLO_TOKEN%% *}" >>"$LAB/tokens"
else
    echo "overlap:$1" >>"$LAB/log"
fi
case $SOLO_VIA in
socket) grep -q "/job/hold\..*\.$$\$" /proc/net/unix 9>&- || ! lives $PPID ;; # its sockets go just before its command is killed
*) grep -q "^child $$ " "$SOLO_DIR"/job/.hold.* 9>&- ;;
esac || echo "unrecorded:$1" >>"$LAB/log"
echo "start:$1" >>"$LAB/log"
case $2 in "line") read -r _ ;; *) sleep "$2" 9>&- ;; esac
echo "end:$1" >>"$LAB/log"
