"""The recorder: events become entries in the ledger, each exactly once.

One event is a conditional put. If it fails, its answer has the existing entry: the same delta is a
duplicate, another delta a reused key. Many events without a key are sent in batches of 25: they
need no condition, because putting an identical entry again changes nothing.

A counter is set to a value by recording the difference (`Compensator`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import amount, keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.entry import check_note, ids_of
from countledger.ledger.errors import (
    BadDelta,
    BadInput,
    BadNote,
    CorruptItem,
    IdempotencyKeyReused,
    ServiceFailed,
    SetupError,
)
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.ledger.namespace import Kind
from countledger.ledger.suspension import note_entries
from countledger.producers.event import Event, Receipt, Status, make_entries, values_of
from countledger.producers.sender import OutcomeList, Sender, ledgers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.exact import ExactReader
    from countledger.ledger.suspension import Workers
    from countledger.producers.event import EventValues
    from countledger.producers.sender import Outcome


# Setting a ledger counter to a value: one compensating entry under a key.
#
# The entry carries the difference between the value and the exact sum at that time, and says in
# its note which value was set. So the ledger stays a log of changes: nothing is overwritten, and
# what others record meanwhile is kept and counts as well. A retry finds the entry by its key and
# does not compute the difference again, because the sum may have changed.


# The name in an entry's note of the value that the counter is set to.
_NOTE: Final = "set"


class Became(StrEnum):
    """The result of a call that sets a counter."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Correction:
    """How a ledger counter was brought to a value.

    Attributes:
        counter: its name.
        value: what it was set to.
        delta: what the compensating entry adds; 0 where none was needed.
        became: `recorded` by this call, `duplicate` of one recorded before under this key, or
        `unchanged`: the sum was that value already; then the key is not stored.
    """

    counter: str
    value: Amount
    delta: Amount
    became: Became


@dataclass(frozen=True, slots=True)
class Compensator:
    """Sets ledger counters to values."""

    recorder: Recorder
    exact: ExactReader

    def set_value(
        self,
        counter: str,
        value: Amount,
        key: str | IdempotencyKey,
        note: Mapping[str, str] | None,
    ) -> Correction:
        """Bring a counter to a value: a write unit, an exact read, and a read unit for the key."""
        wanted = amount.check_exact("value", value, BadDelta)
        counter = keys.check_counter(counter)
        if not isinstance(key, IdempotencyKey):
            key = check_key(key)
        noted = check_note(note or {})
        if _NOTE in noted:
            raise BadNote(
                f"the note's name {_NOTE!r} is reserved for the value that the call sets: "
                "take another name"
            )
        there = self._there(counter, key)
        if there is not None:
            return _judged(counter, wanted, there)
        delta = amount.add(wanted, amount.negated(self.exact.read(counter).value))
        if delta == 0:
            return Correction(counter, wanted, 0, Became.UNCHANGED)
        if not amount.may_be_added(delta):
            raise BadDelta(
                f"counter {counter!r} cannot be set to {amount.to_text(wanted)} by one entry: the "
                f"difference from its exact sum, {amount.short(delta)}, {amount.TOO_LONG}; record "
                "it as several changes"
            )
        event = Event(counter, delta, key, note={**noted, _NOTE: amount.to_text(wanted)})
        try:
            receipt = self.recorder.record(event)
        except IdempotencyKeyReused:
            # Another call with the same key was faster, and read another sum.
            there = self._there(counter, key)
            if there is None:
                raise
            return _judged(counter, wanted, there)
        recorded = receipt.status is Status.RECORDED
        became = Became.RECORDED if recorded else Became.DUPLICATE
        return Correction(counter, wanted, delta, became)

    def _there(self, counter: str, key: str | IdempotencyKey) -> Item | None:
        """The entry under the key, if there is one: one read unit."""
        spread = self.recorder.sender.namespaces.for_use(counter, Kind.LEDGER).spread
        entry = {"counter": counter, "entry": keys.entry_key(id_of_key(key), spread)}
        to = self.exact.connection
        return to.retrying.get(to.ledger, entry, consistent=True)


def _judged(counter: str, wanted: Amount, there: Item) -> Correction:
    """The outcome when an entry with this key exists."""
    was = (there.get("note") or {}).get(_NOTE)
    if was != amount.to_text(wanted):
        used = "another entry" if was is None else f"setting it to {was}"
        raise IdempotencyKeyReused(
            f"idempotency key {there.get('key')!r} of counter {counter!r} was used for {used}, and "
            f"now comes to set it to {amount.to_text(wanted)}: give another call another key"
        )
    return Correction(counter, wanted, require_amount(there, "delta"), Became.DUPLICATE)


