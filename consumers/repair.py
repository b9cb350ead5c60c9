"""Repair: set a total to the exact sum of its ledger, with the same proof as a verdict.

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
| entries of the next counter of that name | and `repair` makes a total, with watermarks |

A total that changes in between is not deleted. The deleted entries' records cannot be delivered
again: that was waited for before the head was emptied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.consumers import progress
from countledger.consumers.total_writer import DueMarker, DueRules, new_memory
from countledger.consumers.verify import Judgement, Verdict, stored_total, verdict_of
from countledger.ledger import amount, keys
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    ServiceFailed,
    SetupError,
)
from countledger.ledger.exact import ExactSum
from countledger.ledger.limits import FORMAT, RUN_LIFE_MS
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
from countledger.ledger.total import REPAIRED_AT, new_incarnation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.proof import Proof
    from countledger.consumers.total_writer import TtlCache
    from countledger.consumers.verify import Evidence, StoredTotal, Verifier
    from countledger.ledger.attributes import Item
    from countledger.ledger.indexes import DueRule
    from countledger.ledger.operations import Clause, Condition

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
    """Repairs totals.

    Attributes:
        verifier: gives the findings.
        dry_run: whether only to say what would be done.
    """

    verifier: Verifier
    dry_run: bool = False
    _known: TtlCache[DueRule | None] = field(default_factory=new_memory, repr=False)

    def repair(self, counters: Iterable[str]) -> Iterator[Repair]:
        """Set totals that drifted to their exact sums, and create missing totals.

        Costs as `Verifier.verify`; one write unit for each KB of each total written, two for each
        counter put into the due index, and half a read unit a minute for each namespace.

        Raises:
            BadCounterName: a name breaks the grammar.
        """
        return map(self._heal, self.verifier.compare(counters))

    def _heal(self, finding: Evidence) -> Repair:
        verdict = finding.verdict
        plan = plan_of(self.verifier.totals.table, finding, self.verifier.clock.now_ms())
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
                item = self.verifier.totals.dynamo.update(plan)
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
        dynamo, table = self.verifier.totals.dynamo, self.verifier.totals.table
        rules = DueRules(dynamo, table, self.verifier.clock, self._known)
        try:
            DueMarker(dynamo, table, rules, self.verifier.clock.now_ms()).mark(total)
        except SetupError:
            raise
        except CountledgerError as error:
            reason = f"its total is right, but not in the due index: {error}; try again"
            return Repair(done.counter, Remedy.SKIPPED, done.verdict, reason)
        return done


def refuse_if_old(verifier: Verifier, since_ms: int) -> None:
    """The version may be that of another total, created after the counter was deleted.

    Raises:
        ServiceFailed: the reads of the verification began too long ago.
    """
    if verifier.clock.now_ms() - since_ms > RUN_LIFE_MS:
        raise ServiceFailed("the verification is more than 12 hours old; try again")


def unrepaired(verifier: Verifier, counter: str, error: CorruptItem) -> Repair:
    """What becomes of a counter whose namespace cannot be read: one read unit for its total."""
    stored = stored_total(counter, verifier.totals.item(counter))
    verdict = verdict_of(stored, None, Judgement.UNREADABLE, str(error))
    return Repair(counter, Remedy.SKIPPED, verdict, verdict.proof)


def plan_of(table: str, finding: Evidence, now_ms: int) -> Update | str:
    """The write that repairs a total, or the reason why nothing is written. Pure."""
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
        AssignOnce("incarnation", new_incarnation("repair", 0, now_ms)),
        *watermarks,
        *_outlived(stored.item, exact),
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

    Costs as `Verifier.verify`, a write unit for each KB of the total, and as `Repairer.repair` if
    something was recorded since.
    """
    verifier = replace(verifier, explains=False)
    (finding,) = verifier.compare([counter])
    plan = clearing_of(verifier.totals.table, finding)
    if isinstance(plan, str):
        return plan
    if plan is None:
        return None
    try:
        verifier.totals.dynamo.delete(plan)
    except ConditionFailed:
        return "its total has just changed; call again"
    if isinstance(finding.exact, ExactSum) and not finding.exact.entries:
        return None
    (repair,) = Repairer(verifier).repair([counter])
    return None if repair.healthy else repair.reason


def clearing_of(table: str, finding: Evidence) -> Delete | str | None:
    """The write that deletes a total; None: nothing is to be done; or why it must stay. Pure."""
    verdict, stored, exact = finding.verdict, finding.stored, finding.exact
    if verdict.verdict not in _DECIDED or not isinstance(exact, ExactSum):
        return verdict.proof
    if verdict.verdict is Judgement.EXACT and (stored.item is None or exact.entries):
        return None
    return Delete(table, keys.total_key(stored.counter), unmoved(stored))
