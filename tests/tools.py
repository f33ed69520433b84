"""Installs what the tests drive, where that can be done (root, apt); the tests skip by name what is not there."""

import os
import shutil
import subprocess

PACKAGES = {
    "strace": "strace", "cron": "cron", "mandoc": "mandoc", "flock": "util-linux", "unshare": "util-linux",
    "nsenter": "util-linux", "setpriv": "util-linux", "sudo": "sudo", "sshd": "openssh-server", "ssh": "openssh-client",
    "zsh": "zsh", "fish": "fish", "bash": "bash", "ps": "procps", "make": "make",
    "tmux": "tmux", "debootstrap": "debootstrap", "systemd-nspawn": "systemd-container",
    "dh": "debhelper", "pybuild": "dh-python", "pyproject-build": "pybuild-plugin-pyproject", "hatchling": "python3-hatchling",
    "lintian": "lintian",
    "lckdo": "moreutils", "runlock": "cronutils", "setlock": "daemontools", "chpst": "runit", "s6-setlock": "s6", "with-lock-ex": "chiark-utils-bin",
    "sem": "parallel", "dotlockfile": "liblockfile-bin", "lockfile": "procmail",
    "etcd": "etcd-server", "etcdctl": "etcd-client", "openssl": "openssl", "ip": "iproute2",
    "redis-server": "redis-server", "redis-cli": "redis-tools",
    "pg_ctlcluster": "postgresql", "pgbouncer": "pgbouncer",
    "/usr/share/zookeeper/bin/zkServer.sh": "zookeeper",
}


def main():
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = {tool: package for tool, package in PACKAGES.items() if not shutil.which(tool, path=path)}
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], **quiet)
        for package in sorted(set(missing.values())):
            subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", package], env=environment, **quiet)
        missing = {tool: package for tool, package in missing.items() if not shutil.which(tool, path=path)}
    for tool in sorted(missing):
        print(f"{tool} is not installed: its tests are skipped")


main()
