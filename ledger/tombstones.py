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

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import ConditionFailed, Throttled, Unclear
from countledger.ledger.limits import SECOND_MS, SIGNED_REQUEST_LIFE_MS
from countledger.ledger.operations import Absent, AnyOf, Compare, Drop

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition, Put

_ID: Final = "removed"
_BY: Final = "removal"
_AT: Final = "removed_at"
_EXPIRES: Final = "expires_at"
_TRIES: Final = 5  # how often the item may be created and removed by others while one is put
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
    """What takes the place of an item.

    Args:
        key: of the item.
        removed: its id, which no other item at this key has.
        now_ms: the time.
        clock_skew_ms: how far clocks may differ: that of a sender from the service's when it signs,
            and this one from the service's when it deletes.
        life_ms: for how long a request that has left may still be applied.
        removal: the id of the call that removes it, which no other call has; None: no call says
            that it did.
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

    Args:
        planned_ms: when the write was planned; all its attempts name this time.
        clock_skew_ms: how far clocks may differ.
        met: the id that the tombstone names which an earlier request has met.
    """
    earlier = Compare(_AT, "<", planned_ms - clock_skew_ms)
    if met is None:
        return AnyOf(Absent("counter"), earlier)
    return AnyOf(Absent("counter"), earlier, was_removed(met))


def put_if_vacant(
    dynamo: DynamoClient, put: Put, planned_ms: int, clock_skew_ms: int
) -> Item | None:
    """Put an item: one write unit; two in place of a tombstone that is as new as the write.

    Args:
        dynamo: a DynamoDB client; its SDK may retry.
        put: the write, without a condition. Its item has an `id` of its own.
        planned_ms: when the write was planned.
        clock_skew_ms: how far clocks may differ.

    Returns:
        None, or the item with another id that is there instead: nothing was put.

    Raises:
        Throttled: others created and removed the item each time.
        Unclear: an attempt got no clear answer, and another call has removed the item since.
    """
    own, met, maybe_applied = put.item["id"], None, False
    what = put.item.get("part") or put.item.get("entry")
    for _ in range(_TRIES):
        try:
            dynamo.put(replace(put, condition=vacant(planned_ms, clock_skew_ms, met)))
        except ConditionFailed as failed:
            maybe_applied = maybe_applied or failed.maybe_applied
            found, met = failed.item or {}, removed_id(failed.item)
            if own in (met, found.get("id")):
                return None  # an attempt without an answer has put it; it may be removed since
            if met is None:
                return found
            if maybe_applied:
                raise Unclear(
                    f"item {what!r} was changed by others, after an attempt to create "
                    "it that got no answer: read it, and decide again"
                ) from None
        else:
            return None
    raise Throttled(f"item {what!r} kept being created and removed; try again")


def removed_by(dynamo: DynamoClient, put: Put, removal: str) -> bool:
    """Put a tombstone: whether this call removed the item, also by an attempt without an answer."""
    try:
        dynamo.put(put)
    except ConditionFailed as failed:
        return removal_id(failed.item) == removal
    return True
