"""A program that prints a secret: asked within a time limit, and killed with us."""

import posix
from _signal import SIGKILL
from time import monotonic, sleep

from solo.errors import Unreachable

OUTPUT_LIMIT = 1 << 20  # bytes
TICK = 0.01  # seconds
# Runs $1. When our end of its stdin closes, as it does when solo dies, it kills its whole process
# group.
GUARD = (
    "exec 3<&0 </dev/null; (read -r line <&3; kill -KILL 0) >/dev/null & exec 3<&-;"
    ' (eval "$1"); code=$?; kill -KILL $!; wait $! 2>/dev/null; exit $code'
)


def ask_program(command: str, what: str, timeout: float) -> bytes:
    """Return what a shell command prints. Raises Unreachable, about `what`, at its time limit.

    It runs in a process group of its own, which does not outlive us.
    """
    from select import POLLIN, poll

    read, write = posix.pipe2(posix.O_CLOEXEC)
    guard, lifeline = posix.pipe2(posix.O_CLOEXEC)
    try:
        actions = [(posix.POSIX_SPAWN_DUP2, write, 1), (posix.POSIX_SPAWN_DUP2, guard, 0)]
        shell = ["sh", "-c", GUARD, "sh", command]
        pid = posix.posix_spawn(
            "/bin/sh", shell, posix.environ, file_actions=actions, setpgroup=0, setsigmask=[]
        )
    except BaseException:
        posix.close(read)
        posix.close(lifeline)
        raise
    finally:
        posix.close(write)
        posix.close(guard)
    data = b""
    deadline = monotonic() + timeout
    until = 0.0
    try:
        poller = poll()
        poller.register(read, POLLIN)
        while len(data) < OUTPUT_LIMIT:
            if not poller.poll(max(0.0, deadline - monotonic()) * 1000):
                raise Unreachable(f"{what}: no answer")
            piece = posix.read(read, 1 << 16)
            if not piece:
                break
            data += piece
        until = deadline
    finally:
        posix.close(read)
        try:
            reap(pid, until)
        finally:
            posix.close(lifeline)
    return data


def reap(pid: int, deadline: float) -> None:
    """Collect the process. At the deadline kill it with its group, even if it has ended itself."""
    try:
        while monotonic() < deadline:
            if posix.waitpid(pid, posix.WNOHANG)[0]:
                return
            sleep(TICK)
        posix.killpg(pid, SIGKILL)
        posix.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):
        pass  # the launcher's main thread reaps all children
