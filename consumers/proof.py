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
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    HOUR_MS,
    LATE_WRITE_MS,
    SECOND_MS,
    STREAM_KEPT_MS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.totals import TotalsReader

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
        text: the facts, as text.
        handled: for each shard with handled records, the sequence number up to which all are.
        landed: the shards of which no write of an earlier invocation can land any more.
    """

    text: str
    handled: Mapping[str, int]
    landed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Prover:
    """Waits for proofs.

    Attributes:
        totals: reads the progress of shards.
        stream: the stream of `ledger`.
        clock: the time; waits.
        clock_skew_ms: how far clocks may differ.
        patience_ms: how long to wait for a stream without progress. While it progresses, wait until
            its records are later than the moment plus the clock skew.
        late_ms: how long a write that did not know a shard's progress may still land.
    """

    totals: TotalsReader
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    patience_ms: int = PATIENCE_MS
    late_ms: int = LATE_WRITE_MS

    def past(self, moment_ms: int, *, closely: bool = False) -> Proof | None:
        """The proof for a moment; None if it was not reached in time.

        Args:
            moment_ms: each record up to this time must be handled, ms since the epoch.
            closely: whether something is done because of the proof: read more pages.

        Raises:
            SetupError: the stream was switched off.
        """
        self.stream.check_on()
        started_ms = moved_ms = self.clock.now_ms()
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
                return _proof(opened, proofs, landed, self.clock.now_ms())
            now_ms = self.clock.now_ms()
            reached = {name: one.sequence for name, one in progress.items()}
            if reached != handled:
                handled, moved_ms = reached, now_ms
            longest_ms = self.clock_skew_ms + self.patience_ms
            if now_ms - moved_ms >= self.patience_ms or now_ms - started_ms >= longest_ms:
                return None
            self.clock.sleep_ms(_POLL_MS)

    def _proven(
        self,
        one: StreamShard,
        shards: Sequence[StreamShard],
        progress: Mapping[str, ShardProgress],
        moment_ms: int,
        *,
        closely: bool,
    ) -> By | None:
        """How a shard is proven past a moment; None: it is not."""
        mine = progress.get(str(one.shard))
        limit_ms = moment_ms + self.clock_skew_ms
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
        now_ms = self.clock.now_ms()
        landed: set[str] = set()
        for one, by in proofs.items():
            mine = progress.get(str(one.shard))
            if by is By.CHILD:
                rests = (
                    closely
                    and _children_landed(one, proofs, progress, now_ms, self.late_ms)
                    and not self._is_left(one, mine)
                )
            else:
                rests = (
                    mine is not None
                    and now_ms - mine.handled_at_ms >= self.late_ms
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
