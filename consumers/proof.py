"""The proof that the stream of `ledger` has been handled past a moment.

A shard is past the moment by its own progress, by the progress of a child (a child is read only
after its parent has been handled to its end), or because the stream shows nothing after the
shard's progress. The time `at` of an entry proves nothing, because an entry may arrive late. A
stream that was switched off proves nothing either.

The service marks the end of a closed shard. The end of an open shard shows only as pages without
records. So more empty pages are required when something is done because of the proof.

A proof also says up to which sequence number each shard has been handled, and for which shards that
was so long ago that no write of an earlier invocation can still land. A repair raises the
watermarks of the other shards, so that no earlier record can count again.

The lag of the totals: what the stream has that they lack; and reads that wait until it is over.

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
from enum import Enum
from typing import TYPE_CHECKING, Final

from countledger.consumers.progress import END
from countledger.consumers.record import (
    CLOSED,
    CLOSELY,
    QUICKLY,
    LedgerStream,
    StreamShard,
    counts,
    made_at_ms,
)
from countledger.consumers.totals import TotalsReader, freshness_of
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import TotalBehind
from countledger.ledger.exact import ExactReader
from countledger.ledger.limits import (
    HOUR_MS,
    SECOND_MS,
    STREAM_KEPT_MS,
)
from countledger.ledger.namespace import Kind, Namespaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.totals import Freshness
    from countledger.ledger.connection import Connection
    from countledger.ledger.exact import ExactSum
    from countledger.ledger.total import Total


_POLL_MS: Final = 500
# A stream keeps each record at least this long; the rest is a margin for clock skew.
_SURELY_KEPT_MS: Final = STREAM_KEPT_MS - HOUR_MS
PATIENCE_MS: Final = 30 * SECOND_MS


class By(Enum):
    """How a shard is proven to have been handled past a moment."""

    PROGRESS = "a later record of the shard was handled"
    CHILD = "a child of the shard is being handled"
    STREAM = "the next record is later"
    END = "no record follows"


@dataclass(frozen=True, slots=True)
class Proof:
    """Each record that the stream created up to a moment has been handled.

    Attributes:
        handled: for each shard with handled records, the sequence number up to which all are.
        landed: the shards of which no write of an earlier invocation can land any more.
    """

    text: str
    handled: Mapping[str, int]
    landed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Prover:
    """Waits for proofs: for `patience_ms` while the stream makes no progress.

    While it progresses, until its records are later than the moment plus the clock skew.
    """

    connection: Connection
    patience_ms: int = PATIENCE_MS
    totals: TotalsReader = field(init=False, repr=False)
    stream: LedgerStream = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", TotalsReader(self.connection, of_ledgers=True))
        object.__setattr__(self, "stream", LedgerStream(self.connection))

    def past(self, moment_ms: int, *, closely: bool = False) -> Proof | None:
        """The proof that each record up to a moment is handled; None: it was not reached in time.

        `closely`: something is done because of the proof, so more pages are read.
        """
        self.stream.check_on()
        clock = self.connection.clock
        started_ms = moved_ms = clock.now_ms()
        handled: dict[str, str] = {}
        while True:
            shards = self.stream.shards()
            opened = self.totals.opened(str(one.shard) for one in shards)
            progress = {name: one for name, one in opened.items() if one.position}
            proofs = {
                one: self._proven(one, shards, progress, moment_ms, closely=closely)
                for one in shards
            }
            if all(proofs.values()):
                landed = self._landed(proofs, opened, closely=closely)
                return _proof(opened, proofs, landed, clock.now_ms())
            now_ms = clock.now_ms()
            reached = {name: one.sequence for name, one in progress.items()}
            if reached != handled:
                handled, moved_ms = reached, now_ms
            longest_ms = self.connection.clock_skew_ms + self.patience_ms
            if now_ms - moved_ms >= self.patience_ms or now_ms - started_ms >= longest_ms:
                return None
            clock.sleep_ms(_POLL_MS)

    def _proven(
        self,
        one: StreamShard,
        shards: Sequence[StreamShard],
        progress: Mapping[str, ShardProgress],
        moment_ms: int,
        *,
        closely: bool,
    ) -> By | None:
        mine = progress.get(str(one.shard))
        limit_ms = moment_ms + self.connection.clock_skew_ms
        if is_finished(one, shards, progress):
            return By.CHILD
        if mine and mine.handled_through_ms > limit_ms:
            return By.PROGRESS
        pages = CLOSED if one.closed else CLOSELY if closely else QUICKLY
        after = mine.sequence if mine else None
        for record in self.stream.after(one.shard, after, empty_pages=pages):
            if counts(record):
                return By.STREAM if made_at_ms(record) > limit_ms else None
        return By.END

    def _landed(
        self,
        proofs: Mapping[StreamShard, By | None],
        progress: Mapping[str, ShardProgress],
        *,
        closely: bool,
    ) -> frozenset[str]:
        """The shards of which no write can land any more that a repair would have to refuse.

        Each write of an earlier invocation has landed, and each record delivered again is at or
        below the shard's own progress. A shard that has ended is proven by its child. That says
        nothing about its own progress, which may be old, or deleted with its table. So the stream
        is read after that progress: two calls for each such shard.
        """
        now_ms, late_ms = self.connection.clock.now_ms(), self.connection.late_write_ms
        landed: set[str] = set()
        for one, by in proofs.items():
            mine = progress.get(str(one.shard))
            if by is By.CHILD:
                rests = (
                    closely
                    and _children_landed(one, proofs, progress, now_ms, late_ms)
                    and not self._is_left(one, mine)
                )
            else:
                rests = (
                    mine is not None
                    and now_ms - mine.handled_at_ms >= late_ms
                    and not (by is By.END and _may_be_trimmed(mine, now_ms))
                )
            if rests:
                landed.add(str(one.shard))
        return frozenset(landed)

    def _is_left(self, one: StreamShard, mine: ShardProgress | None) -> bool:
        """Whether the stream has records of an ended shard after the shard's own progress."""
        after = mine.sequence if mine is not None and mine.position else None
        return any(
            counts(record) for record in self.stream.after(one.shard, after, empty_pages=CLOSED)
        )


