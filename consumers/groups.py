"""Groups of counters: a counter belongs to many groups, a group has many counters.

    (`group#<group>`, `member#<counter>`)    a membership, by group; it carries `member`
    index `members`                          the same by counter
    (`group#`, `group#<group>`)              the group in the directory of groups: ranked or not

A group's totals are read by one query of its members and a BatchGetItem of their totals. A ranked
one also has its board (`group_board`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.consumers.group_board import GroupBoard
from countledger.consumers.leaders import check_limit, ranked, top_of
from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.errors import BadInput, ConditionFailed, NoSuchGroup, Refused
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare
from countledger.ledger.operations import Delete, Put, Query, Update
from countledger.ledger.ranking import group_board, is_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.leaders import Ranked
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.door import Door
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.total import Total

_INDEX: Final = "members"
_WRITERS: Final = 8
_PAGE: Final = 100
# How often a ranking may be switched the other way while members are placed or taken off.
_SWITCHES: Final = 5


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        name: its name.
        ranked: whether its totals are kept in order.
    """

    name: str
    ranked: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a stack, in its home region.

    Attributes:
        totals: reads totals; its door's SDK may retry, every write here sets what is to be.
        namespaces: tell of what kind a counter is.
    """

    totals: TotalsReader
    namespaces: Namespaces

    def add(self, group: str, counters: Iterable[str]) -> list[str]:
        """Put counters into a group, which is made if it is new.

        Two write units and a read unit for each; a read unit for the group, a write unit if it is
        new. Of a ranked group two write units and two read units more for each; a ledger counter
        that was never recorded gets its total, of zeros. Adding a member again is no error, and
        completes what a crash left half done.

        Returns:
            Those that were no members before; one whose answer was lost may be left out.

        Raises:
            AlreadyRanked: the group is ranked, and so is another one that has the counter.
            NotRanked, NoSuchCounter, NamespaceUnknown: the group is ranked, and the counter cannot
                be: it has bins; it is strict and does not exist; nobody knows its namespace.
            BadGroupName, BadCounterName: a name breaks the grammar.
        """
        keys.check_group(group)
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        if self._ranked(group) is None:
            self._make(group)
        with ThreadPoolExecutor(_WRITERS, "countledger-groups") as pool:
            added = list(pool.map(lambda counter: self._add(group, counter), names))
        return [name for name, new in zip(names, added, strict=True) if new]

    def remove(self, group: str, counters: Iterable[str]) -> list[str]:
        """Take counters out of a group: two write units and a read unit for each.

        Of a ranked group two write units more. What is no member is no error.

        Returns:
            Those that were members.

        Raises:
            NoSuchGroup: there is no group of that name.
        """
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        self.get(group)
        with ThreadPoolExecutor(_WRITERS, "countledger-groups") as pool:
            removed = list(pool.map(lambda counter: self._remove(group, counter), names))
        return [name for name, was in zip(names, removed, strict=True) if was]

    def get(self, group: str) -> Group:
        """A group: one read unit.

        Raises:
            NoSuchGroup: there is none of that name.
        """
        on = self._ranked(keys.check_group(group))
        if on is None:
            raise NoSuchGroup(f"there is no group {group!r}: `countledger group add` makes one")
        return Group(group, on)

    def of(self, counter: str) -> Iterator[str]:
        """The groups that a counter belongs to, by name: half a read unit for each 4 KB of them."""
        condition = Compare("member", "=", keys.check_counter(counter))
        for page in self._door.pages(Query(self._table, condition, index=_INDEX)):
            yield from (item["counter"].removeprefix(keys.GROUP_PREFIX) for item in page)

    def show(self, group: str, *, after: str | None = None) -> Iterator[Total]:
        """The totals of a group by name, read as they are asked for, a hundred at a time.

        Half a read unit for each 4 KB of memberships, and half of one for each total. No snapshot.

        Args:
            group: its name.
            after: the counter behind which to begin, as the last one that was shown.

        Raises:
            NoSuchGroup: there is none of that name.
        """
        self.get(group)
        return self._totals_of(group, None if after is None else keys.check_counter(after))

    def delete(self, group: str) -> int:
        """Delete a group, and no counter: as `remove` for each member; a write unit, 4 read units.

        What is added meanwhile stays, in a group of that name that is not ranked.

        Returns:
            How many members it had.

        Raises:
            NoSuchGroup: there is none of that name.
        """
        board = self._board(group)
        members = list(board.members())
        board.take_strays_off(members)
        removed = self.remove(group, members)
        self._door.delete(Delete(self._table, keys.group_key(group)))
        added = list(board.members())
        for counter in added:
            board.take_off(counter)
        if added:
            self._make(group)  # they were told to be in it
        return len(removed)

    def switch_ranking(self, group: str, *, on: bool) -> int:
        """Rank a group's totals, or do so no more: one write unit, and two for each member.

        While it is on, whatever moves a member's total costs two write units more. A counter can
        be ranked in one group (and in its namespace).

        Returns:
            How many members it has.

        Raises:
            NoSuchGroup: there is none of that name.
            AlreadyRanked, NotRanked, NoSuchCounter, NamespaceUnknown: as `add`; the ranking is off.
        """
        self.get(group)
        self._switch(group, on=on)
        for _ in range(_SWITCHES):
            members = self._sweep(group, on=on)
            now = self._ranked(group)
            if now is None or now == on:
                break
            # Somebody switched it the other way meanwhile; whoever ends last leaves it so.
            on = now
        return members

    def _sweep(self, group: str, *, on: bool) -> int:
        board, members = self._board(group), []
        try:
            for counter in board.members():
                members.append(counter)
                if on:
                    board.place(counter)
                else:
                    board.take_off(counter)
        except (Refused, BadInput):
            if on:
                self._switch(group, on=False)
                self._sweep(group, on=False)
            raise
        if not on:
            board.take_strays_off(members)
        return len(members)

    def top(self, group: str, limit: int = 10) -> list[Ranked]:
        """The highest totals of a group, equal ones by name.

        Of a ranked group: a read unit, half of one for each of the board's four partitions, and for
        each 4 KB more. Else all its totals are read, as by `show`.

        Args:
            group: its name.
            limit: how many, up to 1,000.

        Raises:
            NoSuchGroup: there is none of that name.
            BadSetting: so many cannot be asked for.
        """
        check_limit(limit)
        if self.get(group).ranked:
            return top_of(self._door, self._table, group_board(group), limit)
        found = self._totals_of(group, None)
        return ranked(((one.counter, one.total) for one in found), limit)

    def list(self) -> Iterator[Group]:
        """All groups by name: half a read unit for each 4 KB of them."""
        directory = Compare("counter", "=", keys.GROUP_PREFIX)
        for page in self._door.pages(Query(self._table, directory)):
            for item in page:
                check_format(item)
                name = require(item, "part", str).removeprefix(keys.GROUP_PREFIX)
                yield Group(name, bool(is_on(item)))

    @property
    def _door(self) -> Door:
        return self.totals.door

    @property
    def _table(self) -> str:
        return self.totals.table

    def _board(self, group: str) -> GroupBoard:
        return GroupBoard(self._door, self._table, self.namespaces, group)

    def _ranked(self, group: str) -> bool | None:
        item = self._door.get(self._table, keys.group_key(group), consistent=True)
        return None if item is None else bool(is_on(item))

    def _switch(self, group: str, *, on: bool) -> None:
        there = AllOf(Compare("counter", "=", keys.GROUP_PREFIX))
        write = Update(self._table, keys.group_key(group), (Assign("on", on),), there)
        try:
            self._door.update(write)
        except ConditionFailed:
            raise NoSuchGroup(f"group {group!r} was deleted meanwhile") from None

    def _make(self, group: str) -> None:
        self._wrote(Put(self._table, {**keys.group_key(group), "on": False}, Absent("part")))

    def _add(self, group: str, counter: str) -> bool:
        """The membership first, then the rule: whoever switches it on meanwhile sees the member."""
        key = keys.member_key(group, counter)
        new = self._wrote(Put(self._table, {**key, "member": counter}, Absent("part")))
        on = self._ranked(group)
        if on is None:
            self._make(group)  # it was deleted meanwhile
        elif on:
            try:
                self._board(group).place(counter)
            except (Refused, BadInput):
                if new:
                    self._door.delete(Delete(self._table, key))
                raise
            if not self._ranked(group):
                self._board(group).take_off(counter)
        return new

    def _remove(self, group: str, counter: str) -> bool:
        key = keys.member_key(group, counter)
        was = self._wrote(Delete(self._table, key, Compare("member", "=", counter)))
        if self._ranked(group):
            self._board(group).take_off(counter)
        return was

    def _wrote(self, write: Put | Delete) -> bool:
        try:
            if isinstance(write, Put):
                self._door.put(write)
            else:
                self._door.delete(write)
        except ConditionFailed:
            return False
        return True

    def _totals_of(self, group: str, after: str | None) -> Iterator[Total]:
        for names in self._board(group).pages(_PAGE, after):
            found = self.totals.read_many(names)
            yield from (found[name] for name in names)
