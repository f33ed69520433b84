"""ZooKeeper, by kazoo. An entry is an ephemeral znode of our session, `/PREFIX/NAME/SESSION`, with
the name quoted as in a URL.

Its czxid is the order of the queue and the fencing token. So its path is known before it is
created, and a create whose answer was lost is not done twice. The parents are containers, which
ZooKeeper removes once they are empty; it has them since 3.5.3.
"""

from time import monotonic, time
from urllib.parse import quote, unquote_to_bytes

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol import serialization as zk
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from solo.engines.engine import (
    OUTCOMES_KEPT,
    RESTORED,
    Entry,
    EntryRecord,
    Gone,
    Renewal,
    describe_skew,
    make_renewal,
    parse_entry_record,
)
from solo.engines.network import Target, make_tls
from solo.engines.queue import Engine, sort_queues
from solo.engines.zookeeper.session import REFUSALS, Session
from solo.errors import SoloError, Unreachable, UsageError
from solo.kernel import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from solo.engines.zookeeper.session import Message

PREFIX = "solo"
ENDS, ONCES, LOGS, MARKS = ".end", ".once", ".log", ".renewed"  # no name starts with a dot
PERSISTENT, EPHEMERAL, CONTAINER = 0, 1, 4
ANY = -1  # version


class CreateContainer(zk.Create):  # type: ignore[misc]
    type = 19  # missing in kazoo


