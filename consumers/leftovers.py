"""The items of a counter beside its numbers: alert states, the alert log, memberships, markers.

They are deleted after the counter itself. By then the name may be in use again, and the items of
the new counter must stay. For a ledger counter the time decides: its items are older than its
deletion, those of the new counter are not. A counter of another kind is deleted at once, so no time
separates the two: the items that were read before the deletion are deleted, if they are unchanged.
A marker names the incarnation of its counter. It is deleted if that is not the current incarnation,
whatever the clocks say.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import BadInput, ConditionFailed, NoSuchGroup, Refused
from countledger.ledger.expressions import Absent, AllOf, BeginsWith, Compare
from countledger.ledger.operations import Delete, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.consumers.groups import Groups
    from countledger.consumers.memberships import Membership
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.expressions import Condition


@dataclass(frozen=True, slots=True)
class FoundLeftovers:
    """What was found beside a counter.

    Attributes:
        counter: its name.
        logged: where its alerts are in the log, by the sort key without its prefix.
        states: the states of alert rules for it.
        memberships: its groups.
    """

    counter: str
    logged: tuple[str, ...]
    states: tuple[Item, ...]
    memberships: tuple[Membership, ...]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removes what is left of a counter. It can be repeated, and stopped anywhere.

    Attributes:
        groups: take the counter out; their dynamo and table are used for the rest.
    """

    groups: Groups

    def remove(self, counter: str, before_ms: int) -> list[str]:
        """Remove what was kept of a ledger counter until a moment, and say what stays.

        A write unit for each KB of alert states, two items for each alert of the log, as
        `Groups.remove` for each membership; half a read unit for each 4 KB of it all.

        Args:
            counter: its name; nothing of any other is touched.
            before_ms: what is dated later stays.

        Returns:
            What is dated later, in words.
        """
        found = self._find(counter)
        logged = [one for one in found.logged if keys.log_time_ms(one) > before_ms]
        states = [one for one in found.states if one["at"] > before_ms]
        memberships = [one for one in found.memberships if one.at_ms > before_ms]
        self._remove(
            FoundLeftovers(
                counter,
                tuple(one for one in found.logged if one not in logged),
                tuple(one for one in found.states if one not in states),
                tuple(one for one in found.memberships if one not in memberships),
            )
        )
        return [
            *(f"membership in group {one.group!r}" for one in memberships),
            *(f"state of alert rule {_rule_of(one)!r}" for one in states),
            *(f"{len(logged)} logged alert(s)" for _ in logged[:1]),
        ]

    def seen(self, counter: str) -> Callable[[], None]:
        """What is kept of a counter now, but for markers; the result removes that, as it is now.

        Half a read unit for each 4 KB of it; the result costs as `remove`.
        """
        return partial(self._remove, self._find(counter))

    def remove_markers(self, counter: str, bins: int = 1) -> None:
        """Remove the markers of a strict counter's incarnations that are gone.

        A write unit for each KB of them, half a read unit for each 4 KB, a read unit for each page.

        A marker is written together with its incarnation's counter. So if the counter has another
        incarnation, or none, when it is read after the marker, that of the marker is gone for good.

        Args:
            counter: its name.
            bins: over how many items it was spread.
        """
        totals = self.groups.totals
        for place in keys.marker_places(counter, bins):
            for page in totals.dynamo.pages(self._query(place, keys.MARKER_PREFIX)):
                if page:
                    self._remove_old(counter, page)

    def _remove_old(self, counter: str, markers: Sequence[Item]) -> None:
        totals = self.groups.totals
        main = totals.dynamo.get(totals.table, keys.total_key(counter), consistent=True) or {}
        for marker in markers:
            if marker.get("incarnation") != main.get("incarnation"):
                self._delete(_key_of(marker), _unchanged(marker, "incarnation"))

    def _find(self, counter: str) -> FoundLeftovers:
        logs = self._items(counter, keys.LOG_PREFIX)
        return FoundLeftovers(
            counter,
            tuple(item["part"].removeprefix(keys.LOG_PREFIX) for item in logs),
            tuple(self._items(counter, keys.ALERT_PREFIX)),
            tuple(self.groups.memberships.of(counter)),
        )

    def _remove(self, found: FoundLeftovers) -> None:
        for place in found.logged:
            # The log of all first: its key is found by the one beside the counter.
            self._delete({"counter": keys.ALERT_LOG, "part": f"{place}#{found.counter}"})
            self._delete({"counter": found.counter, "part": keys.LOG_PREFIX + place})
        for state in found.states:
            self._delete(_key_of(state), _unchanged(state, "revision", "version", "at"))
        for membership in found.memberships:
            self._leave(membership)

    def _leave(self, membership: Membership) -> None:
        """Take the counter out of the group, unless it was added again since it was found."""
        counter, group = membership.counter, membership.group
        if not self.groups.memberships.end(membership):
            return
        # Of a group whose deletion was interrupted the membership alone is left.
        with suppress(NoSuchGroup, Refused, BadInput):
            if self.groups.get(group).ranked:
                self.groups.board(group).take_off_unless_member(counter)

    def _items(self, partition: str, prefix: str) -> Iterator[Item]:
        for page in self.groups.totals.dynamo.pages(self._query(partition, prefix)):
            yield from page

    def _query(self, partition: str, prefix: str) -> Query:
        condition = AllOf(Compare("counter", "=", partition), BeginsWith("part", prefix))
        return Query(self.groups.totals.table, condition)

    def _delete(self, key: Key, condition: Condition | None = None) -> None:
        totals = self.groups.totals
        try:
            totals.dynamo.delete(Delete(totals.table, key, condition))
        except ConditionFailed:
            return  # gone already, or another one


def _key_of(item: Item) -> Key:
    return {"counter": item["counter"], "part": item["part"]}


def _rule_of(state: Item) -> str:
    return str(state["part"]).removeprefix(keys.ALERT_PREFIX)


def _unchanged(item: Item, *names: str) -> Condition:
    """That these attributes are as they were seen."""
    return AllOf(
        *(Compare(n, "=", item[n]) if item.get(n) is not None else Absent(n) for n in names)
    )
