"""The lag of the totals: what the stream has that they lack.

Progress alone cannot distinguish a quiet stream from a stalled one; the records after it can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.consumers.proof import is_finished
from countledger.consumers.stream import counts, made_at_ms
from countledger.consumers.totals import freshness_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.stream import LedgerStream, StreamShard
    from countledger.consumers.totals import Freshness, TotalsReader


@dataclass(frozen=True, slots=True)
class ShardLag:
    """How far a stream shard has been handled, and what of it has not.

    Attributes:
        shard: its name.
        handled_through_ms: when the stream made the last record that was handled, ms since the
            epoch; None: none was.
        waiting_since_ms: when it made the oldest record that is not handled; None: there is none.
    """

    shard: str
    handled_through_ms: int | None
    waiting_since_ms: int | None


def proven_freshness(totals: TotalsReader, stream: LedgerStream) -> Freshness:
    """The freshness of totals, and what of the stream they lack.

    Half a read unit for each shard of the stream, and a few calls.
    """
    shards = stream.shards()
    progress = totals.progress(str(one.shard) for one in shards)
    waiting_ms = waiting_since_ms(stream, shards, progress)
    found = freshness_of(shards, progress)
    return replace(found, up_to_date=waiting_ms is None, waiting_since_ms=waiting_ms)


def waiting_since_ms(
    stream: LedgerStream, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> int | None:
    """When the stream created its oldest record that counts and is not handled; None: no record.

    In ms since the epoch, whole seconds. A few calls for each shard; no read units.

    Args:
        stream: the stream of `ledger`.
        shards: its shards.
        progress: the progress of the shards that have any.
    """
    found = _waiting(stream, shards, progress).values()
    return min((at_ms for at_ms in found if at_ms is not None), default=None)


def shard_lags(totals: TotalsReader, stream: LedgerStream) -> tuple[ShardLag, ...]:
    """The lag of each shard that may still have something to handle, by name.

    Half a read unit for each shard of the stream, and a few calls.
    """
    shards = stream.shards()
    progress = totals.progress(str(one.shard) for one in shards)
    return tuple(
        ShardLag(name, progress[name].handled_through_ms if name in progress else None, waiting_ms)
        for name, waiting_ms in sorted(_waiting(stream, shards, progress).items())
    )


def _waiting(
    stream: LedgerStream, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> dict[str, int | None]:
    """For each shard that is not finished, when its oldest record that is not handled was made."""
    return {
        str(one.shard): _first_ms(stream, one, progress.get(str(one.shard)))
        for one in shards
        if not is_finished(one, shards, progress)
    }


def _first_ms(stream: LedgerStream, one: StreamShard, mine: ShardProgress | None) -> int | None:
    for record in stream.after(one.shard, mine.sequence if mine else None):
        if counts(record):
            return int(made_at_ms(record))
    return None
