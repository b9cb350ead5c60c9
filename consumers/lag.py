"""The lag of the totals: what the stream has that they lack; and reads that wait until it is over.

Progress alone cannot distinguish a quiet stream from a stalled one; the records after it can.

`CatchingUp` reads a total that includes every entry that was acknowledged before the read:

    1  read the total                 it counts entries of the ledger of this moment, and no others
    2  read the ledger exactly        its entries include each acknowledged one
    3  as many in (1) as in (2)       they are the same entries: return the total
    4  read the total until it counts as many entries as (2) had
    5  a counter without spread       its entries are applied in the order in which they were
                                      written, so those of (2) are the first: return the total
       a spread counter               its entries are in several partitions, and entries written
                                      after (2) may be applied before those of (2): repeat from (2)
    6  before it is returned          read the total consistently. If its incarnation is another,
                                      the counter was deleted and its name is used again: (1) and
                                      (2) are of two counters, and equal numbers prove nothing. Go
                                      on with this total, from (2)

No stream is read for that, because a stream has capacity for its consumer alone, and no clocks are
compared. A still stream makes no difference. If the consumer stopped, the wait ends with its time.

DynamoDB does not promise (5) for a counter without spread whose entries it has divided among
several partitions by itself, which it does for the heat of a single counter. Such a counter should
have a spread: then only (3) counts, and it needs a moment at which nothing is outstanding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.consumers.proof import is_finished
from countledger.consumers.record import counts, made_at_ms
from countledger.consumers.totals import freshness_of
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import TotalBehind
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.record import LedgerStream, StreamShard
    from countledger.consumers.totals import Freshness, TotalsReader
    from countledger.ledger.exact import ExactReader, ExactSum
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.total import Total

# The first wait, and the longest; each is half as long again as the one before.
_FIRST_MS: Final = 20
_LONGEST_MS: Final = 500


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


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Waits until totals include what was recorded.

    Attributes:
        totals: reads totals.
        exact: reads the ledger.
        namespaces: of the stack; they say whether a counter is spread.
        clock: the time, and waiting.
    """

    totals: TotalsReader
    exact: ExactReader
    namespaces: Namespaces
    clock: Clock = field(default_factory=SystemClock)

    def read(self, counter: str, timeout_s: float) -> Total:
        """A ledger counter's total, with every entry that was acknowledged before this call.

        One exact read (two read units, and one for each 4 KB of entries), half a read unit for
        each read of the total (some 10 in the first second, then 2 a second), and one for the last
        one. A spread counter may need several exact reads.

        Args:
            counter: its name.
            timeout_s: how long to wait, in seconds.

        Raises:
            TotalBehind: the total did not include them in time, or differs from its ledger.
            NamespaceUnknown, WrongKind: the counter has no ledger.
        """
        ordered = self.namespaces.expect(counter, Kind.LEDGER).spread == 1
        end_ms = self.clock.now_ms() + timeout_s * SECOND_MS
        wait_ms: float = _FIRST_MS
        total, incarnation = self.totals.identified(counter)
        while True:
            exact = self.exact.read(counter)
            late = total.entries < exact.entries
            while total.entries < exact.entries:
                left_ms = end_ms - self.clock.now_ms()
                if left_ms <= 0:
                    raise TotalBehind(_missing(total, exact, timeout_s))
                self.clock.sleep_ms(min(wait_ms, left_ms))
                wait_ms = min(wait_ms * 1.5, _LONGEST_MS)
                total, incarnation = self.totals.identified(counter)
            if late and not ordered:
                continue
            now, current = self.totals.identified(counter, consistent=True)
            if current != incarnation:
                total, incarnation = now, current
            elif late or total.entries == exact.entries:
                return total
            else:
                raise TotalBehind(_surplus(total, exact))


def _missing(total: Total, exact: ExactSum, timeout_s: float) -> str:
    missing = exact.entries - total.entries
    return (
        f"the total of {total.counter!r} lacks {missing} of {exact.entries} recorded "
        f"{'entries' if exact.entries > 1 else 'entry'} after "
        f"{show_duration(round(timeout_s * SECOND_MS))}: they are recorded and will count; read "
        "the total later, or see with `countledger status` why the consumer is late"
    )


def _surplus(total: Total, exact: ExactSum) -> str:
    return (
        f"the total of {total.counter!r} counts {total.entries} entries and its ledger has "
        f"{exact.entries}, so it does not show what it includes: run `countledger verify "
        f"{total.counter}`"
    )
