#!/bin/sh
# Runs in the systemd container of test_systemd.py: each case in a transient unit, what the command got in /lab/CASE.
touch /lab/booted
run() { # CASE PROPERTY... -- COMMAND...
    case=$1; shift
    systemd-run --quiet --collect --unit="$case" --setenv=SOLO_DIR=/run/names "$@"
}
wait_for() { until [ -e "/lab/$1" ]; do sleep 0.1; done; }

for mode in control-group mixed process; do
    run "stop-$mode" -p KillMode=$mode -p Type=exec /lab/solo -n "$mode" -- python3 /lab/guest.py "/lab/stop-$mode"
    wait_for "stop-$mode.ready"
    systemctl stop "stop-$mode"
    systemctl show --value -p Result "stop-$mode" >"/lab/stop-$mode.result"
done

run pipe-default -p Type=oneshot /lab/solo -n pipe -- sh -c 'grep SigIgn /proc/self/status >/lab/pipe-default'

run hup -p KillMode=control-group -p Type=exec /lab/solo -n hup -- sh -c 'trap "echo caught >/lab/hup; exit 0" HUP; : >/lab/hup.ready; while :; do sleep 0.1; done'
wait_for hup.ready
systemctl kill --kill-whom=main -s HUP hup
wait_for hup

run killed -p KillMode=control-group -p Type=exec /lab/solo -n killed -- python3 /lab/guest.py /lab/killed
wait_for killed.ready
systemctl kill --kill-whom=main -s KILL killed
until [ "$(systemctl is-active killed)" != active ]; do sleep 0.1; done
/lab/solo --dir /run/names -n killed --wait 10 true
echo $? >/lab/killed.next

/lab/solo --dir /run/names --syslog -n logged -- sh -c 'exit 3'
/lab/solo --dir /run/names -n logged -- /lab/solo --dir /run/names --syslog -q -n logged true 2>/dev/null
/lab/solo --dir /run/names --syslog -n logged -t 100ms sleep 9 2>/dev/null
journalctl --sync
journalctl --no-pager -t solo -o json >/lab/journald
touch /lab/done
systemctl poweroff --force
