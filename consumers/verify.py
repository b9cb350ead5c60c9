"""Verify: is a total what its ledger says, or does it only lag behind?

    1  read the total, strongly consistent: its version
    2  the exact sum of the ledger, and the moment when that read ended
    3  wait until every shard of the stream is proven past that moment, clocks' skew included: by
       its progress, or because the stream shows nothing after its progress
    4  read the total again: the same version, and the two numbers can be compared

Only then a difference is drift. And as a stream may show a write a moment after the table does, a
difference is judged only behind a second look, taken after the stream had time to settle: a false
drift, repaired, would count that write twice.

What `at` the entries carry proves nothing, for they may arrive late. A version that moved means
that the two numbers belong to different moments: busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.stream import LedgerStream, StreamShard, counts
from countledger.ledger import amount, keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import WrongKind
from countledger.ledger.expressions import Absent, AllOf, AnyOf, BeginsWith, Compare
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, SECOND_MS
from countledger.ledger.operations import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.amount import Amount
    from countledger.ledger.exact import ExactReader, ExactSum
    from countledger.ledger.total import Total

_CHUNK: Final = 100
_STALLED: Final = "the stream has not been handled that far (is the materializer running?)"
_SETTLE_MS: Final = 5 * SECOND_MS
_POLL_MS: Final = 500
_PATIENCE_MS: Final = 30 * SECOND_MS


class Judgement(StrEnum):
    """What a verification found."""

    EXACT = "exact"
    DRIFT = "drift"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A counter's total and its ledger, compared.

    Attributes:
        counter: its name.
        verdict: `exact`, `drift`, or `busy`: updates kept coming, or the stream lags.
        total: as materialized.
        exact: the ledger's sum.
        events_drift: events of the total minus events of the ledger.
        proof: what the verdict rests on, for a person.
        stalled: whether it is `busy` because the stream was not handled far enough in time.
    """

    counter: str
    verdict: Judgement
    total: Amount
    exact: Amount
    events_drift: int
    proof: str
    stalled: bool = False

    @property
    def drift(self) -> Amount:
        """Total minus exact sum."""
        return amount.add(self.total, -self.exact)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Compares totals with their ledgers.

    Attributes:
        totals: reads totals and progress.
        exact: reads exact sums.
        stream: the stream of `ledger`.
        clock: tells the time and waits.
        clock_skew_ms: how far clocks may differ.
        settle_ms: how long after a write its stream record may appear, with a wide margin.
        patience_ms: for how long to wait for a stream that stands still before `busy` is said. One
            that moves is waited for until its records lie past the moment and the clocks' skew.
    """

    totals: TotalsReader
    exact: ExactReader
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    settle_ms: int = _SETTLE_MS
    patience_ms: int = _PATIENCE_MS

    def verify(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """Compare counters, many at a time behind one proof.

        Costs two read units for each counter and those of its exact read, and some reads of the
        stream for each hundred; up to three times that where a verdict takes several attempts. On
        a stream without pause an attempt takes as long as clocks may differ.

        Raises:
            BadCounterName: a name breaks the grammar.
            WrongKind: a counter is strict.
            CorruptItem: a total, a head or an entry cannot be read.
        """
        feed = map(keys.check_counter, counters)
        while chunk := list(islice(feed, _CHUNK)):
            verdicts: dict[str, Verdict] = {}
            for settle_ms in (0, self.settle_ms, self.settle_ms):
                unsettled = [
                    c for c in chunk if c not in verdicts or verdicts[c].verdict is Judgement.BUSY
                ]
                attempted = self._attempt(unsettled, settle_ms)
                verdicts |= attempted
                if any(verdict.stalled for verdict in attempted.values()):
                    break  # it has been waited for long enough
            yield from (verdicts[counter] for counter in chunk)

    def verify_all(self) -> Iterator[Verdict]:
        """Compare every counter that has a total or an entry; reads both tables whole."""
        return self.verify(sorted(self._counters()))

    def _attempt(self, counters: Sequence[str], settle_ms: int) -> dict[str, Verdict]:
        """Steps 1 to 4. Equal numbers need no settling: nothing is done on their account."""
        before = {c: _kept(self.totals.read(c, consistent=True)) for c in counters}
        exact = {c: self.exact.read(c) for c in counters}
        proof = self._proof_past(self.clock.now_ms(), settle_ms) if counters else None
        verdicts: dict[str, Verdict] = {}
        for counter in counters:
            total = self.totals.read(counter, consistent=True)
            verdict = _compared(total, exact[counter], proof or "")
            if proof is None:
                verdict = replace(_busy(verdict, _STALLED), stalled=True)
            elif total.version != before[counter].version:
                verdict = _busy(verdict, "its total moved meanwhile")
            elif verdict.verdict is Judgement.DRIFT and not settle_ms:
                verdict = _busy(verdict, "it differs; its stream has to settle first")
            verdicts[counter] = verdict
        return verdicts

    def _counters(self) -> set[str]:
        # Strict counters have no ledger to be compared with.
        kept = AllOf(Compare("part", "=", keys.TOTAL), Absent("method"))
        totals = Scan(self.totals.table, kept, ("counter",))
        has_ledger = AnyOf(BeginsWith("entry", keys.ENTRY_PREFIX), Compare("entry", "=", keys.HEAD))
        ledgers = Scan(self.exact.table, has_ledger, ("counter",))
        return {
            item["counter"]
            for scan in (totals, ledgers)
            for page in self.exact.door.pages(scan)
            for item in page
            # An item of another name was put there by hand; no counter of ours can be called so.
            if keys.is_counter(item["counter"])
        }

    def _proof_past(self, moment_ms: int, settle_ms: int) -> str | None:
        """Wait for the proof that every record up to a moment has been handled."""
        if settle_ms:
            self.clock.sleep_ms(settle_ms)
        started_ms = moved_ms = self.clock.now_ms()
        handled: dict[str, str] = {}
        while True:
            shards = self.stream.shards()
            progress = self.totals.progress(str(one.shard) for one in shards)
            proofs = [self._proven(one, shards, progress, moment_ms) for one in shards]
            if all(proofs):
                past = proofs.count("progress")
                return (
                    f"{len(proofs)} stream shard(s) past the read: {past} by progress, "
                    f"{len(proofs) - past} with nothing left to handle"
                )
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
        shards: list[StreamShard],
        progress: dict[str, ShardProgress],
        moment_ms: int,
    ) -> str | None:
        """How a shard is proven past a moment, or None."""
        mine = progress.get(str(one.shard))
        limit_ms = moment_ms + self.clock_skew_ms
        if mine and mine.handled_through_ms > limit_ms:
            return "progress"
        children = [other for other in shards if other.parent == one.shard.id]
        if any(str(child.shard) in progress for child in children):
            return "progress"  # a child is read only when its parent has been handled
        for record in self.stream.after(one.shard, mine.sequence if mine else None):
            if counts(record):
                made_ms = record["dynamodb"]["ApproximateCreationDateTime"].timestamp() * SECOND_MS
                return "stream" if made_ms > limit_ms else None
        return "stream"


def _kept(total: Total) -> Total:
    if total.method is not None:
        raise WrongKind(
            f"counter {total.counter!r} is strict: its value is the truth, there is no ledger to "
            "verify it by"
        )
    return total


def _compared(total: Total, exact: ExactSum, proof: str) -> Verdict:
    same = total.total == exact.sum and total.events == exact.events
    judgement = Judgement.EXACT if same else Judgement.DRIFT
    events_drift = total.events - exact.events
    return Verdict(total.counter, judgement, total.total, exact.sum, events_drift, proof)


def _busy(verdict: Verdict, reason: str) -> Verdict:
    return replace(verdict, verdict=Judgement.BUSY, proof=f"no verdict: {reason}; try again")
