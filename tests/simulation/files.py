"""The files of the simulated kernel: inodes, names, descriptors, flock(2), pipes. Each method is a system call as `posix` or `fcntl` has it."""

import fcntl as real_fcntl
import os
import posix as real
from collections import namedtuple
from errno import EAGAIN, EBADF, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPIPE

from simulation import proc

Stat = namedtuple("Stat", "st_mode st_ino st_dev st_nlink st_uid st_gid st_size st_mtime st_ctime st_mtime_ns")
REGULAR, FOLDER, FIFO = 0o100000, 0o040000, 0o010000
LOCK_MODES = real_fcntl.LOCK_SH | real_fcntl.LOCK_EX
UNLOCKED = real_fcntl.F_UNLCK.to_bytes(2, "little") + bytes(30)  # the struct flock of a file without fcntl(2) locks


def fail(number):
    raise OSError(number, os.strerror(number))


class Inode:
    def __init__(self, number, mode, now=0.0):
        self.number, self.mode, self.data, self.links, self.entries = number, mode, b"", 0, {}
        self.changed = now  # its mtime and ctime
        self.locks, self.owners = {}, {}  # flock(2): OpenFile -> mode; fcntl(2): pid -> True
        self.name = ""  # the last one that it got

    @property
    def is_folder(self):
        return self.mode & FOLDER == FOLDER


class OpenFile:
    """The target of a descriptor: `kind` is file, pipe-read, pipe-write, proc, pidfd, links or null."""

    def __init__(self, number, kind, target, flags=0):
        self.number, self.kind, self.target, self.flags = number, kind, target, flags
        self.references, self.offset = 0, 0


class Pipe:
    def __init__(self, number):
        self.number, self.data, self.ends = number, b"", {"pipe-read": 0, "pipe-write": 0}


