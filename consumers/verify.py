"""Verify: is a total what its ledger says, or does it only lag behind?

    1  read the total, strongly consistent: its version
    2  the exact sum of the ledger, and the moment when that read ended
    3  wait until every shard of the stream is proven past that moment, clocks' skew included
       (`proof.py`)
    4  read the total again: the same version, and the two numbers can be compared

Only then a difference is drift. And as a stream may show a write a moment after the table does, a
difference is judged only behind a second look, taken after the stream had time to settle: a false
drift, repaired, would count that write twice.

A version that moved means that the two numbers belong to different moments: busy.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.proof import PATIENCE_MS, Proof, Prover
from countledger.consumers.stored import StoredTotal, stored_total
from countledger.consumers.verdict import Judgement, Verdict, busy, compared, unreadable
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CorruptItem, ServiceFailed
from countledger.ledger.exact import ExactSum
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, LATE_WRITE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.consumers.stream import LedgerStream
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.exact import ExactReader

_SETTLE_MS: Final = 5 * SECOND_MS
_CHUNK: Final = 100
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verdict and all that it rests on.

    Attributes:
        verdict: for the user.
        stored: the total as it was found, unmoved unless the verdict is `busy`.
        exact: the exact sum, or why there is none.
        proof: that the stream has been handled past it, or None.
        since_ms: when the reading began that it rests on.
    """

    verdict: Verdict
    stored: StoredTotal
    exact: ExactSum | CountledgerError
    proof: Proof | None
    since_ms: int


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
        patience_ms: for how long to wait for a stream that stands still before `busy` is said.
        chunk: how many counters are judged behind one proof.
        readers: how many of them are read at a time.
        late_ms: for how long a write may land that did not know of a shard's progress.
    """

    totals: TotalsReader
    exact: ExactReader
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    settle_ms: int = _SETTLE_MS
    patience_ms: int = PATIENCE_MS
    chunk: int = _CHUNK
    readers: int = _READERS
    late_ms: int = LATE_WRITE_MS

    def verify(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """Compare counters, many at a time behind one proof.

        Costs two read units for each counter and those of its exact read, and some reads of the
        stream for each hundred; up to three times that where a verdict takes several attempts. On
        a stream without pause an attempt takes as long as clocks may differ.

        What of a counter cannot be read makes its verdict `unreadable`, and stops no other.

        Raises:
            BadCounterName: a name breaks the grammar.
        """
        return (finding.verdict for finding in self.compare(counters))

    def compare(self, counters: Iterable[str]) -> Iterator[Evidence]:
        """As `verify`, with all that each verdict rests on."""
        feed = map(keys.check_counter, counters)
        while chunk := list(islice(feed, self.chunk)):
            findings: dict[str, Evidence] = {}
            for settle_ms in (0, self.settle_ms, self.settle_ms):
                open_ = [c for c in chunk if c not in findings or _is_busy(findings[c])]
                if open_:
                    findings |= self._attempt(list(dict.fromkeys(open_)), settle_ms)
            yield from (findings[counter] for counter in chunk)

    def _attempt(self, counters: Sequence[str], settle_ms: int) -> dict[str, Evidence]:
        """Steps 1 to 4. Equal numbers need no settling: nothing is done on their account."""
        since_ms = self.clock.now_ms()
        with ThreadPoolExecutor(self.readers, "countledger-verifier") as pool:
            before = list(pool.map(self._look, counters))
            sums = list(pool.map(self._sum, counters))
            moment_ms = self.clock.now_ms()
            if settle_ms:
                self.clock.sleep_ms(settle_ms)
            proof = self._prover.past(moment_ms, closely=settle_ms > 0)
            after = pool.map(self._look, counters)
            found = [
                Evidence(
                    _judged(old, new, total, proof, settled=settle_ms > 0),
                    new,
                    total,
                    proof,
                    since_ms,
                )
                for old, new, total in zip(before, after, sums, strict=True)
            ]
        return dict(zip(counters, found, strict=True))

    def _look(self, counter: str) -> StoredTotal:
        return stored_total(counter, self.totals.item(counter))

    def _sum(self, counter: str) -> ExactSum | CountledgerError:
        try:
            return self.exact.read(counter)
        except CorruptItem as error:
            return error
        except ServiceFailed as error:
            # Of one counter: compactions overtook its reads. Of all: the proof fails as well.
            return error

    @property
    def _prover(self) -> Prover:
        return Prover(
            self.totals,
            self.stream,
            self.clock,
            self.clock_skew_ms,
            self.patience_ms,
            self.late_ms,
        )


def _is_busy(finding: Evidence) -> bool:
    return finding.verdict.verdict is Judgement.BUSY


def _judged(
    before: StoredTotal,
    after: StoredTotal,
    exact: ExactSum | CountledgerError,
    proof: Proof | None,
    *,
    settled: bool,
) -> Verdict:
    """The verdict on what steps 1 to 4 found. Pure."""
    if isinstance(exact, CorruptItem):
        return unreadable(after, None, str(exact))
    if not isinstance(exact, ExactSum):
        return busy(after, None, str(exact))
    if proof is None:
        return busy(after, exact, "the stream has not been handled that far")
    if before.moment != after.moment:
        return busy(after, exact, "its total moved meanwhile")
    verdict = compared(after, exact, proof.text)
    if verdict.verdict is not Judgement.EXACT and not settled:
        return busy(after, exact, "it differs; its stream has to settle first")
    return verdict
