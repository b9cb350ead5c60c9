"""What runs report: each run its steps and its end, and the last run of each schedule."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    DynamoPerformer,
    Recheck,
    Send,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    ServiceFailed,
    TransactionCancelled,
)
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    Compare,
    Delete,
    Drop,
    Transact,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.clock import Backoff, Clock
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.exact import Covered, Head
    from countledger.ledger.operations import Clause


# Delete the entries that the head covers, if they are exactly what was summed.
#
# Each delete is conditional: the entry is gone, or it has the delta that was summed (and under a
# bare key, the time). So any process may repeat every delete as long as that head's counter
# exists. Once the counter is deleted, an expired or quarantined entry may be sent again under its
# old id; so a run sends no delete after half a day.


if TYPE_CHECKING:
    Covers: TypeAlias = Mapping[str, Covered]

_UNHARMED: Final = "None"


class Retire(StrEnum):
    """How merged entries are deleted."""

    TRANSACTION = "transaction"
    DELETE = "delete"


class Tampered(CountledgerError):
    """An entry that a head covers has another delta now: it was changed by hand."""


def delete_of(table: str, counter: str, key: str, covered: Covered) -> Delete:
    """The write that deletes an entry, if it is gone or still what was summed."""
    same = [Compare("delta", "=", covered.delta)]
    if covered.at_ms is not None:
        same.append(Compare("at", "=", covered.at_ms))
    unchanged = AnyOf(Absent("entry"), AllOf(*same))
    return Delete(table, {"counter": counter, "entry": key}, unchanged)


def refuse_changed(covered: Covered, item: Item | None) -> None:
    """Raise Tampered unless an entry is gone, unchanged, or made again under a bare key."""
    if item is None or item.get("delta") == covered.delta:
        return
    if covered.at_ms is not None and covered.at_ms != item.get("at"):
        return
    raise Tampered(
        f"counter {item.get('counter')!r}: entry {item.get('entry')!r} was merged with the delta "
        f"{covered.delta} and has {item.get('delta')!r} now: it was changed by hand; write the "
        "merged delta back, or delete the entry (of a namespace with an archive, run "
        "`countledger compact COUNTER --archive-as-found` after that)"
    )


@dataclass(frozen=True, slots=True)
class Retirer:
    """Deletes what one head of one counter covers, which every region has shown.

    Attributes:
        dynamo: of the home region; the SDK may retry.
        how: by transactions, two write units for each KB, or by single deletes at half of that.
        backoff: how often a conflict is tried again.
        workers: how many requests are under way at the same time.
        before_send: raises if a request leaves so late that the counter may be deleted.
    """

    dynamo: DynamoClient
    table: str
    counter: str
    head: Head
    how: Retire
    run: str
    clock: Clock
    random: Random
    backoff: Backoff
    workers: int
    before_send: Callable[[], None]

    def retire(self, keys: list[str], late: Callable[[], bool]) -> bool:
        """Delete entries of the covers, until one is Tampered; whether all was done in time."""
        perform = DynamoPerformer(self.dynamo, self.dynamo, self.clock)
        size = TRANSACTION_ACTIONS if self.how is Retire.TRANSACTION else 1
        feed = iter(sorted(keys))
        batches = list(iter(lambda: list(islice(feed, size)), []))

        def work(batch: list[str]) -> bool:
            if late():
                return False
            covers = {key: self.head.covers[key] for key in batch}
            steps = self._transact if self.how is Retire.TRANSACTION else self._delete
            run(steps(covers), perform)
            return True

        if self.workers == 1 or len(batches) == 1:
            return all(map(work, batches))
        with self.dynamo.workers(self.workers, "countledger-retire") as pool:
            return all(pool.map(work, batches))

    def _transact(self, covers: Covers) -> Steps[None]:
        """Delete up to a hundred entries together.

        | answer | meaning |
        |---|---|
        | done | done |
        | cancelled: an entry was made again under a bare key | send the others |
        | cancelled: an entry has another delta | `Tampered` |
        | cancelled: conflict, throttle | again, the same token: the service does it once |
        | cancelled: any other reason | `ServiceFailed` |
        """

        def request(left: Covers) -> Send:
            writes = [delete_of(self.table, self.counter, *one) for one in left.items()]
            return Send(Transact(writes, self._token(left)), self.before_send)

        def interpret(reply: Reply[Covers]) -> Verdict[Covers, None]:
            if isinstance(reply.answer, TransactionCancelled):
                renewed = self._renewed(reply.state, reply.answer)
                left = {key: one for key, one in reply.state.items() if key not in renewed}
                if not left:
                    return Done(None)
                return Recheck(left) if renewed else Again(left)
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return Done(None)

        return attempt(covers, request, interpret, self._give_up, self._attempts())

    def _renewed(self, covers: Covers, cancelled: TransactionCancelled) -> set[str]:
        """The entries that were made again under a bare key: they are not the merged ones."""
        refused = dict(zip(covers, cancelled.reasons, strict=False))
        renewed = {key: reason for key, reason in refused.items() if reason.condition_failed}
        for key, reason in renewed.items():
            refuse_changed(covers[key], reason.item)
        if all(r.condition_failed or r.passing or r.code == _UNHARMED for r in refused.values()):
            return set(renewed)
        raise ServiceFailed(f"counter {self.counter!r}: {cancelled}") from cancelled

    def _delete(self, covers: Covers) -> Steps[None]:
        """Delete one entry; a refusal is as for a transaction."""
        ((key, covered),) = covers.items()

        def request(_: Covers) -> Send:
            return Send(delete_of(self.table, self.counter, key, covered), self.before_send)

        def interpret(reply: Reply[Covers]) -> Verdict[Covers, None]:
            if isinstance(reply.answer, ConditionFailed):
                refuse_changed(covered, reply.answer.item)
                return Done(None)
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return Done(None)

        return attempt(covers, request, interpret, self._give_up, self._attempts())

    def _attempts(self) -> Attempts:
        return Attempts(self.clock, self.random, self.backoff)

    def _give_up(self, exhausted: Exhausted[Covers]) -> None:
        raise ServiceFailed(
            f"counter {self.counter!r}: merged entries could not be deleted after "
            f"{exhausted.attempts} attempts ({exhausted.error}); the next run continues"
        ) from exhausted.error

    def _token(self, keys: Covers) -> str:
        """The same for the same deletes of this run."""
        text = "\n".join((self.run, str(self.head.generation), *keys))
        return blake2b(text.encode(), digest_size=16).hexdigest()


# A reason may quote an item; people read its beginning.
_TROUBLE_MAX: Final = 500
_SUMS: Final = ("counters", "merged", "write_units", "failed", "tampered")


class RunOutcome(StrEnum):
    """How a run ended."""

    MERGED = "merged"
    NOTHING = "nothing"
    WAITING = "waiting"
    STOPPED = "stopped"
    OVERTAKEN = "overtaken"
    TAMPERED = "tampered"
    FAILED = "failed"


class RunEnd(NamedTuple):
    """How a run ends, and why."""

    outcome: RunOutcome
    detail: str


class Verb(StrEnum):
    """What a run does, in this order, once for each generation."""

    AWAIT = "await"
    ARCHIVE = "archive"
    RETIRE = "retire"
    WAIT_UNTIL_DELETED = "wait until deleted"
    SELECT = "select"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """A step that begins.

    Attributes:
        counter: of which counter.
        verb: what is done.
        generation: of the head that it works on.
        merged: how many entries this run has merged so far.
    """

    counter: str
    verb: Verb
    generation: int
    merged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """The result of one run over one counter.

    Attributes:
        counter: its name.
        outcome: `merged`: everything that was old enough; `nothing` was old enough; `waiting`:
            another region is late, the next run continues; `stopped` at the deadline; `overtaken`
            by another run; `tampered`: a merged entry was changed by hand; `failed`.
        merged: how many entries this run merged into the head.
        generations: how many heads it published, including the closing one.
        compacted: how many entries the head contains now; None if it was not read.
        write_units: consumed by the run in the home region; replication comes on top.
        read_units: consumed by the run in all regions.
        detail: one line for people.
        error: why it failed, or None.
    """

    counter: str
    outcome: RunOutcome
    merged: int = 0
    generations: int = 0
    compacted: int | None = None
    write_units: float = 0.0
    read_units: float = 0.0
    detail: str = ""
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a run would do now if no other region were late.

    Attributes:
        counter: its name.
        entries: how many it would merge.
        oldest_at_ms: when the oldest of them was made; None if there are none.
        newest_at_ms: when the newest of them was made; None if there are none.
        write_units: what it would consume in the home region.
        age_ms: the age that an entry must have to be merged; None: it was not determined.
    """

    counter: str
    entries: int
    oldest_at_ms: int | None
    newest_at_ms: int | None
    write_units: float
    age_ms: int | None = None


