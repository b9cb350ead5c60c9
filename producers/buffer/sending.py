"""The state of a buffer in one process: its queue, its outcomes and its statistics.

It decides and never waits. Its callers wait, in threads (`producer`) or in an event loop
(`asynchronous`), and make sure that only one of them uses it at a time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.attempts import Pause, run
from countledger.ledger.clock import Backoff
from countledger.ledger.entry import EntryColumns, counters_of
from countledger.ledger.errors import CountledgerError, IdempotencyKeyReused, KeyExpired, WrongKind
from countledger.ledger.limits import SECOND_MS
from countledger.producers.buffer.queue import SendQueue
from countledger.producers.buffer.settings import (
    BufferFull,
    BufferStatistics,
    Failure,
    ProducerClosed,
    StillBuffered,
    Wait,
)
from countledger.producers.event import (
    Event,
    Receipt,
    make_entries,
    not_an_event,
    unacknowledged,
    values_of,
)
from countledger.producers.sender import Sender, ledgers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Answer, Step, Steps
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.settings import Buffering, Outcomes, PendingEntry
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.sender import Outcome


# Creates the entries of a batch, keeps them in the spool, and sends them.
#
# Until its first send, a pending entry may be only a counter, a sum and a time, and coalesced
# events may join it. Then its entry is created and never changes: each further attempt sends the
# same entry. A batch is sent until each entry is acknowledged, refused, or out of attempts; then
# the spool is updated.


_LOG: Final = logging.getLogger(__name__)
# A later attempt would get the same answer.
_FINAL_REFUSALS: Final = (IdempotencyKeyReused, KeyExpired, WrongKind)


def may_coalesce(event: Event) -> bool:
    return (
        event.key is None and event.note is None and event.occurred_at is None and event.events == 1
    )


@dataclass(frozen=True, slots=True)
class EntryMaker:
    """Creates the entries of events and sums; the region of this process is their origin."""

    connection: Connection
    region: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", self.connection.region)

    def of_event(self, event: Event) -> Entry:
        now_ms, new_ids = self.connection.clock.now_ms(), self.connection.ids.new_ids
        (entry,) = make_entries(
            values_of([event]), now_ms=now_ms, origin=self.region, new_ids=new_ids
        )
        return entry

    def make(self, pendings: Sequence[PendingEntry]) -> Sequence[Entry]:
        """Create the entries that are not created yet, of plain events and of sums; return all.

        A sum may be 0: its entry is written too, because it has the number of events.
        """
        now_ms, new_ids = self.connection.clock.now_ms(), self.connection.ids.new_ids
        drafts = [one for one in pendings if one.entries is None]
        times_ms = [now_ms if one.at_ms is None else one.at_ms for one in drafts]
        ids = [one for at_ms, same in groupby(times_ms) for one in new_ids(at_ms, len([*same]))]
        made = EntryColumns(
            [one.counter for one in drafts],
            ids,
            [one.delta for one in drafts],
            times_ms,
            self.region,
            [one.events for one in drafts],
        )
        for number, draft in enumerate(drafts):
            draft.unfrozen = draft.rows is not None
            draft.number = number
            draft.entries = made  # last: an entry that an interrupt kept from this is not created
        if len(drafts) == len(pendings):
            return made
        return [one.entries[one.number] for one in pendings if one.entries is not None]


def keep(pendings: Iterable[PendingEntry], spool: Spool | None) -> None:
    """Replace events by their entries in the spool, before the entries are first sent.

    After `SpoolRefused` the entries must not be sent: their events are still in the spool, and
    become entries with another id at the next start.
    """
    if spool is None:
        return
    drafts = [pending for pending in pendings if pending.unfrozen]
    if not drafts:
        return
    try:
        spool.freeze(drafts)
    except CountledgerError:
        for draft in drafts:
            draft.entries = None
            draft.unfrozen = False
        raise
    # If a signal handler raised, it stays set: the next call replaces the events, perhaps again.
    for draft in drafts:
        draft.unfrozen = False


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcomes of a batch's entries that are not simply recorded, by number.

    `waits`: how many attempts were throttled or not answered, and repeated.
    """

    others: Mapping[int, Outcome]
    waits: int


