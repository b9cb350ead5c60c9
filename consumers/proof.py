"""The proof that the stream of `ledger` has been handled past a moment.

A shard is past it by its own progress, by that of a child (which is read only when its parent has
been handled to its end), or because the stream shows nothing after its progress. What `at` the
entries carry proves nothing, for they may arrive late. Nor does a stream that was switched off.

The end of a closed shard is told by the service. That of an open one is told by nothing but pages
without records, so where something is done on its account more of them are asked for.

Beside the verdict that it carries, a proof says up to which sequence number each shard has been
handled: a repair writes these as watermarks, so that no record behind it can count again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from countledger.consumers import watermark
from countledger.consumers.stream import (
    CLOSED,
    CLOSELY,
    QUICKLY,
    LedgerStream,
    StreamShard,
    counts,
    made_at_ms,
)
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.totals import TotalsReader

_POLL_MS: Final = 500
PATIENCE_MS: Final = 30 * SECOND_MS


class By(Enum):
    """How a shard is proven to have been handled past a moment."""

    PROGRESS = "a later record of it was handled"
    CHILD = "a child of it is being handled"
    STREAM = "what comes next is of later"
    END = "nothing comes next"


@dataclass(frozen=True, slots=True)
class Proof:
    """Every record that the stream made up to a moment has been handled.

    Attributes:
        text: what it rests on, for a person.
        handled: per shard of which anything was handled, the sequence number up to which all was.
        finished: those of them from which no record is left to deliver.
    """

    text: str
    handled: Mapping[str, int]
    finished: frozenset[str]


@dataclass(frozen=True, slots=True)
class Prover:
    """Waits for proofs.

    Attributes:
        totals: reads the progress of shards.
        stream: the stream of `ledger`.
        clock: tells the time and waits.
        clock_skew_ms: how far clocks may differ.
        patience_ms: for how long to wait for a stream that stands still. One that moves is waited
            for until its records lie past the moment and the clocks' skew.
    """

    totals: TotalsReader
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    patience_ms: int = PATIENCE_MS

    def past(self, moment_ms: int, *, closely: bool = False) -> Proof | None:
        """The proof for a moment, or None where none came in time.

        Args:
            moment_ms: past which everything has to be handled.
            closely: whether something is done on its account.

        Raises:
            SetupError: the stream was switched off.
        """
        self.stream.check_on()
        started_ms = moved_ms = self.clock.now_ms()
        handled: dict[str, str] = {}
        while True:
            shards = self.stream.shards()
            progress = self.totals.progress(str(one.shard) for one in shards)
            proofs = {
                one: self._proven(one, shards, progress, moment_ms, closely=closely)
                for one in shards
            }
            if all(proofs.values()):
                return _proof(progress, proofs)
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
        """How a shard is proven past a moment, or None."""
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


def is_finished(
    one: StreamShard, shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]
) -> bool:
    """Whether a child has progress: it is read only when its parent has been handled."""
    return any(other.parent == one.shard.id and str(other.shard) in progress for other in shards)


def _proof(progress: Mapping[str, ShardProgress], proofs: Mapping[StreamShard, By | None]) -> Proof:
    by_progress = sum(by in (By.CHILD, By.PROGRESS) for by in proofs.values())
    text = (
        f"{len(proofs)} stream shard(s) past the read: {by_progress} by progress, "
        f"{len(proofs) - by_progress} with nothing left to handle"
    )
    ended = {str(one.shard) for one, by in proofs.items() if by is By.CHILD}
    read = {str(one.shard) for one, by in proofs.items() if by is By.END and one.closed}
    handled = {name: int(one.sequence) for name, one in progress.items()}
    return Proof(text, handled | dict.fromkeys(ended, watermark.END), frozenset(ended | read))
