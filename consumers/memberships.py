"""Memberships: that a counter belongs to a group, each with an id and a time of its own.

    (`group#<group>`, `member#<counter>`)    `member` (the counter, the key of the index `members`),
                                             `id` and `at` of the last `join`

Joining again makes the membership a new one, so whoever removes the one that was found before
(`end`) does not remove it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, ServiceFailed
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.limits import MEMBERSHIP_LEAVES_MS
from countledger.ledger.operations import Delete, Put, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

_INDEX: Final = "members"


@dataclass(frozen=True, slots=True)
class Membership:
    """That a counter belongs to a group.

    Attributes:
        group: the group's name.
        counter: the counter's name.
        id: of the last `join` of it; never used again.
        at_ms: when that was, by the clock of its caller.
    """

    group: str
    counter: str
    id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Memberships:
    """Reads and writes memberships.

    Attributes:
        dynamo: its SDK may retry, every write here sets what is to be.
        table: the table `counters`.
        clock: dates memberships.
        new_id: makes an id that is never used again.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = lambda: uuid4().hex

    def groups_of(self, counter: str) -> Iterator[str]:
        """The groups of a counter by name: half a read unit for each 4 KB of memberships."""
        condition = Compare("member", "=", keys.check_counter(counter))
        for page in self.dynamo.pages(Query(self.table, condition, index=_INDEX)):
            yield from (item["counter"].removeprefix(keys.GROUP_PREFIX) for item in page)

    def of(self, counter: str) -> list[Membership]:
        """The memberships of a counter: as `groups_of`, and a read unit for each."""
        wanted = [keys.member_key(group, counter) for group in self.groups_of(counter)]
        return [_decode(item) for item in self.dynamo.get_many(self.table, wanted, consistent=True)]

    def join(self, group: str, counter: str) -> tuple[Membership, bool]:
        """Write a membership: a write unit, two if it is there. The one written; whether it is new.

        One that is there becomes this one, so no clean-up takes it.

        Raises:
            ServiceFailed: the request would leave so late that a clean-up could mistake it.
        """
        made = Membership(group, counter, self.new_id(), self.clock.now_ms())
        key = keys.member_key(group, counter)
        item: Item = {**key, "member": counter, "id": made.id, "at": made.at_ms}
        with guarded(partial(self._refuse_if_late, made.at_ms)):
            new = self._wrote(Put(self.table, item, Absent("part")))
            if not new:
                self.dynamo.put(Put(self.table, item))
        return made, new

    def leave(self, group: str, counter: str) -> bool:
        """Remove the membership that is there when this call reads it: a read and a write unit.

        A request that lands late, or is sent again, takes none that was written since.

        Returns:
            Whether there was one.
        """
        key = keys.member_key(group, counter)
        item = self.dynamo.get(self.table, key, consistent=True)
        if item is None:
            return False
        same = Compare("id", "=", item["id"]) if "id" in item else Absent("id")
        return self._wrote(Delete(self.table, key, same))

    def end(self, membership: Membership) -> bool:
        """Remove this membership and no later one: a write unit. Whether it was there."""
        key = keys.member_key(membership.group, membership.counter)
        return self._wrote(Delete(self.table, key, Compare("id", "=", membership.id)))

    def _refuse_if_late(self, at_ms: int) -> None:
        if self.clock.now_ms() - at_ms > MEMBERSHIP_LEAVES_MS:
            raise ServiceFailed("this process stood still; add the counter to the group again")

    def _wrote(self, write: Put | Delete) -> bool:
        try:
            if isinstance(write, Put):
                self.dynamo.put(write)
            else:
                self.dynamo.delete(write)
        except ConditionFailed:
            return False
        return True


def _decode(item: Item) -> Membership:
    check_format(item)
    return Membership(
        require(item, "counter", str).removeprefix(keys.GROUP_PREFIX),
        require(item, "member", str),
        require(item, "id", str),
        require(item, "at", int),
    )
