"""The groups themselves, in the directory of groups: each an item with an id and its setting.

    (`group#`, `group#<group>`)    `on`: whether it is ranked; `id`: of this group; `switched`: the
                                   id of the last switch

A write names the ids that were read. So a request that is applied late neither deletes nor switches
a group that was made again meanwhile, and undoes no later switch. A deleted group leaves a
tombstone, so a request that is applied late does not make the group again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, decoded, require
from countledger.ledger.errors import ConditionFailed, NoSuchGroup, Throttled, Unclear
from countledger.ledger.indexes import is_on
from countledger.ledger.operations import (
    Absent,
    AllOf,
    Assign,
    Compare,
    Put,
    Query,
    Update,
    unchanged,
)
from countledger.ledger.tombstones import (
    NOT_REMOVED,
    present,
    put_if_vacant,
    removed_by,
    removed_id,
    tombstone,
    was_removed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient

_SWITCHES: Final = 5  # how often other calls may be faster


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        name: its name.
        ranked: whether its totals are kept in order.
    """

    name: str
    ranked: bool


def decode_group(item: Item) -> Group:
    """The group in an item of the directory.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    name = require(item, "part", str).removeprefix(keys.GROUP_PREFIX)
    return Group(name, bool(is_on(item)))


def check_exists(group: str, item: Item | None) -> Item:
    """The item of a group.

    Raises:
        NoSuchGroup: there is none.
    """
    if item is None:
        raise NoSuchGroup(f"group {group!r} does not exist: `countledger group add` creates it")
    return item


def was_switched(item: Item) -> bool:
    """Whether a group was ever ranked: then a placement may be under way."""
    return "switched" in item


@dataclass(frozen=True, slots=True)
class GroupItems:
    """Reads and writes the items of groups.

    Attributes:
        dynamo: a DynamoDB client; its SDK may retry, because every write here is idempotent.
        table: the table `counters`.
        clock: for the times at which groups are made and deleted.
        new_id: makes a unique id.
        clock_skew_ms: how far clocks may differ.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock
    new_id: Callable[[], str]
    clock_skew_ms: int

    def find(self, group: str) -> Item | None:
        """The item of a group, strongly consistent: one read unit."""
        return present(self.dynamo.get(self.table, keys.group_key(group), consistent=True))

    def existing(self, group: str) -> Item:
        """The item of a group: one read unit.

        Raises:
            NoSuchGroup: no group has that name.
        """
        return check_exists(group, self.find(group))

    def ranked(self, group: str) -> bool | None:
        """Whether a group is ranked; None: it does not exist. One read unit."""
        item = self.find(group)
        return None if item is None else bool(is_on(item))

    def list(self, on_corrupt: OnCorrupt | None) -> Iterator[Group]:
        """All groups by name: half a read unit for each 4 KB of groups."""
        directory = Compare("counter", "=", keys.GROUP_PREFIX)
        for page in self.dynamo.pages(Query(self.table, directory)):
            yield from decoded(filter(present, page), decode_group, on_corrupt)

    def make(self, group: str) -> None:
        """Create a group, unless it exists: one write unit; two if it was just deleted."""
        item = {**keys.group_key(group), "on": False, "id": self.new_id()}
        put_if_vacant(self.dynamo, Put(self.table, item), self.clock.now_ms(), self.clock_skew_ms)

    def make_again(self, group: str, is_wanted: Callable[[], bool]) -> None:
        """Create a group that was deleted, if it is wanted: a read unit, and a write unit.

        The write names the tombstone that was read before it was wanted: it brings no group back
        that another call has made and deleted since.

        Args:
            group: its name.
            is_wanted: whether it has a member, as of now.

        Raises:
            Throttled: other calls made and deleted it each time.
        """
        for _ in range(_SWITCHES):
            seen = self.dynamo.get(self.table, keys.group_key(group), consistent=True)
            if present(seen) is not None or not is_wanted():
                return
            removed = removed_id(seen)
            same = Absent("counter") if removed is None else was_removed(removed)
            item = {**keys.group_key(group), "on": False, "id": self.new_id()}
            # Refused: what others, or an attempt without an answer, have written is read.
            with suppress(ConditionFailed):
                self.dynamo.put(Put(self.table, item, same))
                return
        raise Throttled(f"group {group!r} kept being made and deleted; try again")

    def delete(self, group: str, seen: Item) -> bool:
        """Delete the group that was read; false: it was deleted before. One write unit."""
        removed, now_ms = seen.get("id") or self.new_id(), self.clock.now_ms()
        own = self.new_id()
        left = tombstone(keys.group_key(group), removed, now_ms, self.clock_skew_ms, removal=own)
        same = AllOf(unchanged("id", seen.get("id")), NOT_REMOVED)
        return removed_by(self.dynamo, Put(self.table, left, same), own)

    def switch(self, group: str, seen: Item, *, on: bool) -> Item:
        """Replace the setting that was read: one write unit for each attempt.

        Returns:
            The item that it replaced.

        Raises:
            NoSuchGroup: the group was deleted meanwhile, and maybe made again.
            Throttled: other calls switched it each time.
            Unclear: others changed it after an attempt that got no answer.
        """
        switched = self.new_id()
        clauses = (Assign("on", on), Assign("switched", switched))
        for _ in range(_SWITCHES):
            same = (unchanged(name, seen.get(name)) for name in ("id", "switched"))
            there = AllOf(Compare("counter", "=", keys.GROUP_PREFIX), NOT_REMOVED, *same)
            try:
                self.dynamo.update(Update(self.table, keys.group_key(group), clauses, there))
            except ConditionFailed as failed:
                found = present(failed.item)
                own = found is not None and found.get("switched") == switched
                if failed.maybe_applied and not own:
                    raise Unclear(
                        f"the ranking of group {group!r} was changed by others, after an attempt "
                        "of this call that got no answer: look at it, and call again"
                    ) from None
                if found is None or found.get("id") != seen.get("id"):
                    raise NoSuchGroup(f"group {group!r} was deleted meanwhile") from None
                if own:
                    return seen  # by an attempt of this call that got no answer
                seen = found
            else:
                return seen
        raise Throttled(f"the ranking of group {group!r} kept being switched; try again")
