"""Groups: a counter joins and leaves, the group is ranked or not, deleted, and made again.

The state of the model is whether the group exists, whether it is ranked, whether the counter is a
member, and whether a call that ended without a clear answer may have left a part of it. Else the
counter is on the board if it is a member and the group is ranked, and only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchGroup
from countledger.ledger.indexes import group_board, is_on, is_on_board
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.tombstones import present
from tests.exploring.linear import Effect, Masked, certainty_of_several, is_number, never
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from countledger.ledger.attributes import Item
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

_NAME: Final = "n:x"
_GROUP: Final = "g"

_BOARD: Final = group_board(_GROUP)
_ELSEWHERE: Final = frozenset(_BOARD.buckets) - {_BOARD.bucket_of(_NAME)}

PARTLY: Final = Masked(
    "a part of a call",
    "groups.md",
    "A call that ends early (its process dies, or it raises `Unclear` or `Throttled`) may have "
    "been carried out in part",
)
MISSED: Final = Masked(
    "a member whose answer was lost",
    "groups.md",
    "A member whose first attempt got no answer may be missing in what `add` or `delete` returns.",
)
STAYS: Final = Masked(
    "added while its group is deleted",
    "groups.md",
    "What another call adds while a group is deleted stays, in a group of that name that is not "
    "ranked; meanwhile a call may report that the group does not exist.",
)
EMPTIED: Final = Masked(
    "added and removed while its group is deleted",
    "groups.md",
    "If it is removed again before the deletion has ended, the group is deleted as well.",
)
DELETED_TWICE: Final = Masked(
    "deleted by two calls",
    "groups.md",
    "Calls that delete the same group at the same time all succeed; each member is counted by one "
    "of them.",
)
LEFT_EMPTY: Final = Masked(
    "made again while two calls delete it",
    "groups.md",
    "If another call adds meanwhile, a group without members may stay.",
)


class _Group(NamedTuple):
    """The state of the model.

    Attributes:
        exists: whether the group does.
        ranked: whether it is.
        member: whether the counter is one.
        loose: whether its place on the board may be anything.
        going: whether a deletion under way deletes it, unless it finds a member.
    """

    exists: bool = False
    ranked: bool = False
    member: bool = False
    loose: bool = False
    going: bool = False


def _model(group: _Group, call: str) -> Iterator[Effect]:
    if group.exists and (group.going or not group.ranked) and call != "add":
        yield Effect(NoSuchGroup, group, STAYS)  # it is about to be made again
    if call == "add":
        yield from _add(group)
    elif not group.exists:
        yield from _no_group(group, call)
    elif call == "remove":
        yield from _remove(group)
    elif call == "delete":
        yield from _delete(group)
    else:
        after = group._replace(ranked=call == "rank")
        yield Effect(is_number, after)
        yield Effect(never, after._replace(loose=True), PARTLY)


def _no_group(group: _Group, call: str) -> Iterator[Effect]:
    yield Effect(NoSuchGroup, group)
    if call == "remove":
        yield Effect((), group)  # deleted since the call read it
        if group.member:  # left without its group
            yield Effect((_NAME,), group._replace(member=False), PARTLY)
    elif call == "delete":
        yield Effect(0, group, DELETED_TWICE)


def _remove(group: _Group) -> Iterator[Effect]:
    after = group._replace(member=False)
    yield Effect((_NAME,) if group.member else (), after)
    if group.going:
        yield Effect((_NAME,) if group.member else (), _Group(loose=group.loose), EMPTIED)
        yield Effect(never, _Group(loose=True), PARTLY)
    yield Effect(never, after._replace(loose=True), PARTLY)


def _add(group: _Group) -> Iterator[Effect]:
    after = group._replace(exists=True, member=True)
    yield Effect(() if group.member else (_NAME,), after)
    if not group.member:
        yield Effect((), after, MISSED)
    if group.loose:
        yield Effect((_NAME,), group._replace(member=True), PARTLY)  # the group goes after that
    yield Effect(never, group._replace(exists=True), PARTLY)
    yield Effect(never, group._replace(member=True, loose=True), PARTLY)
    yield Effect(never, after._replace(loose=True), PARTLY)


def _delete(group: _Group) -> Iterator[Effect]:
    yield Effect(int(group.member), _Group(loose=group.loose))
    for ranked in {group.ranked, False}:
        going = _Group(exists=True, ranked=ranked, loose=group.loose, going=True)
        yield Effect(int(group.member), going, EMPTIED)
        if group.member:
            yield Effect(0, going, MISSED)
    if group.member:
        yield Effect(0, _Group(loose=group.loose), MISSED)
        yield Effect(0, _Group(exists=True, member=True, loose=group.loose), STAYS)
    if group.going:
        yield Effect(int(group.member), _Group(exists=True, loose=group.loose), LEFT_EMPTY)
    for exists in (True, False):
        for member in (True, False):
            left = group._replace(exists=exists, member=member and group.member, loose=True)
            yield Effect(never, left._replace(ranked=exists and group.ranked), PARTLY)


def _agrees(group: _Group, contents: Contents) -> bool:
    def item(key: Item) -> Item | None:
        found = contents.tables[COUNTERS].get((key["counter"], key["part"]))
        return None if found is None else present(dict(found))

    found, total = item(keys.group_key(_GROUP)), item(keys.total_key(_NAME))
    is_member = item(keys.member_key(_GROUP, _NAME)) is not None
    if (found is not None, bool(is_on(found)), is_member) != group[:3]:
        return False
    if group.going and not (group.loose or group.member):
        return False  # every deletion has ended, so one has deleted it
    return group.loose or is_on_board(group_board(_GROUP), total) is (group.ranked and is_member)


def _begun(ledger: CountLedger, *, ranked: bool, member: bool) -> None:
    ledger.record(_NAME, 5)
    ledger.groups.add(_GROUP, [_NAME] if member else [])
    if ranked:
        ledger.groups.switch_ranking(_GROUP, on=True)


def _is_elsewhere(read: str) -> bool:
    """Whether it is a query of a partition of the board in which the counter never is."""
    return any(repr(bucket) in read for bucket in _ELSEWHERE)


# Each has a million states with a fault.
_LARGEST: Final = [(("delete",), one) for one in (("add", "remove"), ("remove", "add"))]


def _faults(scripts: tuple[Script, ...]) -> int | None:
    """The largest pairs, and two calls beside two others: without a fault.

    Of three calls at once none is a deletion, and no two are the same.
    """
    if len(scripts) == 3 and (("delete",) in scripts or len(set(scripts)) < 3):
        return None
    is_large = sum(map(len, scripts)) > 3 or scripts in _LARGEST
    return 0 if is_large else fewer_beside_more(scripts)


GROUPS: Final = Capability(
    name="groups",
    calls={
        "add": lambda ledger: tuple(ledger.groups.add(_GROUP, [_NAME])),
        "remove": lambda ledger: tuple(ledger.groups.remove(_GROUP, [_NAME])),
        "delete": lambda ledger: ledger.groups.delete(_GROUP),
        "rank": lambda ledger: ledger.groups.switch_ranking(_GROUP, on=True),
        "unrank": lambda ledger: ledger.groups.switch_ranking(_GROUP, on=False),
    },
    # In this order the part of the cases that `make test` explores is of small ones.
    scripts=(
        ("add",),
        ("rank",),
        ("unrank",),
        ("delete",),
        ("delete", "add"),
        ("remove",),
        ("add", "remove"),
        ("remove", "add"),
    ),
    starts={
        "ranked, a member": Beginnings(
            lambda ledger: _begun(ledger, ranked=True, member=True), _Group(True, True, True)
        ),
        "ranked": Beginnings(
            lambda ledger: _begun(ledger, ranked=True, member=False), _Group(True, True)
        ),
        "a member": Beginnings(
            lambda ledger: _begun(ledger, ranked=False, member=True), _Group(True, False, True)
        ),
    },
    model=_model,
    agrees=_agrees,
    masks=(PARTLY, MISSED, STAYS, EMPTIED, DELETED_TWICE, LEFT_EMPTY),
    certainty=certainty_of_several,
    prepare=lambda ledger: ledger.namespaces.get("n"),
    # The calls know a minute, and the quarter of an hour after which a tombstone may expire.
    bounds=Bounds(jumps_ms=(61 * MINUTE_MS,), alike=True, quiet=_is_elsewhere),
    faults=_faults,
    alone_jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS),
)