class Files:
    """Calls on files, for the process that makes them; a part of Kernel."""

    # --- descriptors ----------------------------------------------------------------------------------------------

    def get(self, process, fd):
        return process.descriptors[fd][0] if fd in process.descriptors else fail(EBADF)

    def install(self, process, file, flags=0, lowest=0):
        fd = next(number for number in range(lowest, 1 << 16) if number not in process.descriptors)
        self.attach(process, fd, file, bool(flags & real.O_CLOEXEC))
        return fd

    def attach(self, process, fd, file, is_closed_by_exec):
        process.descriptors[fd] = file, is_closed_by_exec
        file.references += 1
        if file.kind in ("pipe-read", "pipe-write"):
            file.target.ends[file.kind] += 1

    def drop(self, process, fd):
        file = self.get(process, fd)
        del process.descriptors[fd]
        file.references -= 1
        if file.kind in ("pipe-read", "pipe-write"):
            file.target.ends[file.kind] -= 1
        elif file.kind == "file":
            file.target.owners.pop(process.pid, None)
            if not file.references:
                file.target.locks.pop(file, None)

    def close(self, process, fd):
        self.drop(process, fd)

    def closerange(self, process, low, high):
        for fd in [fd for fd in process.descriptors if low <= fd < high]:
            self.drop(process, fd)

    def dup(self, process, fd):
        return self.install(process, self.get(process, fd), real.O_CLOEXEC)

    def dup2(self, process, fd, other, inheritable=True):
        file = self.get(process, fd)
        if other in process.descriptors:
            self.drop(process, other)
        self.attach(process, other, file, not inheritable)
        return other

    def get_inheritable(self, process, fd):
        self.get(process, fd)
        return not process.descriptors[fd][1]

    def set_blocking(self, process, fd, is_blocking):
        file = self.get(process, fd)
        file.flags = file.flags & ~real.O_NONBLOCK if is_blocking else file.flags | real.O_NONBLOCK

    # --- names ----------------------------------------------------------------------------------------------------

    def find_place(self, process, path, dir_fd=None):
        """Return (directory, last part) of a path."""
        folder = self.root if path[:1] == "/" or dir_fd is None else self.get(process, dir_fd).target
        *above, last = path.strip("/").split("/") if path.strip("/") else [""]
        for part in above:
            folder = self.look_up(folder, part)
        if not folder.is_folder:
            fail(ENOTDIR)
        return folder, last

    def look_up(self, folder, part):
        if not folder.is_folder:
            fail(ENOTDIR)
        return folder if part in ("", ".") else folder.entries.get(part) or fail(ENOENT)

    def make_inode(self, process, mode):
        return Inode(self.make_number(process), mode, self.now)

    def enter_name(self, process, folder, name, inode):
        if not folder.links:
            fail(ENOENT)  # it was removed
        folder.entries[name], inode.name = inode, name
        folder.changed = self.now
        self.published(process, folder, name)

    def open(self, process, path, flags, mode=0o777, *, dir_fd=None):
        path = path.decode() if isinstance(path, bytes) else path
        if path.startswith("/proc/") or path == "/dev/tty":
            return proc.open_file(self, process, path, flags)
        folder, last = self.find_place(process, path, dir_fd)
        if flags & real.O_TMPFILE == real.O_TMPFILE:
            inode = self.make_inode(process, REGULAR | mode)
            inode.name = ".tmp"
            return self.install(process, OpenFile(self.make_number(process), "file", inode, flags), flags)
        inode = folder if last in ("", ".") else folder.entries.get(last)
        if inode is None:
            if not flags & real.O_CREAT:
                fail(ENOENT)
            inode = self.make_inode(process, REGULAR | mode & ~process.umask)
            inode.links = 1
            self.enter_name(process, folder, last, inode)
        elif flags & real.O_CREAT and flags & real.O_EXCL:
            fail(EEXIST)
        elif flags & real.O_DIRECTORY and not inode.is_folder:
            fail(ENOTDIR)
        elif inode.is_folder and flags & (real.O_WRONLY | real.O_RDWR):
            fail(EISDIR)
        if flags & real.O_TRUNC:
            inode.data = b""
        return self.install(process, OpenFile(self.make_number(process), "file", inode, flags), flags)

    def mkdir(self, process, path, mode=0o777, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        if not last or last in folder.entries:
            fail(EEXIST)
        inode = self.make_inode(process, FOLDER | mode & ~process.umask)
        inode.links = 2
        self.enter_name(process, folder, last, inode)

    def rmdir(self, process, path, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        inode = self.look_up(folder, last)
        if inode.entries:
            fail(ENOTEMPTY)
        inode.links = 0
        del folder.entries[last]

    def unlink(self, process, path, *, dir_fd=None):
        folder, last = self.find_place(process, path, dir_fd)
        inode = self.look_up(folder, last)
        if inode.is_folder:
            fail(EISDIR)
        del folder.entries[last]
        folder.changed = self.now
        self.unlink_inode(inode)

    def unlink_inode(self, inode):
        inode.links -= 1

    def rename(self, process, old, new, *, src_dir_fd=None, dst_dir_fd=None):
        source, first = self.find_place(process, old, src_dir_fd)
        target, last = self.find_place(process, new, dst_dir_fd)
        inode = self.look_up(source, first)
        before = target.entries.get(last)
        if before is inode:
            return
        if before is not None:
            before.links -= 1
        del source.entries[first]
        self.enter_name(process, target, last, inode)

    def link(self, process, old, new, *, dst_dir_fd=None, follow_symlinks=True):
        inode = self.get(process, int(old.rpartition("/")[2])).target if old.startswith("/proc/self/fd/") else None
        if inode is None:
            folder, last = self.find_place(process, old)
            inode = self.look_up(folder, last)
        target, last = self.find_place(process, new, dst_dir_fd)
        if last in target.entries:
            fail(EEXIST)
        inode.links += 1
        self.enter_name(process, target, last, inode)

    # --- what a file has ------------------------------------------------------------------------------------------

    def fstat(self, process, fd):
        file = self.get(process, fd)
        if file.kind != "file":
            return Stat(FIFO | 0o600, 0, 0, 1, 0, 0, 0, 0.0, 0.0, 0)
        return self.make_stat(file.target)

    def stat(self, process, path, *, dir_fd=None, follow_symlinks=True):
        if path.startswith("/proc/"):
            return proc.stat_file(self, process, path)
        return self.make_stat(self.look_up(*self.find_place(process, path, dir_fd)))

    def make_stat(self, inode):
        time = self.started + inode.changed
        return Stat(inode.mode, inode.number, 1, inode.links, 0, 0, len(inode.data), time, time, int(time * 1e9))

    def access(self, process, path, mode, *, dir_fd=None, effective_ids=False):
        try:
            self.stat(process, path, dir_fd=dir_fd)
            return True
        except OSError:
            return False

    def utime(self, process, fd):
        self.get(process, fd).target.changed = self.now

    def fchmod(self, process, fd, mode):
        inode = self.get(process, fd).target
        inode.mode = inode.mode & ~0o7777 | mode

    def listdir(self, process, path):
        if path.startswith("/proc/self/fd/"):
            inode = self.get(process, int(path.rpartition("/")[2])).target
        elif path.startswith("/proc"):
            return proc.list_folder(self, process, path)
        else:
            inode = self.look_up(*self.find_place(process, path))
        return sorted(inode.entries)

    def readlink(self, process, path):
        path = path.decode() if isinstance(path, bytes) else path
        return proc.read_link(self, process, path) if path.startswith("/proc/") else fail(EINVAL)

    # --- data -----------------------------------------------------------------------------------------------------

    def can_read(self, process, fd, size):
        file = process.descriptors[fd][0] if fd in process.descriptors else None
        is_pipe = file is not None and file.kind == "pipe-read" and not file.flags & real.O_NONBLOCK
        return not is_pipe or file.target.data or not file.target.ends["pipe-write"]

    def read(self, process, fd, size):
        file = self.get(process, fd)
        if file.kind == "proc":
            return proc.read_file(self, process, file.target)[:size]
        if file.kind == "pipe-read":
            pipe = file.target
            if not pipe.data and pipe.ends["pipe-write"]:
                fail(EAGAIN)
            data, pipe.data = pipe.data[:size], pipe.data[size:]
            return data
        data = file.target.data[file.offset : file.offset + size]
        file.offset += len(data)
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
            offset = len(file.target.data) if file.flags & real.O_APPEND else file.offset
            self.put(file.target, data, offset)
            file.offset = offset + len(data)
        return len(data)

    def put(self, inode, data, offset):
        inode.data = inode.data[:offset].ljust(offset, b"\0") + bytes(data) + inode.data[offset + len(data) :]
        inode.changed = self.now

    def pread(self, process, fd, size, offset):
        return self.get(process, fd).target.data[offset : offset + size]

    def pwrite(self, process, fd, data, offset):
        self.put(self.get(process, fd).target, data, offset)
        return len(data)

    def pipe2(self, process, flags):
        pipe = Pipe(self.make_number(process))
        ends = [OpenFile(f"{pipe.number}{kind}", kind, pipe, flags) for kind in ("pipe-read", "pipe-write")]
        return tuple([self.install(process, end, flags) for end in ends])

    def pipe(self, process):
        return self.pipe2(process, real.O_CLOEXEC)

    # --- locks ----------------------------------------------------------------------------------------------------

    def can_flock(self, process, fd, mode):
        file = process.descriptors[fd][0] if fd in process.descriptors else None
        if file is None or mode & (real_fcntl.LOCK_NB | real_fcntl.LOCK_UN):
            return True
        return self.is_compatible(file, mode)

    def is_compatible(self, file, mode):
        others = [held for other, held in file.target.locks.items() if other is not file]
        return not others or not (mode | max(others)) & real_fcntl.LOCK_EX

    def flock(self, process, fd, mode):
        file = self.get(process, fd)
        locks = file.target.locks
        if mode & real_fcntl.LOCK_UN:
            locks.pop(file, None)
            return
        if locks.get(file) != mode & LOCK_MODES:
            locks.pop(file, None)  # a conversion is not atomic
            if not self.is_compatible(file, mode):
                fail(EAGAIN)
            locks[file] = mode & LOCK_MODES

    def lockf(self, process, fd, mode):
        owners = self.get(process, fd).target.owners
        if mode & real_fcntl.LOCK_UN:
            owners.pop(process.pid, None)
        elif set(owners) - {process.pid}:
            fail(EAGAIN)
        else:
            owners[process.pid] = True

    def fcntl(self, process, fd, command, request):
        self.get(process, fd)
        return UNLOCKED if command == real_fcntl.F_OFD_GETLK else fail(EINVAL)

    def watch_links(self, process, fd):
        """Return a descriptor that is readable once an open file has lost its name: inotify(7), which solo calls through libc."""
        file = OpenFile(self.make_number(process), "links", self.get(process, fd).target)
        file.flags = file.target.links
        return self.install(process, file, real.O_CLOEXEC)
