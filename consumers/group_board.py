"""The board of a ranked group: the totals of its members in order.

Membership, group and place on the board are three items, so a call that wrote the place reads
membership and group afterwards, and writes the place again until the three agree. A call that wrote
a membership or a group looks at the place. So the call that writes last finds what the others
wrote. Each placement and each removal has an id, and is conditional on the one that was seen: a
request that is applied late undoes no later one. In a group that was ever ranked a removal has an
id also if it finds no place: a call that ended `Unclear` may have sent a placement that is under
way. After a crash between two writes a counter may be missing on the board, or stay on it; the same
call again corrects that, and so does switching the ranking on or off.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.consumers.memberships import member_of
from countledger.ledger import keys
from countledger.ledger.errors import (
    AlreadyRanked,
    BadInput,
    ConditionFailed,
    NoSuchCounter,
    NotRanked,
    Refused,
    Throttled,
)
from countledger.ledger.indexes import (
    PLACE,
    after_place,
    group_board,
    is_on_board,
    no_place_of,
    place_condition,
    place_of,
    top_query,
    unrank_of,
)
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from countledger.consumers.groups import GroupItems
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Update

_PAGE: Final = 1_000
_TRIES: Final = 5  # how often others may write a place, a membership or the group meanwhile


@dataclass(frozen=True, slots=True)
class GroupBoard:
    """The members of a group, and its board.

    Attributes:
        items: the items of groups.
        group: the group's name.
    """

    items: GroupItems
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
            self._table,
            AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX)),
            consistent=consistent,
            page_size=size,
            after=None if after is None else keys.member_key(self.group, after),
        )
        for page in self._dynamo.pages(read):
            yield [member_of(item) for item in filter(present, page)]

    def place(self, counter: str) -> None:
        """Put a member of the ranked group on the board: two write units and two read units.

        A write unit, if it is there already; one more, if it was on a board before. A read unit
        more for a strict counter or a sequence.

        Raises:
            AlreadyRanked: it is on the board of another group.
            NotRanked: it has bins, so it has no single total; or it is over regions.
            NoSuchCounter: it does not exist, and is not a ledger counter.
            NamespaceUnknown: its namespace is unknown, so its kind is unknown.
            Throttled: other calls changed its place, its membership or the group each time.
        """
        total = None  # most counters were never on a board; the request meets the others
        if self._kind(counter) is not Kind.LEDGER:
            # It may be deleted, and created again, while a request is late: its incarnation counts.
            total = self._total(counter)
        self._write_until_agreed(counter, total, on=True)

    def take_off(self, counter: str, *, still_member: bool = False, mark: bool = False) -> None:
        """Take a counter off the board: a read unit; two write and a read unit more if it is there.

        A member of the ranked group is put back, which a read unit more decides.

        Args:
            counter: whose place.
            still_member: whether it is one, as far as the caller knows. The call stops at the first
                read that says no, so the likelier no is read first: the group of a member, else the
                membership.
            mark: write the id of this removal also if it has no place, for a write and a read unit
                more: a call that ended `Unclear` may have sent a placement that is under way.

        Raises:
            AlreadyRanked, NotRanked, NoSuchCounter, NamespaceUnknown, Throttled: as `place`.
        """
        total = self._total(counter)
        self._write_until_agreed(counter, total, on=False, group_first=still_member, mark=mark)

    def try_take_off(self, counter: str, *, still_member: bool = False, mark: bool = False) -> None:
        """As `take_off`, but a counter that is to be put back and cannot be stays off.

        Another call has added it, or has switched the ranking on; that call reports the refusal.
        """
        with suppress(Refused, BadInput):
            self.take_off(counter, still_member=still_member, mark=mark)

    def take_all_off(
        self, on_member: Callable[[int], object] = lambda _: None, *, mark: bool
    ) -> int:
        """Take members and strays off, calling back after each member; the number of members.

        Args:
            on_member: called with the number of those that are done.
            mark: as of `take_off`, for each member.
        """
        members = list(self.members())
        for done, counter in enumerate(members, start=1):
            self.try_take_off(counter, still_member=True, mark=mark)
            on_member(done)
        for counter in self.strays(members):
            self.try_take_off(counter)
        return len(members)

    def strays(self, members: Collection[str]) -> Iterator[str]:
        """Counters on the board that are no members: half a read unit for each of its partitions.

        The index is updated with a short delay, so the most recent strays may be missing.
        """
        board, known = group_board(self.group), set(members)
        for bucket in board.buckets:
            for page in self._dynamo.pages(top_query(self._table, board, bucket, _PAGE)):
                yield from {item["counter"] for item in page} - known

    @property
    def _dynamo(self) -> DynamoClient:
        return self.items.connection.retrying

    def _total(self, counter: str) -> Item | None:
        return self._dynamo.get(self._table, keys.total_key(counter), consistent=True)

    def _kind(self, counter: str) -> Kind:
        return Namespaces(self.items.connection).get(keys.namespace_of(counter)).kind

    @property
    def _table(self) -> str:
        return self.items.connection.counters

    def _write_until_agreed(
        self,
        counter: str,
        seen: Item | None,
        *,
        on: bool,
        group_first: bool = False,
        mark: bool = False,
    ) -> None:
        """Write the place, then read membership and group; repeat until they agree."""
        for _ in range(_TRIES):
            written = self._write(counter, seen, on=on, mark=mark)
            if written is None:
                return  # the call that wrote what is there looks at membership and group
            seen, on = written, self._is_wanted(counter, group_first=group_first)
            if on == is_on_board(group_board(self.group), seen):
                return
        raise Throttled(f"{counter!r} kept being added to {self.group!r} and removed; try again")

    def _write(self, counter: str, seen: Item | None, *, on: bool, mark: bool) -> Item | None:
        """Write a place after the one that was seen; the total with it. None: nothing to write."""
        board, place = group_board(self.group), self.items.connection.ids.unique_id()
        for _ in range(_TRIES):
            change = self._change(counter, seen, on=on, mark=mark)
            if change is None:
                return None
            try:
                self._dynamo.update(after_place(change, seen, place))
            except ConditionFailed as failed:
                met, seen = seen, failed.item
                if (seen or {}).get(PLACE) == place:
                    return seen  # by an attempt of this call that got no answer
                if on and self._is_final(met, seen):
                    self._refuse(counter, seen)
            else:
                return {board.attribute: board.bucket_of(counter) if on else "", PLACE: place}
        raise Throttled(f"{counter!r} kept being added to {self.group!r} and removed; try again")

    def _change(self, counter: str, seen: Item | None, *, on: bool, mark: bool) -> Update | None:
        """What to write to a total, as it was seen; None: nothing."""
        board = group_board(self.group)
        if is_on_board(board, seen):
            return None if on else unrank_of(self._table, board, counter)
        if on:
            return self._placement(counter, seen)
        if not mark or board.attribute in (seen or {}):
            return None  # it is on another board: that placement refuses the earlier ones
        kind = self._kind(counter)
        if kind is Kind.STRICT_REGIONS or (seen is None and kind is not Kind.LEDGER):
            return None  # no placement of it is ever sent
        return no_place_of(self._table, board, counter, may_be_made=seen is None)

    def _is_final(self, before: Item | None, total: Item | None) -> bool:
        """Whether no attempt of a placement that was refused can be applied later.

        Args:
            before: the total that the placement named.
            total: the total that refused it.
        """
        board = group_board(self.group)
        if is_on_board(board, total):
            return False
        # Each attempt names the last placement and the incarnation, which decides about bins.
        is_same = place_condition(total) == place_condition(before)
        return is_same or board.attribute in (total or {})

    def _placement(self, counter: str, seen: Item | None) -> Update:
        kind = self._kind(counter)
        if kind is Kind.STRICT_REGIONS:
            raise NotRanked(f"counter {counter!r} is of kind {kind}, which is not ranked")
        if seen is None and kind is not Kind.LEDGER:
            # Nothing could refuse a placement that arrives after the counter was created.
            self._refuse(counter, seen)
        board = group_board(self.group)
        return place_of(self._table, board, counter, may_be_made=kind is Kind.LEDGER)

    def _is_wanted(self, counter: str, *, group_first: bool) -> bool:
        """Whether it is a member of the ranked group: a read unit, or two."""
        if group_first:
            return self._is_ranked() and self.is_member(counter)
        return self.is_member(counter) and self._is_ranked()

    def is_member(self, counter: str) -> bool:
        """Whether a counter is a member: one read unit."""
        key = keys.member_key(self.group, counter)
        return present(self._dynamo.get(self._table, key, consistent=True)) is not None

    def _is_ranked(self) -> bool:
        return bool(self.items.ranked(self.group))

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
