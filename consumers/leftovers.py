"""What is kept of a counter beside its numbers: alert states, the alert log, memberships, markers.

Removed once the counter itself is gone. What is younger than the removal belongs to a counter that
was made anew under the name, and stays; memberships carry no time, and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed, NoSuchGroup
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.operations import Delete, Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.groups import Groups
    from countledger.ledger.attributes import Key


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removes what is left of a counter. It can be repeated, and stopped anywhere.

    Attributes:
        groups: take the counter out; their door and table are used for the rest.
    """

    groups: Groups

    def remove(self, counter: str, before_ms: int, bins: int = 1) -> None:
        """Remove what was kept of a counter until a moment.

        A write unit for each KB of alert states and markers, two items for each alert of the log,
        as `Groups.remove` for each membership; half a read unit for each 4 KB of it all.

        Args:
            counter: its name; nothing of any other is touched.
            before_ms: what is younger stays.
            bins: over how many items a strict counter was spread.
        """
        for key in [*self._keys(counter, keys.LOG_PREFIX)]:
            # The log of all first: its key is found by the one beside the counter.
            place = key["part"].removeprefix(keys.LOG_PREFIX)
            if keys.log_time_ms(place) <= before_ms:
                self._delete({"counter": keys.ALERT_LOG, "part": f"{place}#{counter}"})
                self._delete(key)
        for key in [*self._keys(counter, keys.ALERT_PREFIX)]:
            self._delete(key, before_ms)
        for place in keys.marker_places(counter, bins):
            for key in [*self._keys(place, keys.MARKER_PREFIX)]:
                self._delete(key, before_ms)
        for group in [*self.groups.of(counter)]:
            self._leave(group, counter)

    def _leave(self, group: str, counter: str) -> None:
        try:
            self.groups.remove(group, [counter])
        except NoSuchGroup:
            # Its deletion was interrupted; the membership alone is left.
            self._delete(keys.member_key(group, counter))

    def _keys(self, partition: str, prefix: str) -> Iterator[Key]:
        totals = self.groups.totals
        condition = AllOf(Compare("counter", "=", partition), BeginsWith("part", prefix))
        for page in totals.door.pages(Query(totals.table, condition)):
            yield from ({"counter": item["counter"], "part": item["part"]} for item in page)

    def _delete(self, key: Key, before_ms: int | None = None) -> None:
        totals = self.groups.totals
        older = None if before_ms is None else Compare("at", "<=", before_ms)
        try:
            totals.door.delete(Delete(totals.table, key, older))
        except ConditionFailed:
            return  # gone already, or younger
