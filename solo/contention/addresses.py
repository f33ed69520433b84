"""The addresses of all sockets of solo, as the kernel lists them. Views load this file, and
sockets.py only for a socket.
"""

import os

from solo.errors import SoloError
from solo.kernel import decode
from solo.record import unquote

PREFIX = "solo"
LISTENING = b"00010000"  # __SO_ACCEPTCON, among the flags in /proc/net/unix
READS = 3  # of /proc/net/unix


def list_addresses() -> "set[tuple[str, str]]":
    """Return {(name, the rest of the address)} of every listening socket of our user. Raises
    SoloError.

    The kernel gives its table page by page, and skips an entry if one before it, in the same hash
    bucket, goes just between two pages. So it is read several times. A ticket that was seen once is
    checked by connecting.
    """
    start = f"@{PREFIX}/{os.geteuid()}/".encode()
    found = set()
    for _ in range(READS):
        for line in read_table().splitlines():
            # ffff8881: 00000002 00000000 00010000 0001 01 12345
            # @solo/0/nightly/hold.1795204596767902.X..0.4711
            fields = line.split(None, 7)
            if len(fields) == 8 and fields[3] == LISTENING and fields[7].startswith(start):
                name, _, text = fields[7][len(start) :].rpartition(b"/")
                try:
                    found.add((decode(unquote(name)), decode(text)))
                except ValueError:
                    continue
    return found


def read_table() -> bytes:
    try:
        with open("/proc/net/unix", "rb", 0) as table:
            return table.read()
    except OSError as error:
        raise SoloError(f"cannot read /proc/net/unix: {error.strerror}") from None
