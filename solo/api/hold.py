"""A lock that a program has acquired."""

import os
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import NoReturn, Optional

from solo.api import blocking
from solo.errors import SoloError
from solo.tickets import FileTicket, Ticket


class Hold:
    """An acquired lock, returned by `Lock.acquire`. Release it by `release`, or by leaving its
    `with` block.

    `name` is the first of the names, `token` and `slot` are those of it; `tokens` and `slots` have
    those of each name. A token is greater than all earlier tokens of its name, unless the clock was
    set back (SOLO_TOKEN in solo(1)): a resource can refuse a request with an older one. If a name
    has N slots, its slot is the lowest of the numbers 0 to N-1 that this hold has; else it is None.
    Only a Lock creates Holds.
    """

    def __init__(self, names: list[str], named: dict[str, Ticket], tickets: list[Ticket]) -> None:
        self.name = names[0]
        self._files = {fd: identify_file(fd) for ticket in tickets for fd in ticket.descriptors}
        self.tokens: dict[str, int] = {name: named[name].number for name in names}
        self.slots: dict[str, Optional[int]] = {}
        for name in names:
            record = named[name].record
            self.slots[name] = record.slot[0][0] if record and record.slot else None
        self.depth = 1  # the number of times that a reentrant Lock acquired it
        self._tickets = tickets
        self._pid = os.getpid()
        # the thread or task that acquired it, if it still exists, and the thread it was acquired in
        self._owner: Callable[[], object] = lambda: None
        self._thread: Callable[[], object] = self._owner
        all_holds.add(self)

    @property
    def token(self) -> int:
        """The fencing token of the first name."""
        return self.tokens[self.name]

    @property
    def slot(self) -> Optional[int]:
        """The slot of the first name, None if it has no slots."""
        return self.slots[self.name]

    @property
    def locked(self) -> bool:
        """Whether it is still held: not if it was released, or if the program has closed its
        descriptors.
        """
        return bool(self._tickets) and all(map(self._has_lock, self._tickets))

    def release(self) -> None:
        """Release the lock; if it is reentrant, undo one acquire. Do nothing if it is released, or
        in a forked child.

        Raises SoloError if the program has closed its descriptors: then another process may have
        had the lock.
        """
        blocking.perform(self._undo)

    def _undo(self) -> None:
        """Undo one acquire. The caller is acting. Raises SoloError as `release` does."""
        if self.depth > 1:
            self.depth -= 1
        elif self._release():
            raise SoloError(
                f"{self.name}: cannot release the lock: the program has closed its descriptors, "
                "which ended it"
            )

    def _release(self) -> bool:
        """Release it. Return True if the program had closed its descriptors before."""
        tickets, self._tickets = self._tickets, []
        all_holds.discard(self)
        if self._pid != os.getpid():
            return False
        is_lost = self._forget_closed(tickets)
        release_all(tickets)
        return is_lost

    def _has_kept(self, fd: int) -> bool:
        """Return whether the descriptor is still ours, and not another file that the program has
        opened with its number.
        """
        return fd in self._files and self._files[fd] == identify_file(fd)

    def _has_lock(self, ticket: Ticket) -> bool:
        """Return whether the descriptor of a ticket is still ours. The name of its file tells it
        from a later one of this program, with the same number and inode: it is used once.
        """
        is_kept = self._has_kept(ticket.fd)
        if not is_kept or not isinstance(ticket, FileTicket):
            return is_kept
        try:
            path = os.readlink(f"/proc/self/fd/{ticket.fd}")
        except OSError:
            return True  # as after chroot(2): nobody can tell
        return os.path.basename(path).startswith(ticket.file)

    def _forget_closed(self, tickets: list[Ticket]) -> bool:
        """Forget descriptors that the program has closed: they may be other files now. Return True
        if a lock ended.
        """
        is_lost = False
        for ticket in tickets:
            place = getattr(ticket.queue, "place", None)
            if place is not None and not self._has_kept(place.fd):
                place.fd = -1
            if not self._has_lock(ticket):
                ticket.fd, is_lost = -1, True
        return is_lost

    def _abandon(self) -> None:
        """Close our copies of the descriptors in a forked child, without unlocking: the lock
        belongs to the parent.
        """
        tickets, self._tickets = self._tickets, []
        self._forget_closed(tickets)
        for ticket in tickets:
            ticket.close()
            ticket.queue.leave()

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        blocking.perform(self._undo)

    def __del__(self) -> None:
        ending = sys is None or sys.is_finalizing()  # then the kernel releases what we cannot
        try:
            if getattr(self, "_tickets", None) and self._pid == os.getpid():
                is_lost: list[bool] = []
                blocking.perform(lambda: is_lost.append(self._release()))
                if is_lost == [False] and not ending:
                    warnings.warn(
                        f"solo: {self.name} was still held when its Lock was dropped",
                        ResourceWarning,
                        2,
                        self,
                    )
        except Exception:
            if not ending:
                raise

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied: the end of a copy would release the lock."""
        raise TypeError("a Hold cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<solo.Hold of {', '.join(self.tokens)}{'' if self.locked else ', released'}>"


def release_all(tickets: list[Ticket]) -> None:
    """Release the tickets, the last one first, and leave their queues."""
    for ticket in reversed(tickets):
        ticket.release()
        ticket.queue.leave()


def identify_file(fd: int) -> Optional[tuple[int, int]]:
    """Return the device and inode of an open file; None if it is not open."""
    try:
        stat = os.fstat(fd)
        return stat.st_dev, stat.st_ino
    except (OSError, OverflowError):
        return None


all_holds: "weakref.WeakSet[Hold]" = weakref.WeakSet()
