"""Memberships of counters in groups.

    (`group#<group>`, `member#<counter>`)    `member` (the counter, the key of the index `members`),
                                             and `at`, the time of the last `join`,
                                             which is the `add` of a group

A membership is a record (see `ledger/records.py`). A `join` writes it also for a counter that is a
member already, so the clean-up of a membership that was found earlier (`end`) does not remove it.
The tombstone of a removed membership has no `member`, so it is in no index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.errors import ServiceFailed
from countledger.ledger.limits import MEMBERSHIP_LEAVES_MS
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.records import NotRead, Records, Replacement, write_of
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.records import Decide, RecordWritten, Seen

_INDEX: Final = "members"


def member_of(membership: Item) -> str:
    return str(membership["part"]).removeprefix(keys.MEMBER_PREFIX)


def _group_of(membership: Item) -> str:
    return str(membership["counter"]).removeprefix(keys.GROUP_PREFIX)


@dataclass(frozen=True, slots=True)
class Membership:
    """That a counter belongs to a group; its record, as it was read, is `item`.

    `at_ms` is the time of the last `join`, by the clock of its caller.
    """

    group: str
    counter: str
    at_ms: int
    item: Item = field(repr=False)


@dataclass(frozen=True, slots=True)
class Memberships:
    connection: Connection

    def groups_of(self, counter: str) -> Iterator[str]:
        """The groups of a counter, by name: half a read unit for each 4 KB of memberships."""
        counter = keys.check_counter(counter)
        condition = Compare("member", "=", counter)
        for page in self.connection.retrying.pages(
            Query(self.connection.counters, condition, index=_INDEX)
        ):
            yield from map(_group_of, page)

    def of(self, counter: str) -> list[Membership]:
        """The memberships of a counter: as `groups_of`, and a read unit for each."""
        wanted = [keys.member_key(group, counter) for group in self.groups_of(counter)]
        found = self.connection.retrying.get_many(self.connection.counters, wanted, consistent=True)
        return [_decode(item) for item in filter(present, found)]

    def in_group(self, group: str) -> Iterator[Item]:
        """The memberships of a group, strongly consistent: a read unit for each 4 KB."""
        mine = Compare("counter", "=", keys.GROUP_PREFIX + group)
        condition = AllOf(mine, BeginsWith("part", keys.MEMBER_PREFIX))
        for page in self.connection.retrying.pages(
            Query(self.connection.counters, condition, consistent=True)
        ):
            yield from filter(present, page)

    def join(self, group: str, counter: str) -> tuple[Item, bool]:
        """Write a membership, and whether the counter was no member before.

        One write unit; two if the counter is a member, or was just removed. `ServiceFailed`: the
        request would leave so late that a clean-up could remove the membership.
        """
        at_ms = self.connection.clock.now_ms()
        item = {**keys.member_key(group, counter), "member": counter, "at": at_ms}
        made = Replacement(item, before_send=partial(self._refuse_if_late, at_ms))
        written = self._write(item, lambda _: made, NotRead.EXPECT_NOTHING, repeatable=True)
        return written.item or {}, present(written.before) is None

    def leave(self, group: str, counter: str) -> bool:
        """Remove a membership, if there is one: one read unit and one write unit."""
        key = keys.member_key(group, counter)
        return self._write(key, _removal, NotRead.READ_IT).changed

    def end(self, seen: Item) -> bool:
        """Remove the membership that was read, but no later one: one write unit.

        False: it was gone.
        """
        last = write_of(seen)

        def decide(there: Item | None) -> Replacement | None:
            return _removal(there) if there and write_of(there) == last else None

        return self._write(seen, decide, seen, repeatable=True).changed

    def _write(
        self, membership: Item, decide: Decide, seen: Seen, *, repeatable: bool = False
    ) -> RecordWritten:
        connection, counter = self.connection, member_of(membership)
        kind = f"the membership in {_group_of(membership)!r} of counter"
        records = Records(connection, connection.counters, kind)
        key = {name: membership[name] for name in ("counter", "part")}
        steps = records.write(counter, key, decide, seen=seen, repeatable=repeatable)
        return connection.run(steps)

    def _refuse_if_late(self, at_ms: int) -> None:
        if self.connection.clock.now_ms() - at_ms > MEMBERSHIP_LEAVES_MS:
            raise ServiceFailed("this process was suspended; add the counter to the group again")


def _removal(there: Item | None) -> Replacement | None:
    return Replacement(None) if there else None


def _decode(item: Item) -> Membership:
    check_format(item)
    return Membership(
        require(item, "counter", str).removeprefix(keys.GROUP_PREFIX),
        require(item, "member", str),
        require(item, "at", int),
        item,
    )
