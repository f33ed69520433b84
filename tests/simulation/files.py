"""The files of the simulated kernel: inodes, names, descriptors, flock(2), pipes. Each method is a
system call as `posix` or `fcntl` has it.
"""

import fcntl as real_fcntl
import os
import posix as real
from collections import namedtuple
from errno import EAGAIN, EBADF, EEXIST, EINVAL, ENOENT, ENOTEMPTY, EPIPE

from simulation import proc
from simulation.proc import fail

Stat = namedtuple(
    "Stat", "st_mode st_ino st_dev st_nlink st_uid st_gid st_size st_mtime st_ctime st_mtime_ns"
)
BOOT = 1_700_000_000.0  # when the simulated machine started, in seconds since the epoch
REGULAR, FOLDER, FIFO = 0o100000, 0o040000, 0o010000
LOCK_MODES = real_fcntl.LOCK_SH | real_fcntl.LOCK_EX
UNLOCKED = real_fcntl.F_UNLCK.to_bytes(2, "little") + bytes(
    30
)  # the struct flock of a file without fcntl(2) locks


class Inode:
    def __init__(self, number, mode, now=0.0, links=0):
        self.number, self.mode, self.data, self.links, self.entries = number, mode, b"", links, {}
        self.changed, self.set_to = now, None  # its ctime and mtime; the mtime that it was set to
        self.locks = {}  # OpenFile -> mode
        self.name = ""  # the last one that it got
        self.ends = {
            "pipe-read": 0,
            "pipe-write": 0,
            "socket": 0,
        }  # of a pipe or socket: descriptors
        self.messages, self.peer = [], None  # of a socket: (bytes, the files on their way) to read
        self.is_folder = mode & FOLDER == FOLDER


class OpenFile:
    """The target of a descriptor: `kind` is file, pipe-read, pipe-write, socket, proc, pidfd, links
    or null. `owner` opened it.
    """

    left_early = False

    def __init__(self, kind, target, flags=0, owner=None):
        self.kind, self.target, self.flags, self.owner = kind, target, flags, owner
        self.is_pipe, self.references, self.offset = kind.startswith("pipe"), 0, 0


