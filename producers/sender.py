"""Sends entries to the ledger: conditional puts of one entry, and batches without condition.

The SDK's own retries are off: the attempt driver repeats a request, and checks the age of each
entry before every attempt and again when the request leaves. A process that was suspended and wakes
too late must not send an entry that a compaction may have merged and deleted in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

from countledger.ledger.attempts import (
    PASSING,
    Again,
    Attempts,
    Done,
    DynamoPerformer,
    GiveUp,
    Recheck,
    Send,
    ask,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.clock import Backoff
from countledger.ledger.entry import PutBatch, check_age, counters_of, encode_entry, times_ms_of
from countledger.ledger.errors import (
    BadInput,
    ClockSkew,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    RequestRejected,
    Throttled,
    Unacknowledged,
    WrongKind,
)
from countledger.ledger.keys import entry_key, head_key, namespace_of
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Absent, Get, Put
from countledger.ledger.suspension import Interrupted, note_entries
from countledger.producers.event import (
    Receipt,
    is_merged,
    judge_existing,
    receipt_of,
    unacknowledged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.clock import Clock
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace

# Batches of entries: their namespaces, the state while one is sent, and the outcomes of many.


Outcome: TypeAlias = Receipt | CountledgerError

_MAY_BE_IN: Final = (Receipt, Unacknowledged)


class BatchProgress(NamedTuple):
    """The state of a batch; its entries are named by number.

    `namespaces` are by counter: an entry's place and age are a matter of its namespace. `others`:
    the outcomes of the entries that are neither recorded nor pending.
    """

    entries: Sequence[Entry]
    pending: Sequence[int]
    namespaces: Mapping[str, Namespace]
    others: Mapping[int, Outcome]

    @property
    def to_send(self) -> Sequence[Entry]:
        if len(self.pending) == len(self.entries):
            return self.entries
        return [self.entries[n] for n in self.pending]

    def without(self, outcomes: Mapping[int, Outcome]) -> BatchProgress:
        """The same with these outcomes, whose entries are not pending any more."""
        left = [n for n in self.pending if n not in outcomes]
        return self._replace(pending=left, others={**self.others, **outcomes})


class OutcomeList(Sequence[Outcome]):
    """The outcomes of events, in their order.

    The receipt of an entry is made when it is read. So a million outcomes are little more than a
    million ids, and the garbage collector does not go through them again and again.
    """

    __slots__ = ("_counters", "_ids", "_others")

    def __init__(
        self,
        counters: Iterable[str] = (),
        ids: Iterable[str] = (),
        others: Mapping[int, Outcome] | None = None,
    ) -> None:
        """The outcomes of some events, by the counter and the entry's id of each.

        An event without an entry has any text as id. `others` has, by the number of the event, each
        outcome that is no receipt of its recording.
        """
        self._counters = [*counters]
        self._ids = [*ids]
        self._others = dict(others or {})

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, number: int) -> Outcome: ...

    @overload
    def __getitem__(self, number: slice) -> list[Outcome]: ...

    def __getitem__(self, number: int | slice) -> Outcome | list[Outcome]:
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        place = range(len(self))[number]
        return self._others.get(place) or receipt_of(self._counters[place], self._ids[place])

    def __iter__(self) -> Iterator[Outcome]:
        if self._others:
            return map(self.__getitem__, range(len(self)))
        return map(receipt_of, self._counters, self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr([*self])

    @property
    def any_may_be_in(self) -> bool:
        """Whether the entry of one of them is, or may be, in the ledger."""
        others = self._others
        return len(others) < len(self) or any(isinstance(o, _MAY_BE_IN) for o in others.values())

    def extend(self, more: OutcomeList) -> None:
        before = len(self)
        self._counters += more._counters
        self._ids += more._ids
        self._others.update((before + n, one) for n, one in more._others.items())

    def fail(self, count: int, error: CountledgerError) -> None:
        """Add an error as the outcome of so many later events."""
        self.extend(OutcomeList([""] * count, [""] * count, dict.fromkeys(range(count), error)))


def ledgers_of(
    counters: Sequence[str],
    namespaces: Namespaces,
    refusing: tuple[type[CountledgerError], ...],
) -> tuple[dict[str, Namespace], dict[int, Outcome]]:
    """The namespaces by counter, each looked up once; and by number, why a counter has none.

    Where a look-up fails, it fails for every counter of the namespace: a service that does not
    answer would be waited for as often as there are events. `refusing`: the errors that concern one
    counter; any other is raised.
    """
    found: dict[str, Namespace] = {}
    refused: dict[str, CountledgerError] = {}
    known: dict[str, Namespace] = {}
    failed: dict[str, CountledgerError] = {}
    for counter in dict.fromkeys(counters):
        name = namespace_of(counter)
        if name in failed:
            refused[counter] = failed[name]
            continue
        try:
            if name not in known:
                known[name] = namespaces.for_use(counter, Kind.LEDGER)
            found[counter] = known[name]
        except refusing as error:
            refused[counter] = error
            # A wrong kind is known without a request, and its text names the counter.
            if not isinstance(error, WrongKind):
                failed[name] = error
    if not refused:
        return found, {}
    return found, {n: refused[one] for n, one in enumerate(counters) if one in refused}


_HORIZON_MS: Final = attrgetter("horizon_ms")
_SPREAD: Final = attrgetter("spread")


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends entries to the ledger.

    `limited`: the limits of a call hold beside `backoff`; if not, its client is its own.
    """

    connection: Connection
    backoff: Backoff = field(default_factory=Backoff)
    limited: bool = True
    dynamo: DynamoClient = field(init=False, repr=False, compare=False)
    table: str = field(init=False, repr=False, compare=False)
    namespaces: Namespaces = field(init=False, repr=False, compare=False)
    clock: Clock = field(init=False, repr=False, compare=False)
    clock_skew_ms: int = field(init=False, repr=False, compare=False)
    perform: DynamoPerformer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        to, found = self.connection, partial(object.__setattr__, self)
        dynamo = to.unretried if self.limited else replace(to.dynamo("none"), limits=None)
        found("dynamo", dynamo)
        found("table", to.ledger)
        found("namespaces", Namespaces(to))
        found("clock", to.clock)
        found("clock_skew_ms", to.clock_skew_ms)
        found("perform", DynamoPerformer(dynamo, dynamo, to.clock))

    def send(self, entry: Entry) -> Receipt:
        """Send one entry by conditional put: one write unit for each KB, one round trip.

        `Unacknowledged`: no attempt was answered clearly, or one was not and a later one failed.
        """
        return run(self.sending(entry), self.perform)

    def send_batch(
        self, entries: Sequence[Entry], namespaces: Mapping[str, Namespace]
    ) -> dict[int, Outcome]:
        """Send up to 25 entries whose ids were made here, without condition.

        The answer: by number, the outcomes of those that were not simply recorded.
        """
        return run(self.sending_batch(entries, namespaces), self.perform)

    def outcome_of(self, entry: Entry) -> Outcome:
        """`send`, with an error as a value."""
        return run(self.sending_alone(entry), self.perform)

    # ---- the protocols, for a thread or an event loop ----

    def sending(self, entry: Entry, *, maybe_applied: bool = False) -> Steps[Receipt]:
        """Send one entry.

        The answers mean:

            done                         recorded
            condition failed             after a lost answer this very item: recorded; else an entry
                                         of this id exists: a duplicate, or its key was reused;
                                         after a lost answer unacknowledged, if that entry is old
            too old, or dated ahead      raised; after a lost answer one look says whether the entry
                                         is there, else it is unacknowledged
            throttle, no answer          again
            anything else                raised; unacknowledged, if an attempt may have been applied

        `maybe_applied`: an earlier request for it may have been applied.
        """
        # The kind of a namespace is fixed, so none is made for an entry that may not be written.
        check = partial(self._check_age, entry)
        namespace = self.namespaces.for_use(entry.counter, Kind.LEDGER, check)
        write = Put(self.table, encode_entry(entry, namespace.spread), Absent("entry"))
        attempts = self._attempts(maybe_applied=maybe_applied)
        check = partial(self._check_age, entry, namespace)
        try:
            return (yield from self._putting(entry, namespace, Send(write, check), attempts))
        except KeyExpired as error:
            if not attempts.maybe_applied:
                raise
            return (yield from self._looking(entry, namespace, write, error))
        except Interrupted:
            if attempts.maybe_applied:
                note_entries([entry])
            raise

    def _putting(
        self, entry: Entry, namespace: Namespace, send: Send, attempts: Attempts
    ) -> Steps[Receipt]:
        """`sending`, until an attempt is answered clearly."""

        def recorded() -> Receipt:
            return receipt_of(entry.counter, entry.id)

        def interpret(reply: Reply[None]) -> Verdict[None, Receipt]:
            match reply.answer:
                case ConditionFailed(item=found) if found is not None:
                    if reply.maybe_applied and found == send.operation.item:
                        return Done(recorded())
                    if reply.maybe_applied:
                        self._check_it_stays(entry, found, namespace)
                    return Done(judge_existing(entry, found))
                case KeyExpired() | ClockSkew():
                    raise reply.answer
                case CountledgerError():
                    return otherwise(reply)
            return Done(recorded())

        def give_up(exhausted: Exhausted[None]) -> Receipt:
            raise _not_recorded(entry, exhausted) from exhausted.error

        return attempt(None, lambda _: send, interpret, give_up, attempts)

    def _looking(
        self, entry: Entry, namespace: Namespace, write: Put, expired: KeyExpired
    ) -> Steps[Receipt]:
        """What became of an entry that was sent, and may not be sent again: one read unit.

        If it is absent, its head is read, which names the entries that it has just merged: a read
        unit for each 4 KB. An entry that neither shows may have been merged before, or may arrive
        still. An app that may only write (`EmitPolicyArn`) cannot look.
        """
        key = {name: str(write.item[name]) for name in ("counter", "entry")}

        def give_up(exhausted: Exhausted[None]) -> None:
            raise exhausted.error

        def read(key: Key) -> Steps[Item | None]:
            return ask(Get(self.table, key), self._attempts(), give_up)

        try:
            found = yield from read(key)
            merged = found is None and is_merged(
                entry, key["entry"], (yield from read(head_key(entry.counter)))
            )
        except CountledgerError as failed:
            raise unacknowledged(entry, failed) from expired
        if found is None and not merged:
            raise unacknowledged(entry, expired) from expired
        if found is None or found == write.item:
            return receipt_of(entry.counter, entry.id)
        self._check_it_stays(entry, found, namespace)
        return judge_existing(entry, found)

    def sending_batch(
        self, entries: Sequence[Entry], namespaces: Mapping[str, Namespace]
    ) -> Steps[dict[int, Outcome]]:
        """Send a batch, as `send_batch`.

        The answers mean:

            done                         recorded; what the service left is sent again
            one of them is too old       the others are sent at once
            rejected                     sent one by one: the service does not say which is invalid
            throttle, no answer          again
            anything else                the outcome of each entry that is pending
        """
        attempts = self._attempts()
        progress = BatchProgress(entries, range(len(entries)), namespaces, {})
        progress = yield from attempt(
            progress, self._batch_request, self._interpret_batch, _give_up_batch, attempts
        )
        others = dict(progress.others)
        for number in progress.pending:
            others[number] = yield from self.sending_alone(
                entries[number], maybe_applied=attempts.maybe_applied
            )
        return others

    def sending_alone(self, entry: Entry, *, maybe_applied: bool = False) -> Steps[Outcome]:
        """`sending`, with an error as a value."""
        try:
            return (yield from self.sending(entry, maybe_applied=maybe_applied))
        except CountledgerError as error:
            return error

    def _batch_request(self, progress: BatchProgress) -> Send:
        entries = progress.to_send
        namespaces = [*map(progress.namespaces.__getitem__, counters_of(entries))]
        # All of them may leave within one period: when they leave, one comparison.
        times_ms = times_ms_of(entries)
        from_ms = max(times_ms) - self.clock_skew_ms
        to_ms = min(times_ms) + min(map(_HORIZON_MS, namespaces))

        def check_ages() -> None:
            if not from_ms <= self.clock.now_ms() <= to_ms:
                for entry, namespace in zip(entries, namespaces, strict=True):
                    self._check_age(entry, namespace)

        return Send(PutBatch(self.table, entries, [*map(_SPREAD, namespaces)]), check_ages)

    def _interpret_batch(
        self, reply: Reply[BatchProgress]
    ) -> Verdict[BatchProgress, BatchProgress]:
        match reply.answer:
            case RequestRejected():
                return Done(reply.state)
            case KeyExpired() | ClockSkew():
                progress = reply.state.without(self._refused(reply))
                return Recheck(progress) if progress.pending else Done(progress)
            case CountledgerError():
                again = isinstance(reply.answer, PASSING)
                return Again(reply.state) if again else GiveUp(reply.answer)
        progress, pending = reply.state, list[int]()
        if left := {(item["counter"], item["entry"]) for item in reply.answer}:
            namespaces = progress.namespaces
            pending = [
                n
                for n, one in zip(progress.pending, progress.to_send, strict=True)
                if (one.counter, entry_key(one.id, namespaces[one.counter].spread)) in left
            ]
        progress = progress._replace(pending=pending)
        if not pending:
            return Done(progress)
        return Again(progress, Throttled(f"BatchWriteItem on {self.table}: left unprocessed"))

    # ---- what may be sent ----

    def _refused(self, reply: Reply[BatchProgress]) -> dict[int, Outcome]:
        """Those that are too old, or dated too far ahead; after a lost answer nobody knows more."""
        refused: dict[int, Outcome] = {}
        progress = reply.state
        for number, entry in zip(progress.pending, progress.to_send, strict=True):
            try:
                self._check_age(entry, progress.namespaces[entry.counter])
            except BadInput as error:
                refused[number] = unacknowledged(entry, error) if reply.maybe_applied else error
        return refused

    def _check_it_stays(self, entry: Entry, found: Item, namespace: Namespace) -> None:
        """Allow an existing entry to refuse this one only if it stays for the life of a request.

        Beyond the horizon it may be merged and deleted before the first request of this call lands,
        which would then be recorded.
        """
        at_ms = found.get("at")
        age_ms = self.clock.now_ms() + self.clock_skew_ms - (at_ms if type(at_ms) is int else 0)
        if age_ms > namespace.horizon_ms:
            raise unacknowledged(entry, "an entry under its key is older than the horizon")

    def _check_age(self, entry: Entry, namespace: Namespace) -> None:
        check_age(
            entry,
            now_ms=self.clock.now_ms(),
            horizon_ms=namespace.horizon_ms,
            clock_skew_ms=self.clock_skew_ms,
        )

    def _attempts(self, *, maybe_applied: bool = False) -> Attempts:
        random = self.connection.random
        return Attempts(self.clock, random, self.backoff, maybe_applied=maybe_applied)


def _give_up_batch(exhausted: Exhausted[BatchProgress]) -> BatchProgress:
    progress = exhausted.state
    pending = zip(progress.pending, progress.to_send, strict=True)
    return progress.without({n: _not_recorded(one, exhausted) for n, one in pending})


def _not_recorded(entry: Entry, exhausted: Exhausted[Any]) -> CountledgerError:
    """The error of an entry; it carries the entry if the entry is to be sent again."""
    if not exhausted.maybe_applied and not isinstance(exhausted.error, Throttled):
        return exhausted.error
    return unacknowledged(entry, exhausted.error)
