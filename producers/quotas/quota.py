"""A quota as a value, and the limit of one counter under it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import Amount, check_exact, to_text
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

    from countledger.ledger.attributes import Item
    from countledger.ledger.calendar import Window


METHODS: Final = (Method.REQUEST_TOKEN, Method.MARKER)


@dataclass(frozen=True, slots=True)
class Quota:
    """The limit of every counter whose name begins with a prefix.

    Attributes:
        prefix: the beginning of the names, at least a namespace and its colon, as `llm:`.
        limit: how much one counter may use in one window.
        time_zone: whose hours, days and months they are.
        method: how `acquire` remembers a key: `request_token` for ten minutes, `marker` for a day.
        revision: grows by one with each change of a limit.
        incarnation: the identity of this quota, which no other quota ever has.
        overridden: whether counters may have limits of their own.
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
    """The limit of one counter for a window, as a process has read it.

    `revision`: that of the quota when this limit was valid.
    """

    counter: str
    quota: Quota
    amount: Amount
    revision: int
    read_at_ms: int
    own: bool = False


def check_prefix(prefix: object) -> str:
    """The prefix, if counter names with a namespace can begin with it."""
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
    """An exact amount above 0, or from 0 on."""
    amount = check_exact(what, value, BadQuota)
    if amount < 0 or (amount == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise BadQuota(f"{what} {to_text(amount)} must be {least}")
    return amount


def check_per(per: str) -> Per:
    if per not in list(Per):
        raise BadQuota(f"per {shown(per)} must be one of: {', '.join(Per)}")
    return Per(per)


def check_zone(name: str) -> str:
    """The name of a time zone of the IANA database."""
    try:
        return zone_of(name).key
    except BadSetting as error:
        raise BadQuota(str(error)) from None


def check_method(method: str) -> Method:
    if method not in METHODS:
        raise BadQuota(f"method {shown(method)} of a quota must be one of: {', '.join(METHODS)}")
    return Method(method)


def of_counter(quotas: Iterable[Quota], counter: str) -> Quota:
    """The quota of a counter: the one with the longest prefix."""
    fitting = [quota for quota in quotas if counter.startswith(quota.prefix)]
    if not fitting:
        raise NoSuchQuota(
            f"no quota is for counter {counter!r}: create one for its prefix, as "
            f"{keys.namespace_of(counter) + ':'!r}"
        )
    return max(fitting, key=lambda quota: len(quota.prefix))


def decode_quota(item: Item) -> Quota:
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


def decode_override(item: Item) -> tuple[str, Amount]:
    """A counter and its own limit."""
    check_format(item)
    return require(item, "part", str), require_amount(item, "limit")


def limit_of(quota: Quota, own: Item | None, counter: str, read_at_ms: int) -> CounterLimit | None:
    """The limit of a counter; None: the quota must be read again.

    The quota must have been read before the counter's own limit: then the limit is that of the
    later one of the two revisions. Only a removal that is newer than the quota leaves open what the
    quota's limit was at that revision.

    `own`: the item of the counter's own limit; None: it never had one. `read_at_ms`: when the
    reading of both began.
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


# What the calls of a quota answer. Pure.


@dataclass(frozen=True, slots=True)
class Ticket:
    """A reservation. Another process may commit or release it.

    Attributes:
        counter: its counter.
        amount: what was reserved.
        incarnation: of the quota.
        window: the name of the window that it is counted in.
        key_id: where its marker is stored.
        reservation: the identity of the reservation.
        until: until when it can be committed or released.
    """

    counter: str
    amount: Amount
    incarnation: str
    window: str
    key_id: str
    reservation: str
    until: datetime

    @property
    def marker_key(self) -> dict[str, str]:
        """Where it is stored."""
        return keys.quota_marker_key(self.incarnation, self.counter, self.key_id)

    @property
    def window_key(self) -> dict[str, str]:
        """Where it is counted."""
        return keys.quota_window_key(self.incarnation, self.counter, self.window)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The amount is counted, and within the limit.

    Attributes:
        counter: its counter.
        amount: what was acquired or reserved.
        window: the name of the window that it is counted in, as `2026-11-22`.
        remaining: what the window has left; None if it could not be read.
        resets_at: when the window ends.
        duplicate: whether it was counted before, by an earlier call under the same key. None: by
            this call or an earlier one, which method `request_token` cannot distinguish after an
            attempt without an answer. In any case it is counted once.
        ticket: of a reservation; `commit` and `release` take it, or this outcome.
    """

    counter: str
    amount: Amount
    window: str
    remaining: Amount | None
    resets_at: datetime
    duplicate: bool | None = False
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The limit does not allow the amount; nothing is counted.

    Attributes:
        counter: its counter.
        amount: what was wanted.
        limit: how much the counter may use in one window.
        used: what the window has used; None where the amount alone is above the limit.
        resets_at: when the window ends.
        retry_after: after how long the next window begins, in whole seconds, rounded up; earlier
            only if a reservation is released, or committed with less. None: the amount is above the
            limit of any window, and no time helps.
    """

    counter: str
    amount: Amount
    limit: Amount
    used: Amount | None
    resets_at: datetime
    retry_after: timedelta | None

    @property
    def reason(self) -> str:
        """Why, in words."""
        wanted, limit = to_text(self.amount), to_text(self.limit)
        if self.retry_after is None:
            return (
                f"{self.counter!r}: {wanted} is more than the limit of {limit} for one window: it "
                "is never admitted, however long you wait; take less, or raise the limit"
            )
        used = "?" if self.used is None else to_text(self.used)
        return (
            f"{self.counter!r}: {used} of {limit} are used, {wanted} more are too many; the next "
            f"window begins in {int(self.retry_after.total_seconds())} s, at "
            f"{self.resets_at.isoformat()}"
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The actual amount of a reservation is counted, in the window of the reservation.

    Attributes:
        counter: its counter.
        actual: what is counted now.
        overrun: by how much that is above what was reserved; 0 if it is not.
        duplicate: whether an earlier call has committed the same amount.
    """

    counter: str
    actual: Amount
    overrun: Amount
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """A counter of a quota, in its present window.

    Attributes:
        counter: its name.
        prefix: of its quota.
        limit: how much it may use in one window.
        overridden: whether that limit is its own.
        used: what is counted, reservations included.
        overrun: by how much commits were above their reservations, in total.
        remaining: what is left; 0 if more than the limit is used.
        window: the name of the window.
        resets_at: when the window ends.
    """

    counter: str
    prefix: str
    limit: Amount
    overridden: bool
    used: Amount
    overrun: Amount
    remaining: Amount
    window: str
    resets_at: datetime


def retry_after(now_ms: int, end_ms: int) -> timedelta:
    """How long until a window ends, in whole seconds, rounded up."""
    return timedelta(seconds=max(0, -(-(end_ms - now_ms) // SECOND_MS)))


def denied(
    limit: CounterLimit, amount: Amount, used: Amount | None, window: Window, now: int
) -> Denied:
    """The outcome for an amount that does not fit, at a time in milliseconds."""
    wait = None if amount > limit.amount else retry_after(now, window.end_ms)
    ends = to_datetime(window.end_ms)
    return Denied(limit.counter, amount, limit.amount, used, ends, wait)


def left_of(limit: Amount, used: Amount) -> Amount:
    """What remains; 0 if more is used."""
    return max(0, amounts.add(limit, amounts.negated(used)))
