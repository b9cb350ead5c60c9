"""Known wrong variants of deletion, and of what protects a name that is used again."""

from typing import Final

from countledger.compaction import deletion, deletions, plan
from countledger.compaction.archive import GenerationArchiver
from countledger.compaction.deletion import CounterRegions, HeadEmptier
from countledger.compaction.deletions import LedgerDeleter
from countledger.compaction.regions import Regions
from countledger.ledger import exact
from countledger.ledger.attributes import Item
from countledger.ledger.exact import Head
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.operations import Absent, Compare, Condition
from tests.simulation.canary import Canary, all_of, rated, replaced, shaped
from tests.simulation.faults import Fault
from tests.simulation.shape import DELETED_EVERYWHERE


def _is_generation(head: Head) -> Condition:
    """A head is replaced on condition of its generation alone."""
    return Compare("generation", "=", head.generation) if head.generation else Absent("entry")


def _owes(keeper: GenerationArchiver, head: Head, _record: Item | None) -> bool:
    """A missing entry is taken for a proof that its archive was stored."""
    shown = keeper.views.shown(keeper.counter, head.covers)
    return len(plan.still_there(head, shown)) == len(head.covers)


CANARIES: Final = [
    Canary(
        "heads of one run",
        replaced(plan, "is_still", _is_generation),
        "merges",
        seed=32,
        within=600,
    ),
    # A read accepts every second head that is not two generations ahead.
    Canary(
        "exact reads of one incarnation",
        replaced(
            exact, "moved_too_far", lambda first, second: second.generation - first.generation > 1
        ),
        "merges",
        seed=27,
    ),
    # A total goes with its watermarks while its records are in the stream.
    Canary(
        "deletion waits for the stream",
        replaced(deletion, "STREAM_RECORD_MAX_AGE_MS", 0),
        "deletion",
        seed=239,
    ),
    # Whatever is found under the name goes, whenever it was made.
    Canary(
        "memberships of one counter",
        replaced(LedgerDeleter, "_doubt_ms", lambda *_: -(10**12)),
        "deletion",
        seed=12,
    ),
    # Several callers delete one counter at once here, which nobody has compacted before, and each
    # may pause for two hours between reading the entries and publishing their sum.
    Canary(
        "an empty head stays for a day",
        all_of(
            replaced(deletions, "EMPTY_HEAD_LIFE_MS", 0),
            # The right to merge ends a run that pauses for so long; the rule must hold without it.
            replaced(Regions, "check_lease", lambda _self: None),
            rated(Fault.FROZEN, 0.05),
            shaped(
                freeze_ms=2 * HOUR_MS,
                weights={
                    "record": 2.0,
                    "deletion call": 4.0,
                    "deletion rest": 1.0,
                    "exact read": 1.0,
                },
                archive=False,
                accidents=0,
            ),
        ),
        "deletion",
        seed=5,
    ),
    # The total of another region goes while the region shows the deleted entries still.
    Canary(
        "a total goes once its region shows the empty head",
        replaced(CounterRegions, "_unshown", lambda *_: None),
        DELETED_EVERYWHERE,
        seed=2,
    ),
    Canary(
        "the totals of all regions go",
        replaced(CounterRegions, "clear", lambda *_: None),
        DELETED_EVERYWHERE,
        seed=0,
    ),
    Canary(
        "each region's total is proven before numbers go",
        replaced(CounterRegions, "unproven", lambda *_: None),
        DELETED_EVERYWHERE,
        seed=500,
    ),
    # A home that was replaced meanwhile empties what the next one has merged.
    Canary(
        "a deletion needs the lease",
        all_of(
            replaced(CounterRegions, "waits", lambda *_: None),
            replaced(HeadEmptier, "_refuse_if_late", lambda *_: None),
        ),
        DELETED_EVERYWHERE,
        seed=864,
    ),
    Canary(
        "archives are recorded", replaced(GenerationArchiver, "owes", _owes), "deletion", seed=3
    ),
]
