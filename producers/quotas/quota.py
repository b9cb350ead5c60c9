"""A quota as a value, and the limit of one counter under it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.amount import check_exact, to_text
from countledger.ledger.attributes import check_format, optional, require, require_amount
from countledger.ledger.calendar import Per, zone_of
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadQuota, BadSetting, CorruptItem, NoSuchQuota, shown
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    TICKET_LIFE_MS,
)
from countledger.producers.strict.definition import Method

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item

METHODS: Final = (Method.REQUEST_TOKEN, Method.MARKER)


@dataclass(frozen=True, slots=True)
class Quota:
    """The limit of every counter whose name begins with a prefix.

    Attributes:
        prefix: the beginning of the names, at least a namespace and its colon, as `llm:`.
        limit: how much one counter may use in one window.
        per: the kind of window.
        time_zone: whose hours, days and months they are.
        method: how `acquire` remembers a key: `request_token` for ten minutes, `marker` for a day.
        revision: grows by one with each change of a limit.
        incarnation: the identity of this quota, which no other quota ever has.
        overridden: whether counters may have limits of their own.
        updated_at: when it was last changed.
    """

    prefix: str
    limit: Amount
    per: Per
    time_zone: str
    method: Method
    revision: int
    incarnation: str
    overridden: bool
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class CounterLimit:
    """The limit of one counter, as a process has read it.

    Attributes:
        counter: whose.
        quota: that it belongs to.
        amount: how much it may use in one window.
        revision: of the quota, when this limit was valid.
        read_at_ms: when the reading of it began.
        own: whether it is the counter's own.
    """

    counter: str
    quota: Quota
    amount: Amount
    revision: int
    read_at_ms: int
    own: bool = False


def check_prefix(prefix: object) -> str:
    """The prefix, if counter names with a namespace can begin with it.

    Raises:
        BadQuota: naming the rule that it breaks.
    """
    if not isinstance(prefix, str) or ":" not in prefix:
        raise BadQuota(
            f"prefix {shown(prefix)} needs a namespace and its colon, as `llm:` or `llm:team-`"
        )
    namespace = prefix.partition(":")[0]
    namespace = keys.check_namespace(namespace)
    if prefix != f"{namespace}:":
        return keys.check_counter(prefix)
    return f"{namespace}:"


def check_amount(what: str, value: object, *, zero: bool = False) -> Amount:
    """An exact amount above 0, or from 0 on.

    Raises:
        BadQuota: naming the rule that it breaks.
    """
    amount = check_exact(what, value, BadQuota)
    if amount < 0 or (amount == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise BadQuota(f"{what} {to_text(amount)} must be {least}")
    return amount


def check_per(per: str) -> Per:
    """The kind of window of that name.

    Raises:
        BadQuota: no kind has that name.
    """
    if per not in list(Per):
        raise BadQuota(f"per {shown(per)} must be one of: {', '.join(Per)}")
    return Per(per)


def check_zone(name: str) -> str:
    """The name of a time zone of the IANA database.

    Raises:
        BadQuota: no zone has that name.
    """
    try:
        return zone_of(name).key
    except BadSetting as error:
        raise BadQuota(str(error)) from None


def check_method(method: str) -> Method:
    """The method of that name.

    Raises:
        BadQuota: quotas have no such method.
    """
    if method not in METHODS:
        raise BadQuota(f"method {shown(method)} of a quota must be one of: {', '.join(METHODS)}")
    return Method(method)


def of_counter(quotas: Iterable[Quota], counter: str) -> Quota:
    """The quota of a counter: the one with the longest prefix.

    Raises:
        NoSuchQuota: there is none.
    """
    fitting = [quota for quota in quotas if counter.startswith(quota.prefix)]
    if not fitting:
        raise NoSuchQuota(
            f"no quota is for counter {counter!r}: create one for its prefix, as "
            f"{keys.namespace_of(counter) + ':'!r}"
        )
    return max(fitting, key=lambda quota: len(quota.prefix))


def encode_quota(quota: Quota, created_ms: int) -> Item:
    """The item of a new quota."""
    return {
        **keys.quota_key(quota.prefix),
        "incarnation": quota.incarnation,
        "limit": quota.limit,
        "per": str(quota.per),
        "time_zone": quota.time_zone,
        "method": str(quota.method),
        "revision": quota.revision,
        "updated_at": created_ms,
    }


def decode_quota(item: Item) -> Quota:
    """The quota that an item describes.

    Raises:
        CorruptItem: it cannot be read.
    """
    check_format(item)
    try:
        return Quota(
            prefix=require(item, "part", str),
            limit=require_amount(item, "limit"),
            per=check_per(require(item, "per", str)),
            time_zone=check_zone(require(item, "time_zone", str)),
            method=check_method(require(item, "method", str)),
            revision=require(item, "revision", int),
            incarnation=require(item, "incarnation", str),
            overridden=optional(item, "overridden", int) is not None,
            updated_at=to_datetime(require(item, "updated_at", int)),
        )
    except BadQuota as error:
        raise CorruptItem(f"quota {item.get('part')!r}: {error}", item) from None


def limit_of(quota: Quota, own: Item | None, counter: str, read_at_ms: int) -> CounterLimit | None:
    """The limit of a counter; None: the quota must be read again.

    The quota must have been read before the counter's own limit: then the limit is that of the
    later one of the two revisions. Only a removal that is newer than the quota leaves open what the
    quota's limit was at that revision.

    Args:
        quota: its quota.
        own: the item of the counter's own limit; None: it never had one.
        counter: its name.
        read_at_ms: when the reading of both began.
    """
    revision = 0 if own is None else require(own, "revision", int)
    if own is not None and "limit" in own:
        revision = max(quota.revision, revision)
        amount = require_amount(own, "limit")
        return CounterLimit(counter, quota, amount, revision, read_at_ms, own=True)
    if revision > quota.revision:
        return None
    return CounterLimit(counter, quota, quota.limit, quota.revision, read_at_ms)


def tickets_until_ms(window_end_ms: int) -> int:
    """Until when a reservation in a window can be committed or released."""
    return window_end_ms + TICKET_LIFE_MS


def marker_expires_at(window_end_ms: int) -> int:
    """When TTL may remove a marker, in seconds: after its tickets, and any late request."""
    spare_ms = SIGNED_REQUEST_LIFE_MS + CLOCK_SKEW_DEFAULT_MS
    return -(-(tickets_until_ms(window_end_ms) + spare_ms) // SECOND_MS)


def window_expires_at(window_end_ms: int) -> int:
    """When TTL may remove the counter of a window, in seconds: after every marker in it."""
    return marker_expires_at(window_end_ms) + TICKET_LIFE_MS // SECOND_MS