@dataclass(slots=True)
class PauseCounter:
    """Performs steps through another performer, and counts the pauses between attempts.

    A producer that waits often sends too much at once, and slows down.
    """

    perform: Callable[[Step], Any]
    pauses: int = 0

    def __call__(self, step: Step) -> Answer:
        self.pauses += isinstance(step, Pause)
        return self.perform(step)


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """Delivers batches by a client of its own; only the attempts for an entry are limited."""

    connection: Connection
    attempts: int
    sender: Sender = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sender = Sender(self.connection, Backoff(self.attempts), limited=False)
        object.__setattr__(self, "sender", sender)

    def deliver(self, batch: EntryBatch, spool: Spool | None) -> Delivered:
        """Send a batch. It raises nothing."""
        sender = self.sender
        perform = PauseCounter(sender.perform)
        refused = kept(batch, spool)
        if refused is not None:
            return refused
        try:
            others = run(sending(batch, sender), perform)
        # Any error, also a bug here: the entries must return to their owner.
        except Exception as error:  # noqa: BLE001
            others = unknown_outcomes(batch, error)
        return delivered(batch, spool, others, perform.pauses)


def kept(batch: EntryBatch, spool: Spool | None) -> Delivered | None:
    """Keep the entries of a batch in the spool; the result if they could not be kept."""
    try:
        keep(batch.pendings, spool)
    except CountledgerError as error:
        return Delivered(dict.fromkeys(range(len(batch.pendings)), error), 0)
    return None


def sending(batch: EntryBatch, sender: Sender) -> Steps[dict[int, Outcome]]:
    """The steps that send the entries of a batch; the outcomes of those not simply recorded.

    An entry whose namespace cannot be read is not sent; the others are.
    """
    entries = batch.entries
    if batch.keyed:
        return {0: (yield from sender.sending_alone(entries[0]))}
    namespaces, others = ledgers_of(counters_of(entries), sender.namespaces, (CountledgerError,))
    if not others:
        return (yield from sender.sending_batch(entries, namespaces))
    numbers = [n for n in range(len(entries)) if n not in others]
    if numbers:
        found = yield from sender.sending_batch([entries[n] for n in numbers], namespaces)
        others.update((numbers[n], one) for n, one in found.items())
    return others


def unknown_outcomes(batch: EntryBatch, error: BaseException) -> dict[int, Outcome]:
    """The outcomes of a batch that ended with an error which is not one of ours."""
    entries = enumerate([one.entry for one in batch.pendings])
    return {n: unacknowledged(one, repr(error)) for n, one in entries if one is not None}


def undeliverable(batch: EntryBatch, spool: Spool | None, error: BaseException) -> Delivered:
    """The result of a batch that no client could send; its entries are kept in the spool."""
    refused = kept(batch, spool)
    if refused is not None:
        return refused
    if isinstance(error, CountledgerError):
        return Delivered(dict.fromkeys(range(len(batch.pendings)), error), 0)
    return Delivered(unknown_outcomes(batch, error), 0)


def delivered(
    batch: EntryBatch, spool: Spool | None, others: Mapping[int, Outcome], waits: int
) -> Delivered:
    """The result of a batch that was sent; the spool is updated.

    Acknowledged entries leave the spool, and refused ones are marked. All others are sent again at
    the next start.
    """
    if spool is not None and any(pending.rows for pending in batch.pendings):
        _update_spool(spool, batch.pendings, others)
    return Delivered(others, waits)


def _update_spool(
    spool: Spool, pendings: Sequence[PendingEntry], others: Mapping[int, Outcome]
) -> None:
    acknowledged: list[int] = []
    refused: list[tuple[str, int]] = []
    for number, pending in enumerate(pendings):
        rows, outcome = pending.rows or [], others.get(number)
        if outcome is None or isinstance(outcome, Receipt):
            acknowledged += rows[:1]
        elif isinstance(outcome, _FINAL_REFUSALS):
            refused += [(str(outcome), row) for row in rows[:1]]
    try:
        spool.update(acknowledged, refused)
    except CountledgerError:
        # They stay in the spool. Sent again at the next start, they count once.
        _LOG.warning("a spool could not be updated", exc_info=True)


