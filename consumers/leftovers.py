"""The items of a counter beside its numbers: windows, alert states and log, memberships, markers.

They are deleted after the counter itself. By then the name may be in use again, and the items of
the new counter must stay. For a ledger counter the time decides: its items are older than its
deletion, those of the new counter are not. A counter of another kind is deleted at once, so no time
separates the two: the items that were read before the deletion are deleted, if they are unchanged.
A marker names the incarnation of its counter. It is deleted if that is not the current incarnation,
whatever the clocks say. So are windows, which are named by an id in their counter's total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.operations import (
    AllOf,
    BeginsWith,
    Compare,
    Delete,
    Query,
    all_unchanged,
    unchanged,
)
from countledger.ledger.total import windows_ids_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.consumers.groups import Groups
    from countledger.consumers.memberships import Membership
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Condition


@dataclass(frozen=True, slots=True)
class FoundLeftovers:
    """What was found beside a counter; `logged`: by the sort key without its prefix."""

    counter: str
    logged: tuple[str, ...]
    states: tuple[Item, ...]
    memberships: tuple[Membership, ...]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Deletes the leftovers of a counter. A deletion can be repeated, and stopped anywhere."""

    connection: Connection
    groups: Groups = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from countledger.consumers.groups import Groups  # noqa: PLC0415 - it imports many modules

        object.__setattr__(self, "groups", Groups(self.connection))

    def delete(self, counter: str, before_ms: int) -> list[str]:
        """Delete the items of a ledger counter up to a time; descriptions of the later ones.

        A write unit for each KB of windows and alert states, two items for each alert of the log,
        as `Groups.remove` for each membership; half a read unit for each 4 KB of all items, and a
        read unit for each page of windows.
        """
        self._delete_windows(counter)
        found = self._find(counter)
        logged = [one for one in found.logged if keys.log_time_ms(one) > before_ms]
        states = [one for one in found.states if one["at"] > before_ms]
        memberships = [one for one in found.memberships if one.at_ms > before_ms]
        self._delete_found(
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
        """Read the items of a counter, without markers; the result deletes them if unchanged.

        Half a read unit for each 4 KB of them; the result costs as `delete`.
        """
        return partial(self._delete_found, self._find(counter))

    def delete_markers(self, counter: str, bins: int = 1) -> None:
        """Delete the markers of a strict counter's deleted incarnations, of each of its bins.

        A write unit for each KB of them, half a read unit for each 4 KB, a read unit for each page.

        A marker is written together with its incarnation's counter. So if the counter has another
        incarnation, or none, when it is read after the marker, the marker's one was deleted.
        """
        dynamo = self.connection.retrying
        for place in keys.marker_places(counter, bins):
            for page in dynamo.pages(self._query(place, keys.MARKER_PREFIX)):
                if page:
                    self._delete_old(counter, page)

    def _delete_old(self, counter: str, markers: Sequence[Item]) -> None:
        dynamo, table = self.connection.retrying, self.connection.counters
        main = dynamo.get(table, keys.total_key(counter), consistent=True) or {}
        for marker in markers:
            if marker.get("incarnation") != main.get("incarnation"):
                self._delete_item(_key_of(marker), all_unchanged(marker, "incarnation"))

    def _delete_windows(self, counter: str) -> None:
        """Delete the windows that the counter's total does not name.

        Windows are written after their total. So if it does not name them when it is read after
        them, it was deleted, and the id of its windows is never used again.
        """
        dynamo, table = self.connection.retrying, self.connection.counters
        for page in dynamo.pages(self._query(counter, keys.WINDOW_PREFIX)):
            if not page:
                continue
            main = dynamo.get(table, keys.total_key(counter), consistent=True)
            named = windows_ids_in(main or {})
            for item in page:
                if item["part"].split("#")[1] not in named:
                    # A rebuild may take the windows of a lost total over, and writes them then.
                    self._delete_item(_key_of(item), unchanged("version", item.get("version")))

    def _find(self, counter: str) -> FoundLeftovers:
        logs = self._items(counter, keys.LOG_PREFIX)
        return FoundLeftovers(
            counter,
            tuple(item["part"].removeprefix(keys.LOG_PREFIX) for item in logs),
            tuple(self._items(counter, keys.ALERT_PREFIX)),
            tuple(self.groups.memberships.of(counter)),
        )

    def _delete_found(self, found: FoundLeftovers) -> None:
        for place in found.logged:
            # The shared log first: its key is found through the item in the counter's partition.
            self._delete_item({"counter": keys.ALERT_LOG, "part": f"{place}#{found.counter}"})
            self._delete_item({"counter": found.counter, "part": keys.LOG_PREFIX + place})
        for state in found.states:
            same = all_unchanged(state, "revision", "version", "at", "incarnation")
            self._delete_item(_key_of(state), same)
        for membership in found.memberships:
            self._leave(membership)

    def _leave(self, membership: Membership) -> None:
        """Remove the counter from the group, unless it was added again after it was found."""
        if self.groups.memberships.end(membership.item):
            # Without a mark: each placement that was sent for the deleted counter has arrived, or
            # names its incarnation.
            self.groups.board(membership.group).try_take_off(membership.counter)

    def _items(self, partition: str, prefix: str) -> Iterator[Item]:
        for page in self.connection.retrying.pages(self._query(partition, prefix)):
            yield from page

    def _query(self, partition: str, prefix: str) -> Query:
        condition = AllOf(Compare("counter", "=", partition), BeginsWith("part", prefix))
        return Query(self.connection.counters, condition)

    def _delete_item(self, key: Key, condition: Condition | None = None) -> None:
        dynamo, table = self.connection.retrying, self.connection.counters
        wrote(dynamo, Delete(table, key, condition))  # unless deleted, or changed


def _key_of(item: Item) -> Key:
    return {"counter": item["counter"], "part": item["part"]}


def _rule_of(state: Item) -> str:
    return str(state["part"]).removeprefix(keys.ALERT_PREFIX).partition("#")[0]
