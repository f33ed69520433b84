"""Partial-order reduction: a step that commutes with all that other processes can do before it need
not be taken in every order.

The rules rest on the protocol: unpublished tickets and the text of the gate are only for the gate's
holder; directories and gates stay; nobody locks the ticket of another one but shared; the text of a
waiting ticket does not change; a launcher unlocks a ticket before it closes it (`Files.close`
verifies it), and a child only asks of its copy whether it is open. A scene in which they do not
hold is searched without it. A test compares the outcomes of a scene with and without.

The two processes of --tree also look at children, parents and signals, of which a kill or an end
may come first: there only what concerns files, the past, or a process itself is independent.
"""

from fcntl import LOCK_EX, LOCK_SH, LOCK_UN

from simulation import proc
from simulation.files import is_compatible

PRIVATE = ".new."  # begins the names of files that only their maker and the gate's holder use
TICKETS = (".seat.", ".hold.")
KILLS = ("kill", "group", "container")
SET_CHILD_SUBREAPER = 36


def is_independent(kernel, process):
    name, *words = process.call
    if name in ("begin", "fork"):
        return process.running is None or name == "begin"  # --tree sees what a command forks
    if proc.is_of_pair(process):
        return is_pair_independent(kernel, process, name, *words)
    if name == "_exit" or name == "kill" and words[0] == process.pid:
        return is_end_independent(kernel, process)
    if name == "execve":
        return not words[0]  # it fails
    if name == "sigtimedwait":  # its children send signals, and the schedule
        return not has_kills(kernel) and not any(
            child.is_alive for child in kernel.find_children(process, -1)
        )
    if name == "waitpid":
        return len(words) < 2 or not words[1] or not has_kills(kernel)
    if name in ("open", "stat", "readlink"):
        return is_name_independent(kernel, process, words[0])
    if name == "unlink":
        return words[0].startswith(PRIVATE)
    if name in ("read", "write", "close", "fstat", "pread", "pwrite", "flock"):
        return words[0] in process.descriptors and is_file_independent(
            kernel, process, name, *words
        )
    return False


def has_kills(kernel):
    return any(map(kernel.faults.get, KILLS))


def is_pair_independent(kernel, process, name, *words):
    if name == "waitpid" or name == "prctl" and words[0] == SET_CHILD_SUBREAPER:
        return not kernel.find_children(process, -1)  # nor will it adopt any
    if name in ("sendmsg", "recvmsg"):
        end = process.descriptors[words[0]][0].target
        return bool(name == "recvmsg" and end.messages) or not end.peer.ends["socket"]
    if name == "getppid":
        return not has_kills(kernel) or kernel.find_parent(process) is None
    if name in ("open", "stat"):
        return is_name_independent(kernel, process, words[0])
    if name not in ("read", "write", "close", "fstat", "pread", "pwrite", "flock"):
        return False
    file = process.descriptors[words[0]][0] if words[0] in process.descriptors else None
    is_shared = (
        name == "close" and file and file.kind == "file" and file.target.locks.get(file) == LOCK_EX
    )
    return file is not None and not is_shared and is_file_independent(kernel, process, name, *words)


def is_end_independent(kernel, process):
    """Return whether it is a launcher that nobody looks at (`proc.find` verifies it), and has given
    up all that others can see.
    """
    files = [file for file, _ in process.descriptors.values()]
    keeps = any(file.is_pipe or file.kind == "file" and file.target.locks for file in files)
    process.left_early = process.is_unseen and not keeps and not kernel.find_children(process, -1)
    return process.left_early


def is_name_independent(kernel, process, path):
    if path.startswith(PRIVATE) or path in (".", *kernel.never_made):
        return True
    if path.startswith(TICKETS):
        return False
    try:  # our child before its exec, or a directory or a gate that exists, which stays
        if path.startswith("/proc/"):
            other = proc.find(kernel, process, path.split("/")[2])
            return other.parent == process.pid and other.name == process.name
        folder, last = kernel.find_place(process, path, process.folder)
    except OSError:
        return False
    return last in folder.entries


def is_file_independent(kernel, process, name, fd, *words):
    file = process.descriptors[fd][0]
    if file.kind == "proc":
        return is_name_independent(kernel, process, file.target)
    if file.is_pipe:
        return name != "write" or not has_kills(kernel)
    if file.kind != "file":
        return False
    inode = file.target
    if inode.is_folder:
        return name == "fstat"
    if name == "fstat" and file.owner is not process:
        return True
    others = [other for other in kernel.processes.values() if other is not process]
    if not inode.links and not any(
        each.target is inode for other in others for each, _ in other.descriptors.values()
    ):
        return True  # it has no name any more, and nobody else has it open
    if name == "close":
        is_kept = any(each is file for each, _ in file.owner.descriptors.values())
        file.left_early = is_kept and file.owner is not process and not any(kernel.faults.values())
        return file.left_early or inode.locks.get(file) == LOCK_SH
    if name == "flock" and inode.name.startswith(TICKETS):
        is_free = (
            inode.locks.get(file) == LOCK_SH if words[0] & LOCK_UN else is_compatible(file, LOCK_SH)
        )
        return is_free and not words[0] & LOCK_EX
    if name == "pread" and inode.name.startswith(".seat."):
        return True
    return (
        inode.name.startswith(PRIVATE)
        or name != "flock"
        and inode.name == ".gate"
        and inode.locks.get(file) == LOCK_EX
    )
