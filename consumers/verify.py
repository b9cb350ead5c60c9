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

Repair: set a total to the exact sum of its ledger, with the same proof as a verdict.

A record is in the exact sum, or it is delivered after the repair; never both:

- each record that the stream had created when the exact read ended was handled (the proof);
- the total's version did not change between that read and this write (the write's condition), so no
  record was added to the total in the meantime;
- the same write raises the watermark of each recently handled shard to the position that the proof
  found handled. So an invocation that is still under way, or a request that lands late, cannot add
  an earlier record: neither a quarantined one, nor one of a total that was deleted together with
  its watermarks. Records that are delivered again are dropped by the shard's progress.

A created or repaired total may have enough entries to compact, so it is put into the due index
after the write, as the materializer does. An exact total is put there as well, because an earlier
repair may have crashed between the two writes.

What a total lacked, its windows may lack, too: the write notes the time (`repaired_at`), and no
window of before is complete until a rebuild of the windows removes it.

The total of a counter that was deleted in the home region goes in every other region
(`clear_total`). The ledger of this region shows the empty head. So its own exact sum says what was
recorded since, and the proof says that the total contains every record that the stream had before:

| exact sum, proven | the total goes, on condition of its version and time |
|---|---|
| no entry | and nothing follows |
| entries of the next counter of that name | by one update that makes it the total of that one |

