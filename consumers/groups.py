"""Groups of counters: a counter belongs to many groups, a group has many counters.

    (`group#<group>`, `member#<counter>`)    a membership, by group (`memberships`)
    index `members`                          the same by counter
    (`group#`, `group#<group>`)              the group in the directory of groups: `on`, whether it
                                             is ranked; `switched`, if it ever was

Totals are read by a query of the members and a BatchGetItem. A ranked group has a `group_board`.

Groups and memberships are records (see `ledger/records.py`). So a request that is applied late
neither makes a group again, nor deletes or switches one that was made again, nor undoes a switch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.consumers.group_board import GroupBoard
from countledger.consumers.memberships import Memberships, member_of
from countledger.consumers.rankings import check_limit, ranked, top_of
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.attributes import check_format, decoded, require
from countledger.ledger.errors import BadInput, CorruptItem, NoSuchGroup, Refused
from countledger.ledger.indexes import group_board, is_on
from countledger.ledger.operations import Compare, Query
from countledger.ledger.records import INCARNATION, NotRead, Records, Replacement
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from countledger.consumers.rankings import Ranked
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.records import Decide, RecordWritten, Seen
    from countledger.ledger.total import Total


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
    check_format(item)
    name = require(item, "part", str).removeprefix(keys.GROUP_PREFIX)
    return Group(name, bool(is_on(item)))


def check_exists(group: str, item: Item | None) -> Item:
    if item is None:
        raise NoSuchGroup(f"group {group!r} does not exist: `countledger group add` creates it")
    return item


def was_switched(item: Item) -> bool:
    """Whether a group was ever ranked: then a placement may be under way."""
    return "switched" in item


def is_same_group(item: Item | None, seen: Item) -> bool:
    """Whether it is the group that was seen, and none that was made again since."""
    return item is not None and item.get(INCARNATION) == seen.get(INCARNATION)


@dataclass(frozen=True, slots=True)
class GroupItems:
    connection: Connection

    def find(self, group: str) -> Item | None:
        """The item of a group, strongly consistent: one read unit."""
        return present(
            self.connection.retrying.get(
                self.connection.counters, keys.group_key(group), consistent=True
            )
        )

    def existing(self, group: str) -> Item:
        """The item of a group that exists: one read unit."""
        return check_exists(group, self.find(group))

    def ranked(self, group: str) -> bool | None:
        """Whether a group is ranked; None: it does not exist. One read unit."""
        item = self.find(group)
        return None if item is None else bool(is_on(item))

    def list(self, on_corrupt: OnCorrupt | None) -> Iterator[Group]:
        """All groups by name: half a read unit for each 4 KB of groups."""
        directory = Compare("counter", "=", keys.GROUP_PREFIX)
        for page in self.connection.retrying.pages(Query(self.connection.counters, directory)):
            yield from decoded(filter(present, page), decode_group, on_corrupt)

    def make(self, group: str, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Create a group, unless it exists: a read unit; a write unit if it is new.

        One that was deleted is made again if it is wanted, for a member. That is read after the
        tombstone that the write names, so no group comes back that another call has made and
        deleted since.
        """
        made = Replacement({**keys.group_key(group), "on": False})

        def decide(there: Item | None) -> Replacement | None:
            return None if there or not is_wanted() else made

        self._write(group, decide, repeatable=True)

    def delete(self, group: str, seen: Item) -> bool:
        """Delete the group that was read: one write unit; one more if it was switched since.

        False: it was deleted before, by another call.
        """

        def decide(there: Item | None) -> Replacement | None:
            return Replacement(None) if is_same_group(there, seen) else None

        return self._write(group, decide, seen, repeatable=True).changed

    def switch(self, group: str, seen: Item, *, on: bool) -> Item:
        """Replace the setting that was read, and return its item: one write unit for each attempt.

        A group that was made again meanwhile is another one: `NoSuchGroup`.
        """

        def decide(there: Item | None) -> Replacement:
            if there is None or not is_same_group(there, seen):
                raise NoSuchGroup(f"group {group!r} was deleted meanwhile")
            return Replacement({**there, "on": on, "switched": True})

        return self._write(group, decide, seen).before or seen

    def _write(
        self,
        group: str,
        decide: Decide,
        seen: Seen = NotRead.READ_IT,
        *,
        repeatable: bool = False,
    ) -> RecordWritten:
        records = Records(self.connection, self.connection.counters, "group")
        key = keys.group_key(group)
        steps = records.write(group, key, decide, seen=seen, repeatable=repeatable)
        return self.connection.run(steps)


