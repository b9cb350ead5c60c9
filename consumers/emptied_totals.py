"""The total of a counter that was deleted in the home region: it goes in every other region.

The ledger of this region shows the empty head. So its own exact sum says what was recorded since,
and the proof of `verify` says that the total contains every record that the stream had before:

| exact sum, proven | the total goes, on condition of its version and time |
|---|---|
| no entry | and nothing follows |
| entries of the next counter of that name | and `repair` makes a total, with watermarks |

A total that changes in between is not deleted. The deleted entries' records cannot be delivered
again: that was waited for before the head was emptied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from countledger.consumers.repair import Repairer, unmoved
from countledger.consumers.verify import Judgement
from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.exact import ExactSum
from countledger.ledger.operations import Delete

if TYPE_CHECKING:
    from countledger.consumers.verify import Evidence, Verifier

_DECIDED: Final = frozenset({Judgement.EXACT, Judgement.DRIFT})


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
