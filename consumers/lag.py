"""How old the oldest change is that no total has yet: the lag of the totals, proven.

Progress alone cannot tell a quiet stream from a stalled one; what the stream shows behind it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.proof import is_finished
from countledger.consumers.stream import counts, made_at_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.stream import LedgerStream, StreamShard


def waiting_since_ms(
    stream: LedgerStream, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> int | None:
    """When the stream made its oldest record that counts and is not handled; None: there is none.

    In whole seconds, ms since the epoch. A few calls for each shard; no units.

    Args:
        stream: of the ledger.
        shards: its shards.
        progress: theirs, as far as they have any.
    """
    found = (
        _first_ms(stream, one, progress.get(str(one.shard)))
        for one in shards
        if not is_finished(one, shards, progress)
    )
    return min((at_ms for at_ms in found if at_ms is not None), default=None)


def _first_ms(stream: LedgerStream, one: StreamShard, mine: ShardProgress | None) -> int | None:
    for record in stream.after(one.shard, mine.sequence if mine else None):
        if counts(record):
            return int(made_at_ms(record))
    return None