def ledger_name(connection: Connection) -> str:
    """The name of the ledger that a spool belongs to."""
    return f"table {connection.ledger} in {connection.region}"


_CLOSED: Final = "the producer was closed before"


def ticks_ms() -> float:
    return monotonic() * 1_000


def not_sent(pending: PendingEntry) -> CountledgerError:
    """The error of an entry that was not acknowledged before the producer was closed."""
    if pending.entry is None:
        return ProducerClosed(f"events of {pending.counter!r} stay in the spool: {_CLOSED}")
    return unacknowledged(pending.entry, _CLOSED)


def error_of(pending: PendingEntry) -> CountledgerError:
    """The error of an entry that is being sent when the producer is closed: its own, if it has."""
    known = pending.outcome
    return known if isinstance(known, CountledgerError) else not_sent(pending)


@dataclass(slots=True)
class BufferState:
    """The state of a buffer in one process; without a spool nothing outlives the process."""

    buffering: Buffering
    maker: EntryMaker
    spool: Spool | None
    outcomes: Outcomes
    closed: bool = False
    events: int = 0
    batches: int = 0
    waits: int = 0
    queue: SendQueue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = SendQueue(self.buffering)

    # ---- accepting ----

    def pending_of(self, event: object) -> PendingEntry:
        """The pending entry of an event; its entry is created now unless the event is plain."""
        if not isinstance(event, Event):
            raise not_an_event(event)
        if may_coalesce(event):
            return self.pending_of_plain(event.counter, event.delta)
        return self.outcomes.kind(
            self.outcomes, event.counter, event.delta, self.maker.of_event(event)
        )

    def pending_of_plain(self, counter: str, delta: Amount) -> PendingEntry:
        """As `pending_of`, of an event without key, note and time of its own; both are checked.

        The entry is created when it is sent, with the time of now. A spool needs it before.
        """
        if self.buffering.coalesce:
            return self.outcomes.kind(self.outcomes, counter, delta)
        pending = self.outcomes.kind(
            self.outcomes, counter, delta, None, self.maker.connection.clock.now_ms()
        )
        if self.spool is not None:
            self.maker.make((pending,))
        return pending

    def pending_again(self, entry: Entry) -> PendingEntry:
        """The pending entry of an entry that failed; it keeps its row in the spool."""
        pending = self.outcomes.kind(self.outcomes, entry.counter, entry.delta, entry)
        pending.rows = self.outcomes.rows_of(entry.counter, entry.id)
        return pending

    def left_in_spool(self) -> list[PendingEntry]:
        """The entries and events that an earlier process left; events may be coalesced again."""
        if self.spool is None:
            return []
        pendings = []
        for row in self.spool.kept():
            pending = self.outcomes.kind(self.outcomes, row.counter, row.delta, row.entry)
            pending.rows = [row.row]
            pendings.append(pending)
        if not self.buffering.coalesce:
            self.maker.make(pendings)
            keep(pendings, self.spool)
        return pendings

    def has_headroom(self, entries: int, size: int, *, over: bool = False) -> bool:
        """Reserve headroom; if it is not enough, make all entries due and return False.

        `BufferFull`: as many failures are unread as the buffer may have entries.
        """
        if self.closed:
            raise ProducerClosed("the producer is closed: create another one to add events")
        if self.outcomes.failed:
            failed = self.outcomes.unreported()
            if failed >= self.buffering.holds_entries:
                raise BufferFull(
                    f"{failed} entries failed and their errors were not read: call flush, or "
                    "create the producer with `on_failure`"
                )
        if over:
            self.queue.exceed(entries, size)
        if over or self.queue.reserve(entries, size):
            return True
        # A caller that waits for headroom must not wait for the linger time too.
        self.queue.make_due()
        return False

    def full(self) -> BufferFull:
        """The error if the buffer is full and `when_full` is `error`."""
        return BufferFull(
            f"the buffer is full: {self.queue.entries} entries are not acknowledged yet "
            "(max_entries, max_bytes): try again later"
        )

    def take_plain(self, pending: PendingEntry) -> bool:
        """`has_headroom` and `take` in one step; False if anything else is to be decided."""
        if self.closed or self.outcomes.failed or pending.at_ms is None:
            return False
        if not self.queue.fill(pending):
            return False
        self.events += 1
        return True

    def take(self, pending: PendingEntry) -> PendingEntry:
        """Queue a pending entry, or add its event to one of its counter; return the one used."""
        self.events += pending.events
        if pending.at_ms is not None or pending.entry is not None:
            self.queue.put(pending, ticks_ms())
        else:
            joined = self.queue.join(pending.counter, pending.delta, pending.rows or ())
            if joined is not None:
                self.queue.release(1, pending.size)
                return joined
            self.queue.open(pending, ticks_ms())
        return pending

    # ---- sending ----

    def next_batch(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, with its entries created; None if no batch is due."""
        batch = self.queue.take(now_ms)
        if batch is not None:
            batch.entries = self.maker.make(batch.pendings)
        return batch

    # ---- ending ----

    def wait(self, timeout_s: float | None) -> Wait:
        """The wait of a `flush` or a `close` that begins now."""
        return Wait(timeout_s, self.buffering.patience_ms / SECOND_MS, monotonic())

    def ended(self, batch: EntryBatch, delivered: Delivered) -> None:
        """Count a finished batch and release its headroom."""
        self.batches += 1
        self.waits += delivered.waits
        self.queue.finish(batch, slow_down=delivered.waits > 0)

    def hand_back(self) -> tuple[list[PendingEntry], tuple[Failure, ...], tuple[Failure, ...]]:
        """Fail all entries that are left.

        The answer: the entries that were still waiting, whose outcome is known now; all failures
        that no caller has got; and the failures of the entries that are being sent, to report once.
        """
        under_way = [one for one in self.queue.pending_under_way() if not self._is_reported(one)]
        left = self.queue.waiting()
        self.maker.make(left)
        try:
            keep(left, self.spool)
        except CountledgerError as error:
            errors = [error if one.entry is None else not_sent(one) for one in left]
        else:
            errors = [not_sent(one) for one in left]
        self.outcomes.resolve(left, dict(enumerate(errors)))
        # If the spool has the events and not the entry, the events are sent at the next start.
        lost = tuple(
            Failure(None if one.unfrozen else one.entry, error_of(one)) for one in under_way
        )
        failures = self.outcomes.take_failures()
        # After all else: if a signal handler raised before, the next `close` finds the entries.
        self.queue.withdraw()
        for one in under_way:
            one.handed_back = True
        return left, failures, lost

    def _is_reported(self, pending: PendingEntry) -> bool:
        """Whether `close` has nothing to report of an entry that is being sent.

        A batch is under way until its callbacks have returned; its outcomes are known before.
        """
        known = pending.outcome
        if pending.handed_back or isinstance(known, Receipt):
            return True
        return known is not None and self.outcomes.on_failure is None

    def still_buffered(self, timeout_s: float | None) -> StillBuffered:
        left = self.queue.entries
        if timeout_s is None:
            patience_s = self.buffering.patience_ms / SECOND_MS
            return StillBuffered(
                f"no entry was acknowledged or refused for {patience_s:g} s; {left} entries are "
                "still being sent"
            )
        return StillBuffered(
            f"{left} entries were not acknowledged within {timeout_s} s; they are still being sent"
        )

    def statistics(self) -> BufferStatistics:
        tally = self.outcomes.tally
        return BufferStatistics(
            events=self.events,
            waiting=self.queue.entries,
            under_way=len(self.queue.pending_under_way()),
            recorded=tally.recorded,
            duplicates=tally.duplicates,
            failed=tally.failed,
            batches=self.batches,
            waits=self.waits,
            senders=int(self.queue.limit),
        )
