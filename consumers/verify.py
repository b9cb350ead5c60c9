"""Verify: is a total what its ledger says, or does it only lag?

    1  read the total, strongly consistent: its version
    2  the exact sum of the ledger, and the moment at which that read ended
    3  wait until each shard of the stream is proven past that moment, including clock skew
       (`proof`)
    4  read the total again: with the same version the two numbers can be compared

Only then is a difference a drift. A stream may show a write a moment after the table does. So a
difference counts only after a second comparison, made after a pause in which the stream settles: a
false drift, once repaired, would count that write twice.

A version that moved means that the two numbers belong to different moments: the verdict is busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.proof import PATIENCE_MS, Proof, Prover
from countledger.ledger import amount, keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CorruptItem, NewerFormat, ServiceFailed
from countledger.ledger.exact import ExactSum
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, LATE_WRITE_MS, SECOND_MS
from countledger.ledger.total import Total, decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.consumers.record import LedgerStream
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.exact import ExactReader

_SETTLE_MS: Final = 5 * SECOND_MS
_CHUNK: Final = 100
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class StoredTotal:
    """A counter's total as stored, also one that was corrupted by hand.

    Attributes:
        counter: its name.
        item: the stored item; None where none exists.
        total: the decoded total; zeros where no item exists, None where it cannot be decoded.
        flaw: why the item cannot be decoded.
        version: the number that each update raises; 0 where no item exists; None where it is
            corrupt too, or where a later release wrote the item: then nothing may be written.
    """

    counter: str
    item: Item | None
    total: Total | None
    flaw: str | None
    version: int | None

    @property
    def moment(self) -> tuple[object, object]:
        """Version and time: a total deleted by hand may come to the same version again."""
        return self.version, self.item and self.item.get("updated_at")


def stored_total(counter: str, item: Item | None) -> StoredTotal:
    """Decode a total's item of `counters`, or say why it cannot be decoded."""
    if item is None:
        return StoredTotal(counter, None, Total(counter), None, 0)
    try:
        total = decode_total(item)
    except NewerFormat as error:
        return StoredTotal(counter, item, None, str(error), None)
    except CorruptItem as error:
        version = item.get("version")
        known = isinstance(version, int) and not isinstance(version, bool)
        return StoredTotal(counter, item, None, str(error), version if known else None)
    if total.method is not None:
        # Its namespace, which says so, is gone: no ledger decides this value.
        name = keys.namespace_of(counter)
        reason = (
            f"it is of method {total.method}, and namespace {name!r} does not exist: create the "
            "namespace with its kind"
        )
        return StoredTotal(counter, item, None, reason, None)
    return StoredTotal(counter, item, total, None, total.version)