@dataclass(slots=True)
class WorkDone:
    """What workers did for a namespace.

    Attributes:
        write_units: what that consumed in the home region.
        tampered: how many counters have a merged entry that was changed by hand.
        trouble: the last failed or tampered counter, with outcome and reason; empty if none.
    """

    counters: int = 0
    merged: int = 0
    write_units: float = 0.0
    failed: int = 0
    tampered: int = 0
    trouble: str = ""

    def take(self, report: CompactionReport) -> None:
        self.counters += 1
        self.merged += report.merged
        self.write_units += report.write_units
        self.failed += report.outcome is RunOutcome.FAILED
        self.tampered += report.outcome is RunOutcome.TAMPERED
        if report.outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}:
            text = f"{report.counter}: {report.outcome}: {report.detail}"
            self.trouble = text[:_TROUBLE_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last run of a namespace's schedule.

    Attributes:
        ticked_at_ms: when the schedule's tick began, ms since the epoch.
        due: how many due counters it found; None: it has not ended.
        sent: how many of them it sent to the workers.
        worked_at_ms: when a worker last reported for this namespace; None: none has since.
        work: what the workers did since the tick.
    """

    namespace: str
    ticked_at_ms: int
    due: int | None
    sent: int | None
    worked_at_ms: int | None
    work: WorkDone


class LastRunStore:
    """Stores the last run of each schedule, one item per namespace in `counters`, for people.

    No other part reads it, so a failed write stops no work. The SDK may repeat a write that got no
    answer, so the sums are approximate. Two write units for each tick, one for each batch and
    namespace.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dynamo, self.table = connection.retrying, connection.counters

    def begin(self, namespace: str) -> int:
        """Replace the run before by a tick that begins now; its time identifies it in `end`."""
        now_ms = self.connection.clock.now_ms()
        self._note(
            namespace,
            Assign("ticked_at", now_ms),
            *(Assign(name, 0) for name in _SUMS),
            *map(Drop, ("due", "sent", "worked_at", "trouble")),
        )
        return now_ms

    def end(self, namespace: str, ticked_at_ms: int, due: int, sent: int) -> None:
        """Note the end of a tick, unless another one has begun."""
        clauses = (Assign("due", due), Assign("sent", sent))
        self._note(namespace, *clauses, when=Compare("ticked_at", "=", ticked_at_ms))

    def add(self, namespace: str, work: WorkDone) -> None:
        trouble = (Assign("trouble", work.trouble),) if work.trouble else ()
        sums = (Add(name, round(getattr(work, name))) for name in _SUMS)
        self._note(namespace, Assign("worked_at", self.connection.clock.now_ms()), *trouble, *sums)

    def last(self, namespace: str) -> LastRun | None:
        """The last run, or None if no schedule ever ticked. Half a read unit."""
        item = self.dynamo.get(self.table, keys.run_key(namespace))
        return None if item is None or "ticked_at" not in item else _decode(namespace, item)

    def _note(self, namespace: str, *clauses: Clause, when: Compare | None = None) -> None:
        with suppress(CountledgerError):
            self.dynamo.update(Update(self.table, keys.run_key(namespace), clauses, when))


def _decode(namespace: str, item: Item) -> LastRun:
    check_format(item)
    sums = {name: require(item, name, int) for name in _SUMS}
    return LastRun(
        namespace=namespace,
        ticked_at_ms=require(item, "ticked_at", int),
        due=optional(item, "due", int),
        sent=optional(item, "sent", int),
        worked_at_ms=optional(item, "worked_at", int),
        work=WorkDone(**sums, trouble=optional(item, "trouble", str) or ""),
    )
