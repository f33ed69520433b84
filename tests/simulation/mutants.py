"""Faults put into the hot path, as texts of its files: the simulation finds each one, or the row says why it cannot matter.

A fault that is found here needs no test of real processes, beyond one of each kind.
"""

# fmt: off
# (name, file, text, other text, scene that finds it)
FOUND = [
    ("gate not locked", "gate.py", "if not try_lock(self.fd, LOCK_EX):", "if False:", "three"),
    ("removed gate used", "gate.py", "if not self.is_lost():\n                    self.load()", "if True:\n                    self.load()", "clean"),
    ("gate used after its patience", "gate.py", "        if not wait_lock(self.fd, LOCK_EX, min(deadline, begin + GATE_PATIENCE / 4)):", "        if not wait_lock(self.fd, LOCK_EX, min(deadline, begin + GATE_PATIENCE / 4)) and not begin:", "stops"),
    ("counter not raised", "gate.py", "self.write_lines([number, *left])", "self.write_lines([number - 1, *left])", "two-kills"),
    ("ticket not locked", "tickets.py", "        flock(fd, LOCK_EX | LOCK_NB)\n        return FileTicket", "        return FileTicket", "two-plain"),
    ("ticket published unwritten", "tickets.py", "new, file = UNPUBLISHED + number, kind + number", "new = file = kind + number", "two-kills"),
    ("ticket published before it is written", "tickets.py", "            ticket = self.write_ticket(file, fd, record)\n            posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)\n", "            posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)\n            ticket = self.write_ticket(file, fd, record)\n", "two-kills"),
    ("orphan taken for dead", "tickets.py", "return {True: ORPHANED, False: DEAD, None: unseen}[lives]", "return {True: DEAD, False: DEAD, None: unseen}[lives]", "two-kills"),
    ("dead command taken for an orphan", "tickets.py", "return {True: ORPHANED, False: DEAD, None: unseen}[lives]", "return {True: ORPHANED, False: ORPHANED, None: unseen}[lives]", "two-kills"),
    ("orphan removed", "obstacles.py", "if ticket is None or ticket.state in (LIVE, ORPHANED):\n        return ticket", "if ticket is None or ticket.state is LIVE:\n        return ticket", "two-kills"),
    ("dead ticket kept", "tickets.py", "        if record.child is None:\n            return DEAD", "        if record.child is None:\n            return LIVE", "two-kills"),
    ("pid without its start", "identity.py", "apart <= (theirs.time_namespace != mine.time_namespace)", "apart <= 9e9", "pids"),
    ("waiters overtaken", "obstacles.py", "if ignores is None or not ignores(", "if ignores is not None and not ignores(", "four"),
    ("unpublished tickets left", "obstacles.py", "            queue.remove(file)  # its maker", "            pass  # its maker", "two-kills"),
    ("record after the go message", "start.py", "            for hold in holds:\n                hold.complete((child.pid, child.start))", "            send_go(child.go, b\"\\0\".join([*variables, GO]))\n            for hold in holds:\n                hold.complete((child.pid, child.start))", "two-kills"),
    ("one of two holds recorded", "start.py", "for hold in holds:\n                hold.complete(", "for hold in holds[:1]:\n                hold.complete(", "names"),
    ("command starts without its launcher", "start.py", "        if not part:\n            return None", "        if not part:\n            return []", "two-kills"),
    ("child keeps its end of the go pipe", "start.py", "                    posix.close(go)\n", "                    pass\n", "two-kills"),
    ("go pipe inherited", "start.py", "posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)", "posix.pipe2(posix.O_NONBLOCK)", "two-plain"),
    ("tickets inherited", "kernel.py", "SAFELY = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY", "SAFELY = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_NOCTTY", "two-plain"),
    ("signals left blocked", "start.py", "            posix.kill(posix.getpid(), signal)\n        _signal.pthread_sigmask(SIG_SETMASK, self.mask)", "            posix.kill(posix.getpid(), signal)", "two-plain"),
    ("another process recorded", "tickets.py", "text = format_start(self.record, child)", "text = format_start(self.record, self.record.launcher)", "two-plain"),
    ("command not read from a record", "record.py", "record.child = parse_closing(tail)", "record.child = None", "two-kills"),
    ("reader beside a writer", "modes.py", "    EXCLUSIVE: (),\n    SHARED: (SHARED, INTEND_SHARED),", "    EXCLUSIVE: (SHARED,),\n    SHARED: (SHARED, INTEND_SHARED, EXCLUSIVE),", "readers"),
    ("one slot too many", "modes.py", "<= min(limit, wanted.slots):", "<= min(limit, wanted.slots) + 1:", "slots"),
    ("weak intention on parents", "modes.py", "EXCLUSIVE: INTEND_EXCLUSIVE,", "EXCLUSIVE: INTEND_SHARED,", "nested"),
    ("names in the order typed", "modes.py", "return sorted(claims.items(), key=lambda item: item[0].split(\"/\"))", "return list(claims.items())", "names"),
    ("deadlock not looked for", "queue.py", "        if was_new:\n", "        if False:\n", "deadlock"),
    ("first contender refused by a second", "directories.py", "    except FileExistsError:\n        pass  # another contender was faster", "    except FileExistsError:\n        raise SoloError(\"exists\")", "first"),
    ("gate made but once", "directories.py", "for creating in (0, posix.O_CREAT | posix.O_EXCL, 0):", "for creating in (0, posix.O_CREAT | posix.O_EXCL):", "first"),
    ("holder without the locks", "process/holder.py", "kept = [fd for ticket in tickets for fd in ticket.descriptors]", "kept = []", "two-namespaces"),
    ("holder after the go message", "start.py", "            if self.holder is not None:\n                self.holder.begin", "            send_go(child.go, b\"\\0\".join([*variables, GO]))\n            if self.holder is not None:\n                self.holder.begin", "two-namespaces"),
    ("one of two kept holds recorded", "commands/hold.py", "            for hold in self.holds:\n                hold.complete", "            for hold in self.holds[:1]:\n                hold.complete", "hold-names"),
    ("name removed with a live waiter", "commands/clean.py", "                ticket: Any = find_living(queue, file)\n                if ticket", "                ticket: Any = queue.remove(file)\n                if ticket", "clean"),
    ("contender refused by clean", "gate.py", "        except FileNotFoundError:  # in", "        except BlockingIOError:  # in", "clean-twice"),
    ("counter lost by clean", "commands/clean.py", "(queue.gate.read_counter() or 0) < time() * 1e6", "True", "clean-twice"),
    ("killed command refused", "process/holder.py", "            return  # killed just now: waitpid(2) shows it", "            raise", "namespaces"),
]

