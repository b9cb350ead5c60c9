"""Creates the entries of a batch, keeps them in the spool, and sends them.

Until its first send, a pending entry may be only a counter, a sum and a time, and coalesced events
may join it. Then its entry is created and never changes: each further attempt sends the same entry.
A batch is sent until each entry is acknowledged, refused, or out of attempts; then the spool is
updated.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.attempts import Pause, run
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.entry import EntryColumns, counters_of
from countledger.ledger.errors import CountledgerError, IdempotencyKeyReused, KeyExpired, WrongKind
from countledger.ledger.ids import new_ids
from countledger.producers.event import Receipt, make_entries, unacknowledged, values_of
from countledger.producers.recorder import ledgers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.attempts import Answer, Step, Steps
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.settings import PendingEntry
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.event import Event
    from countledger.producers.recorder import Outcome
    from countledger.producers.sender import Sender


_LOG: Final = logging.getLogger(__name__)
# A later attempt would get the same answer.
_FINAL_REFUSALS: Final = (IdempotencyKeyReused, KeyExpired, WrongKind)


def may_coalesce(event: Event) -> bool:
    """Whether an event can be part of a sum: it is one event without key, note and own time."""
    return (
        event.key is None and event.note is None and event.occurred_at is None and event.events == 1
    )


@dataclass(frozen=True, slots=True)
class EntryMaker:
    """Creates entries.

    Attributes:
        region: the region of this process, which is the origin of every entry.
        clock: gives the time of an entry.
        new_ids: creates so many ids for a time in milliseconds.
    """

    region: str
    clock: Clock = field(default_factory=SystemClock)
    new_ids: Callable[[int, int], list[str]] = new_ids

    def of_event(self, event: Event) -> Entry:
        """The entry of one event."""
        now_ms, made = self.clock.now_ms(), values_of([event])
        (entry,) = make_entries(made, now_ms=now_ms, origin=self.region, new_ids=self.new_ids)
        return entry

    def make(self, pendings: Sequence[PendingEntry]) -> Sequence[Entry]:
        """Create the entries that are not created yet, of plain events and of sums; return all.

        A sum may be 0: its entry is written too, because it has the number of events.
        """
        now_ms = self.clock.now_ms()
        drafts = [one for one in pendings if one.entries is None]
        times_ms = [now_ms if one.at_ms is None else one.at_ms for one in drafts]
        ids = [
            one for at_ms, same in groupby(times_ms) for one in self.new_ids(at_ms, len([*same]))
        ]
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

    Raises:
        SpoolRefused: the entries are not kept and must not be sent. Their events are still in the
            spool, and become entries with another id at the next start.
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
    """The result of a batch.

    Attributes:
        others: by their number, the outcomes of its entries that are not simply recorded.
        waits: the number of attempts that were throttled or not answered, and repeated.
    """

    others: Mapping[int, Outcome]
    waits: int


@dataclass(slots=True)
class PauseCounter:
    """Performs steps through another performer, and counts the pauses between attempts.

    A producer that waits often sends too much at once, and slows down.

    Attributes:
        perform: the other performer, of a thread or of an event loop.
        pauses: the number so far.
    """

    perform: Callable[[Step], Any]
    pauses: int = 0

    def __call__(self, step: Step) -> Answer:
        """The answer of the other performer."""
        self.pauses += isinstance(step, Pause)
        return self.perform(step)


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """Delivers batches from a thread.

    Attributes:
        sender: sends entries to the ledger.
        attempts: the attempts for an entry, before it is handed back.
    """

    sender: Sender
    attempts: int

    def __post_init__(self) -> None:
        """Give the sender this number of attempts."""
        patient = replace(self.sender, backoff=Backoff(self.attempts))
        object.__setattr__(self, "sender", patient)

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
    return f"table {connection.setting('ledger_table')} in {connection.region}"
