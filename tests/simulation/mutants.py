"""Faults put into the hot path: the simulation finds each one, or the row says why it cannot
matter.

A fault that is found here needs no test of real processes, beyond one of each kind.
"""

from simulation.faults import Fault

RENAME = "posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)"
SEND_GO = 'send_go(child.go, b"\\0".join([*variables, GO]))'
PAIR = "self.pair.begin(child.pid, holds)"
COMPLETE = "hold.complete((child.pid, child.start))"

# fmt: off
FOUND = [
    Fault("gate not locked", "gate.py FileGate.__enter__", "not try_lock(self.fd, LOCK_EX)", "False", "three"),
    Fault(
        "judge without a policy", "contention/judge.py Rehearsal.__init__",
        "super().__init__(queue, *words)", "super().__init__(queue, *words[:3])", "max-waiting",
    ),
    Fault(
        "judge without a deadline", "contention/judge.py Rehearsal.__init__",
        "super().__init__(queue, *words)", 'super().__init__(queue, words[0], float("inf"), *words[2:])', "busy",
    ),
    Fault("removed gate used", "gate.py FileGate.__enter__", "not self.is_lost()", "True", "clean"),
    Fault(
        "gate used after its patience", "gate.py FileGate.wait",
        "not wait_lock(self.fd, LOCK_EX, min(deadline, begin + GATE_PATIENCE / 4))",
        "not wait_lock(self.fd, LOCK_EX, min(deadline, begin + GATE_PATIENCE / 4)) and not begin",
        "stops",
    ),
    Fault("counter not raised", "gate.py FileGate.write_number", "[number, *left]", "[number - 1, *left]", "two-kills"),
    Fault("ticket not locked", "tickets.py FileQueue.write_ticket", "flock(fd, LOCK_EX | LOCK_NB)", "None", "two-plain"),
    Fault(
        "ticket published unwritten", "tickets.py FileQueue.publish",
        "new, file = UNPUBLISHED + number, kind + number",
        "new = file = kind + number",
        "two-kills",
    ),
    Fault(
        "ticket published before it is written", "tickets.py FileQueue.publish",
        f"ticket = self.write_ticket(file, fd, record); {RENAME}",
        f"{RENAME}; ticket = self.write_ticket(file, fd, record)",
        "two-kills",
    ),
    Fault(
        "orphan taken for dead", "tickets.py FileQueue.judge",
        "{True: ORPHANED, False: DEAD, None: unseen}", "{True: DEAD, False: DEAD, None: unseen}", "two-kills",
    ),
    Fault(
        "dead command taken for an orphan", "tickets.py FileQueue.judge",
        "{True: ORPHANED, False: DEAD, None: unseen}", "{True: ORPHANED, False: ORPHANED, None: unseen}", "two-kills",
    ),
    Fault("orphan removed", "obstacles.py find_living", "ticket.state in (LIVE, ORPHANED)", "ticket.state is LIVE", "two-kills"),
    Fault(
        "dead ticket kept", "tickets.py FileQueue.judge",
        "if record.child is None: return DEAD", "if record.child is None: return LIVE", "two-kills",
    ),
    Fault(
        "pid without its start", "identity.py Stat.is_same",
        "apart <= (theirs.time_namespace != mine.time_namespace)", "apart <= 9e9", "pids",
    ),
    Fault(
        "waiters overtaken", "obstacles.py find_obstacles",
        "ignores is None or not ignores(ticket, record)", "ignores is not None and not ignores(ticket, record)", "four",
    ),
    Fault(
        "unpublished tickets left", "obstacles.py find_obstacles",
        "if file.startswith(UNPUBLISHED): queue.remove(file)", "pass", "two-kills",
    ),
    Fault(
        "record after the go message", "start.py Starter.start",
        f"for hold in holds: {COMPLETE}", f"{SEND_GO}\nfor hold in holds: {COMPLETE}", "two-kills",
    ),
    Fault(
        "one of two holds recorded", "start.py Starter.start",
        f"for hold in holds: {COMPLETE}", f"for hold in holds[:1]: {COMPLETE}", "names",
    ),
    Fault(
        "command starts without its launcher", "start.py wait_go",
        "if not part: return None", "if not part: return []", "two-kills",
    ),
    Fault(
        "child keeps its end of the go pipe", "start.py Starter.fork",
        "posix.close(go)", "None",
        "two-kills",
    ),
    Fault(
        "go pipe inherited", "start.py Starter.fork",
        "posix.O_CLOEXEC | posix.O_NONBLOCK", "posix.O_NONBLOCK", "two-plain",
    ),
    Fault(
        "tickets inherited", "kernel.py",
        "posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY",
        "posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_NOCTTY",
        "two-plain",
    ),
    Fault(
        "signals left blocked", "start.py InheritedState.restore",
        "_signal.pthread_sigmask(SIG_SETMASK, self.mask)", "None", "two-plain",
    ),
    Fault(
        "another process recorded", "tickets.py FileTicket.complete",
        "format_start(self.record, child)", "format_start(self.record, self.record.launcher)", "two-plain",
    ),
    Fault("command not read from a record", "record.py parse_record", "parse_closing(tail)", "None", "two-kills"),
    Fault("reader beside a writer", "modes.py", "(SHARED, INTEND_SHARED)", "(SHARED, INTEND_SHARED, EXCLUSIVE)", "readers"),
    Fault(
        "one slot too many", "modes.py find_conflicts",
        "min(limit, wanted.slots)", "min(limit, wanted.slots) + 1", "slots",
    ),
    Fault(
        "weak intention on parents", "modes.py",
        "{EXCLUSIVE: INTEND_EXCLUSIVE, SHARED: INTEND_SHARED, SLOTS: INTEND_EXCLUSIVE}",
        "{EXCLUSIVE: INTEND_SHARED, SHARED: INTEND_SHARED, SLOTS: INTEND_EXCLUSIVE}",
        "nested",
    ),
    Fault(
        "names in the order typed", "modes.py plan_claims",
        "sorted(claims.items(), key=lambda item: item[0].split('/'))", "list(claims.items())", "names",
    ),
    Fault("token of one spelling", "acquire.py choose_named", "wanted.is_pair", "not wanted", "pairs"),
    Fault("deadlock not looked for", "queue.py Attempt.advance", "self.refuse_deadlock()", "None", "deadlock"),
    Fault(
        "knot overlooked", "contention/knots.py find_in_the_way",
        "return [held[at] for at in sorted(found)]",
        "return [held[at] for at in sorted(found)] if len(found) < 2 else []",
        "knot",
    ),
    Fault("first contender refused by a second", "directories.py make_part", "pass", "raise SoloError('exists')", "first"),
    Fault(
        "gate made but once", "directories.py open_file",
        "(0, posix.O_CREAT | posix.O_EXCL, 0)", "(0, posix.O_CREAT | posix.O_EXCL)", "first",
    ),
    Fault(
        "holder without the locks", "process/holder.py fork_keeper",
        "[*watched, *(fd for ticket in tickets for fd in ticket.descriptors)]", "watched", "two-namespaces",
    ),
    Fault(
        "holder after the go message", "start.py Starter.start",
        "self.holder.begin((child.pid, child.start), [hold for hold in holds if isinstance(hold, Ticket)])",
        f"({SEND_GO}, self.holder.begin((child.pid, child.start), [hold for hold in holds if isinstance(hold, Ticket)]))",
        "two-namespaces",
    ),
    Fault(
        "one of two kept holds recorded", "commands/hold.py Keeping.keep",
        "for hold in self.holds: hold.complete(self.kept.identity)",
        "for hold in self.holds[:1]: hold.complete(self.kept.identity)",
        "hold-names",
    ),
    Fault(
        "name removed with a live waiter", "commands/clean.py clean_queue",
        "find_living(queue, file)", "queue.remove(file)", "clean",
    ),
    Fault("contender refused by clean", "gate.py FileGate.open", "FileNotFoundError", "BlockingIOError", "clean-twice"),
    Fault(
        "counter lost by clean", "commands/clean.py clean_queue",
        "(queue.gate.read_counter() or 0) < time() * 1e6", "True", "clean-twice",
    ),
    Fault(
        "stopped command taken for an ended one", "supervise.py reap",
        "posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status)", "posix.WIFCONTINUED(status)", "stop-probe",
    ),
    Fault("SIGCONT not forwarded", "supervise.py must_forward", "is_stopped(child.pid)", "False", "suspends"),
    Fault("tree not adopted", "process/limits.py Termination.__init__", "become_subreaper()", "None", "tree"),
    Fault(
        "holds not shared by a pair", "process/pair.py Lower.begin",
        "for hold in holds: self.share(hold)", "pass", "tree-kill",
    ),
    Fault("holds shared after the go message", "start.py Starter.start", PAIR, f"({SEND_GO}, {PAIR})", "tree-kill"),
    Fault("pair in one group", "process/pair.py Lower.begin", "posix.setsid()", "None", "trees-group"),
    Fault(
        "lower process dies with the upper", "process/pair.py Lower.begin",
        "load_prctl()(SET_PDEATHSIG, WAKE_SIGNAL)", "None", "trees",
    ),
    Fault(
        "upper process does not go on", "process/upper.py Upper.collect",
        "self.take_over(child, status)", "None", "tree-kill",
    ),
    Fault("status kept from the upper process", "process/pair.py Lower.collect", 'self.say("status", status)', "None", "tree-kill"),
    Fault(
        "tree left by a killed upper process", "process/pair.py Lower.obey",
        "self.run.plan.no_orphan and not self.has_upper()", "False", "tree-no-orphan-probe",
    ),
    Fault(
        "tree left by a killed lower process", "process/upper.py Upper.take_over",
        "plan.no_orphan or plan.is_socket or plan.is_remote", "False", "tree-no-orphan-probe",
    ),
    Fault(
        "lock of a holder believed where its process is seen", "tickets.py FileQueue.judge",
        "{True: ORPHANED, False: DEAD, None: unseen}",
        "{True: DEAD if record.is_guarded else ORPHANED, False: DEAD, None: unseen}", "hold-probe --exhaustive",
    ),
    Fault(
        "unseen kept hold never dead", "tickets.py FileQueue.judge",
        "record.is_kept and not record.is_guarded", "record.is_kept", "hold-container",
    ),
    Fault("killed command refused", "process/holder.py Holder.begin", "return", "raise", "namespaces"),
]

