"""A reboot under another host name: what the last boot left is dead, and nothing else that only
looks like it.
"""

import os
import signal
import subprocess

import pytest
from conftest import STEPPED, in_mounts, kill, kill_both, read_line, reboot, until, wait_dead
from fleet import find_children
from observed import INNER, find_chain
from test_directories import SHIFTED

from solo.process import boot
from solo.record import parse_record

MOUNTS = b"""\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 27 0:30 /@home /home rw - btrfs /dev/vdb rw,subvol=/@home
"""
TESTS = [pytest.mark.root, pytest.mark.host, pytest.mark.tool("unshare", "mount", "faketime")]
OLD = (
    "unshare",
    "--uts",
    "sh",
    "-c",
    'hostname web3 && exec "$@"',
    "sh",
)  # its name before the boot


@pytest.mark.parametrize("mount, found", [("27", b"ext4"), ("31", b"btrfs"), ("2", b""), ("", b"")])
def test_file_system_is_that_of_the_mount(mount, found):
    assert (
        boot.find_mount(f"pos:\t0\nflags:\t02\nmnt_id:\t{mount}\nino:\t7\n".encode(), MOUNTS)[0]
        == found
    )
    assert boot.find_mount(b"pos:\t0\nflags:\t02\n", MOUNTS) == (b"", b"")


@pytest.fixture
def local(lab):
    """A lab whose names are on a file system that is known to be local."""
    lab.directory.mkdir()
    fd = os.open(lab.directory, os.O_RDONLY)
    if boot.read_mount(fd)[0] not in boot.LOCAL:
        pytest.skip("needs a local file system for temporary files")
    os.close(fd)
    return lab


def try_job(lab, *prefix):
    result = lab.run("-n", "job", "true", prefix=prefix)
    return result.returncode, result.stderr.decode()


def leave_pid(lab):
    keeper = lab.start_words("sleep", "1000")
    assert lab.run("hold", "--pid", str(keeper.pid), "job", prefix=OLD).returncode == 0
    kill(keeper)


def leave_timer(lab):
    assert lab.run("hold", "--for", "1h", "job", prefix=OLD).returncode == 0
    [row] = lab.list()
    os.kill(row["child"], signal.SIGKILL)
    wait_dead(row["child"])


def leave_descriptor(lab):
    script = f'exec 9>>{lab.path}/opened; "$SOLO" hold --fd 9 job && echo held && exec cat'
    block = lab.start_words(*OLD, "sh", "-c", script)
    assert read_line(block) == "held"
    holder = parse_record(lab.find_hold("job").read_bytes()).descriptor[0]
    os.kill(holder, signal.SIGKILL)
    wait_dead(holder)
    kill(block)


def leave_run(lab):
    kill_both(lab.hold("job", prefix=OLD))


class TestBoot:
    pytestmark = TESTS

    @pytest.mark.parametrize("leave", [leave_pid, leave_timer, leave_descriptor, leave_run])
    def test_hold_of_the_last_boot_is_dead_whatever_the_host_was_called(self, local, leave):
        leave(local)

        assert try_job(local, *reboot(local)) == (0, "")
        assert os.listdir(local.directory / "job") == [".gate"]

    def test_other_boot_id_alone_ends_nothing(self, local):
        """LXC gives one to each container: by the clock the ticket is of this boot."""
        leave_pid(local)
        before_clock = reboot(local)[: -len(STEPPED)]

        assert try_job(local, *before_clock)[0] == 75
        assert try_job(local, *reboot(local))[0] == 0

    def test_gate_of_this_boot_ends_nothing(self, local):
        leave_pid(local)
        prefix, gate = reboot(local), local.directory / "job/.gate"
        now = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
        gate.write_bytes(
            gate.read_bytes().replace(now, (local.path / "boot_id").read_bytes().strip())
        )

        assert try_job(local, *prefix)[0] == 75

    @pytest.mark.parametrize("where", [SHIFTED, INNER], ids=["time namespace", "pid namespace"])
    def test_contender_of_another_namespace_ends_nothing(self, local, where):
        if subprocess.run([*where, "true"], capture_output=True).returncode:
            pytest.skip("no such namespace")
        leave_pid(local)

        assert try_job(local, *reboot(local), *where)[0] == 75

    def test_file_system_that_may_be_shared_ends_nothing(self, local):
        leave_pid(local)
        options = f"lowerdir={local.directory},upperdir=$LAB/over/up,workdir=$LAB/over/work"
        make = 'mkdir -p "$LAB/over" && mount -t tmpfs tmpfs "$LAB/over" && mkdir "$LAB/over/up" "$LAB/over/work"'
        overlay = in_mounts(f"{make} && mount -t overlay -o {options} overlay {local.directory}")
        if subprocess.run(
            [*overlay, "true"], env=local.environment, capture_output=True
        ).returncode:
            pytest.skip("no overlay file system")

        assert try_job(local, *reboot(local), *overlay)[0] == 75

    def test_living_process_of_a_container_with_a_boot_id_of_its_own_holds(self, local):
        """As in LXC; even if the clock was stepped, so that its ticket seems to be older than this
        boot.
        """
        own = reboot(local)[: -len(STEPPED)]
        script = '"$SOLO" hold --pid $$ job && echo held && exec cat'
        process = local.start_words(*OLD, *INNER, *own, "sh", "-c", script)
        assert read_line(process) == "held"
        container = find_chain(process)[0]
        until(lambda: find_children(container))
        [holder] = find_children(container)
        os.kill(holder, signal.SIGKILL)
        wait_dead(holder)

        assert try_job(local, *STEPPED)[0] == 75
        os.kill(container, signal.SIGKILL)
        process.wait()
        assert try_job(local, *STEPPED) == (0, "")
