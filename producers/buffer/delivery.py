"""Delivering a batch: it is sent until nobody has to send it again, and the spool told."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import Backoff
from countledger.ledger.errors import (
    CountledgerError,
    IdempotencyKeyReused,
    KeyExpired,
    WrongKind,
)
from countledger.ledger.namespace import Kind
from countledger.producers.buffer.coalesce import keep
from countledger.producers.event import Receipt, unacknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.pending import Pending
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.sender import Outcome, Sender

_LOG: Final = logging.getLogger(__name__)
# What no later attempt could change.
_FOR_GOOD: Final = (IdempotencyKeyReused, KeyExpired, WrongKind)


@dataclass(frozen=True, slots=True)
class NotedBackoff(Backoff):
    """A back-off that notes its waits: whoever sends much learns that it is too much.

    Attributes:
        waits: every wait so far, in milliseconds.
    """

    waits: list[float] = field(default_factory=list)

    def waits_ms(self, random: Random) -> Iterator[float]:
        """The waits, each noted as it is taken."""
        for wait_ms in Backoff(self.attempts, self.base_ms, self.cap_ms).waits_ms(random):
            self.waits.append(wait_ms)
            yield wait_ms


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a batch.

    Attributes:
        outcomes: one for each of its entries, in their order.
        waits: how many attempts were throttled or not answered, and made again.
    """

    outcomes: list[Outcome]
    waits: int


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """Delivers batches.

    Attributes:
        sender: brings entries to the ledger.
        attempts: how often an entry is sent before it is handed back.
    """

    sender: Sender
    attempts: int

    def deliver(self, batch: EntryBatch, spool: Spool | None) -> Delivered:
        """Send a batch until it is acknowledged, refused or given up; it raises nothing."""
        backoff = NotedBackoff(self.attempts)
        try:
            keep(batch.pendings, spool)
        except CountledgerError as error:
            return Delivered([error] * len(batch.pendings), 0)
        entries = [one.entry for one in batch.pendings if one.entry is not None]
        try:
            outcomes = self._send(replace(self.sender, backoff=backoff), entries, keyed=batch.keyed)
        # Whatever it is, a bug of ours too: the entries must come back to their owner.
        except Exception as error:  # noqa: BLE001
            outcomes = [unacknowledged(entry, repr(error)) for entry in entries]
        if spool is not None:
            settle_spool(spool, batch.pendings, outcomes)
        return Delivered(outcomes, len(backoff.waits))

    def _send(self, sender: Sender, entries: Sequence[Entry], *, keyed: bool) -> list[Outcome]:
        if keyed:
            return [sender.outcome_of(entry) for entry in entries]
        try:
            return sender.send_batch(entries)
        except CountledgerError:
            # A namespace that cannot be read: nothing was sent, and the others need not suffer.
            return self._send_readable(sender, entries)

    def _send_readable(self, sender: Sender, entries: Sequence[Entry]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        good: dict[int, Entry] = {}
        for number, entry in enumerate(entries):
            try:
                sender.namespaces.for_use(entry.counter, Kind.LEDGER)
            except CountledgerError as error:
                outcomes[number] = error
            else:
                good[number] = entry
        if good:
            outcomes |= dict(zip(good, sender.send_batch(list(good.values())), strict=True))
        return [outcomes[number] for number in range(len(entries))]


def undeliverable(batch: EntryBatch, spool: Spool | None, error: BaseException) -> Delivered:
    """A batch that nothing could be made to send; the spool knows its entries all the same."""
    try:
        keep(batch.pendings, spool)
    except CountledgerError as refused:
        return Delivered([refused] * len(batch.pendings), 0)
    if isinstance(error, CountledgerError):
        return Delivered([error] * len(batch.pendings), 0)
    entries = [one.entry for one in batch.pendings if one.entry is not None]
    return Delivered([unacknowledged(entry, repr(error)) for entry in entries], 0)


def settle_spool(spool: Spool, pendings: Sequence[Pending], outcomes: Sequence[Outcome]) -> None:
    """Forget what arrived, put aside what never can; all else is sent again at the next start."""
    acknowledged: list[int] = []
    refused: list[tuple[str, int]] = []
    if not any(pending.rows for pending in pendings):
        return
    for pending, outcome in zip(pendings, outcomes, strict=True):
        rows = pending.rows or []
        if isinstance(outcome, Receipt):
            acknowledged += rows[:1]
        elif isinstance(outcome, _FOR_GOOD):
            refused += [(str(outcome), row) for row in rows[:1]]
    try:
        spool.settle(acknowledged, refused)
    except CountledgerError:
        # It stays in the spool; sent again at the next start it counts once all the same.
        _LOG.warning("a spool could not be brought up to date", exc_info=True)
