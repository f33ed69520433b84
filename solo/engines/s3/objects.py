"""The objects of names in a bucket, and their changes: a GET, then a PUT that only replaces what
was read.

A store that ignores conditions would let two contenders hold a name. So the first PUT of a document
must be preceded by a proof: the store refuses a PUT to an object that exists, and one with a wrong
ETag. The proof writes to an object of its own, which has no queue to lose. Only then a PUT says in
the document where it was proven, and spares later contenders the proof; until a document does,
every contender proves it anew.

A PUT without an answer may have taken effect, or may do so later. Then we read again, and write
even what needs no change unless the ETag has changed: from then on the lost PUT can only fail.
"""

import posix
from time import monotonic, sleep

from solo.engines.engine import INVALID_ANSWER, pick_between
from solo.engines.fields import NamedTuple
from solo.engines.http import find_text, find_texts
from solo.engines.network import Target
from solo.engines.s3.document import Document, parse_document
from solo.engines.s3.sign import format_query, quote
from solo.engines.s3.store import BUSY, CONFLICT, MISSING, NOT_MODIFIED, REFUSED, Reply, Store
from solo.errors import SoloError, Unreachable
from solo.kernel import decode, read_boot_clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[Document], Document]
    Yields = Callable[[str, Document], float]

PREFIX, SUFFIX = "solo", ".json"
SLOWEST = 16.0  # times as seldom, if the store asks us to slow down
BACKOFF, LONGEST_PAUSE, LONGEST_YIELD = 0.03, 0.5, 16.0  # seconds
PROOF = ".proof"  # the object that PUTs with wrong conditions go to; no name starts with a dot
WRONG = "0" * 32  # no object's ETag
ROUNDS = 5  # of the races of `solo doctor`
ABSENT = ""  # the ETag of an object that does not exist
UNSAFE = "the store does not honour If-Match and If-None-Match on PUT, so it cannot keep locks"


class State(NamedTuple):
    """An object as last read or written."""

    etag: str
    document: Document


