"""Memberships of counters in groups, and the board of a ranked group.

    (`group#<group>`, `member#<counter>`)    `member` (the counter, the key of the index `members`),
                                             `id` and `at` of the last `join`

A `join` writes a new id, also for a counter that is a member already. So a request that removes the
membership found earlier (`end`) does not remove the new one. A removed membership leaves a
tombstone, without `member`: so a `join` that is applied late does not bring the membership back.

A ranked group has a board: the totals of its members in order. Membership and position on the board
are two writes. A call that places a counter reads the membership afterwards, and takes the counter
off the board if the membership is gone. A call that removes a membership takes the counter off the
board afterwards. So in any order of these calls no counter that is not a member stays on the board.
After a crash between the two writes one may stay; it is removed together with the board.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    AlreadyRanked,
    ConditionFailed,
    NoSuchCounter,
    NotRanked,
    ServiceFailed,
    Throttled,
)
from countledger.ledger.expressions import AllOf, BeginsWith, Compare, unchanged
from countledger.ledger.ids import unique_id
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, MEMBERSHIP_LEAVES_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Put, Query
from countledger.ledger.performer import wrote
from countledger.ledger.ranking import group_board, place_of, top_query, unrank_of
from countledger.ledger.tombstones import (
    NOT_REMOVED,
    present,
    put_if_vacant,
    removed_by,
    tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Condition


def member_of(membership: Item) -> str:
    """The counter of the item of a membership."""
    return str(membership["part"]).removeprefix(keys.MEMBER_PREFIX)


_INDEX: Final = "members"
_JOINS: Final = 5  # how often others may add or remove the same member meanwhile


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
        dynamo: a DynamoDB client; its SDK may retry, because every write here is idempotent.
        table: the table `counters`.
        clock: for the times of memberships.
        new_id: makes a unique id.
        clock_skew_ms: how far clocks may differ.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = unique_id
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS

    def groups_of(self, counter: str) -> Iterator[str]:
        """The groups of a counter, by name: half a read unit for each 4 KB of memberships."""
        counter = keys.check_counter(counter)
        condition = Compare("member", "=", counter)
        for page in self.dynamo.pages(Query(self.table, condition, index=_INDEX)):
            yield from (item["counter"].removeprefix(keys.GROUP_PREFIX) for item in page)

    def of(self, counter: str) -> list[Membership]:
        """The memberships of a counter: as `groups_of`, and a read unit for each."""
        wanted = [keys.member_key(group, counter) for group in self.groups_of(counter)]
        found = self.dynamo.get_many(self.table, wanted, consistent=True)
        return [_decode(item) for item in filter(present, found)]

    def join(self, group: str, counter: str) -> tuple[Membership, bool]:
        """Write a membership: one write unit; two if the counter is a member, or was just removed.

        An existing membership gets the new id, so no clean-up of the old one removes it.

        Returns:
            The membership written, and whether the counter was no member before.

        Raises:
            ServiceFailed: the request would leave so late that a clean-up could remove it.
            Throttled: other calls added and removed the counter each time.
        """
        made = Membership(group, counter, self.new_id(), self.clock.now_ms())
        key = keys.member_key(group, counter)
        put = Put(self.table, {**key, "member": counter, "id": made.id, "at": made.at_ms})
        with guarded(partial(self._refuse_if_late, made.at_ms)):
            for number in range(_JOINS):
                found = put_if_vacant(self.dynamo, put, made.at_ms, self.clock_skew_ms)
                if found is None:
                    return made, number == 0
                if wrote(self.dynamo, replace(put, condition=_same(found))):
                    return made, False
        raise Throttled(f"{counter!r} kept being added to {group!r} and removed; try again")

    def leave(self, group: str, counter: str) -> bool:
        """Remove the membership that this call reads: one read unit and one write unit.

        A request that lands late or is sent again does not remove a later membership.

        Returns:
            Whether the counter was a member.
        """
        key = keys.member_key(group, counter)
        item = present(self.dynamo.get(self.table, key, consistent=True))
        return item is not None and self.leave_seen(item)

    def in_group(self, group: str) -> Iterator[Item]:
        """The memberships of a group, strongly consistent: a read unit for each 4 KB."""
        mine = Compare("counter", "=", keys.GROUP_PREFIX + group)
        condition = AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX))
        for page in self.dynamo.pages(Query(self.table, condition, consistent=True)):
            yield from filter(present, page)

    def leave_seen(self, item: Item) -> bool:
        """Remove the membership that was read, but no later one: one write unit."""
        key = {name: item[name] for name in ("counter", "part")}
        removed, now_ms = item.get("id") or self.new_id(), self.clock.now_ms()
        own = self.new_id()
        left = tombstone(key, removed, now_ms, self.clock_skew_ms, removal=own)
        return removed_by(self.dynamo, Put(self.table, left, _same(item)), own)

    def end(self, membership: Membership) -> bool:
        """Remove this membership, but no later one: one write unit. True if it existed."""
        key = keys.member_key(membership.group, membership.counter)
        return self.leave_seen({**key, "id": membership.id})

    def _refuse_if_late(self, at_ms: int) -> None:
        if self.clock.now_ms() - at_ms > MEMBERSHIP_LEAVES_MS:
            raise ServiceFailed("this process was suspended; add the counter to the group again")


def _same(seen: Item) -> Condition:
    """The membership that was seen, and no tombstone; one of an early release has no id."""
    return AllOf(unchanged("id", seen.get("id")), NOT_REMOVED)


def _decode(item: Item) -> Membership:
    check_format(item)
    return Membership(
        require(item, "counter", str).removeprefix(keys.GROUP_PREFIX),
        require(item, "member", str),
        require(item, "id", str),
        require(item, "at", int),
    )


_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupBoard:
    """The members of a group, and its board.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        namespaces: the namespaces, which say of what kind a counter is.
        group: the group's name.
    """

    dynamo: DynamoClient
    table: str
    namespaces: Namespaces
    group: str

    def members(self) -> Iterator[str]:
        """All members by name, strongly consistent: a read unit for each 4 KB of memberships."""
        for page in self.pages(None, None, consistent=True):
            yield from page

    def pages(
        self, size: int | None, after: str | None, *, consistent: bool = False
    ) -> Iterator[list[str]]:
        """The members by name, page by page."""
        mine = Compare("counter", "=", keys.GROUP_PREFIX + self.group)
        read = Query(
            self.table,
            AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX)),
            consistent=consistent,
            page_size=size,
            after=None if after is None else keys.member_key(self.group, after),
        )
        for page in self.dynamo.pages(read):
            yield [member_of(item) for item in filter(present, page)]

    def place(self, counter: str) -> None:
        """Put a member on the board: two write units and a read unit.

        Raises:
            AlreadyRanked: it is on the board of another group.
            NotRanked: it has bins, so it has no single total; or it is over regions.
            NoSuchCounter: it does not exist, and is not a ledger counter.
            NamespaceUnknown: its namespace is unknown, so its kind is unknown.
        """
        kind = self.namespaces.get(keys.namespace_of(counter)).kind
        if kind is Kind.STRICT_REGIONS:
            raise NotRanked(f"counter {counter!r} is of kind {kind}, which is not ranked")
        board = group_board(self.group)
        update = place_of(self.table, board, counter, may_be_made=kind is Kind.LEDGER)
        try:
            self.dynamo.update(update)
        except ConditionFailed as failed:
            self._refuse(counter, failed.item)
        if not self._is_member(counter):
            self.take_off(counter)

    def take_off(self, counter: str) -> None:
        """Take a counter off the board, if it is on it: two write units."""
        wrote(self.dynamo, unrank_of(self.table, group_board(self.group), counter))

    def take_all_off(self, on_member: Callable[[int], object] = lambda _: None) -> int:
        """Take members and strays off, calling back after each member; the number of members."""
        members = list(self.members())
        for done, counter in enumerate(members, start=1):
            self.take_off(counter)
            on_member(done)
        for counter in self.strays(members):
            self.take_off(counter)
        return len(members)

    def take_off_unless_member(self, counter: str) -> None:
        """Take a former member off the board: as `take_off`, and a read unit.

        If an `add` has made it a member again meanwhile, it is put back on the board.
        """
        self.take_off(counter)
        if self._is_member(counter):
            self.place(counter)

    def strays(self, members: Collection[str]) -> Iterator[str]:
        """Counters on the board that are no members: half a read unit for each of its partitions.

        The index is updated with a short delay, so the most recent strays may be missing.
        """
        board, known = group_board(self.group), set(members)
        for bucket in board.buckets:
            for page in self.dynamo.pages(top_query(self.table, board, bucket, _PAGE)):
                yield from {item["counter"] for item in page} - known

    def _is_member(self, counter: str) -> bool:
        key = keys.member_key(self.group, counter)
        return present(self.dynamo.get(self.table, key, consistent=True)) is not None

    def _refuse(self, counter: str, item: Item | None) -> NoReturn:
        if item is None:
            raise NoSuchCounter(
                f"counter {counter!r} does not exist, so group {self.group!r} cannot rank it: "
                "create it first"
            )
        other = item.get(group_board(self.group).attribute)
        owner = str(other).removeprefix(keys.GROUP_PREFIX).rpartition("#")[0]
        if other is None or owner == self.group or "bins" in item:
            raise NotRanked(
                f"counter {counter!r} cannot be ranked in group {self.group!r}: its value is "
                "spread over bins, or its item was written by a later release"
            )
        raise AlreadyRanked(
            f"counter {counter!r} is ranked in group {owner!r} already, and a counter can be "
            "ranked in one group: switch that ranking off, or remove it from one of the groups"
        )
