"""Known wrong variants of deletion, and of what protects a name that is used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.compaction import ledger_deletion, plan
from countledger.compaction.archive import GenerationArchiver
from countledger.compaction.ledger_deletion import LedgerDeleter
from countledger.ledger import exact
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.limits import HOUR_MS
from tests.simulation import faults
from tests.simulation.consumer_canaries import shape_all
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    import pytest

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Condition
    from countledger.ledger.head import Head


def generations_identify_heads(patch: pytest.MonkeyPatch) -> None:
    """A head is replaced on condition of its generation alone."""

    def is_still(head: Head) -> Condition:
        if not head.generation:
            return Absent("entry")
        return Compare("generation", "=", head.generation)

    patch.setattr(plan, "is_still", is_still)


def reads_take_steps_back(patch: pytest.MonkeyPatch) -> None:
    """An exact read accepts every second head that is not two generations ahead."""

    def too_far(first: Head, second: Head) -> bool:
        return second.generation - first.generation > 1

    patch.setattr(exact, "moved_too_far", too_far)


def records_come_again_after_a_deletion(patch: pytest.MonkeyPatch) -> None:
    """A total goes with its watermarks while its records are in the stream."""
    patch.setattr(ledger_deletion, "STREAM_RECORD_MAX_AGE_MS", 0)


def empty_heads_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """A deletion forgets the empty head in the same call.

    Here several callers delete one counter at once, which nobody has compacted before, and each may
    pause for two hours between reading the entries and publishing their sum.
    """
    patch.setattr(ledger_deletion, "EMPTY_HEAD_LIFE_MS", 0)
    patch.setitem(faults._RATES, Fault.FROZEN, (0.05,))
    weights = {"record": 2.0, "deletion call": 4.0, "deletion rest": 1.0, "exact read": 1.0}
    shape_all(patch, freeze_ms=2 * HOUR_MS, weights=weights, archive=False, accidents=0)


def memberships_go_by_name(patch: pytest.MonkeyPatch) -> None:
    """Whatever is found under the name goes, whenever it was made."""
    patch.setattr(LedgerDeleter, "_doubt_ms", lambda *_: -(10**12))


def what_is_gone_was_archived(patch: pytest.MonkeyPatch) -> None:
    """A missing entry is taken for a proof that its archive was stored."""

    def owes(keeper: GenerationArchiver, head: Head, _record: Item | None) -> bool:
        shown = keeper.views.shown(keeper.counter, head.covers)
        return len(plan.still_there(head, shown)) == len(head.covers)

    patch.setattr(GenerationArchiver, "owes", owes)
