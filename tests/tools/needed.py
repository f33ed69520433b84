"""Print the programs that the tests need and this machine lacks; with --install (`make test-deps`),
install their packages.

The installation is one call of apt-get. It starts and enables no service: meanwhile policy-rc.d
denies every start and a systemd preset denies every enabling. Afterwards both are removed and the
files that they replaced are restored. SysV's init knows neither, so its new links are disabled.
"""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

# {package: its programs and files that tests need}
TOOLS = {
    "bubblewrap": "bwrap",
    "ceph-base": "monmaptool",
    "ceph-common": "ceph ceph-authtool",
    "chiark-utils-bin": "with-lock-ex",
    "cronutils": "runlock",
    "daemontools": "setlock",
    "debhelper": "dh",
    "dh-python": "pybuild",
    "dosfstools": "mkfs.vfat",
    "etcd-client": "etcdctl",
    "etcd-server": "etcd",
    "iproute2": "ip",
    "libarchive-tools": "bsdtar",
    "libc6-dev": "/usr/include/stdio.h",
    "liblockfile-bin": "dotlockfile",
    "locales": "/usr/share/i18n/charmaps/ISO-8859-1.gz",
    "moreutils": "lckdo chronic",
    "nix-bin": "nix-instantiate",
    "nodejs": "node",
    "openssh-server": "sshd",
    "parallel": "sem",
    "perl-base": "perl",
    "postgresql": "pg_ctlcluster",
    "procmail": "lockfile",
    "procps": "ps",
    "prometheus": "promtool prometheus",
    "pybuild-plugin-pyproject": "pyproject-build",
    "python3-hatchling": "hatchling",
    "radosgw": "radosgw radosgw-admin",
    "redis-tools": "redis-cli",
    "rpm": "rpmbuild",
    "runit": "chpst",
    "s6": "s6-setlock",
    "systemd-container": "systemd-nspawn",
    "util-linux": "flock unshare nsenter setpriv",
    "zookeeper": "/usr/share/zookeeper/bin/zkServer.sh",
}
NAMED_ALIKE = (
    "bash busybox ceph-mon ceph-osd cron crun curl debootstrap faketime fakeroot fish gcc git jq ksh lintian make makepkg mandoc"
    " mergerfs openssl pgbouncer podman prometheus-node-exporter redis-server rpm2cpio rpmlint shellcheck spin strace sudo tmux zsh"
).split()
PACKAGES = {tool: package for package, tools in TOOLS.items() for tool in tools.split()}
PACKAGES.update(zip(NAMED_ALIKE, NAMED_ALIKE))
POLICY = Path(
    "/usr/sbin/policy-rc.d"
)  # asked before a package's script starts a service: 101 denies it
# The first match decides.
PRESETS = [
    Path(f"/run/systemd/{whose}-preset/00-solo-tests.preset") for whose in ("system", "user")
]


def find_tool(tool: str):
    """Return the path of a program, including those for administrators, or of a file; None if it is
    missing.
    """
    if os.path.isabs(tool):
        return tool if os.path.exists(tool) else None
    return shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def find_missing() -> dict:
    """Return {tool: its package} of all tools that are not installed."""
    return {tool: package for tool, package in PACKAGES.items() if not find_tool(tool)}


def install(packages: list) -> int:
    """Run apt-get, which shows its progress; return its exit status."""
    words = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    print(f"This runs `{' '.join(words)}`.\nNo service is started or enabled.", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    before = list_enabled()
    with no_services():
        status = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL).returncode
    for link in list_enabled() - before:
        disable(link)
    return status


def list_enabled() -> set:
    """Return the links that enable services: of SysV's init, and of systemd where no systemctl read
    the preset.
    """
    return set(glob.glob("/etc/rc[2-5].d/S*") + glob.glob("/etc/systemd/*/*.wants/*"))


def disable(link: str):
    """Disable a service like `update-rc.d disable` or `systemctl disable`."""
    folder, name = os.path.split(link)
    if "/rc" in folder:
        os.rename(link, f"{folder}/K01{name[3:]}")
    else:
        os.unlink(link)


@contextlib.contextmanager
def no_services():
    """Deny starting and enabling services. Ignore signals meanwhile: apt-get gets them and must end
    before the cleanup.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with contextlib.ExitStack() as restored:
        for path, text in [
            (POLICY, "#!/bin/sh\nexit 101\n"),
            *((preset, "disable *\n") for preset in PRESETS),
        ]:
            restored.enter_context(replaced(path, text))
        yield


@contextlib.contextmanager
def replaced(path: Path, text: str):
    """Replace a file by an executable with `text`, and restore it at the end, even one left by a
    killed run.
    """
    kept = path.with_name(f"{path.name}.before-solo-tests")
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path) and not os.path.lexists(kept):
        path.rename(kept)
    try:
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        yield
    finally:
        path.unlink(missing_ok=True)
        if os.path.lexists(kept):
            kept.rename(path)
        with contextlib.suppress(OSError):  # a package may have put files there
            for folder in made:
                folder.rmdir()


def main():
    missing = find_missing()
    if sys.argv[1:] == ["--install"] and missing:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            sys.exit("solo: make test-deps needs root and apt-get (sudo make test-deps)")
        wanted = sorted(set(missing.values()))
        show = ["apt-cache", "show", "--no-all-versions", *wanted]
        shown = subprocess.run(show, capture_output=True, text=True).stdout
        known = sorted(set(wanted) & set(re.findall(r"(?m)^Package: (.*)$", shown)))
        if not known:
            sys.exit("solo: apt-get knows none of the packages (apt-get update)")
        status = install(known)
        missing = find_missing()
        for tool in sorted(missing):
            print(f"{tool} is still not installed: its tests are skipped")
        sys.exit(status)
    for tool in sorted(missing):
        print(f"{tool} is not installed: its tests are skipped (make test-deps)")


if __name__ == "__main__":
    main()