A total that changes in between stays as it is. The second case is one write: between a deletion
and a repair the total would lack what was recorded before, for as long as a call that died there
is not made again. The deleted entries' records cannot be delivered
again: that was waited for before the head was emptied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers import progress
from countledger.consumers.proof import PATIENCE_MS, Proof, Prover
from countledger.consumers.total_writer import DueMarker, due_rule_of, new_due_rules
from countledger.consumers.totals import TotalsReader
from countledger.ledger import amount, keys
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NewerFormat,
    ServiceFailed,
    SetupError,
)
from countledger.ledger.exact import ExactReader, ExactSum
from countledger.ledger.limits import (
    FORMAT,
    RUN_LIFE_MS,
    SECOND_MS,
)
from countledger.ledger.operations import (
    Absent,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Delete,
    Drop,
    Update,
    unchanged,
)
from countledger.ledger.total import (
    REPAIRED_AT,
    Total,
    decode_total,
    is_of_windows,
    new_incarnation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.indexes import DueRule
    from countledger.ledger.operations import Clause, Condition
    from countledger.ledger.recent import Recent


_SETTLE_MS: Final = 5 * SECOND_MS
_CHUNK: Final = 100
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class StoredTotal:
    """A counter's total as stored, also one that was corrupted by hand.

    Without an item the total is zeros, its version 0; a total that cannot be decoded is None. The
    version is None where it is corrupt too, or where a later release wrote the item: then nothing
    may be written.
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
    """A verdict with its facts; the first of these reads began at `since_ms`.

    The total did not change while it was compared, unless the verdict is `busy`.
    """

    verdict: Verdict
    stored: StoredTotal
    exact: ExactSum | CountledgerError
    proof: Proof | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Verifier:
    """Compares totals with their ledgers.

    The stream record of a write may appear within `settle_ms`, with a wide margin. `patience_ms` is
    how long to wait for a stream without progress before the verdict is `busy`. With `explains` a
    drift that a deletion explains is `deleting`.
    """

    connection: Connection
    settle_ms: int = _SETTLE_MS
    patience_ms: int = PATIENCE_MS
    chunk: int = _CHUNK
    readers: int = _READERS
    explains: bool = True
    totals: TotalsReader = field(init=False, repr=False)
    exact: ExactReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", TotalsReader(self.connection, of_ledgers=True))
        object.__setattr__(self, "exact", ExactReader(self.connection))

    def verify(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """Compare counters, many at a time with one proof.

        Costs two read units for each counter and those of its exact read, and some reads of the
        stream for each hundred; one more for a drift; up to three times that where a verdict takes
        several attempts. On a stream without pause one takes as long as clocks may differ.
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
        clock = self.connection.clock
        since_ms, settled = clock.now_ms(), settle_ms > 0
        with self.connection.retrying.workers(self.readers, "countledger-verifier") as pool:
            before = list(pool.map(self._stored, counters))
            sums = list(pool.map(self._sum, counters))
            moment_ms = clock.now_ms()
            if settled:
                clock.sleep_ms(settle_ms)
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
        return Prover(self.connection, self.patience_ms)


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


# The size limit of one expression.
_RAISED_MAX: Final = 300
_DECIDED: Final = frozenset({Judgement.EXACT, Judgement.DRIFT})


class Remedy(StrEnum):
    """What a repair did."""

    NONE = "none"
    REPAIRED = "repaired"
    MADE = "made"
    WOULD_REPAIR = "would repair"
    WOULD_MAKE = "would make"
    SKIPPED = "skipped"


_PLANNED: Final = {Remedy.REPAIRED: Remedy.WOULD_REPAIR, Remedy.MADE: Remedy.WOULD_MAKE}


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a counter.

    Attributes:
        counter: its name.
        remedy: `none` (its total is exact), `repaired`, `made` (it had no total), `skipped`; on
            a dry run what would be done.
        verdict: what was found before.
        reason: why it was skipped, or what the verdict rests on.
    """

    counter: str
    remedy: Remedy
    verdict: Verdict
    reason: str

    @property
    def healthy(self) -> bool:
        """Whether the total is exact now."""
        return self.remedy in (Remedy.NONE, Remedy.REPAIRED, Remedy.MADE)


@dataclass(frozen=True, slots=True)
class Repairer:
    verifier: Verifier
    dry_run: bool = False
    _known: Recent[str, DueRule | None] = field(default_factory=new_due_rules, repr=False)

    def repair(self, counters: Iterable[str]) -> Iterator[Repair]:
        """Set totals that drifted to their exact sums, and create missing totals.

        Costs as `Verifier.verify`; one write unit for each KB of each total written, two for each
        counter put into the due index, and half a read unit a minute for each namespace.
        """
        return map(self.heal, self.verifier.compare(counters))

    def heal(self, finding: Evidence, *, renews: bool = False) -> Repair:
        """Repair the total of one counter; `renews`: it becomes that of the next counter."""
        verdict, to = finding.verdict, self.verifier.connection
        plan = plan_of(to.counters, finding, to.clock.now_ms(), renews=renews)
        if isinstance(plan, str):
            if verdict.verdict is not Judgement.EXACT:
                return Repair(verdict.counter, Remedy.SKIPPED, verdict, plan)
            done = Repair(verdict.counter, Remedy.NONE, verdict, plan)
            return done if self.dry_run else self._indexed(done, finding.stored.item)
        remedy = Remedy.MADE if finding.stored.item is None else Remedy.REPAIRED
        if self.dry_run:
            return Repair(verdict.counter, _PLANNED[remedy], verdict, verdict.proof)
        try:
            with guarded(lambda: refuse_if_old(self.verifier, finding.since_ms)):
                item = self.verifier.connection.retrying.update(plan)
        except ConditionFailed as failed:
            if not _is_applied(plan, failed.item):
                reason = "its total changed just before the write; try again"
                return Repair(verdict.counter, Remedy.SKIPPED, verdict, reason)
            item = failed.item
        except SetupError:
            raise  # it concerns every counter
        except CountledgerError as error:
            return Repair(verdict.counter, Remedy.SKIPPED, verdict, str(error))
        return self._indexed(Repair(verdict.counter, remedy, verdict, verdict.proof), item)

    def _indexed(self, done: Repair, total: Item | None) -> Repair:
        """The same result, after the total was put into the due index if it has enough entries."""
        if total is None:
            return done
        to = self.verifier.connection
        rule_of = due_rule_of(to, self._known)
        try:
            DueMarker(to.retrying, to.counters, rule_of, to.clock.now_ms()).mark(total)
        except SetupError:
            raise
        except CountledgerError as error:
            reason = f"its total is right, but not in the due index: {error}; try again"
            return Repair(done.counter, Remedy.SKIPPED, done.verdict, reason)
        return done


def refuse_if_old(verifier: Verifier, since_ms: int) -> None:
    """Refuse reads of long ago: the version may be that of a later total of the same name."""
    if verifier.connection.clock.now_ms() - since_ms > RUN_LIFE_MS:
        raise ServiceFailed("the verification is more than 12 hours old; try again")


def unrepaired(verifier: Verifier, counter: str, error: CorruptItem) -> Repair:
    """What becomes of a counter whose namespace cannot be read: one read unit for its total."""
    stored = stored_total(counter, verifier.totals.item(counter))
    verdict = verdict_of(stored, None, Judgement.UNREADABLE, str(error))
    return Repair(counter, Remedy.SKIPPED, verdict, verdict.proof)


def plan_of(table: str, finding: Evidence, now_ms: int, *, renews: bool = False) -> Update | str:
    """The write that repairs a total, or the reason why nothing is written. Pure.

    With `renews` it becomes another total: the deleted counter's incarnation, windows and merged
    entries are not those of the next one.
    """
    verdict, stored, exact, proof = finding.verdict, finding.stored, finding.exact, finding.proof
    if verdict.verdict in (Judgement.EXACT, Judgement.BUSY, Judgement.DELETING):
        return verdict.proof
    # A total that cannot be read is repaired as well, if its version shows whether it changed.
    if proof is None or not isinstance(exact, ExactSum) or stored.version is None:
        return verdict.proof
    if not amount.fits(exact.value):
        return f"the exact sum {exact.value} needs more than 38 digits, which no total can hold"
    watermarks = list(raised(stored.item, proof, now_ms))
    if len(watermarks) > _RAISED_MAX:
        return (
            f"{len(watermarks)} stream shards were handled lately, and one write raises the "
            f"watermarks of {_RAISED_MAX}: try again when fewer of them move"
        )
    clauses: tuple[Clause, ...] = (
        Assign("total", exact.value),
        Assign("events", exact.events),
        Assign("entries", exact.entries),
        Assign("version", stored.version + 1),
        Assign("updated_at", now_ms),
        Assign(REPAIRED_AT, now_ms),
        (Assign if renews else AssignOnce)("incarnation", new_incarnation("repair", 0, now_ms)),
        *watermarks,
        *(_of_the_deleted(stored.item) if renews else _outlived(stored.item, exact)),
    )
    return Update(
        table, keys.total_key(stored.counter), clauses, unmoved(stored), returning="ALL_NEW"
    )


def _outlived(item: Item | None, exact: ExactSum) -> Iterator[Drop]:
    """Remove `compacted` if it exceeds the entries: the ledger was restored to an earlier state.

    The compactor never lowers it, and would find the counter due for ever.
    """
    compacted = (item or {}).get("compacted")
    if isinstance(compacted, int) and compacted > exact.entries:
        yield Drop("compacted")


def _of_the_deleted(item: Item | None) -> Iterator[Drop]:
    """Remove what a total says about the windows and the merged entries of a deleted counter."""
    return (Drop(name) for name in item or () if name == "compacted" or is_of_windows(name))


def unmoved(stored: StoredTotal) -> Condition:
    """The total is as it was found: no update and no other repair came in between."""
    if stored.item is None:
        return Absent("part")
    readable = AnyOf(Absent("v"), Compare("v", "=", FORMAT))
    # A total that was deleted by hand and created again may come to the same version.
    same = unchanged("updated_at", stored.item.get("updated_at"))
    return AllOf(readable, Compare("version", "=", stored.version), same)


def raised(item: Item | None, proof: Proof, now_ms: int) -> Iterator[Assign]:
    """The watermarks to raise: lower than the handled position, of recently handled shards.

    For the other shards no write can land any more: records delivered again are compared with their
    progress, and all earlier requests have landed.
    """
    for shard, handled in proof.handled.items():
        found = progress.sequence_in(item, shard)
        if shard not in proof.landed and (found is None or found < handled):
            yield Assign(progress.attribute(shard), progress.encode(handled, now_ms))


def _is_applied(plan: Update, item: Item | None) -> bool:
    """Whether an earlier attempt of this write was applied and its answer lost."""
    return item is not None and all(
        item.get(clause.name) == clause.value
        for clause in plan.clauses
        if isinstance(clause, Assign)
    )


def clear_total(verifier: Verifier, counter: str) -> str | None:
    """Delete a counter's total, or set it to what was recorded since; why not, or None.

    Costs as `Verifier.verify`, and a write unit for each KB of the total.
    """
    verifier = replace(verifier, explains=False)
    (finding,) = verifier.compare([counter])
    if isinstance(finding.exact, ExactSum) and finding.exact.entries:
        repair = Repairer(verifier).heal(finding, renews=True)
        return None if repair.healthy else repair.reason
    plan = clearing_of(verifier.connection.counters, finding)
    if isinstance(plan, str):
        return plan
    if plan is None:
        return None
    try:
        verifier.connection.retrying.delete(plan)
    except ConditionFailed:
        return "its total has just changed; call again"
    return None


def clearing_of(table: str, finding: Evidence) -> Delete | str | None:
    """The write that deletes the total of no entry; None: there is none; or why it stays. Pure."""
    verdict, stored = finding.verdict, finding.stored
    if verdict.verdict not in _DECIDED or not isinstance(finding.exact, ExactSum):
        return verdict.proof
    if verdict.verdict is Judgement.EXACT and stored.item is None:
        return None
    return Delete(table, keys.total_key(stored.counter), unmoved(stored))
