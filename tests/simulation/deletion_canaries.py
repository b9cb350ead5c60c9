"""Known wrong variants of deletion, and of what protects a name that is used again."""

from typing import Final

from countledger.compaction import deletion, plan
from countledger.compaction.archive import GenerationArchiver
from countledger.compaction.deletion import CounterRegions, HeadEmptier
from countledger.compaction.deletions import LedgerDeleter
from countledger.ledger import exact
from countledger.ledger.attributes import Item
from countledger.ledger.exact import Head
from countledger.ledger.operations import Absent, Compare, Condition
from tests.simulation.canary import Canary
from tests.simulation.shape import DELETED_EVERYWHERE
from tests.switches import all_of, replaced


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
        seed=23,
        rare=True,
        within=600,
    ),
    # A read accepts every second head that is not two generations ahead.
    Canary(
        "exact reads of one incarnation",
        replaced(
            exact, "moved_too_far", lambda first, second: second.generation - first.generation > 1
        ),
        "merges",
        seed=25,
        rare=True,
    ),
    # A total goes with its watermarks while its records are in the stream.
    Canary(
        "deletion waits for the stream",
        replaced(deletion, "STREAM_RECORD_MAX_AGE_MS", 0),
        "deletion",
        seed=250,
        rare=True,
    ),
    # Whatever is found under the name goes, whenever it was made.
    Canary(
        "memberships of one counter",
        replaced(LedgerDeleter, "_doubt_ms", lambda *_: -(10**12)),
        "deletion",
        seed=27,
        rare=True,
    ),
    # The total of another region goes while the region shows the deleted entries still.
    Canary(
        "a total goes once its region shows the empty head",
        replaced(CounterRegions, "_unshown", lambda *_: None),
        DELETED_EVERYWHERE,
        seed=12,
        rare=True,
    ),
    Canary(
        "the totals of all regions go",
        replaced(CounterRegions, "clear", lambda *_: None),
        DELETED_EVERYWHERE,
        seed=0,
    ),
    # A home that was replaced meanwhile empties what the next one has merged.
    Canary(
        "a deletion needs the lease",
        all_of(
            replaced(CounterRegions, "waits", lambda *_: None),
            replaced(HeadEmptier, "_refuse_if_late", lambda *_: None),
        ),
        DELETED_EVERYWHERE,
        seed=4,
        rare=True,
    ),
    Canary(
        "archives are recorded", replaced(GenerationArchiver, "owes", _owes), "deletion", seed=3
    ),
]