_WRITERS: Final = 8
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a stack, in its home region.

    Attributes:
        connection: to the stack.
        totals: reads totals.
    """

    connection: Connection
    totals: TotalsReader = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", TotalsReader(self.connection))

    @property
    def _items(self) -> GroupItems:
        return GroupItems(self.connection)

    @property
    def memberships(self) -> Memberships:
        """The members of each group."""
        return Memberships(self.connection)

    def add(self, group: str, counters: Iterable[str]) -> list[str]:
        """Add counters to a group; a missing group is created.

        Two write units and a read unit for each; a read unit for the group, a write unit if it is
        new; a write unit more for each that was removed within the clock skew (a minute). For a
        ranked group two write units and two read units more for each, and a write unit for each
        that was ranked before; a ledger counter that was never recorded gets a total of zeros.
        Adding a member again renews its membership, and completes what a crash left incomplete.

        Returns:
            The counters that were no members before; one whose answer was lost may be missing.

        Raises:
            AlreadyRanked: the group is ranked, and another ranked group has the counter.
            NotRanked, NoSuchCounter, NamespaceUnknown: the group is ranked, and the counter cannot
                be: it has bins; it is strict and does not exist; its namespace is unknown.
            Unclear: an attempt got no answer, and may still be applied: call again.
            BadGroupName, BadCounterName: a name breaks the grammar.
        """
        group = keys.check_group(group)
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        self._items.make(group)
        with self.connection.retrying.workers(_WRITERS, "countledger-groups") as pool:
            added = list(pool.map(lambda counter: self._add(group, counter), names))
        return [name for name, new in zip(names, added, strict=True) if new]

    def remove(self, group: str, counters: Iterable[str]) -> list[str]:
        """Remove counters from a group: two write units and two read units for each.

        For a ranked group two write units and a read unit more; for one that was ranked before, a
        write unit and a read unit. A counter that is no member costs the same read units, and a
        write unit if the group is or was ranked.

        Returns:
            The counters that were members.

        Raises:
            NoSuchGroup: no group has that name, and none of the counters was a member. Places that
                a crash left on its board are removed nevertheless.
        """
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        group = keys.check_group(group)
        with self.connection.retrying.workers(_WRITERS, "countledger-groups") as pool:
            were = list(pool.map(partial(self.memberships.leave, group), names))
            # Read after the memberships are gone: no later switch places them.
            seen = self._items.find(group)
            mark = any(were) if seen is None else was_switched(seen)
            # Also of a group that is gone: a call that died while it was deleted left its places.
            list(pool.map(partial(self.board(group).try_take_off, mark=mark), names))
        if not any(were):
            check_exists(group, seen)
        return [name for name, was in zip(names, were, strict=True) if was]

    def get(self, group: str) -> Group:
        """A group: one read unit.

        Raises:
            NoSuchGroup: no group has that name.
        """
        group = keys.check_group(group)
        return Group(group, bool(is_on(self._items.existing(group))))

    def of(self, counter: str) -> Iterator[str]:
        """The groups of a counter, by name: half a read unit for each 4 KB of memberships."""
        return self.memberships.groups_of(counter)

    def show(
        self, group: str, *, after: str | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[Total]:
        """The totals of a group by name, read while they are iterated, a hundred at a time.

        Half a read unit for each 4 KB of memberships, and half of one for each total. No snapshot.

        Args:
            group: the group's name.
            after: start after this counter, such as the last one of an earlier call.
            on_corrupt: called with the error of each corrupt total; the total is skipped.

        Raises:
            NoSuchGroup: no group has that name.
            CorruptItem: a total is corrupt, and `on_corrupt` is not given.
        """
        self.get(group)
        return self._totals_of(group, after and keys.check_counter(after), on_corrupt)

    def delete(self, group: str) -> int:
        """Delete a group, but not its counters.

        Two write units and a read unit for each member, in a ranked group twice as many; in one
        that was ranked before, three and two. One write unit, six read units, and one more if it
        was never ranked. What another call adds meanwhile stays, in a group of that name that is
        not ranked. If another call deletes the group first, and it is made again meanwhile, the new
        group stays as it is, with its members; each costs up to two write and three read units.

        Returns:
            The number of its members.

        Raises:
            NoSuchGroup: no group has that name.
        """
        group = keys.check_group(group)
        board, seen = self.board(group), self._items.existing(group)
        members = list(self.memberships.in_group(group))
        if not is_same_group(self._items.existing(group), seen):
            return 0  # it was deleted and made again meanwhile: the members may be of the new one
        for counter in board.strays({member_of(item) for item in members}):
            board.try_take_off(counter)
        with self.connection.retrying.workers(_WRITERS, "countledger-groups") as pool:
            removed = sum(pool.map(self.memberships.end, members))
            mark = was_switched(seen) or self._may_be_switched(group, seen)
            take_off = partial(board.try_take_off, mark=mark)
            list(pool.map(take_off, map(member_of, members)))
        again = None if self._items.delete(group, seen) else self._items.find(group)
        if is_on(again):
            return removed  # who switched that on has placed its members
        # If the answer of the deletion was lost, the group that is there may have come after it:
        # then nobody else takes off whom this call has placed, or found placed.
        for counter in (added := list(board.members())):
            board.try_take_off(counter, mark=True)
        if added and again is None:  # the calls that added them have succeeded
            self._items.make(group, lambda: any(board.members()))
        return removed

    def switch_ranking(
        self, group: str, *, on: bool, on_member: Callable[[int], object] = lambda _: None
    ) -> int:
        """Switch a group's ranking on or off: one write unit, and two for each member.

        A write unit more for each that was ranked before. Two read units, and two for each member.
        While it is on, each change of a member's total costs two write units more. A counter can
        be ranked in one group (and in its namespace). `on_member` is called after each member, with
        the number of those that are done; the setting is effective before the first.

        Returns:
            The number of its members.

        Raises:
            NoSuchGroup: no group has that name.
            AlreadyRanked, NotRanked, NoSuchCounter, NamespaceUnknown: as `add`; the ranking is off.
        """
        group = keys.check_group(group)
        replaced = self._items.switch(group, self._items.existing(group), on=on)
        board, members = self.board(group), 0
        if not on:
            return board.take_all_off(on_member, mark=was_switched(replaced))
        for members, counter in enumerate(board.members(), start=1):
            try:
                board.place(counter)
            except (Refused, BadInput, CorruptItem):
                self._items.switch(group, self._items.existing(group), on=False)
                board.take_all_off(mark=True)
                raise
            on_member(members)
        return members

    def top(
        self, group: str, limit: int = 10, *, on_corrupt: OnCorrupt | None = None
    ) -> list[Ranked]:
        """The highest totals of a group, equal ones by name.

        A ranked group: a read unit, half of one for each of the board's four partitions, and for
        each 4 KB more. Any other group: all totals are read, as by `show`.

        Args:
            group: the group's name.
            limit: the maximum number, 1 to 1,000.
            on_corrupt: as for `show`.

        Raises:
            NoSuchGroup, CorruptItem: as for `show`.
            BadSetting: the limit is out of range.
        """
        check_limit(limit)
        self.totals.check_region()
        if self.get(group).ranked:
            return top_of(self.connection, group_board(group), limit)
        found = self._totals_of(group, None, on_corrupt)
        return ranked(((one.counter, one.value) for one in found), limit)

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> Iterator[Group]:
        """All groups by name: half a read unit for each 4 KB of groups.

        A corrupt group is passed to `on_corrupt` as an error; without it CorruptItem is raised.
        """
        return self._items.list(on_corrupt)

    def board(self, group: str) -> GroupBoard:
        """The board of a group, ranked or not."""
        return GroupBoard(self._items, group)

    def _add(self, group: str, counter: str) -> bool:
        """The membership first, then the rule: a call that switches it on sees the member."""
        membership, new = self.memberships.join(group, counter)
        on = self._items.ranked(group)
        if on is None:
            # It was deleted meanwhile: with this member, or before the deletion could find it.
            self._items.make(group, partial(self.board(group).is_member, counter))
        elif on:
            try:
                self.board(group).place(counter)
            except (Refused, BadInput, CorruptItem):
                if new and self.memberships.end(membership):
                    self.board(group).try_take_off(counter)  # a sweep may have placed it
                raise
        return new

    def _may_be_switched(self, group: str, seen: Item) -> bool:
        """Whether a group, never ranked when it was seen, was switched since: one read unit."""
        now = self._items.find(group)
        return now is None or not is_same_group(now, seen) or was_switched(now)

    def _totals_of(
        self, group: str, after: str | None, on_corrupt: OnCorrupt | None
    ) -> Iterator[Total]:
        for names in self.board(group).pages(_PAGE, after):
            yield from self.totals.read_many(names, on_corrupt).values()