class Judgement(StrEnum):
    """What a verification found."""

    EXACT = "exact"
    DRIFT = "drift"
    BUSY = "busy"
    UNREADABLE = "unreadable"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A counter's total compared with its ledger.

    Attributes:
        counter: its name.
        verdict: `exact`, `drift`, `busy` (updates kept coming, or the stream lags), `unreadable`
            (an item cannot be decoded), or `deleting` (its ledger was emptied, its total is next).
        total: as materialized; None where it cannot be read.
        exact: the ledger's sum; None where it cannot be read.
        events_drift: events of the total minus events of the ledger; 0 where one is unknown.
        proof: the reason for the verdict, as text.
    """

    counter: str
    verdict: Judgement
    total: Amount | None
    exact: Amount | None
    events_drift: int
    proof: str

    @property
    def drift(self) -> Amount | None:
        """Total minus exact sum; None where one of them is unknown."""
        if self.total is None or self.exact is None:
            return None
        return amount.add(self.total, amount.negated(self.exact))


def verdict_of(
    stored: StoredTotal, exact: ExactSum | None, judgement: Judgement, proof: str
) -> Verdict:
    """A verdict with the numbers that are known."""
    total = stored.total
    return Verdict(
        counter=stored.counter,
        verdict=judgement,
        total=None if total is None else total.value,
        exact=None if exact is None else exact.value,
        events_drift=0 if total is None or exact is None else total.events - exact.events,
        proof=proof,
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verdict with its facts.

    Attributes:
        verdict: for the user.
        stored: the total as found; it did not change while it was compared, unless the verdict is
            `busy`.
        exact: the exact sum, or why not.
        proof: that the stream has been handled past the exact read; None without proof.
        since_ms: when the first of these reads began, ms since the epoch.
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
        clock: the time; waits.
        clock_skew_ms: how far clocks may differ.
        settle_ms: how long after a write its stream record may appear, with a wide margin.
        patience_ms: how long to wait for a stream without progress before the verdict is `busy`.
        chunk: how many counters share one proof.
        readers: how many of them are read at a time.
        late_ms: how long a write that did not know a shard's progress may still land.
        explains: whether a drift that a deletion explains is `deleting`.
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
    explains: bool = True

    def verify(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """Compare counters, many at a time with one proof.

        Costs two read units for each counter and those of its exact read, and some reads of the
        stream for each hundred; one more for a drift; up to three times that where a verdict takes
        several attempts. On a stream without pause one takes as long as clocks may differ.

        Raises:
            BadCounterName: a name breaks the grammar.
        """
        return (evidence.verdict for evidence in self.compare(counters))

    def compare(self, counters: Iterable[str]) -> Iterator[Evidence]:
        """As `verify`, with the facts of each verdict."""
        feed = map(keys.check_counter, counters)
        while chunk := list(islice(feed, self.chunk)):
            found: dict[str, Evidence] = {}
            open_ = list(dict.fromkeys(chunk))
            for settle_ms in (0, self.settle_ms, self.settle_ms):
                found |= self._attempt(open_, settle_ms)
                open_ = [c for c in open_ if found[c].verdict.verdict is Judgement.BUSY]
                if not open_:
                    break
            yield from (self._explained(found[counter]) for counter in chunk)

    def _explained(self, finding: Evidence) -> Evidence:
        found, proof = finding.verdict, "its deletion goes on by `countledger delete` at home"
        drifted = self.explains and found.verdict is Judgement.DRIFT
        if not drifted or not self.exact.is_emptied(found.counter):
            return finding
        return replace(finding, verdict=replace(found, verdict=Judgement.DELETING, proof=proof))

    def _attempt(self, counters: Sequence[str], settle_ms: int) -> dict[str, Evidence]:
        """Steps 1 to 4. Equal numbers need no settling: nothing is done because of them."""
        since_ms = self.clock.now_ms()
        settled = settle_ms > 0
        with self.totals.dynamo.workers(self.readers, "countledger-verifier") as pool:
            before = list(pool.map(self._stored, counters))
            sums = list(pool.map(self._sum, counters))
            moment_ms = self.clock.now_ms()
            if settled:
                self.clock.sleep_ms(settle_ms)
            proof = self.prover.past(moment_ms, closely=settled)
            after = pool.map(self._stored, counters)
            return {
                new.counter: Evidence(
                    _verdict(old, new, exact, proof, settled=settled), new, exact, proof, since_ms
                )
                for old, new, exact in zip(before, after, sums, strict=True)
            }

    def _stored(self, counter: str) -> StoredTotal:
        return stored_total(counter, self.totals.item(counter))

    def _sum(self, counter: str) -> ExactSum | CountledgerError:
        try:
            return self.exact.read(counter)
        except (CorruptItem, ServiceFailed) as error:
            # ServiceFailed: compactions overtook the reads of this counter. If the service fails
            # for all of them, the proof fails as well.
            return error

    @property
    def prover(self) -> Prover:
        return Prover(
            self.totals,
            self.stream,
            self.clock,
            self.clock_skew_ms,
            self.patience_ms,
            self.late_ms,
        )


def _verdict(
    before: StoredTotal,
    after: StoredTotal,
    exact: ExactSum | CountledgerError,
    proof: Proof | None,
    *,
    settled: bool,
) -> Verdict:
    """The verdict on what steps 1 to 4 found. Pure."""
    if isinstance(exact, CorruptItem):
        return verdict_of(after, None, Judgement.UNREADABLE, str(exact))
    total, known = after.total, exact if isinstance(exact, ExactSum) else None
    if known is not None and proof is not None and before.moment == after.moment:
        if total and (total.value, total.events) == (known.value, known.events):
            return verdict_of(after, known, Judgement.EXACT, proof.text)
        if settled and total:
            return verdict_of(after, known, Judgement.DRIFT, proof.text)
        if settled:
            return verdict_of(after, known, Judgement.UNREADABLE, f"{after.flaw}")
    if known is None:
        reason = str(exact)
    elif proof is None:
        reason = "the stream has not been handled that far"
    elif before.moment != after.moment:
        reason = "its total changed during the comparison"
    else:
        reason = "it differs; its stream has to settle first"
    return verdict_of(after, known, Judgement.BUSY, f"no verdict: {reason}; try again")
