#!/bin/sh
# Run `make test` of the last commit in minimal Debians, as root and as an ordinary user: tests/tools/debian.sh [SUITE]...
#
# debootstrap makes each root once, in build/debian (ROOTS). The tests write only to a temporary layer over it.
# The root has make, python3 and python3-venv; TERM=dumb, LANG=C. It gets the configuration of this machine's pip, and the certificates
# and directories which that names. BIND lists more directories to mount inside, USERS the users (root tester). It is a failure if the
# tests leave a file outside their clone.
set -eu
cd "$(dirname "$0")/../.."
suites=${*:-bookworm trixie}
roots=${ROOTS:-$PWD/build/debian}

if [ "${1:-}" = --inside ]; then # in new namespaces; arguments: the root, the layer
    root=$2 layer=$3
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
    cd "$layer/root"
    mount -t proc proc proc
    mount --rbind /sys sys
    mount -t tmpfs tmpfs dev
    for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    for number in 0,stdin 1,stdout 2,stderr; do ln -s "fd/${number%,*}" "dev/${number#*,}"; done
    cp /etc/hosts /etc/resolv.conf etc/
    { echo '[global]'; python3 -m pip config list | sed -n "s/^[^.]*\\.\\(.*\\)='\\(.*\\)'\$/\\1 = \\2/p" | sort -u -t= -k1,1; } >etc/pip.conf
    for path in ${BIND:-} $(sed 's,file://,,g' etc/pip.conf | grep -o ' /[^ ]*'); do
        if [ -d "$path" ]; then mkdir -p "./$path"; mount --rbind "$path" "./$path"
        elif [ -e "$path" ]; then install -D -m 644 "$path" "./$path"; fi
    done
    chroot . useradd --create-home tester
    list() { chroot . find / -xdev \( -path /proc -o -path "$1/solo" -o -path "$1/.cache" \) -prune -o -print | sort; }
    for user in ${USERS:-root tester}; do
        home=$(chroot . sh -c "echo ~$user")
        mkdir ".$home/solo"
        tar -x -C ".$home/solo" <"$layer/source.tar"
        chroot . chown -R "$user" "$home/solo"
        list "$home" >"$layer/before"
        chroot . setpriv --reuid="$user" --regid="$user" --init-groups env -i HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
            LANG=C make -C "$home/solo" "${TARGET:-test}" ARGS="${ARGS:-}" || echo "$user" >>"$layer/failed"
        left=$(list "$home" | diff "$layer/before" - | head -n 40) # pytest keeps the directories of tests that failed
        [ -z "$left" ] || { echo "files left by $user: $left"; echo "$user" >>"$layer/failed"; }
    done
    [ ! -e "$layer/failed" ]
    exit
fi

failed=
for suite in $suites; do
    if [ ! -e "$roots/$suite.made" ]; then
        mkdir -p "$roots"
        rm -rf "${roots:?}/$suite"
        mirror=$(sed -n 's/^URIs: //p' /etc/apt/sources.list.d/debian.sources | head -n 1)
        script=/usr/share/debootstrap/scripts/$suite
        [ -e "$script" ] || script=${script%/*}/sid # newer than this debootstrap
        unshare --mount debootstrap --variant=minbase --include=make,python3,python3-venv "$suite" "$roots/$suite" "${mirror:-http://deb.debian.org/debian}" "$script" >"$roots/$suite.log"
        touch "$roots/$suite.made"
    fi
    layer=$(mktemp -d "$roots/layer.XXXXXX")
    mkdir "$layer/upper" "$layer/work" "$layer/root"
    git archive HEAD >"$layer/source.tar"
    echo "--- $suite"
    unshare --mount --pid --fork --kill-child sh "$0" --inside "$roots/$suite" "$layer" </dev/null || failed="$failed $suite"
    rm -rf "$layer"
done
[ -z "$failed" ] || { echo "failed in$failed" >&2; exit 1; }