class Files:
    """Calls on files, for the process that makes them; a part of Kernel."""

    # --- descriptors
    def get(self, process, fd):
        return process.descriptors[fd][0] if fd in process.descriptors else fail(EBADF)

    def install(self, process, kind, target, flags=0):
        """Return a new descriptor."""
        file = OpenFile(kind, target, flags, process)
        return self.attach(process, file, bool(flags & real.O_CLOEXEC))

    def attach(self, process, file, is_closed_by_exec, fd=None):
        if fd is None:
            fd = next(fd for fd in range(1 << 16) if fd not in process.descriptors)
        process.descriptors[fd] = file, is_closed_by_exec
        file.references += 1
        if file.is_pipe or file.kind == "socket":
            file.target.ends[file.kind] += 1
        return fd

    def close(self, process, fd):
        file = self.get(process, fd)
        del process.descriptors[fd]
        self.release(process, file)
        if file.is_pipe or file.kind == "socket":
            file.target.ends[file.kind] -= 1
        if file.kind == "socket" and not file.references:
            for lost in [lost for _, files in file.target.messages for lost in files]:
                self.release(process, lost)

    def release(self, process, file):
        """Drop a reference; with the last one, the lock."""
        file.references -= 1
        if file.kind == "file" and not file.references:
            mode = file.target.locks.pop(file, None)
            if file.left_early and mode == real_fcntl.LOCK_EX:
                self.violate(
                    f"pid {process.pid} closes {file.target.name}, locked: is_file_independent is wrong"
                )

    def closerange(self, process, low, high):
        for fd in [fd for fd in process.descriptors if low <= fd < high]:
            self.close(process, fd)

    def dup(self, process, fd):
        return self.attach(process, self.get(process, fd), True)

    def get_inheritable(self, process, fd):
        self.get(process, fd)
        return not process.descriptors[fd][1]

    def set_blocking(self, process, fd, is_blocking):
        file = self.get(process, fd)
        file.flags = file.flags & ~real.O_NONBLOCK if is_blocking else file.flags | real.O_NONBLOCK

    # --- names
    def find_place(self, process, path, dir_fd=None):
        """Return (directory, last part) of a path."""
        folder = (
            self.root if path[:1] == "/" or dir_fd is None else self.get(process, dir_fd).target
        )
        *above, last = path.strip("/").split("/")
        for part in above:
            folder = self.look_up(folder, part)
        return folder, last

    def look_up(self, folder, part):
        assert folder.is_folder
        return folder if part in ("", ".") else folder.entries.get(part) or fail(ENOENT)

    def enter_name(self, process, folder, name, inode):
        if not folder.links:
            fail(ENOENT)  # it was removed
        assert name not in self.never_made
        folder.entries[name], inode.name = inode, name
        folder.changed = self.now
        self.published(process, folder, name)

    def open(self, process, path, flags, mode=0o777, *, dir_fd=None):
        path = os.fsdecode(path)
        if path.startswith("/proc/") or path == "/dev/tty":
            return self.install(process, "proc", proc.find_file(self, process, path), flags)
        folder, last = self.find_place(process, path, dir_fd)
        if flags & real.O_CREAT and last not in folder.entries:
            self.enter_name(
                process, folder, last, Inode(self.make_number(process), REGULAR | mode, self.now, 1)
            )
        elif flags & real.O_CREAT and flags & real.O_EXCL:
            fail(EEXIST)
        inode = self.look_up(folder, last)
        assert not flags & real.O_TRUNC and (inode.is_folder or not flags & real.O_DIRECTORY)
        return self.install(process, "file", inode, flags)

    def mkdir(self, process, path, mode=0o777, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        if not last or last in folder.entries:
            fail(EEXIST)
        self.enter_name(
            process, folder, last, Inode(self.make_number(process), FOLDER | mode, self.now, 2)
        )

    def rmdir(self, process, path, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        if self.look_up(folder, last).entries:
            fail(ENOTEMPTY)
        folder.entries.pop(last).links = 0

    def unlink(self, process, path, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        assert not self.look_up(folder, last).is_folder
        folder.entries.pop(last).links -= 1
        folder.changed = self.now

    def rename(self, process, old, new, *, src_dir_fd=None, dst_dir_fd=None):
        source, first = self.find_place(process, old, src_dir_fd)
        target, last = self.find_place(process, new, dst_dir_fd)
        assert last not in target.entries
        self.enter_name(process, target, last, self.look_up(source, first))
        del source.entries[first]

    # --- what a file has
    def fstat(self, process, fd):
        target = self.get(process, fd).target
        return self.make_stat(target if isinstance(target, Inode) else self.null.target)

    def stat(self, process, path, *, dir_fd=None, follow_symlinks=True):
        if path.startswith("/proc/"):
            return proc.stat_file(self, process, path)
        return self.make_stat(self.look_up(*self.find_place(process, path, dir_fd)))

    def make_stat(self, inode):
        time = BOOT + inode.changed
        mtime = time if inode.set_to is None else inode.set_to
        return Stat(
            inode.mode,
            inode.number,
            1,
            inode.links,
            0,
            0,
            len(inode.data),
            mtime,
            time,
            int(time * 1e9),
        )

    def access(self, process, path, mode, *, dir_fd=None, effective_ids=False):
        try:
            return bool(self.stat(process, path, dir_fd=dir_fd))
        except OSError:
            return False

    def utime(self, process, file, times=None, *, dir_fd=None, follow_symlinks=True):
        is_fd = isinstance(file, int)
        inode = (
            self.get(process, file).target
            if is_fd
            else self.look_up(*self.find_place(process, file, dir_fd))
        )
        inode.changed, inode.set_to = self.now, times and times[1]

    def listdir(self, process, path):
        if path.startswith("/proc/self/fd/"):
            return sorted(self.get(process, int(path.rpartition("/")[2])).target.entries)
        return proc.list_folder(self, process, path)

    def readlink(self, process, path):
        path = os.fsdecode(path)
        return proc.read_link(self, process, path) if path.startswith("/proc/") else fail(EINVAL)

    # --- data
    def can_read(self, process, fd, size):
        file = process.descriptors[fd][0] if fd in process.descriptors else None
        return (
            file is None
            or file.kind != "pipe-read"
            or file.flags & real.O_NONBLOCK
            or is_readable(file.target)
        )

    def read(self, process, fd, size):
        file = self.get(process, fd)
        if file.kind == "proc":
            return proc.read_file(self, process, file.target)[:size]
        assert file.kind == "pipe-read"
        pipe = file.target
        if not is_readable(pipe):
            fail(EAGAIN)
        data, pipe.data = pipe.data[:size], pipe.data[size:]
        return data

    def write(self, process, fd, data):
        file = self.get(process, fd)
        if file.kind == "null":
            process.output += bytes(data)
        elif file.kind == "pipe-write":
            if not file.target.ends["pipe-read"]:
                fail(EPIPE)
            file.target.data += bytes(data)
        else:
            assert file.flags & real.O_APPEND
            self.pwrite(process, fd, data, len(file.target.data))
        return len(data)

    def pread(self, process, fd, size, offset):
        return self.get(process, fd).target.data[offset : offset + size]

    def pwrite(self, process, fd, data, offset):
        inode = self.get(process, fd).target
        inode.data = (
            inode.data[:offset].ljust(offset, b"\0")
            + bytes(data)
            + inode.data[offset + len(data) :]
        )
        inode.changed = self.now
        return len(data)

    def pipe2(self, process, flags):
        pipe = Inode(self.make_number(process), FIFO | 0o600)
        return self.install(process, "pipe-read", pipe, flags), self.install(
            process, "pipe-write", pipe, flags
        )

    def socketpair(self, process):
        ends = [Inode(self.make_number(process), FIFO | 0o600) for _ in range(2)]
        ends[0].peer, ends[1].peer = reversed(ends)
        return tuple([self.install(process, "socket", end, real.O_CLOEXEC) for end in ends])

    def sendmsg(self, process, fd, data, fds=()):
        peer = self.get(process, fd).target.peer
        if not peer.ends["socket"]:
            fail(EPIPE)
        files = [self.get(process, each) for each in fds]
        for file in files:
            file.references += 1
        peer.messages.append((bytes(data), files))

    def recvmsg(self, process, fd):
        """Return (bytes, descriptors) of a message."""
        end = self.get(process, fd).target
        if not end.messages:
            return fail(EAGAIN) if end.peer.ends["socket"] else (b"", ())
        data, files = end.messages.pop(0)
        fds = [self.attach(process, file, True) for file in files]
        for file in files:
            file.references -= 1
        return data, tuple(fds)

    # --- locks
    def can_flock(self, process, fd, mode):
        file = process.descriptors[fd][0] if fd in process.descriptors else None
        return (
            file is None
            or mode & (real_fcntl.LOCK_NB | real_fcntl.LOCK_UN)
            or is_compatible(file, mode)
        )

    def flock(self, process, fd, mode):
        file = self.get(process, fd)
        locks = file.target.locks
        if mode & real_fcntl.LOCK_UN:
            locks.pop(file, None)
        elif locks.get(file) != mode & LOCK_MODES:
            locks.pop(file, None)  # a conversion is not atomic
            if not is_compatible(file, mode):
                fail(EAGAIN)
            locks[file] = mode & LOCK_MODES

    def fcntl(self, process, fd, command, request):
        self.get(process, fd)
        return UNLOCKED if command == real_fcntl.F_OFD_GETLK else fail(EINVAL)

    def watch_links(self, process, fds):
        """Return a descriptor that is readable once an open file has lost its name: inotify(7),
        which solo calls through libc.
        """
        inodes = [self.get(process, fd).target for fd in fds]
        file = OpenFile("links", inodes)
        file.offset = [inode.links for inode in inodes]
        return self.attach(process, file, True)


def is_readable(pipe):
    return pipe.data or not pipe.ends["pipe-write"]


def is_compatible(file, mode):
    others = [held for other, held in file.target.locks.items() if other is not file]
    return not others or not (mode | max(others)) & real_fcntl.LOCK_EX
