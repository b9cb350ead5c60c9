"""The deletion of a ledger counter: its stages, and the transaction that does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.deletion_marks import emptied_of
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.head import Head, encode_head
from countledger.ledger.operations import Check, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.compaction.deletion_marks import DeletionMark
    from countledger.compaction.regions import Survey
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write

# How many of the things that stay a report names.
_NAMED: Final = 5


class DeletionStage(StrEnum):
    """How far a deletion has come."""

    MARKED = "marked"
    WAITING = "waiting"
    IN_USE = "in use"
    SKIPPED = "skipped"
    DELETED = "deleted"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far the deletion of a counter has come.

    Attributes:
        counter: its name.
        stage: `marked` just now; `waiting` until it is safe; `in use`: an entry is newer than the
            mark, so the wait begins again; `skipped` this time, for the reason in `detail`;
            `deleted`: its numbers are gone; `forgotten`: its name as well.
        next_at_ms: when the next call can continue; None: at any time, or nothing is left to do.
        detail: one line for people.
    """

    counter: str
    stage: DeletionStage
    next_at_ms: int | None
    detail: str


def skipped(counter: str, detail: str) -> Deletion:
    """A deletion that did nothing this time, for this reason."""
    return Deletion(counter, DeletionStage.SKIPPED, None, detail)


def what_is_left(stays: Sequence[str]) -> str:
    """What a report says of a deleted counter, given what is kept under its name."""
    if not stays:
        return "nothing is left of it"
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    return f"the name is in use again; kept: {', '.join(stays[:_NAMED])}{more}"


def deleted(mark: DeletionMark, head: Head, now_ms: int) -> DeletionMark:
    """The mark once this head was emptied."""
    return replace(
        mark, deleted_at_ms=now_ms, generation=head.generation + 1, emptied=head.incarnation
    )


def empty_head(mark: DeletionMark, generation: int) -> Head:
    """The empty head that a deletion leaves: the first of a new incarnation.

    Its `run` names the deletion, so no other head is mistaken for it. Everything recorded up to
    `to_at` was deleted; what is dated later was not.
    """
    return Head(generation=generation, run=mark.id, incarnation=mark.id, to_at_ms=mark.at_ms)


def plan_deletion(
    tables: tuple[str, str], mark: DeletionMark, head: Head, total: Item | None, now_ms: int
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if everything is still as it was read.

    Args:
        tables: `ledger` and `counters`.
        mark: of the counter, not deleted yet.
        head: as it was read; it covers nothing.
        total: its total as it was read, or None.
        now_ms: the time.
    """
    ledger, counters = tables
    total_key = keys.total_key(mark.counter)
    empty, after = empty_head(mark, head.generation + 1), deleted(mark, head, now_ms)
    return (
        Put(ledger, encode_head(mark.counter, empty), plan.is_still(head)),
        Check(counters, total_key, Absent("part"))
        if total is None
        else Delete(counters, total_key, Compare("version", "=", total.get("version"))),
        emptied_of(ledger, mark, after),
    )


def refuse_replicas(survey: Survey, counter: str) -> None:
    """Refuse a counter that one transaction cannot delete.

    Raises:
        BadSetting: the ledger has replicas, or allows no transactions.
    """
    if survey.strong:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has multi-region strong "
            "consistency, which allows no transactions, and its numbers must go in one"
        )
    if survey.others:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has replicas in "
            f"{', '.join(survey.others)}, and its totals there would stay"
        )
