"""Delivering a batch from an event loop, as the one of `producers.buffer` does from a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from countledger.ledger.errors import CountledgerError
from countledger.producers.buffer.coalesce import keep
from countledger.producers.buffer.delivery import Delivered, NotedBackoff, settle_spool
from countledger.producers.event import unacknowledged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.entry import Entry
    from countledger.producers.asynchronous.sender import AsyncSender
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.sender import Outcome


async def deliver(
    batch: EntryBatch, sender: AsyncSender, spool: Spool | None, *, attempts: int
) -> Delivered:
    """Send a batch until it is acknowledged, refused or given up; it raises nothing of its own."""
    backoff = NotedBackoff(attempts)
    try:
        keep(batch.pendings, spool)
    except CountledgerError as error:
        return Delivered([error] * len(batch.pendings), 0)
    entries = [one.entry for one in batch.pendings if one.entry is not None]
    try:
        outcomes = await _send(replace(sender, backoff=backoff), entries, keyed=batch.keyed)
    # Whatever it is, a bug of ours too: the entries must come back to their owner.
    except Exception as error:  # noqa: BLE001
        outcomes = [unacknowledged(entry, repr(error)) for entry in entries]
    if spool is not None:
        settle_spool(spool, batch.pendings, outcomes)
    return Delivered(outcomes, len(backoff.waits))


async def _send(sender: AsyncSender, entries: Sequence[Entry], *, keyed: bool) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    good: dict[int, Entry] = {}
    for number, entry in enumerate(entries):
        try:
            await sender.meet(entry)
        except CountledgerError as error:
            outcomes[number] = error
        else:
            good[number] = entry
    if keyed:
        outcomes |= {number: await sender.outcome_soon(entry) for number, entry in good.items()}
    elif good:
        sent = await sender.send_batch_soon(list(good.values()))
        outcomes |= dict(zip(good, sent, strict=True))
    return [outcomes[number] for number in range(len(entries))]
