"""Does the process of a record live, whose boot id and host name are not ours? A reboot changes the
one, DHCP the other.

But a container of LXC has a boot id and a host name of its own, and a file system may be another
machine's too.
"""

from solo.identity import FIRST_TIME_NAMESPACE, search_everywhere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.tickets import FileTicket  # a FileTicket is judged by it

# On which only this machine's kernel writes.
LOCAL = (b"ext4", b"xfs", b"btrfs", b"tmpfs", b"f2fs", b"zfs")


def is_alive_after_boot(ticket: "FileTicket") -> "bool | None":
    """Return whether the process of an unlocked ticket lives; None if that cannot be known."""
    record, mine = ticket.record, ticket.queue.origin
    assert record is not None and record.child is not None
    lives = search_everywhere(*record.child, record.origin, mine)
    if lives is not False:
        return lives
    # so is our pid namespace, as all were searched
    is_first = mine.time_namespace in (FIRST_TIME_NAMESPACE, "-")
    try:
        is_ours = (
            is_first
            and ticket.queue.is_of_earlier_boot(ticket)
            and read_mount(ticket.fd)[0] in LOCAL
        )
        return False if is_ours else None
    except OSError:
        return None


def read_mount(fd: int) -> "tuple[bytes, bytes]":
    """Return what find_mount does for an open file. Raises OSError."""
    with (
        open(f"/proc/self/fdinfo/{fd}", "rb") as info,
        open("/proc/self/mountinfo", "rb") as mounts,
    ):
        return find_mount(info.read(), mounts.read())


def find_mount(info: bytes, mounts: bytes) -> "tuple[bytes, bytes]":
    """Return (type, options) of the file system whose mount a /proc/PID/fdinfo/FD names, from a
    /proc/PID/mountinfo; both b"" if unknown. The mount may have more options. Pure.
    """
    # By the mount, not by the device: each subvolume of btrfs has a device that no mount shows.
    mount = info.partition(b"\nmnt_id:")[2].split(None, 1)[:1]
    for line in mounts.split(b"\n"):
        if mount and line.split(b" ", 1)[:1] == mount:
            kind, _, options = line.partition(b" - ")[2].split(b" ", 2)
            return kind, options
    return b"", b""
