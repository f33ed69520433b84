"""A place for names that cannot be used: the message says why, in one line, and what is to be typed
works as printed.
"""

import re

import pytest
from conftest import PATIENCE, need_tools, until
from home import find_remedy, install_launcher, make_machine  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.tool("unshare", "nsenter", "setpriv")]

ALICE = 3001
BASE = "/home/alice/.local/state/solo"
RUN = ("-n", "job", "--", "echo", "ran")
NO_FILE = "(without a file: --via socket, in every run of the name)"
FILL = (
    "mount -t tmpfs -o size=4k tmpfs {0} && chown {1} {0}; head -c 1M /dev/zero >{0}/full || true"
)

# What root does first, and how the message ends; the remedy, if it is a line for root, is then
# typed.
PLACES = {
    "read-only home": ("mount -o remount,ro /home", f"Read-only file system {NO_FILE}"),
    "full disk": (FILL.format("/home/alice", ALICE), "No space left on device (free some space; without a file: --via socket, in every run of the name)"),
    "base of another uid": (f"install -d -m 700 -o 3002 {BASE}", "it belongs to uid 3002 (as root: chown -R 3001 {base})"),
    "name of another uid": (f"install -d -m 700 -o 3002 {BASE}/job", "it belongs to uid 3002 (as root: find .*)"),
    "name of root": (f"install -d -m 700 {BASE}/job", "it belongs to uid 0 (as root: chown -R 3001 {base})"),
    "gate of root": (f"install -d -m 700 -o 3001 {BASE}/job; install -m 600 /dev/null {BASE}/job/.gate", "it belongs to uid 0 (as root: chown -h 3001 {base}/job/.gate)"),
    "~/.local of root": ("mkdir /home/alice/.local", "/home/alice/.local belongs to uid 0 (as root: chown -R 3001 /home/alice/.local)"),
    "dangling link": (f"mkdir -p {BASE}; rmdir {BASE}; ln -s /gone {BASE}", "it is a link to /gone, which does not exist"),
    "dangling ~/.local": ("ln -s /gone /home/alice/.local", "/home/alice/.local is a link to /gone, which does not exist"),
    "link to a directory of root": (f"mkdir -p /home/elsewhere {BASE}; rmdir {BASE}; ln -s /home/elsewhere {BASE}", "/home/elsewhere belongs to uid 0 (as root: solo doctor --fix alice)"),
    "link to a private one of root": ("mkdir -m 700 /home/elsewhere; ln -s /home/elsewhere /home/alice/.local", "/home/elsewhere belongs to uid 0 (as root: solo doctor --fix alice)"),
    "hidden places": ("mkdir -m 700 /var/lib/solo-users", "Permission denied (as root: chown root .*)"),
    "places open to all": ("install -d -m 700 -o 3001 /var/lib/solo-users/3001; chmod 777 /var/lib/solo-users", "other users can write there (as root: .*)"),
    "place of root": ("mkdir -p -m 700 /var/lib/solo-users/3001", "it belongs to uid 0 (as root: chown -R 3001 /var/lib/solo-users/3001)"),
    "dangling place": ("mkdir /var/lib/solo-users; ln -s /gone /var/lib/solo-users/3001", "it is a link to /gone, which does not exist"),
}  # fmt: skip
IN_MAKE_TEST = {"full disk", "base of another uid", "dangling link"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] * (name not in IN_MAKE_TEST)) for name in PLACES],
)
def test_unusable_place_is_explained_and_the_remedy_works(machine, name):
    prepare, reason = PLACES[name]
    for folder in ("/home/alice/.local", "/home/alice/.local/state") * (BASE in prepare):
        machine.type(f"install -d -o {ALICE} {folder}")
    machine.type(prepare)

    explained = machine.solo(ALICE, "--explain", *RUN)
    status, out, err = machine.solo(ALICE, *RUN)

    pattern = re.escape(reason.replace("{base}", BASE)).replace(r"\.\*", ".*")
    assert (status, out) == (125, "") and re.search(pattern + "$", err), err
    if (
        name == "full disk"
    ):  # which --explain finds by a file, and the run after it has made directories
        explained = (
            *explained[:2],
            explained[2].replace("create /home/alice/.local", f"write in {BASE}/job"),
        )
    assert explained == (status, out, err)
    if "as root: " in err:
        machine.type(find_remedy(err))
        status, out, err = machine.solo(ALICE, *RUN)
        assert (status, out) == (0, "ran\n"), err
    elif "--via socket" in err:
        assert machine.solo(ALICE, "--via", "socket", *RUN)[:2] == (0, "ran\n")