class Objects:
    """The objects below the prefix of a target. `states` are those of names as last read or
    written.
    """

    def __init__(self, target: Target, timeout: float) -> None:
        self.where: str = target.shown
        self.store = Store(target, timeout)
        self.prefix = "".join(
            f"{quote(part)}/" for part in (target.path or PREFIX).split("/") if part
        )
        self.states: dict[str, State] = {}
        # names whose state we have just read or written: no need to read it
        self.fresh: set[str] = set()
        # the ETag that a PUT without an answer was to replace, by name
        self.lost: dict[str, str] = {}
        # when each mark was first seen, by name
        self.seen: dict[str, dict[tuple[str, int, int], float]] = {}
        self.is_quoted = True  # Ceph 16 wants the ETag of If-Match without quotes
        self.proven = ""  # what this process has proved
        self.pace = 1.0  # how much more seldom waiters ask
        self.delay = 0.0  # seconds that the last PUT took
        self.refusal = ""  # why our last PUT was refused, in this change

    def make_key(self, name: str) -> str:
        return make_key(self.prefix, name)

    def find_deadline(self) -> float:
        return monotonic() + self.store.timeout

    def read(self, name: str, deadline: "float | None" = None) -> State:
        """Return the present state of a name. Raises Unreachable, SoloError."""
        known = self.states.get(name)
        headers = {"If-None-Match": f'"{known.etag}"'} if known is not None and known.etag else {}
        reply = self.repeat(deadline, "GET", self.make_key(name), headers)
        if known is not None and reply.status == NOT_MODIFIED:
            state = known
        elif reply.status == MISSING:
            state = State(ABSENT, Document(int(self.store.read_clock() * 1e6)))
        elif reply.status == 200:
            state = State(reply.etag, self.parse(name, reply))
        else:
            raise self.store.refuse(reply, self.make_key(name))
        self.states[name] = state
        self.fresh.add(name)
        if state.document.proven == self.describe_proof(False):
            self.is_quoted = False
        self.observe(name, state.document)
        return state

    def repeat(
        self,
        deadline: "float | None",
        method: str,
        key: str,
        headers: "dict[str, str]",
        body: str = "",
    ) -> Reply:
        """Return the answer. Asks again if the store is busy, or has closed an idle connection.
        Without a deadline it takes no longer than one request may.
        """
        deadline = self.find_deadline() if deadline is None else deadline
        attempt = 0
        while True:
            was_open = self.store.connection is not None
            try:
                reply = self.store.ask(method, key, headers, body, deadline=deadline)
            except Unreachable:
                self.pace = min(self.pace * 2, SLOWEST)
                if not was_open or monotonic() >= deadline:
                    raise
                continue
            if reply.status not in (*BUSY, CONFLICT):
                self.pace = max(1.0, self.pace / 2)
                return reply
            attempt += 1
            self.back_off(attempt, deadline, reply)

    def back_off(
        self, attempt: int, deadline: float, reply: Reply, longest: float = LONGEST_PAUSE
    ) -> None:
        """Sleep before the next try, the longer the more there were. Raises Unreachable if the time
        is over.
        """
        if reply.status in BUSY:
            self.pace = min(self.pace * 2, SLOWEST)
        # A store that answers slowly may have too much to do.
        pause = pick_between(0, min((BACKOFF + self.delay) * 2**attempt, longest))
        if monotonic() + pause < deadline:
            sleep(pause)
        elif reply.status in (CONFLICT, REFUSED):
            raise Contended(self.explain_refusal(reply))
        else:
            raise Unreachable(f"cannot reach {self.where}: {reply.describe()}")

    def explain_refusal(self, reply: Reply) -> str:
        return (
            f"{self.where}: other contenders change the queue at the same time: {reply.describe()}"
        )

    def parse(self, name: str, reply: Reply) -> Document:
        if not reply.etag:
            raise SoloError(f"{self.where}: answers without an ETag, so it cannot keep locks")
        try:
            return parse_document(reply.body)
        except INVALID_ANSWER as error:
            why = f"the object {self.make_key(name)} has no queue of solo: {error}"
            raise Foreign(f"{self.where}: {why} (remove the object)") from None

    def change(
        self,
        name: str,
        change: "Change",
        end: "float | None" = None,
        yields: "Yields | None" = None,
    ) -> State:
        """Replace the document by what `change` returns for it, and return the state then.

        `change` may be called again, on the document that another contender or our own unanswered
        PUT wrote; what it raises is raised. Nothing is written if it returns its argument. A
        refused PUT is repeated until `end`. Before a PUT we wait as long as `yields` returns, if
        the PUT still has its time then, and the other pauses are longer with it. Raises
        Unreachable, SoloError.
        """
        end = self.find_deadline() if end is None else end
        self.refusal = ""
        try:
            return self.repeat_change(name, change, end, yields)
        except Unreachable:
            # the last request had less than its time: it proves nothing
            if self.refusal and monotonic() >= end:
                raise Contended(self.refusal) from None
            raise

    def repeat_change(
        self, name: str, change: "Change", end: float, yields: "Yields | None"
    ) -> State:
        attempt, longest = 0, LONGEST_PAUSE if yields is None else LONGEST_YIELD
        while True:
            deadline = min(end, self.find_deadline())
            state = self.states.get(name) or self.read(name, deadline)
            pause = yields(name, state.document) if yields is not None else 0.0
            left = end - self.find_deadline()  # then a call would no longer have its time
            if pause and left > 0:
                sleep(min(pause, left, LONGEST_YIELD))
                self.read(name)
                continue
            wanted = change(state.document)
            if wanted is state.document and self.lost.get(name) != state.etag:
                return state
            was_open = self.store.connection is not None
            try:
                reply = self.put(name, state, wanted, deadline)
            except Unreachable:
                if not was_open or monotonic() >= deadline:
                    raise
                continue  # the store may have closed an idle connection
            if reply.status == 200:
                return self.states[name]
            attempt += 1
            self.refusal = (
                self.explain_refusal(reply) if reply.status in (CONFLICT, REFUSED) else ""
            )
            self.back_off(attempt, end, reply, longest)
            deadline = min(end, self.find_deadline())
            if reply.status == REFUSED and self.read(name, deadline).etag == state.etag != ABSENT:
                self.is_quoted = not self.is_quoted

    def put(self, name: str, state: State, document: Document, deadline: float) -> Reply:
        """Replace a state. After anything but success it is no longer known."""
        document = document._replace(proven=self.prove(state, deadline))
        del self.states[name]
        self.fresh.discard(name)
        self.lost[name] = state.etag
        text = document.format()
        begin = monotonic()
        reply = self.store.ask(
            "PUT", self.make_key(name), self.expect(state.etag), text, deadline=deadline
        )
        self.delay = monotonic() - begin
        if reply.status in (REFUSED, MISSING):
            del self.lost[name]
        elif reply.status == 200:
            if reply.etag:
                self.states[name] = State(reply.etag, document)
                self.fresh.add(name)
            else:
                self.read(name, deadline)
            del self.lost[name]
        return reply

    def expect(self, etag: str) -> "dict[str, str]":
        """Return the header of a PUT that replaces this ETag only."""
        if etag == ABSENT:
            return {"If-None-Match": "*"}
        return {"If-Match": format_etag(etag, self.is_quoted)}

    def describe_proof(self, is_quoted: bool) -> str:
        """Return what `prove` proves: that this bucket, by this address, honours conditions in this
        form.
        """
        return f"{self.store.netloc}{self.store.root} {format_etag('ETag', is_quoted)}"

    def prove(self, state: State, deadline: "float | None" = None) -> str:
        """Verify that the store honours conditions, unless `state` or this process knows. Return
        the proof.

        Without a deadline each PUT has its own one, as before a hold: a renewal has no time for
        them. Raises SoloError, Unreachable.
        """
        proof = self.describe_proof(self.is_quoted)
        if proof not in (state.document.proven, self.proven):
            # the first may create it
            is_there = self.is_refused(ABSENT, deadline) or self.is_refused(ABSENT, deadline)
            if not is_there or not self.is_refused(WRONG, deadline):
                raise SoloError(f"{self.where}: {UNSAFE}")
        self.proven = proof
        return proof

    def is_refused(self, etag: str, deadline: "float | None") -> bool:
        """Return whether a PUT that replaces this ETag only is refused for that reason. Any other
        refusal is repeated.
        """
        reply = self.repeat(deadline, "PUT", f"{self.prefix}{PROOF}", self.expect(etag), PROOF)
        return reply.status in (REFUSED, MISSING)

    def observe(self, name: str, document: Document) -> None:
        """Note when each mark was first seen: now, after the answer that showed it."""
        now, before = read_boot_clock(), self.seen.get(name, {})
        self.seen[name] = {stored.mark: before.get(stored.mark, now) for stored in document.queue}

    def list_names(self) -> "list[str]":
        names: list[str] = []
        query = {"list-type": "2", "prefix": self.prefix}
        while True:
            reply = self.store.ask("GET", "", {}, query=format_query(query))
            if reply.status != 200:
                raise self.store.refuse(reply, self.prefix)
            names += parse_names(reply.body.decode(), self.prefix)
            query["continuation-token"] = find_text(reply.body, "NextContinuationToken")
            if not query["continuation-token"]:
                return names

    def race(self, key: str) -> int:
        """Return how often one of two racing PUTs was refused. Raises SoloError if both succeed,
        Unreachable if none does.
        """
        from concurrent.futures import ThreadPoolExecutor

        stores = self.store, Store(self.store.target, self.store.timeout)
        etag, losses = ABSENT, 0
        self.store.hang_up()  # an idle connection may be closed
        with ThreadPoolExecutor(len(stores)) as pool:
            for _ in range(ROUNDS + 1):
                texts = [f"{make_word()}\n" for _ in stores]
                wanted = self.expect(etag)
                asked = [
                    pool.submit(store.ask, "PUT", key, wanted, text)
                    for store, text in zip(stores, texts)
                ]
                replies = [one.result() for one in asked]
                won = [text for text, reply in zip(texts, replies) if reply.status == 200]
                there = self.repeat(None, "GET", key, {})
                if etag and not won and self.is_quoted and there.etag == etag:
                    self.is_quoted = False
                    continue
                if len(won) == 1 and there.body.decode(errors="replace") == won[0]:
                    etag, losses = there.etag, losses + 1
                elif won:
                    raise SoloError(f"{self.where}: {UNSAFE}")
                else:
                    raise self.store.refuse(replies[0], key)
        stores[1].hang_up()
        return losses


class Contended(Unreachable):
    """The store answers, but refused all our PUTs: the object was changed by others each time."""


class Foreign(SoloError):
    """An object is not one of solo. Views show it as held by another program."""


def make_key(prefix: str, name: str) -> str:
    return f"{prefix}{quote(name, '/')}{SUFFIX}"


def format_etag(etag: str, is_quoted: bool) -> str:
    return f'"{etag}"' if is_quoted else etag


def make_word() -> str:
    return posix.urandom(8).hex()


def parse_names(text: str, prefix: str) -> "list[str]":
    """Return the names whose objects are in a listing."""
    names = []
    for key in find_texts(text, "Key"):
        first, *others = key[len(prefix) : -len(SUFFIX)].encode().split(b"%")
        try:
            name = decode(
                first + b"".join(bytes([int(other[:2], 16)]) + other[2:] for other in others)
            )
        except ValueError:
            continue
        if make_key(prefix, name) == key and name and not name.startswith("."):
            names.append(name)
    return names