HARMLESS = [
    Fault(
        "ticket locked after its rename", "tickets.py FileQueue.publish",
        RENAME, f"(flock(fd, LOCK_UN), {RENAME}, flock(fd, LOCK_EX | LOCK_NB))", "two-kills",
        "only the gate's holder judges a ticket, and the maker has the gate",
    ),
    Fault(
        "unlocked before it is removed", "tickets.py FileTicket.release",
        "finish_handoff(self.queue); self.queue.remove(self.file)",
        "finish_handoff(self.queue)\ntry: flock(self.fd, LOCK_UN)\nexcept (OSError, ValueError): pass\nself.queue.remove(self.file)",
        "two-kills",
        "its command has ended: a dead ticket is removed by the next contender, and its number is never used again",
    ),
    Fault(
        "oldest waiter waited for", "obstacles.py find_obstacles", "max(waiters)", "min(waiters)", "three",
        "the order is the same, but each change wakes all waiters",
    ),
    Fault(
        "early child keeps descriptors", "contention/handoff.py wait_turn", "close_private(ready)", "None", "two-handoff-kills",
        "it ends with its launcher, at the end of the pipe; a stopped one would keep the lock",
    ),
    Fault(
        "gate opened without O_EXCL", "directories.py open_file",
        "(0, posix.O_CREAT | posix.O_EXCL, 0)", "(0, posix.O_CREAT, 0)", "first",
        "the second open finds the file of the first; O_EXCL is for other users' files",
    ),
    Fault(
        "child not killed when dismissed", "start.py Starter.dismiss", "end_child(child.pid)", "None", "errors",
        "it ends at the end of the pipe; the kill is for a stopped one",
    ),
    Fault(
        "orphan waited for by its lock", "tickets.py FileTicket.wait_end",
        "self.state is ORPHANED", "self.state is DEAD", "two-kills",
        "it spins until its turn: of promise 7, which the real kernel shows",
    ),
    Fault(
        "wait that returns at once", "tickets.py FileTicket.wait_end",
        "wait_lock(self.fd, LOCK_SH, deadline)", "True", "two-plain",
        "it spins until its turn: of promise 7, which the real kernel shows",
    ),
]