EDGES = ["unshare -Ur", "bwrap --bind / / --proc /proc --unshare-user --uid 0", "fakeroot --"]


@pytest.mark.full
@pytest.mark.parametrize("prefix", [words.split() for words in EDGES], ids=EDGES)
def test_root_in_name_only_learns_whose_names_to_use(machine, prefix):
    where = "fakeroot" if prefix[0] == "fakeroot" else "this user namespace"
    need_tools(prefix[0])
    if machine.run(ALICE, *prefix, "true")[0]:
        pytest.skip(f"{prefix[0]} does not work here")
    assert machine.solo(ALICE, *RUN)[0] == 0

    status, out, err = machine.run(ALICE, *prefix, machine.launcher, *RUN)

    assert (status, out, err.count("\n")) == (125, "", 1)
    assert err.endswith(f" ({where} makes root of uid {ALICE}: SOLO_DIR={BASE} has its names)\n")
    assert machine.run(ALICE, *prefix, machine.launcher, *RUN, SOLO_DIR=BASE)[:2] == (0, "ran\n")


def test_owner_that_a_user_namespace_lacks_is_not_called_nobody(machine):
    if machine.run(ALICE, "unshare", "-Ur", "true")[0]:
        pytest.skip("unshare does not work here")  # as in a chroot
    machine.type(f"install -d -m 755 {BASE}")

    status, _, err = machine.run(ALICE, "unshare", "-Ur", machine.launcher, "--dir", BASE, *RUN)

    assert (
        status == 125
        and "belongs to a user that this user namespace lacks" in err
        and "runuser" not in err
    )


FILE_SYSTEMS = {
    "mergerfs": ("mergerfs", "mkdir /home/b; exec mergerfs -f -o allow_other /home/b {}", 0, "\nready\n"),
    "vfat": ("mkfs.vfat", "truncate -s 1M /home/v; mkfs.vfat /home/v >&2; mount -o loop /home/v {} && read line", 1, "(mount it with umask=077)\n"),
    "tmpfs of a login": ("mount", "mount -t tmpfs tmpfs {} && read line", 0, "note   /run/user/0/names is unmounted when the user logs out"),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", FILE_SYSTEMS)
def test_doctor_is_right_on_odd_file_systems(machine, name):
    tool, mount, expected, words = FILE_SYSTEMS[name]
    need_tools(tool)
    place = "/run/user/0" if "login" in name else "/home/m"
    machine.type(f"mkdir -p {place}")
    mounting = machine.start(0, "sh", "-c", mount.format(place))
    until(lambda: mounting.poll() is not None or machine.run(0, "mountpoint", "-q", place)[0] == 0)
    if machine.run(0, "mountpoint", "-q", place)[0]:
        pytest.skip(f"cannot mount {name} here")
    assert machine.solo(0, "--dir", f"{place}/names", *RUN)[0] == 0

    status, out, err = machine.solo(0, "doctor", "--dir", f"{place}/names")

    if status == 125:
        pytest.skip(f"views need libraries: {err}")
    assert (status, err) == (expected, "") and words in out


@pytest.mark.full
def test_waiter_refuses_to_run_below_a_lazy_unmount(machine):
    machine.type("mkdir /home/m; mount -t tmpfs -o mode=700 tmpfs /home/m")
    solo = [machine.launcher, "--dir", "/home/m", "-n", "job"]
    holder = machine.start(0, *solo, "--", "sh", "-c", "echo; read line; exit 0")
    holder.stdout.readline()
    waiter = machine.start(0, *solo, "--wait", "1m", "--", "echo", "ran")
    until(lambda: ".seat." in machine.type("ls -A /home/m/job"))
    machine.type("umount -l /home/m")

    holder.communicate("\n", timeout=PATIENCE)
    out, err = waiter.communicate(timeout=PATIENCE)

    assert (waiter.returncode, out) == (125, "")
    assert (
        err
        == "solo: job: cannot use /home/m/job: it was replaced or unmounted during the wait (start again)\n"
    )