# (name, file, text, other text, scene, why no promise is broken)
HARMLESS = [
    ("ticket locked after its rename", "tickets.py", "            posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)\n", "            flock(fd, LOCK_UN)\n            posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)\n            flock(fd, LOCK_EX | LOCK_NB)\n", "two-kills", "only the gate's holder judges a ticket, and the maker has the gate"),
    ("unlocked before it is removed", "tickets.py", "        self.queue.remove(self.file)\n        try:\n            flock(self.fd, LOCK_UN)  # not left to close(): a forked copy of the descriptor must not keep the lock\n", "        try:\n            flock(self.fd, LOCK_UN)\n            self.queue.remove(self.file)\n", "two-kills", "its command has ended: a dead ticket is removed by the next contender, and its number is never used again"),
    ("oldest waiter waited for", "obstacles.py", "nearest = max(waiters)", "nearest = min(waiters)", "three", "the order is the same, but each change wakes all waiters"),
    ("early child keeps descriptors", "contention/handoff.py", "    close_private(ready)\n", "", "two-handoff-kills", "it ends with its launcher, at the end of the pipe; a stopped one would keep the lock"),
    ("gate opened without O_EXCL", "directories.py", "posix.O_CREAT | posix.O_EXCL, 0)", "posix.O_CREAT, 0)", "first", "the second open finds the file of the first; O_EXCL is for other users' files"),
    ("child not killed when dismissed", "start.py", "        end_child(child.pid)\n", "", "errors", "it ends at the end of the pipe; the kill is for a stopped one"),
    ("orphan waited for by its lock", "tickets.py", "        if self.state is ORPHANED:\n            from", "        if self.state is DEAD:\n            from", "two-kills", "it spins until its turn: of promise 7, which the real kernel shows"),
    ("wait that returns at once", "tickets.py", "return wait_lock(self.fd, LOCK_SH, deadline)", "return True", "two-plain", "it spins until its turn: of promise 7, which the real kernel shows"),
]
