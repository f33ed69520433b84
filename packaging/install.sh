# `make install` and `make uninstall`: find a Python for install.py, which chooses the one that will run solo.
# The Makefile sets PREFIX, DESTDIR, and PYTHON if it was typed.
if [ "$PREFIX" = /.local ] && [ -z "${HOME-}" ]; then
    echo "solo: make $1: HOME is not set (set it, or PREFIX=DIR)" >&2
    exit 1
fi
for python in ${PYTHON:-python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9}; do
    if "$python" -IS -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        exec "$python" -IB "${0%/*}/install.py" "$1" "$PREFIX" "$DESTDIR" "$PYTHON"
    fi
done
python=${PYTHON:-python3}
if command -v "$python" >/dev/null; then
    echo "solo: make $1: $python is older than Python 3.9, or does not run (PYTHON= names another)" >&2
else
    echo "solo: make $1: $python was not found (Debian: apt install python3)" >&2
fi
exit 1
