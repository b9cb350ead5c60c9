"""The prefilter of the evaluator: records that show at once that they cross nothing.

Nearly every record is such a one. To read it as a change takes five times as long as to see that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.crossing import HIGHEST
from countledger.consumers.record import FAR_AHEAD_S, surely_young_from_s
from countledger.ledger import keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.consumers.alerts.rule_index import RuleIndex
    from countledger.ledger.amount import Amount

_MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError)


class Prefilter:
    """The rules of a batch, ready to recognise the records that cross nothing."""

    def __init__(self, index: RuleIndex, now_ms: int) -> None:
        """For a batch that is evaluated now, by these rules."""
        self._index = index
        self._young_s = surely_young_from_s(now_ms)
        self._thresholds: dict[str, list[Amount] | None] = {}

    def crosses_nothing(self, record: Mapping[str, Any]) -> bool:
        """Whether a record changes a total that stays on its side of every threshold.

        Only of a plain record: an update of a total without holds, in this release's format, from
        one integer, 0 or more, to another, made while the rules of its time are known. False of
        any other, also of a malformed one. The rest of the record (its version) is not read.
        """
        try:
            stream = record["dynamodb"]
            key, old, new = stream["Keys"], stream["OldImage"], stream["NewImage"]
            counter, before, after = key["counter"]["S"], old["total"]["N"], new["total"]["N"]
            if (
                record["eventName"] != "MODIFY"
                or key["part"]["S"] != keys.TOTAL
                or "#" in counter
                or not self._young_s <= stream["ApproximateCreationDateTime"] < FAR_AHEAD_S
                or not (before.isdecimal() and after.isdecimal())
                or "held" in old
                or "held" in new
                or "bins" in new
                or "v" in old
                or "v" in new
            ):
                return False
            return self._stays(counter, int(before), int(after))
        except _MALFORMED:
            return False

    def _stays(self, counter: str, old: int, new: int) -> bool:
        """Whether two totals of a counter differ, and no threshold is from one to the other."""
        if counter in self._thresholds:
            thresholds = self._thresholds[counter]
        else:
            thresholds = self._thresholds[counter] = self._thresholds_of(counter)
        low, high = (old, new) if old < new else (new, old)
        if thresholds is None or low == high or high >= HIGHEST:
            return False
        return bisect_left(thresholds, low) == bisect_right(thresholds, high)

    def _thresholds_of(self, counter: str) -> list[Amount] | None:
        """The thresholds of a counter's rules, sorted; None: one of the rules needs more."""
        rules = self._index.matching(counter)
        if any(rule.step is not None or rule.rearm is not None for rule in rules):
            return None
        return sorted(rule.threshold for rule in rules)
