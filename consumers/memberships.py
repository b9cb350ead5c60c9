"""Memberships of counters in groups.

    (`group#<group>`, `member#<counter>`)    `member` (the counter, the key of the index `members`),
                                             `id` and `at` of the last `join`

A `join` writes a new id, also for a counter that is a member already. So a request that removes the
membership found earlier (`end`) does not remove the new one. A removed membership leaves a
tombstone, without `member`: so a `join` that is applied late does not bring the membership back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.departure import guarded
from countledger.ledger.errors import ConditionFailed, ServiceFailed, Throttled
from countledger.ledger.limits import MEMBERSHIP_LEAVES_MS
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Put, Query
from countledger.ledger.tombstones import (
    NOT_REMOVED,
    present,
    put_if_vacant,
    removed_by,
    tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Condition

_INDEX: Final = "members"
_JOINS: Final = 5  # how often others may add or remove the same member meanwhile


def member_of(membership: Item) -> str:
    """The counter of the item of a membership."""
    return str(membership["part"]).removeprefix(keys.MEMBER_PREFIX)


@dataclass(frozen=True, slots=True)
class Membership:
    """That a counter belongs to a group.

    Attributes:
        group: the group's name.
        counter: the counter's name.
        id: the unique id of the last `join`.
        at_ms: the time of the last `join`, by the clock of its caller, in milliseconds.
    """

    group: str
    counter: str
    id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Memberships:
    """Reads and writes memberships.

    Attributes:
        connection: to the stack; every write here is idempotent, so its retrying client makes it.
    """

    connection: Connection

    def groups_of(self, counter: str) -> Iterator[str]:
        """The groups of a counter, by name: half a read unit for each 4 KB of memberships."""
        counter = keys.check_counter(counter)
        condition = Compare("member", "=", counter)
        for page in self.connection.retrying.pages(
            Query(self.connection.counters, condition, index=_INDEX)
        ):
            yield from (item["counter"].removeprefix(keys.GROUP_PREFIX) for item in page)

    def of(self, counter: str) -> list[Membership]:
        """The memberships of a counter: as `groups_of`, and a read unit for each."""
        wanted = [keys.member_key(group, counter) for group in self.groups_of(counter)]
        found = self.connection.retrying.get_many(self.connection.counters, wanted, consistent=True)
        return [_decode(item) for item in filter(present, found)]

    def join(self, group: str, counter: str) -> tuple[Membership, bool]:
        """Write a membership: one write unit; two if the counter is a member, or was just removed.

        An existing membership gets a new id, so no clean-up of the old one removes it. Each request
        has an id of its own: what an attempt without an answer wrote, others may have replaced.

        Returns:
            The membership written, and whether the counter was no member before.

        Raises:
            ServiceFailed: the request would leave so late that a clean-up could remove it.
            Throttled: other calls added and removed the counter each time.
        """
        at_ms = self.connection.clock.now_ms()
        with guarded(partial(self._refuse_if_late, at_ms)):
            for number in range(_JOINS):
                made = Membership(group, counter, self.connection.ids.unique_id(), at_ms)
                found = put_if_vacant(
                    self.connection.retrying, self._put(made), at_ms, self.connection.clock_skew_ms
                )
                if found is None:
                    return made, number == 0
                made = replace(made, id=self.connection.ids.unique_id())
                if self._renewed(made, found):
                    return made, False
        raise Throttled(f"{counter!r} kept being added to {group!r} and removed; try again")

    def _put(self, made: Membership) -> Put:
        key = keys.member_key(made.group, made.counter)
        return Put(
            self.connection.counters,
            {**key, "member": made.counter, "id": made.id, "at": made.at_ms},
        )

    def _renewed(self, made: Membership, found: Item) -> bool:
        try:
            self.connection.retrying.put(replace(self._put(made), condition=_same(found)))
        except ConditionFailed as failed:
            # Else others were faster; or this one was, without an answer, and others since.
            return (failed.item or {}).get("id") == made.id
        return True

    def leave(self, group: str, counter: str) -> bool:
        """Remove the membership that this call reads: one read unit and one write unit.

        A request that lands late or is sent again does not remove a later membership.

        Returns:
            Whether the counter was a member.
        """
        key = keys.member_key(group, counter)
        item = present(self.connection.retrying.get(self.connection.counters, key, consistent=True))
        return item is not None and self.leave_seen(item)

    def in_group(self, group: str) -> Iterator[Item]:
        """The memberships of a group, strongly consistent: a read unit for each 4 KB."""
        mine = Compare("counter", "=", keys.GROUP_PREFIX + group)
        condition = AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX))
        for page in self.connection.retrying.pages(
            Query(self.connection.counters, condition, consistent=True)
        ):
            yield from filter(present, page)

    def leave_seen(self, item: Item) -> bool:
        """Remove the membership that was read, but no later one: one write unit."""
        key = {name: item[name] for name in ("counter", "part")}
        removed, now_ms = require(item, "id", str), self.connection.clock.now_ms()
        own = self.connection.ids.unique_id()
        left = tombstone(key, removed, now_ms, self.connection.clock_skew_ms, removal=own)
        return removed_by(
            self.connection.retrying, Put(self.connection.counters, left, _same(item)), own
        )

    def end(self, membership: Membership) -> bool:
        """Remove this membership, but no later one: one write unit. True if it existed."""
        key = keys.member_key(membership.group, membership.counter)
        return self.leave_seen({**key, "id": membership.id})

    def _refuse_if_late(self, at_ms: int) -> None:
        if self.connection.clock.now_ms() - at_ms > MEMBERSHIP_LEAVES_MS:
            raise ServiceFailed("this process was suspended; add the counter to the group again")


def _same(seen: Item) -> Condition:
    """The membership that was seen, and no tombstone."""
    return AllOf(Compare("id", "=", require(seen, "id", str)), NOT_REMOVED)


def _decode(item: Item) -> Membership:
    check_format(item)
    return Membership(
        require(item, "counter", str).removeprefix(keys.GROUP_PREFIX),
        require(item, "member", str),
        require(item, "id", str),
        require(item, "at", int),
    )
