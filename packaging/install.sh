# `make install`, which sets PYTHON, PREFIX, DESTDIR and FOLDERS (every folder that gets a file). Build everything in lib/solo.new,
# then move it to lib/solo. After a failure or a signal, remove all new files and restore the older installation.
set -eu
umask 022 # for every user, whatever the umask of root
IFS='
'
case $DESTDIR in '' | /*) ;; *) DESTDIR=$PWD/$DESTDIR ;; esac
lib=$PREFIX/lib/solo
stage=$DESTDIR$lib
new=$stage.new
old=$stage.old
was_there=
is_done=
made= # folders, the deepest first
installed=

fail() {
    echo "solo: make install: $1" >&2
    exit 1
}

undo() {
    trap '' HUP INT TERM
    [ -z "$is_done" ] || return 0
    set +e # a file that cannot be removed must not keep the others
    rm -rf "$new"
    if [ -e "$old" ]; then
        rm -rf "$stage"
        mv "$old" "$stage"
    elif [ -z "$was_there" ]; then
        rm -rf "$stage"
        for file in $installed; do rm -f "$file" 2>/dev/null; done
    fi
    for folder in $made; do rmdir "$folder" 2>/dev/null; done
}

make_folder() {
    while [ ! -d "$1" ]; do
        missing=${1%/}
        while [ ! -d "${missing%/*}/" ]; do missing=${missing%/*}; done
        mkdir "$missing"
        made="$missing$IFS$made"
    done
}

install_file() { # MODE NAME TARGET
    installed="$installed$IFS$3"
    install -T -m "$1" "$stage/files/$2" "$3"
}

case $PREFIX in /*) ;; *) fail "PREFIX=$PREFIX is not an absolute path" ;; esac
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || fail "$PYTHON is older than 3.9 (PYTHON= names another)"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || fail "$PYTHON cannot make a venv (Debian: apt install python3-venv)"
[ "$(id -u)" != 0 ] || "$PYTHON" packaging/others.py "$DESTDIR$PREFIX"

trap undo EXIT
trap 'exit 130' HUP INT TERM
if [ -e "$old" ]; then # an installation was killed before its end
    rm -rf "$stage"
    mv "$old" "$stage"
fi
[ ! -e "$stage" ] || was_there=yes
for folder in $(cat "$stage/made-directories" "$new/made-directories" 2>/dev/null | tr ' ' '\n'); do
    made="$made$IFS$DESTDIR$folder"
done
rm -rf "$new"
[ -z "$DESTDIR" ] || make_folder "$DESTDIR"
for folder in $(echo "$FOLDERS" | tr ' ' '\n'); do make_folder "$DESTDIR$folder"; done
mkdir "$new"
for folder in $made; do echo "${folder#"$DESTDIR"}"; done >"$new/made-directories"

"$PYTHON" -m venv "$new"
"$new/bin/python" -m pip install --quiet --disable-pip-version-check .
(
    cd "$new"
    rm -rf bin/[!p]* bin/pip* lib/python*/site-packages/pip*
    bin/python -m compileall -q -f --invalidation-mode unchecked-hash lib/python*/site-packages/solo
    sed -i 's|^command = .*||' pyvenv.cfg
    mkdir files
    site=$(echo lib/python*/site-packages)
    bin/python -I -m solo.generate.bundle "$lib/bin/python" "$lib/$site" "$lib/launcher-" launcher- >files/solo
)
for shell in bash zsh fish; do "$PYTHON" -m solo.generate.completions "$shell" >"$new/files/$shell"; done
for page in man/*.[0-9]; do sed "s|/usr/local/bin/solo|$PREFIX/bin/solo|" "$page" >"$new/files/${page#man/}"; done

[ ! -e "$stage" ] || mv "$stage" "$old"
mv "$new" "$stage"
share=$DESTDIR$PREFIX/share
for page in man/*.[0-9]; do install_file 644 "${page#man/}" "$share/man/man${page##*.}/${page#man/}"; done
install_file 644 bash "$share/bash-completion/completions/solo"
install_file 644 zsh "$share/zsh/site-functions/_solo"
install_file 644 fish "$share/fish/vendor_completions.d/solo.fish"
install_file 755 solo "$DESTDIR$PREFIX/bin/solo"
is_done=yes
[ ! -e "$old" ] || mv "$old" "$new"
rm -rf "$stage/files" "$new"
