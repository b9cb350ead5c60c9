"""The board of a ranked group: its members' totals in order, placed with their memberships.

Membership and place are two writes. Whoever places a counter looks at the membership afterwards,
and takes it off again if that has gone; whoever takes a membership away takes the counter off
afterwards. So in whatever order they come, no counter stays on the board that is no member. After a
crash between the two one may: a stray, which leaves with the board.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.ledger import keys
from countledger.ledger.errors import AlreadyRanked, ConditionFailed, NoSuchCounter, NotRanked
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Query
from countledger.ledger.ranking import group_board, place_of, removal_of, top_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class GroupBoard:
    """The members of a group, and its board.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        namespaces: tell of what kind a counter is.
        group: whose board.
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
            yield [item["part"].removeprefix(keys.MEMBER_PREFIX) for item in page]

    def place(self, counter: str) -> None:
        """Give a member its place: two write units and a read unit.

        Raises:
            AlreadyRanked: it has its place on the board of another group.
            NotRanked: it has bins, and no single total.
            NoSuchCounter: it is no ledger counter, and does not exist.
            NamespaceUnknown: nobody knows its namespace, so nobody knows what it will be.
        """
        kind = self.namespaces.get(keys.namespace_of(counter)).kind
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
        try:
            self.dynamo.update(removal_of(self.table, group_board(self.group), counter))
        except ConditionFailed:
            return

    def take_off_unless_member(self, counter: str) -> None:
        """Take a counter off the board whose membership has ended: as `take_off`, and a read unit.

        Where it is a member again, by an `add` that placed it meanwhile, it gets its place back.
        """
        self.take_off(counter)
        if self._is_member(counter):
            self.place(counter)

    def take_strays_off(self, members: Collection[str]) -> None:
        """Take off what is no member: half a read unit for each of the board's partitions.

        The index is behind by a moment, so what became a stray just now may be left.
        """
        board, known = group_board(self.group), set(members)
        for bucket in board.buckets:
            for page in self.dynamo.pages(top_query(self.table, board, bucket, _PAGE)):
                for counter in {item["counter"] for item in page} - known:
                    self.take_off(counter)

    def _is_member(self, counter: str) -> bool:
        key = keys.member_key(self.group, counter)
        return self.dynamo.get(self.table, key, consistent=True) is not None

    def _refuse(self, counter: str, item: Item | None) -> NoReturn:
        if item is None:
            raise NoSuchCounter(
                f"there is no counter {counter!r} yet that group {self.group!r} could rank"
            )
        other = item.get(group_board(self.group).attribute)
        if other is None or "bins" in item:
            raise NotRanked(
                f"counter {counter!r} cannot be ranked in group {self.group!r}: its value lies in "
                "bins, or its item was written by a later release"
            )
        owner = str(other).removeprefix(keys.GROUP_PREFIX).rpartition("#")[0]
        raise AlreadyRanked(
            f"counter {counter!r} is ranked in group {owner!r} already, and has no second place: "
            "switch that ranking off, or take the counter out of one of the groups"
        )
