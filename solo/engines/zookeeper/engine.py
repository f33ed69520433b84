"""ZooKeeper, by kazoo. An entry is an ephemeral znode of our session, `/PREFIX/NAME/SESSION`, the name quoted as in a URL. Its
czxid is the order of the line, and the fencing token: so its path is known before it is made, and one whose answer was lost is
not made twice. The parents are containers, which ZooKeeper removes once they are empty; it knows them since 3.5.3. Cold.
"""

from time import monotonic, time
from urllib.parse import quote, unquote_to_bytes

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
)
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from solo.engines.engine import Entry, Gone, describe_skew, parse_note
from solo.engines.queue import OrderedEngine, sort_queues
from solo.engines.network import make_tls
from solo.engines.zookeeper.session import REFUSALS, Session
from solo.errors import SoloError, Unreachable, UsageError
from solo.kernel import decode, encode
from solo.contention.period import format_ran, parse_ran
from solo.modes import MODES

PREFIX = "solo"
ENDS, ONCES = ".end", ".once"  # no name starts with a dot
PERSISTENT, EPHEMERAL, CONTAINER = 0, 1, 4
ANY = -1  # version


class CreateContainer(Create):
    type = 19  # kazoo has no word for it


class ZooKeeper(OrderedEngine):
    """See engine.Engine, and OrderedEngine for join, leave, read_queue, rewrite and wait_change."""

    modes = MODES
    caveat = ""

    def __init__(self, target, ttl: float, timeout: float):
        if target.settings:
            raise UsageError(f"--via {target.shown}: ZooKeeper has no such setting")
        self.where = target.shown
        self.prefix = "/" + (target.path or PREFIX)
        if any(part in ("", ".", "..") or not part.isprintable() for part in self.prefix[1:].split("/")):
            raise UsageError(f"--via {target.shown}: that is no path of ZooKeeper's")
        self.acl = OPEN_ACL_UNSAFE if target.user is None else CREATOR_ALL_ACL
        self.session = Session(target, make_tls(target) if target.scheme == "zookeepers" else None, ttl, timeout)
        self.entries = {}  # ours by name, once they are held
        self.seen = {}  # mzxid by key, in the line that was read last
        self.skew = None  # by so much its clock is ahead of ours, once that is known

    @property
    def ttl(self) -> float:
        return self.session.ttl

    @property
    def timeout(self) -> float:
        return self.session.timeout

    @timeout.setter
    def timeout(self, seconds: float):
        self.session.timeout = seconds

    # --- the lease ------------------------------------------------------------------------------------------------

    def connect(self):
        self.session.connect()

    def renew(self):
        """Who asks us to end, or None.

        A majority must agree that what we hold is there: who took up the session could be a leader that is none any more.
        """
        deadline = monotonic() + self.timeout
        self.session.connect(deadline)
        held = [CheckVersion(entry.key, ANY) for entry in self.entries.values()]
        *agreed, ends = self.session.ask(
            *([Transaction(held)] if held else []), GetChildren(f"{self.prefix}/{ENDS}", None), deadline=deadline
        )
        if any(isinstance(result, Exception) for results in agreed for result in results):
            raise Gone("its znode was removed")
        mine = [] if isinstance(ends, NoNodeError) else [end for end in ends if end.startswith(self.format_session() + "-")]
        if not mine:
            return None
        [asked] = self.session.ask(GetData(f"{self.prefix}/{ENDS}/{mine[0]}", None), deadline=deadline)
        return None if isinstance(asked, NoNodeError) else (asked[0] or b"").decode(errors="replace") or "someone"

    def release(self):
        self.entries = {}
        self.session.close()

    def format_session(self) -> str:
        return f"{self.session.number & (1 << 64) - 1:x}"

    # --- the line -------------------------------------------------------------------------------------------------

    def join(self, name: str, note) -> str:
        if not self.session.number:
            self.session.connect()
        key = self.make_key(name)
        self.create_mark(key, note.format())
        return key

    def leave(self, name: str):
        if self.session.number:
            self.session.ask(Delete(self.make_key(name), ANY))

    def rewrite(self, entry):
        [answer] = self.session.ask(SetData(entry.key, entry.record.format(), ANY))
        if isinstance(answer, NoNodeError):
            raise Gone("its znode was removed")

    def read_queue(self, name: str) -> list:
        # What a follower has not yet heard of came after us, or keeps us waiting longer.
        path = self.make_path(name)
        [children] = self.session.ask(GetChildren(path, None))
        keys = [] if isinstance(children, NoNodeError) else [f"{path}/{child}" for child in children]
        known = [(key, *answer) for key, answer in zip(keys, self.session.ask(*(GetData(key, None) for key in keys)))
                 if not isinstance(answer, NoNodeError)]
        self.seen = {key: stat.mzxid for key, _, stat in known}
        # What does not end with a session is nobody's place.
        entries = [Entry(name, key, stat.czxid, self.read_note(data, stat), False) for key, data, stat in known if stat.ephemeralOwner]
        return sorted(entries, key=lambda entry: entry.number)

    def read_note(self, data, stat):
        note = parse_note(data or b"")
        # The ensemble dates each znode itself.
        return note._replace(since=stat.ctime / 1000 - self.skew) if note.since is not None and self.skew is not None else note

    def create_mark(self, key: str, data: bytes):
        """An ephemeral znode. The first one shows the ensemble's clock."""
        begin = time()
        if self.create(key, data, EPHEMERAL) and self.skew is None:
            [stat] = self.session.ask(Exists(key, None))
            self.skew = None if isinstance(stat, NoNodeError) else stat.ctime / 1000 - begin

    def wait_change(self, name: str, key, deadline: float) -> bool:
        self.session.events.clear()
        keys = [key] if key else list(self.seen)
        path = self.make_path(name)
        children, *stats = self.session.ask(GetChildren(path, key is None), *(Exists(one, True) for one in keys))
        if isinstance(children, NoNodeError) or key is None and {f"{path}/{child}" for child in children} != set(keys):
            return True
        if any(isinstance(stat, NoNodeError) or stat.mzxid != self.seen.get(one) for one, stat in zip(keys, stats)):
            return True
        return self.session.wait_event(deadline)

    def create(self, path: str, data: bytes, kind: int):
        """And what it stands in. False if it is there already. Raises Unreachable, SoloError, Gone."""
        for _ in range(3):
            [answer] = self.session.ask((CreateContainer if kind == CONTAINER else Create)(path, data, self.acl, kind))
            if not isinstance(answer, NoNodeError):
                return not isinstance(answer, NodeExistsError)
            self.create(path.rpartition("/")[0], b"", CONTAINER)
        raise Unreachable(f"{self.where}: {path.rpartition('/')[0]} is removed again and again")

    def make_path(self, name: str, place: str = "") -> str:
        return f"{self.prefix}{place}/{quote(encode(name), safe='')}"

    def make_key(self, name: str) -> str:
        return f"{self.make_path(name)}/{self.format_session()}"

    # --- what others ask ------------------------------------------------------------------------------------------

    def list_entries(self, name=None) -> list:
        _, children = self.session.ask(Sync(self.prefix), GetChildren(self.prefix, None))
        if self.skew is None and children and not isinstance(children, NoNodeError):
            try:
                self.create_mark(f"{self.prefix}/{ENDS}/{self.format_session()}", b"")
            except SoloError:
                pass  # it is not for us to write; then its clock counts as ours
        if name is not None:
            return sort_queues(self.read_queue(name))
        children = [] if isinstance(children, NoNodeError) else children
        names = [decode(unquote_to_bytes(child)) for child in children if child[:1] != "."]
        return sort_queues([entry for name in names for entry in self.read_queue(name)])

    def ask_to_end(self, entry, who: str):
        """Until it has ended, or we have."""
        self.create(f"{self.prefix}/{ENDS}/{entry.key.rpartition('/')[2]}-{self.format_session()}", who.encode(), EPHEMERAL)

    def read_once(self, name: str):
        return self.read_once_with_version(name)[0]

    def read_once_with_version(self, name: str) -> tuple:
        """(the last period, the version of its znode), each None if there is none."""
        _, answer = self.session.ask(Sync(self.prefix), GetData(self.make_path(name, f"/{ONCES}"), None))
        return (None, None) if isinstance(answer, NoNodeError) else (parse_ran(answer[0] or b""), answer[1].version)

    def write_once(self, name: str, before, ran) -> bool:
        known, version = self.read_once_with_version(name)
        if known != before:
            return False
        path, data = self.make_path(name, f"/{ONCES}"), format_ran(ran)
        if version is None:
            is_done = self.create(path, data, PERSISTENT)
        else:
            is_done = not isinstance(self.session.ask(SetData(path, data, version))[0], REFUSALS)
        return is_done or self.read_once(name) == ran  # the answer to the first try may have been lost

    def examine(self) -> list:
        mark = f"{self.prefix}/{ENDS}/{self.format_session()}"
        self.create(mark, b"", EPHEMERAL)
        [stat] = self.session.ask(Exists(mark, None))
        return [
            ("ok", self.read_version()),
            describe_skew(stat.ctime / 1000),
            ("ok", "first come, first served over all hosts; a lock outlives a restart, the leader, and the loss of a minority"),
            ("note", "a backup that is restored forgets locks, and SOLO_TOKEN may repeat"),
        ]

    def read_version(self) -> str:
        """By the one command that is allowed unless an administrator has said otherwise."""
        answer, deadline = b"", monotonic() + self.timeout
        try:
            with self.session.open(deadline) as one:
                one.sendall(b"srvr")
                while b"\n" not in answer and monotonic() < deadline:
                    answer += one.recv(1 << 12) or b"\n"
        except OSError:
            pass
        _, is_told, version = answer.partition(b"\n")[0].partition(b"version: ")
        return "ZooKeeper " + (version.partition(b"-")[0].decode(errors="replace") if is_told else "that does not tell its version")
