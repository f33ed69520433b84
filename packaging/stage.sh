# Install what a package has, for the recipes of packages: `sh packaging/stage.sh ROOT PYTHON [MODULES...]`, in the source.
# MODULES are the directories of Python's modules, those of PYTHON below /usr by default. Only in an sdist, install the module and
# the program of one file too: for Debian pybuild and solo-run.postinst do, since they know the Python.
set -eu
umask 022
root=$1
python=$2
shift 2
share=$root/usr/share
doc=/usr/share/doc/solo-run

ask() { "$python" -IBc "import sysconfig; print(sysconfig.get_path('$1', 'posix_prefix', {'base': '/usr', 'platbase': '/usr'}))"; }

bundle() { "$python" -IB -X no_debug_ranges solo/generate/bundle.py "$@"; }

install_text() { # SOURCE TARGET: name the files of the package
    mkdir -p "${2%/*}"
    sed -E "s,packaging/($examples),$doc/examples/\1,g; s,(^|[ \`])examples/,\1$doc/examples/,g" "$1" >"$2"
}

[ $# -gt 0 ] || set -- "$(ask purelib)" "$(ask platlib)"
examples=$(find packaging/* -type d -prune | cut -d / -f 2 | grep -vxE 'debian|rpm|arch|alpine|nix|systemd|tmpfiles|completions' | paste -sd '|' -)

if [ -e PKG-INFO ]; then
    mkdir -p "$root$1"
    cp -R solo "$root$1/"
    version=$(sed -n 's/^Version: //p' PKG-INFO)
    install -D -m 644 PKG-INFO "$root$1/solo_run-$version.dist-info/METADATA"
    find "$root$1/solo" -name __pycache__ -prune -exec rm -r {} +
    find "$root$1/solo" -type f -exec chmod 644 {} + -o -exec chmod 755 {} +
    "$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$root$1/solo"
    mkdir -p "$root/usr/lib/solo"
    bundle program "$1/solo" "$root/usr/lib/solo/program"
fi
mkdir -p "$root/usr/bin" "$root/usr/lib/solo"
# Without a C compiler the script has no stub before it.
if sh packaging/stub.sh /usr/lib/solo/solo "$root/usr/bin/solo-run"; then script=/usr/lib/solo/solo stub=/usr/bin/solo-run; else script=/usr/bin/solo-run stub=; fi
bundle script "$python" "$stub" "$@" /usr/lib/solo/program >"$root$script"
chmod 755 "$root$script"
ln -sf solo-run "$root/usr/bin/solo"
for page in man/*.[0-9]; do install_text "$page" "$share/man/man${page##*.}/${page#man/}"; done
ln -s solo.1 "$share/man/man1/solo-run.1"
install -D -m 644 packaging/completions/solo.bash "$share/bash-completion/completions/solo"
install -D -m 644 packaging/completions/_solo "$share/zsh/site-functions/_solo"
install -D -m 644 packaging/completions/solo.fish "$share/fish/vendor_completions.d/solo.fish"
for unit in packaging/systemd/solo-clean.*; do install_text "$unit" "$root/usr/lib/systemd/system/${unit##*/}"; done
sed -i 's/^ExecStart=solo /ExecStart=solo-run /' "$root/usr/lib/systemd/system/solo-clean.service"
install -D -m 644 packaging/tmpfiles/solo-run.conf "$root/usr/lib/tmpfiles.d/solo-run.conf"
for page in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md; do install_text "$page" "$root$doc/$page"; done
for file in docs/*.svg docs/*.json; do install -m 644 "$file" "$root$doc/$file"; done
find examples packaging -type f | grep -E "^(examples|packaging/($examples))/" | while read -r file; do
    install_text "$file" "$root$doc/examples/${file#*/}"
done
