"""Rules of the stream, of comparisons and of regions that are switched off, one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from countledger.compaction.deletion import CounterRegions
from countledger.consumers import materializer, total_writer, verify, window_audit
from countledger.consumers.proof import Proof, Prover
from countledger.consumers.verify import Repairer, StoredTotal, Verifier
from countledger.ledger.exact import ExactSum
from tests.exploring.canary import SwitchedOff
from tests.switches import replaced, unconditional, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable


def _proven(past: Any, prover: Prover, *of: Any, **more: Any) -> Proof:  # noqa: ANN401 - handed on
    """Whatever the stream says."""
    found: Proof | None = past(prover, *of, **more)
    return found or Proof("", {}, frozenset())


def _in_two_writes(
    clear: Callable[..., str | None], verifier: Verifier, counter: str
) -> str | None:
    """Delete the total, and then make one of what was recorded since."""
    (finding,) = replace(verifier, explains=False).compare([counter])
    if not isinstance(finding.exact, ExactSum) or not finding.exact.entries:
        return clear(verifier, counter)
    empty = replace(finding, exact=replace(finding.exact, entries=0))
    plan = verify.clearing_of(verifier.connection.counters, empty)
    if plan is None or isinstance(plan, str):
        return plan
    verifier.connection.retrying.delete(plan)
    (repair,) = Repairer(verifier).repair([counter])
    return None if repair.healthy else repair.reason


_STREAM: Final = (
    SwitchedOff(
        "an update of a total is conditional on the watermark",
        "repairs",
        "behind: deliver | deliver",
        unconditional(total_writer, "update_of"),
        faults=0,
    ),
    SwitchedOff(
        "a batch is compared with the progress of its shard",
        "repairs",
        "lost: repair | deliver again",
        replaced(materializer, "above", lambda records, _: records),
        faults=0,
    ),
    SwitchedOff(
        "a repair raises the watermarks of shards that were handled lately",
        "repairs",
        "behind: deliver, lose, repair",
        replaced(verify, "raised", lambda *_: ()),
    ),
    SwitchedOff(
        "a repair writes if the total is as it was found",
        "repairs",
        "lost: repair | record, deliver",
        unconditional(verify, "plan_of"),
        faults=0,
    ),
    SwitchedOff(
        "a difference counts once the stream is proven",
        "repairs",
        "behind: deliver | verify",
        wrapped(Prover, "past", _proven),
        faults=0,
    ),
    SwitchedOff(
        "a total that moved while it was compared is no drift",
        "repairs",
        "behind: deliver, record, deliver | verify",
        replaced(StoredTotal, "moment", None),
        faults=0,
    ),
)
_REGIONS: Final = (
    SwitchedOff(
        "a total of another region becomes that of the next counter in one write",
        "deletions-regions",
        "emptied, used again: delete",
        wrapped(window_audit, "clear_total", _in_two_writes),
    ),
    SwitchedOff(
        "a total of another region goes as it was proven",
        "deletions-regions",
        "emptied: delete | record elsewhere",
        unconditional(verify, "clearing_of"),
        faults=0,
    ),
    SwitchedOff(
        "a total becomes that of the next counter as it was proven",
        "deletions-regions",
        "emptied, used again: delete | record elsewhere",
        unconditional(verify, "plan_of"),
        faults=0,
    ),
    SwitchedOff(
        "a total goes once its region shows the empty head",
        "deletions-regions",
        "emptied at home: delete",
        replaced(CounterRegions, "_unshown", lambda *_: None),
        faults=0,
    ),
    SwitchedOff(
        "the totals of all regions go",
        "deletions-regions",
        "emptied: delete",
        replaced(CounterRegions, "clear", lambda *_: None),
        faults=0,
    ),
)

CANARIES: Final = (*_STREAM, *_REGIONS)
