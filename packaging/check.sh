# The test of a package at its build, with PYTHON alone: `sh packaging/check.sh PYTHON`, in the source.
set -eu
umask 077
python=$1
SOLO_DIR=$(mktemp -d)
export SOLO_DIR
solo() { "$python" -B -m solo "$@"; }

trap 'solo stop job >/dev/null 2>&1 || :; rm -rf "$SOLO_DIR"' EXIT
solo -n job -- sleep 60 &
until solo list job 2>/dev/null | grep -q held; do kill -0 $!; done
status=0
solo -n job -- true 2>/dev/null || status=$?
[ "$status" = 75 ]
solo stop job
solo history job | grep -q skipped
solo -n job -- true