# In flight at once: enough to hide a round trip of some milliseconds, few enough for one process.
_SENDERS: Final = 8
_CHUNK: Final = _SENDERS * BATCH_WRITE_ITEMS
# Of events that are all there: to hand over a batch to a thread takes as long as to send some of
# its entries.
_LARGE_CHUNK: Final = 10 * _CHUNK
# What belongs to one event is its outcome; what concerns every event is raised.
_OF_ONE_EVENT: Final = (BadInput, ServiceFailed, CorruptItem)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records events; every entry names the region where this process works.

    Raises:
        StackNotFound: the stack does not exist here, and no setting names its table.
    """

    connection: Connection
    sender: Sender = field(init=False, repr=False, compare=False)
    region: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender", Sender(self.connection))
        object.__setattr__(self, "region", self.connection.region)

    def record(self, event: Event) -> Receipt:
        """Record one event: one write unit for each KB, one round trip.

        Raises:
            IdempotencyKeyReused: its key was used with another delta.
            KeyExpired, ClockSkew: its key was made too long ago, or is dated ahead.
            NamespaceUnknown, WrongKind: its counter cannot be used like this.
            Unacknowledged: no attempt was answered clearly; `resend` the entry that it carries.
        """
        (entry,) = self._entries(values_of([event]))
        return self.sender.send(entry)

    def resend(self, entry: Entry) -> Receipt:
        """Send an entry again as it is: it counts once, however often it is sent.

        Raises:
            As `record`.
        """
        return self.sender.send(entry)

    def resend_many(self, entries: Sequence[Entry]) -> OutcomeList:
        """Send entries as they are, several at a time: each counts once, however often it is sent.

        One write unit for each KB of each. An entry without a key must always be sent with the same
        content, because nothing is compared.

        Returns:
            One outcome for each entry, in their order: a receipt, or the error of this entry as a
            value. If an error that concerns every entry (a `SetupError`) occurs after some were
            sent, it is the outcome of each entry that it stopped.

        Raises:
            SetupError: no table, no permission, nothing reachable; no entry was recorded.
        """
        columns = [one.counter for one in entries], [one.key is not None for one in entries]
        with self.sender.dynamo.workers(_SENDERS, "countledger-recorder") as pool:
            outcomes, fatal = self._send_chunk(
                *columns, lambda numbers: [entries[n] for n in numbers], pool
            )
        if fatal is not None and not outcomes.any_may_be_in:
            raise fatal
        return outcomes

    def record_many(self, events: Iterable[Event]) -> OutcomeList:
        """Record many events, several at a time: one write unit for each KB of each.

        All of them are sent before this returns. They may be written in any order (the sum is the
        same); but of several with one key the first is recorded.

        Args:
            events: any number of them; they are gathered first. If gathering them fails, nothing
                was written. For events that do not fit into memory use `record_stream`.

        Returns:
            One outcome for each event, in their order: a receipt, or the error of this event as a
            value. If an error that concerns every event (a `SetupError`) occurs after some were
            sent, it is the outcome of each event that it stopped.

        Raises:
            BadInput: one of them is no `Event`; no event was recorded.
            SetupError: no table, no permission, nothing reachable; no event was recorded.
        """
        every, outcomes = values_of(events), OutcomeList()
        chunks = (every[at:end] for at, end in _parts(len(every), _LARGE_CHUNK))
        try:
            for some in self._record(chunks):
                outcomes.extend(some)
        except SetupError as error:
            if not outcomes.any_may_be_in:
                raise
            outcomes.fail(len(every) - len(outcomes), error)
        return outcomes

    def record_stream(self, events: Iterable[Event]) -> Iterator[Outcome]:
        """As `record_many` for events of any number, 200 at a time.

        It writes only while it is iterated: an event whose outcome is not fetched may not be sent.

        Yields:
            One outcome for each event, in their order: a receipt, or the error of this event alone
            as a value.

        Raises:
            BadInput: one of them is no `Event`; raised after the outcomes of all that were sent.
            SetupError: what concerns every event: no table, no permission, nothing reachable. If it
            occurs after some were sent, it is raised after the outcomes of all those events; it
            is also the outcome of each event of their group that it stopped.
        """
        feed = iter(events)
        for outcomes in self._record(iter(lambda: values_of(islice(feed, _CHUNK)), [])):
            yield from outcomes

    def _record(self, chunks: Iterable[Sequence[EventValues]]) -> Iterator[OutcomeList]:
        with self.sender.dynamo.workers(_SENDERS, "countledger-recorder") as pool:
            for chunk in chunks:
                counters = [counter for counter, *_ in chunk]
                keyed = [key is not None for _, _, key, *_ in chunk]
                entries_of = partial(self._entries, chunk)
                outcomes, fatal = self._send_chunk(counters, keyed, entries_of, pool)
                # Without its outcome, an event without key could never be sent again safely.
                if fatal is None or outcomes.any_may_be_in:
                    yield outcomes
                if fatal is not None:
                    raise fatal

    def _send_chunk(
        self,
        counters: Sequence[str],
        keyed: Sequence[bool],
        entries_of: Callable[[Sequence[int]], Sequence[Entry]],
        pool: Workers,
    ) -> tuple[OutcomeList, SetupError | None]:
        """Send entries, which are made once their namespaces are known.

        The answer: their outcomes, and the first error that concerns every entry.
        """
        namespaces, others = ledgers_of(counters, self.sender.namespaces, _OF_ONE_EVENT)
        alone = [n for n, one in enumerate(keyed) if one and n not in others]
        together = [n for n, one in enumerate(keyed) if not one and n not in others]
        in_batches, one_by_one = entries_of(together), entries_of(alone)
        note_entries(in_batches)
        note_entries(one_by_one)
        send = partial(self.sender.send_batch, namespaces=namespaces)
        jobs = [
            Job(together[at:end], in_batches[at:end], send)
            for at, end in _parts(len(together), BATCH_WRITE_ITEMS)
        ]
        jobs += [
            Job([*group], [*group.values()], self._send_in_turn)
            for group in _by_identity(dict(zip(alone, one_by_one, strict=True)))
        ]
        ids = dict.fromkeys(others, "")
        fatal = _carry_out(jobs, pool, ids, others)
        # An event that no job has sent, and no error has stopped, has no id: it is not recorded.
        return OutcomeList(counters, map(ids.__getitem__, range(len(counters))), others), fatal

    def _send_in_turn(self, entries: Sequence[Entry]) -> dict[int, Outcome]:
        return {n: self.sender.outcome_of(entry) for n, entry in enumerate(entries)}

    def _entries(
        self, events: Sequence[EventValues], numbers: Iterable[int] | None = None
    ) -> Sequence[Entry]:
        """The entries of events, or of some of them, of this moment."""
        chosen = events if numbers is None else [events[n] for n in numbers]
        now_ms, new_ids = self.sender.clock.now_ms(), self.connection.ids.new_ids
        return make_entries(chosen, now_ms=now_ms, origin=self.region, new_ids=new_ids)


class Job(NamedTuple):
    """What one thread sends before it takes something else.

    `send` answers with the outcomes that are not simply receipts, by their place in it.
    """

    numbers: Sequence[int]
    entries: Sequence[Entry]
    send: Callable[[Sequence[Entry]], dict[int, Outcome]]


def in_order(jobs: Sequence[Job]) -> deque[Job]:
    """Jobs, for several threads to take from."""
    return deque(jobs)


def _carry_out(
    jobs: Sequence[Job], pool: Workers, ids: dict[int, str], others: dict[int, Outcome]
) -> SetupError | None:
    """Carry the jobs out; each thread takes one after the other.

    After an error that concerns every event no job of later events begins: the error is its
    outcome, and the answer. Jobs of the same 200 events are carried out, as in a stream.

    By the number of the event, `ids` gets the id of what was sent, and `others` the outcomes that
    are not simply receipts.
    """
    waiting = in_order(jobs)
    fatal: list[tuple[int, SetupError]] = []

    def work() -> None:
        while waiting:
            try:
                job = waiting.popleft()
            except IndexError:
                break  # another thread took the last one
            numbers = job.numbers
            place = numbers[0] // _CHUNK
            if fatal and place > fatal[0][0]:
                others.update(dict.fromkeys(numbers, fatal[0][1]))
            else:
                found = job.send(job.entries)
                others.update((numbers[n], one) for n, one in found.items())
                errors = [one for one in found.values() if isinstance(one, SetupError)]
                fatal.extend((place, one) for one in errors)
            ids.update(zip(numbers, ids_of(job.entries), strict=True))

    threads = [pool.submit(work) for _ in range(min(_SENDERS, len(jobs)))]
    for one in threads:
        one.result()
    return min(fatal, key=itemgetter(0))[1] if fatal else None


def _parts(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Where each part of so many things begins and ends, if none is larger than a size."""
    return ((at, min(at + size, count)) for at in range(0, count, size))


def _by_identity(entries: dict[int, Entry]) -> list[dict[int, Entry]]:
    """Entries of one key together: the first of them is to be recorded, and no later one."""
    groups: dict[tuple[str, str], dict[int, Entry]] = {}
    for number, entry in entries.items():
        groups.setdefault((entry.counter, entry.id), {})[number] = entry
    return list(groups.values())