def is_finished(
    one: StreamShard, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> bool:
    """Whether a child has progress: a child is read only after its parent has been handled."""
    return any(other.parent == one.shard.id and str(other.shard) in progress for other in shards)


def _proof(
    opened: Mapping[str, ShardProgress],
    proofs: Mapping[StreamShard, By | None],
    landed: frozenset[str],
    now_ms: int,
) -> Proof:
    by_progress = sum(by in (By.CHILD, By.PROGRESS) for by in proofs.values())
    text = (
        "all stream records up to the read have been applied (stream shards: "
        f"{by_progress} by progress, {len(proofs) - by_progress} with no record left)"
    )
    handled = {name: int(one.sequence) for name, one in opened.items() if one.position}
    # If records expired before they were handled, the progress is not the end.
    ends_at = {
        str(one.shard): END
        for one, by in proofs.items()
        if by is By.CHILD
        or (by is By.END and one.closed and _may_be_trimmed(opened.get(str(one.shard)), now_ms))
    }
    return Proof(text, handled | ends_at, landed)


def _may_be_trimmed(mine: ShardProgress | None, now_ms: int) -> bool:
    """Whether a record after a shard's progress may have expired before it was handled.

    If the shard was opened and nothing was handled, all its records may have expired.
    """
    return mine is not None and now_ms - mine.handled_through_ms > _SURELY_KEPT_MS


def _children_landed(
    one: StreamShard,
    shards: Iterable[StreamShard],
    progress: Mapping[str, ShardProgress],
    now_ms: int,
    late_ms: int,
) -> bool:
    """Whether a child was begun so long ago that no write of its parent can land any more."""
    children = (str(other.shard) for other in shards if other.parent == one.shard.id)
    found = (progress[name] for name in children if name in progress and progress[name].position)
    return any(child.passed(now_ms, late_ms) is not None for child in found)


# The first wait, and the longest; each is half as long again as the one before.
_FIRST_MS: Final = 20
_LONGEST_MS: Final = 500


@dataclass(frozen=True, slots=True)
class ShardLag:
    """How far a stream shard has been handled, and what of it has not.

    The times are those at which the stream made the last record that was handled, if one was, and
    the oldest one that is not, if there is one.
    """

    shard: str
    handled_through_ms: int | None
    waiting_since_ms: int | None


def proven_freshness(connection: Connection) -> Freshness:
    """The freshness of totals, and what of the stream they lack.

    Half a read unit for each shard of the stream, and a few calls.
    """
    stream = LedgerStream(connection)
    shards = stream.shards()
    progress = TotalsReader(connection).progress(str(one.shard) for one in shards)
    waiting_ms = waiting_since_ms(stream, shards, progress)
    found = freshness_of(shards, progress)
    return replace(found, up_to_date=waiting_ms is None, waiting_since_ms=waiting_ms)


def waiting_since_ms(
    stream: LedgerStream, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> int | None:
    """When the stream created its oldest record that counts and is not handled; None: no record.

    In whole seconds. A few calls for each shard; no read units.
    """
    found = _waiting(stream, shards, progress).values()
    return min((at_ms for at_ms in found if at_ms is not None), default=None)


def shard_lags(connection: Connection) -> tuple[ShardLag, ...]:
    """The lag of each shard that may still have something to handle, by name.

    Half a read unit for each shard of the stream, and a few calls.
    """
    stream = LedgerStream(connection)
    shards = stream.shards()
    progress = TotalsReader(connection).progress(str(one.shard) for one in shards)
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
    """Waits until totals include what was recorded."""

    connection: Connection
    totals: TotalsReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", TotalsReader(self.connection))

    def read(self, counter: str, timeout_s: float) -> Total:
        """A ledger counter's total, with every entry that was acknowledged before this call.

        One exact read (two read units, and one for each 4 KB of entries), half a read unit for each
        read of the total (some 10 in the first second, then 2 a second), and one for the last one.
        A spread counter may need several exact reads.

        `TotalBehind`: the total did not include them in time, or differs from its ledger.
        """
        clock, exact_sums = self.connection.clock, ExactReader(self.connection)
        ordered = Namespaces(self.connection).expect(counter, Kind.LEDGER).spread == 1
        end_ms = clock.now_ms() + timeout_s * SECOND_MS
        wait_ms: float = _FIRST_MS
        total, incarnation = self.totals.identified(counter)
        while True:
            exact = exact_sums.read(counter)
            late = total.entries < exact.entries
            while total.entries < exact.entries:
                left_ms = end_ms - clock.now_ms()
                if left_ms <= 0:
                    raise TotalBehind(_missing(total, exact, timeout_s))
                clock.sleep_ms(min(wait_ms, left_ms))
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
