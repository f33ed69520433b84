#!/bin/sh
# The command of the torture: finds out from within whether it runs alone, and recorded. $1 is its tag,
# $2 how long it runs: seconds, or until stdin gives a line or ends.
exec 9>>"$LAB/alone"
flock -n 9 && echo "${SOLO_TOKEN%% *}" >>"$LAB/tokens" || echo "overlap:$1" >>"$LAB/log"
case $SOLO_VIA in
socket) grep -q "/job/hold\..*\.$$\$" /proc/net/unix ;;
*) grep -q "^child $$ " "$SOLO_DIR"/job/.hold.* ;;
esac || echo "unrecorded:$1" >>"$LAB/log"
echo "start:$1" >>"$LAB/log"
case $2 in line) read -r _ ;; *) sleep "$2" 9>&- ;; esac
echo "end:$1" >>"$LAB/log"
