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
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from countledger.consumers.memberships import member_of
from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Done,
    Recheck,
    Send,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.errors import (
    AlreadyRanked,
    BadInput,
    ConditionFailed,
    CountledgerError,
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
    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Update

_PAGE: Final = 1_000
_TRIES: Final = 5  # how often others may write a membership or the group meanwhile
_ADVICE: Final = "the same call again completes it"


class _PlannedPlace(NamedTuple):
    """What is written next: a change without its id, after the total that was seen."""

    seen: Item | None
    change: Update


@dataclass(frozen=True, slots=True)
class GroupBoard:
    items: GroupItems
    group: str

    def members(self) -> Iterator[str]:
        """All members by name, strongly consistent: a read unit for each 4 KB of memberships."""
        for page in self.pages(None, None, consistent=True):
            yield from page

    def pages(
        self, size: int | None, after: str | None, *, consistent: bool = False
    ) -> Iterator[list[str]]:
        mine = Compare("counter", "=", keys.GROUP_PREFIX + self.group)
        read = Query(
            self.connection.counters,
            AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX)),
            consistent=consistent,
            page_size=size,
            after=None if after is None else keys.member_key(self.group, after),
        )
        for page in self.connection.retrying.pages(read):
            yield [member_of(item) for item in filter(present, page)]

    def place(self, counter: str) -> None:
        """Put a member of the ranked group on the board: two write units and two read units.

        A write unit, if it is there already; one more, if it was on a board before. A read unit
        more for a strict counter or a sequence.

        `AlreadyRanked`: it is on the board of another group. `NotRanked`: it has bins, so it has no
        single total; or it is over regions. `NamespaceUnknown`: its kind is unknown.
        """
        total = None  # most counters were never on a board; the request meets the others
        if self._kind(counter) is not Kind.LEDGER:
            # It may be deleted, and created again, while a request is late: its incarnation counts.
            total = self._total(counter)
        self._write_until_agreed(counter, total, on=True)

    def take_off(self, counter: str, *, still_member: bool = False, mark: bool = False) -> None:
        """Take a counter off the board: a read unit; two write and a read unit more if it is there.

        A member of the ranked group is put back, which a read unit more decides; errors as of
        `place`.

        `still_member` says whether it is one, as far as the caller knows. The call stops at the
        first read that says no, so the likelier no is read first: the group of a member, else the
        membership.

        With `mark` the id of this removal is written also if it has no place, for a write and a
        read unit more: a call that ended `Unclear` may have sent a placement that is under way.
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
        """Take members and strays off, calling back after each member; the number of members."""
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
            for page in self.connection.retrying.pages(
                top_query(self.connection.counters, board, bucket, _PAGE)
            ):
                yield from {item["counter"] for item in page} - known

    @property
    def connection(self) -> Connection:
        return self.items.connection

    def _get(self, key: Key) -> Item | None:
        return self.connection.retrying.get(self.connection.counters, key, consistent=True)

    def _total(self, counter: str) -> Item | None:
        return self._get(keys.total_key(counter))

    def _kind(self, counter: str) -> Kind:
        """Of a namespace that is read once in a process."""
        return Namespaces(self.connection).get(keys.namespace_of(counter)).kind

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
        change = self.change(counter, seen, on=on, mark=mark)
        if change is None:
            return None
        writing = _PlaceWriting(self, counter, on, mark, self.connection.ids.unique_id())
        return self.connection.run(writing.steps(_PlannedPlace(seen, change)))

    def change(self, counter: str, seen: Item | None, *, on: bool, mark: bool) -> Update | None:
        """What to write to a total, as it was seen; None: nothing."""
        board = group_board(self.group)
        if is_on_board(board, seen):
            return None if on else unrank_of(self.connection.counters, board, counter)
        if on:
            return self._placement(counter, seen)
        if not mark or board.attribute in (seen or {}):
            return None  # it is on another board: that placement refuses the earlier ones
        kind = self._kind(counter)
        if kind is Kind.STRICT_REGIONS or (seen is None and kind is not Kind.LEDGER):
            return None  # no placement of it is ever sent
        return no_place_of(self.connection.counters, board, counter, may_be_made=seen is None)

    def is_final(self, before: Item | None, total: Item | None) -> bool:
        """Whether no attempt of a placement that was refused can be applied later.

        The totals are the one that the placement named, and the one that refused it.
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
            self.refuse(counter, seen)
        board = group_board(self.group)
        return place_of(self.connection.counters, board, counter, may_be_made=kind is Kind.LEDGER)

    def _is_wanted(self, counter: str, *, group_first: bool) -> bool:
        """Whether it is a member of the ranked group: a read unit, or two."""
        if group_first:
            return self._is_ranked() and self.is_member(counter)
        return self.is_member(counter) and self._is_ranked()

    def is_member(self, counter: str) -> bool:
        """Whether a counter is a member: one read unit."""
        key = keys.member_key(self.group, counter)
        return present(self._get(key)) is not None

    def _is_ranked(self) -> bool:
        return bool(self.items.ranked(self.group))

    def refuse(self, counter: str, item: Item | None) -> NoReturn:
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


@dataclass(frozen=True, slots=True)
class _PlaceWriting:
    """One write of a place, with an id of its own; `mark` as of `GroupBoard.take_off`."""

    board: GroupBoard
    counter: str
    on: bool
    mark: bool
    place: str

    def steps(self, first: _PlannedPlace) -> Steps[Item | None]:
        """Write it; again after the place that another call has written meanwhile."""
        attempts = self.board.connection.attempts()
        return attempt(first, self._request, self._interpret, self._give_up, attempts)

    def _request(self, plan: _PlannedPlace) -> Send:
        return Send(after_place(plan.change, plan.seen, self.place))

    def _interpret(self, reply: Reply[_PlannedPlace]) -> Verdict[_PlannedPlace, Item | None]:
        match reply.answer:
            case ConditionFailed(item=found):
                return self._met(reply.state, found)
            case CountledgerError():
                return otherwise(reply)
        board = group_board(self.board.group)
        bucket = board.bucket_of(self.counter) if self.on else ""
        return Done({board.attribute: bucket, PLACE: self.place})

    def _met(self, plan: _PlannedPlace, found: Item | None) -> Verdict[_PlannedPlace, Item | None]:
        """Decide again on what is there.

        It is safe also if an attempt was applied before that: the call looks at membership and
        group after its last write.
        """
        if (found or {}).get(PLACE) == self.place:
            return Done(found)  # by an attempt that got no answer
        if self.on and self.board.is_final(plan.seen, found):
            self.board.refuse(self.counter, found)
        change = self.board.change(self.counter, found, on=self.on, mark=self.mark)
        if change is None:
            return Done(None)
        again = _PlannedPlace(found, change)
        if plan.seen is None:  # the first placement expects no place, without a read
            return Recheck(again)
        return Again(again, CountledgerError("other calls place it as well"))

    def _give_up(self, exhausted: Exhausted[_PlannedPlace]) -> NoReturn:
        what = f"to place {self.counter!r} on the board of group {self.board.group!r}"
        raise_exhausted(exhausted, what, _ADVICE)
