"""Tombstones: what stays for a while in the place of an item that was removed.

    `removed`       the id of the item that was removed
    `removal`       the id of the call that removed it: only that call says that it did
    `removed_at`    when, by the clock of who removed it
    `expires_at`    when DynamoDB may delete the tombstone

A request may arrive up to a quarter of an hour after its call has ended: a first attempt without an
answer, after which a second one succeeded. If its condition is that no item exists, the condition
holds again as soon as the item is removed. So a removal puts a tombstone in place of the item. It
costs what a deletion costs, and the late request is refused.

A new item takes the place of a tombstone
- if it was planned after the removal, by more than clocks may differ: this needs no further
  request, and no request from before the removal has such a time;
- or else by a second request, which names the tombstone that the first one met; but not if an
  attempt of the call got no clear answer: the new item may have been put, and removed by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.limits import SECOND_MS, SIGNED_REQUEST_LIFE_MS
from countledger.ledger.operations import Absent, AnyOf, Compare, Drop

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition

_ID: Final = "removed"
_BY: Final = "removal"
_AT: Final = "removed_at"
_EXPIRES: Final = "expires_at"
# Of the items that a read finds: none is a tombstone.
NOT_REMOVED: Final = Absent(_ID)
# For an update of a tombstone to an item: one that kept `expires_at` would be deleted.
NO_TOMBSTONE: Final = (Drop(_ID), Drop(_BY), Drop(_AT), Drop(_EXPIRES))


def tombstone(
    key: Item,
    removed: str,
    now_ms: int,
    clock_skew_ms: int,
    life_ms: int = SIGNED_REQUEST_LIFE_MS,
    *,
    removal: str | None = None,
) -> Item:
    """What takes the place of an item, whose id no other item at this key has.

    `clock_skew_ms`: how far clocks may differ, that of a sender from the service's when it signs,
    and this one from the service's when it deletes. `life_ms`: for how long a request that has left
    may still be applied. `removal`: the id of the call that removes the item, which no other call
    has; None: no call says that it did.
    """
    until_ms = now_ms + life_ms + 2 * clock_skew_ms
    expires_at = -(-until_ms // SECOND_MS)
    by = {} if removal is None else {_BY: removal}
    return {**key, _ID: removed, **by, _AT: now_ms, _EXPIRES: expires_at}


def removed_id(item: Item | None) -> str | None:
    """The id of the item in whose place a tombstone is; None: this is no tombstone."""
    return None if item is None else item.get(_ID)


def removal_id(item: Item | None) -> str | None:
    """The id of the call that left this tombstone; None: this is no tombstone."""
    return None if item is None else item.get(_BY)


def present(item: Item | None) -> Item | None:
    """The item, unless it is a tombstone."""
    return item if removed_id(item) is None else None


def was_removed(removed: str) -> Condition:
    """The tombstone of the item with this id is there."""
    return Compare(_ID, "=", removed)


def vacant(planned_ms: int, clock_skew_ms: int, met: str | None = None) -> Condition:
    """No item is there: nothing, a tombstone from before this write, or the one that was met.

    All attempts of a write name one `planned_ms`. `met`: the id that the tombstone names which an
    earlier request has met.
    """
    earlier = Compare(_AT, "<", planned_ms - clock_skew_ms)
    if met is None:
        return AnyOf(Absent("counter"), earlier)
    return AnyOf(Absent("counter"), earlier, was_removed(met))