class ZooKeeper(Engine):
    def __init__(self, target: Target, ttl: float, timeout: float):
        self.where = target.shown
        self.prefix = "/" + (target.path or PREFIX)
        if any(
            part in ("", ".", "..") or not part.isprintable() for part in self.prefix[1:].split("/")
        ):
            raise UsageError(f"--via {target.shown}: not a path that ZooKeeper accepts")
        self.acl = OPEN_ACL_UNSAFE if target.user is None else CREATOR_ALL_ACL
        tls = make_tls(target) if target.scheme == "zookeepers" else None
        self.client = self.session = Session(target, tls, ttl, timeout)
        self.entries = {}  # our held entries by name
        self.seen: dict[str, int] = {}  # mzxid by key, in the queue as it was last read
        self.runs = False  # our command
        # whether our znode below MARKS is there; None before the first try
        self.is_marked: bool | None = None
        self.knows_skew = False

    @property
    def ttl(self) -> float:  # type: ignore[override]
        return self.session.ttl

    def connect(self) -> None:
        self.session.connect()

    def renew(self) -> "str | None":
        """As Engine.renew. A majority must confirm our entries, as a deposed leader could have
        resumed the session.
        """
        deadline = monotonic() + self.timeout
        self.session.connect(deadline)
        held = [zk.CheckVersion(entry.key, ANY) for entry in self.entries.values()]
        if held and self.is_marked:
            held.append(zk.SetData(self.make_mark(), b"", ANY))
        *agreed, ends = self.session.ask(
            *([zk.Transaction(held)] if held else []),
            zk.GetChildren(f"{self.prefix}/{ENDS}", None),
            deadline=deadline,
        )
        if any(isinstance(result, Exception) for results in agreed for result in results):
            if self.is_marked and isinstance(agreed[0][-1], NoNodeError):
                self.is_marked = False
                return self.renew()  # without the mark that somebody removed
            raise Gone("its znode was removed")
        if self.runs and self.is_marked is None:
            self.mark()
        known = [] if isinstance(ends, NoNodeError) else ends
        for end in [one for one in known if one.startswith(self.format_session() + "-")][:1]:
            [asked] = self.session.ask(
                zk.GetData(f"{self.prefix}/{ENDS}/{end}", None), deadline=deadline
            )
            if not isinstance(asked, NoNodeError):
                return (asked[0] or b"").decode(errors="replace") or "another contender"
        return None

    def mark(self) -> None:
        """Create the znode whose mtime is the time of our last renewal, for views. A run shorter
        than a period has none.
        """
        try:
            self.is_marked = self.create(self.make_mark(), b"", EPHEMERAL)
        except SoloError:
            self.is_marked = False

    def make_mark(self, session: str = "") -> str:
        return f"{self.prefix}/{MARKS}/{session or self.format_session()}"

    def record_child(self, pid: int) -> None:
        super().record_child(pid)
        self.runs = True

    def release(self) -> None:
        self.entries = {}
        self.close()

    def close(self) -> None:
        self.session.close()

    def format_session(self) -> str:
        return f"{self.session.number & (1 << 64) - 1:x}"

    def join(self, name: str, record: EntryRecord) -> str:
        if not self.session.number:
            self.session.connect()
        key = self.make_key(name)
        self.create_mark(key, record.format())
        return key

    def leave(self, name: str) -> None:
        if self.session.number:
            self.session.ask(zk.Delete(self.make_key(name), ANY))

    def rewrite(self, entry: Entry) -> None:
        [answer] = self.session.ask(zk.SetData(entry.key, entry.record.format(), ANY))
        if isinstance(answer, NoNodeError):
            raise Gone("its znode was removed")

    def read_queue(self, name: str) -> "list[Entry]":
        # A follower may lag: entries it misses are behind ours, and entries it still has only make
        # us wait.
        path = self.make_path(name)
        keys = [f"{path}/{child}" for child in self.list_children(path)]
        answers = self.session.ask(*(zk.GetData(key, None) for key in keys))
        known = [
            (key, *answer)
            for key, answer in zip(keys, answers)
            if not isinstance(answer, NoNodeError)
        ]
        self.seen = {key: stat.mzxid for key, _, stat in known}
        # A znode that does not end with a session is not an entry.
        entries = [
            Entry(name, key, stat.czxid, self.read_entry_record(data, stat))
            for key, data, stat in known
            if stat.ephemeralOwner
        ]
        return sorted(entries, key=lambda entry: entry.number)

    def list_children(self, path: str, *before: "Message") -> "list[str]":
        """Return the names of the children of a znode, none without such a znode, after these
        requests.
        """
        children = self.session.ask(*before, zk.GetChildren(path, None))[-1]
        return [] if isinstance(children, NoNodeError) else children

    def read_entry_record(self, data: "bytes | None", stat: "Message") -> EntryRecord:
        record = parse_entry_record(data or b"")
        if record.since is None or not self.knows_skew:
            return record
        # Prefer the ensemble's own date: a record is last written when the command starts.
        return record._replace(since=stat.mtime / 1000 - self.skew)

    def create_mark(self, key: str, data: bytes) -> None:
        """Create an ephemeral znode. The first one shows the ensemble's clock."""
        begin = time()
        if self.create(key, data, EPHEMERAL) and not self.knows_skew:
            [stat] = self.session.ask(zk.Exists(key, None))
            if not isinstance(stat, NoNodeError):
                self.skew = stat.ctime / 1000 - begin
                self.knows_skew = True

    def learn_skew(self) -> None:
        if not self.knows_skew:
            try:
                self.create_mark(f"{self.prefix}/{ENDS}/{self.format_session()}", b"")
            except SoloError:
                pass  # we may not write: take its clock for ours

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        self.session.events.clear()
        keys = [key] if key else list(self.seen)
        path = self.make_path(name)
        children, *stats = self.session.ask(
            zk.GetChildren(path, key is None), *(zk.Exists(one, True) for one in keys)
        )
        if (
            isinstance(children, NoNodeError)
            or key is None
            and {f"{path}/{child}" for child in children} != set(keys)
        ):
            return True
        if any(
            isinstance(stat, NoNodeError) or stat.mzxid != self.seen.get(one)
            for one, stat in zip(keys, stats)
        ):
            return True
        return self.session.wait_event(deadline)

    def create(self, path: str, data: bytes, kind: int) -> bool:
        """Create a znode and its parents. Return False if it exists. Raises Unreachable, SoloError,
        Gone.
        """
        request = (CreateContainer if kind == CONTAINER else zk.Create)(path, data, self.acl, kind)
        for _ in range(3):
            [answer] = self.session.ask(request)
            if not isinstance(answer, NoNodeError):
                return not isinstance(answer, NodeExistsError)
            self.create(path.rpartition("/")[0], b"", CONTAINER)
        raise Unreachable(
            f"{self.where}: {path.rpartition('/')[0]} is removed as soon as it is created"
        )

    def make_path(self, name: str, folder: str = "") -> str:
        return f"{self.prefix}{folder}/{quote(encode(name), safe='')}"

    def make_key(self, name: str) -> str:
        return f"{self.make_path(name)}/{self.format_session()}"

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        children = self.list_children(self.prefix, zk.Sync(self.prefix))
        if children:
            self.learn_skew()
        if name is not None:
            return sort_queues(self.read_queue(name))
        names = [decode(unquote_to_bytes(child)) for child in children if child[:1] != "."]
        return sort_queues([entry for name in names for entry in self.read_queue(name)])

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        if not self.knows_skew or not entry.is_held:
            return None
        marks = self.make_mark(entry.key.rpartition("/")[2]), entry.key
        times = [
            one.mtime
            for one in self.session.ask(*(zk.Exists(one, None) for one in marks))
            if hasattr(one, "mtime")
        ]
        ttl = entry.record.ttl
        return (
            make_renewal(max(times) / 1000 - self.skew + ttl - time(), ttl)
            if times and ttl
            else None
        )

    def remove(self, entry: Entry) -> None:
        self.session.ask(zk.Delete(entry.key, ANY))

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        """As Engine.ask_to_end. The request ends with our session."""
        owner = entry.key.rpartition("/")[2]
        self.create(
            f"{self.prefix}/{ENDS}/{owner}-{self.format_session()}", asker.encode(), EPHEMERAL
        )

    def read_once(self, name: str) -> "tuple[bytes, object]":
        _, answer = self.session.ask(
            zk.Sync(self.prefix), zk.GetData(self.make_path(name, f"/{ONCES}"), None)
        )
        return (
            (b"", None)
            if isinstance(answer, NoNodeError)
            else (answer[0] or b"", answer[1].version)
        )

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        path = self.make_path(name, f"/{ONCES}")
        if version is None:
            is_done = self.create(path, text, PERSISTENT)
        else:
            is_done = not isinstance(self.session.ask(zk.SetData(path, text, version))[0], REFUSALS)
        # the answer to the first try may have been lost
        return is_done or self.read_once(name)[0] == text

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        path = self.make_path(name, f"/{LOGS}")
        self.create(f"{path}/{number:020d}", text, PERSISTENT)
        self.session.ask(
            *(
                zk.Delete(f"{path}/{old}", ANY)
                for old in sorted(self.list_children(path))[:-OUTCOMES_KEPT]
            )
        )

    def read_outcomes(self, name: "str | None") -> "list[tuple[str, bytes]]":
        from solo.history.names import is_within

        path = f"{self.prefix}/{LOGS}"
        names = [
            decode(unquote_to_bytes(child)) for child in self.list_children(path, zk.Sync(path))
        ]
        found = [
            (one, text)
            for one in names
            if name is None or is_within(one, [name])
            for text in self.read_log(one)
        ]
        if found:
            self.learn_skew()
        return found

    def read_log(self, name: str) -> "Iterator[bytes]":
        """Yield the outcomes of one name."""
        path = self.make_path(name, f"/{LOGS}")
        answers = self.session.ask(
            *(zk.GetData(f"{path}/{child}", None) for child in sorted(self.list_children(path)))
        )
        yield from (answer[0] for answer in answers if not isinstance(answer, NoNodeError))

    def examine(self) -> "list[tuple[str, str]]":
        mark = f"{self.prefix}/{ENDS}/{self.format_session()}"
        self.create(mark, b"", EPHEMERAL)
        [stat] = self.session.ask(zk.Exists(mark, None))
        return [describe_skew(stat.ctime / 1000), ("note", RESTORED)]
