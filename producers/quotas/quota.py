"""A quota as a value, and the limit of one counter under it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

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
    """The limit of every counter whose name begins with a prefix, for one kind of window.

    Prefix and kind of window identify it: a counter may have the limit of a day and of a month.

    Attributes:
        prefix: the beginning of the names, at least a namespace and its colon, as `llm:`.
        limit: how much one counter may use in one window.
        per: the kind of window.
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

    @property
    def name(self) -> str:
        """What identifies it, in words."""
        return name_of(self.prefix, self.per)


def name_of(prefix: str, per: str) -> str:
    """What identifies a quota, in words: `llm: per day`."""
    return f"{prefix} per {per}"


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


def check_counters(given: object) -> tuple[str, ...]:
    """One counter or several, each once, sorted."""
    if isinstance(given, str):
        return (keys.check_counter(given),)
    if not isinstance(given, list | tuple) or not given:
        raise BadQuota(f"counter {shown(given)} must be a name or a list of names")
    counters = sorted(keys.check_counter(one) for one in given)
    for first, second in pairwise(counters):
        if first == second:
            raise BadQuota(f"counter {first!r} is named twice: an amount is counted once for each")
    return tuple(counters)


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


def of_counter(quotas: Iterable[Quota], counter: str) -> list[Quota]:
    """The quotas of a counter, the shortest window first: for each kind the longest prefix."""
    found: dict[Per, Quota] = {}
    for quota in sorted(quotas, key=lambda one: len(one.prefix)):
        if counter.startswith(quota.prefix):
            found[quota.per] = quota
    if not found:
        raise NoSuchQuota(
            f"no quota is for counter {counter!r}: create one for its prefix, as "
            f"{keys.namespace_of(counter) + ':'!r}"
        )
    return [found[per] for per in Per if per in found]


def decode_quota(item: Item) -> Quota:
    check_format(item)
    try:
        return Quota(
            prefix=require(item, "prefix", str),
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


class CountedIn(NamedTuple):
    """Where an amount is counted: a window of a counter under a quota, which is named as then."""

    counter: str
    prefix: str
    per: str
    incarnation: str
    window: str
    end_ms: int

    @property
    def key(self) -> dict[str, str]:
        """Where what the window has used is stored."""
        return keys.quota_window_key(self.incarnation, self.counter, self.window)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A reservation. Another process may commit or release it.

    Attributes:
        amount: what was reserved.
        counted_in: the windows of its counters that it is counted in.
        key_id: where its marker is stored.
        reservation: the identity of the reservation.
        until: until when it can be committed or released.
    """

    amount: Amount
    counted_in: tuple[CountedIn, ...]
    key_id: str
    reservation: str
    until: datetime

    @property
    def counters(self) -> tuple[str, ...]:
        """Its counters, sorted."""
        return counters_in(self.counted_in)

    @property
    def counter(self) -> str:
        """The first of its counters."""
        return self.counters[0]

    @property
    def marker_key(self) -> dict[str, str]:
        """Where it is stored."""
        return keys.quota_marker_key(self.counter, self.key_id)


def counters_in(counted_in: Iterable[CountedIn]) -> tuple[str, ...]:
    """The counters of windows, sorted."""
    return tuple(sorted({one.counter for one in counted_in}))


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit of one counter after an amount was counted.

    Attributes:
        counter: its counter.
        prefix: of its quota.
        per: the kind of window.
        window: the name of the window that the amount is counted in, as `2026-11-22`.
        limit: how much the counter may use in it; None if that is not known.
        remaining: what is left; None if it could not be read.
        resets_at: when the window ends.
    """

    counter: str
    prefix: str
    per: str
    window: str
    limit: Amount | None
    remaining: Amount | None
    resets_at: datetime


@dataclass(frozen=True, slots=True)
class Admitted:
    """The amount is counted, and within every limit.

    `counter`, `window`, `remaining` and `resets_at` are those of the limit with the least left.

    Attributes:
        amount: what was acquired or reserved.
        limits: each limit of each counter, sorted by counter, the shortest window first.
        duplicate: whether it was counted before, by an earlier call under the same key. None: by
            this call or an earlier one, which method `request_token` cannot distinguish after an
            attempt without an answer. In any case it is counted once.
        ticket: of a reservation; `commit` and `release` take it, or this outcome.
    """

    amount: Amount
    limits: tuple[LimitState, ...]
    duplicate: bool | None = False
    ticket: Ticket | None = None

    @property
    def tightest(self) -> LimitState:
        """The limit with the least left, of those whose rest could be read."""
        known = [one for one in self.limits if one.remaining is not None]
        return min(known, key=lambda one: one.remaining or 0, default=self.limits[0])

    @property
    def counter(self) -> str:
        """Its counter."""
        return self.tightest.counter

    @property
    def window(self) -> str:
        """The name of its window, as `2026-11-22`."""
        return self.tightest.window

    @property
    def remaining(self) -> Amount | None:
        """What its window has left; None if it could not be read."""
        return self.tightest.remaining

    @property
    def resets_at(self) -> datetime:
        """When its window ends."""
        return self.tightest.resets_at


@dataclass(frozen=True, slots=True)
class Denied:
    """A limit does not allow the amount; nothing is counted, under no limit.

    If several limits refuse, the answer names the one whose window ends last.

    Attributes:
        counter: the counter whose limit refuses.
        prefix: of the quota that refuses.
        per: its kind of window.
        window: the name of the window.
        amount: what was wanted.
        limit: how much the counter may use in one window.
        used: what the window has used; None where the amount alone is above the limit.
        resets_at: when the window ends.
        retry_after: after how long the next window begins, in whole seconds, rounded up; earlier
            only if a reservation is released, or committed with less. None: the amount is above the
            limit of any window, and no time helps.
    """

    counter: str
    prefix: str
    per: str
    window: str
    amount: Amount
    limit: Amount
    used: Amount | None
    resets_at: datetime
    retry_after: timedelta | None

    @property
    def reason(self) -> str:
        """Why, in words."""
        wanted, limit = to_text(self.amount), to_text(self.limit)
        quota = name_of(self.prefix, self.per)
        if self.retry_after is None:
            return (
                f"{self.counter!r}: {wanted} is more than the limit of {limit} for one window of "
                f"quota {quota}: it is never admitted, however long you wait; take less, or raise "
                "the limit"
            )
        used = "?" if self.used is None else to_text(self.used)
        return (
            f"{self.counter!r}: {used} of {limit} are used, {wanted} more are too many (quota "
            f"{quota}); the next window begins in {int(self.retry_after.total_seconds())} s, at "
            f"{self.resets_at.isoformat()}"
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The actual amount of a reservation is counted, in the windows of the reservation.

    Attributes:
        counters: its counters, sorted.
        actual: what is counted now.
        overrun: by how much that is above what was reserved; 0 if it is not.
        duplicate: whether an earlier call has committed the same amount.
    """

    counters: tuple[str, ...]
    actual: Amount
    overrun: Amount
    duplicate: bool = False

    @property
    def counter(self) -> str:
        """The first of its counters."""
        return self.counters[0]


@dataclass(frozen=True, slots=True)
class Usage:
    """A counter under one of its quotas, in the present window.

    Attributes:
        counter: its name.
        prefix: of the quota.
        per: the kind of window.
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
    per: str
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


def usage_of(limit: CounterLimit, window: Window, item: Item | None) -> Usage:
    """What a counter has used, by the item of its window; None: nothing."""
    used = 0 if item is None else require_amount(item, "used")
    return Usage(
        limit.counter,
        limit.quota.prefix,
        str(limit.quota.per),
        limit.amount,
        limit.own,
        used,
        (item or {}).get("overrun", 0),
        left_of(limit.amount, used),
        window.name,
        to_datetime(window.end_ms),
    )


def left_of(limit: Amount, used: Amount) -> Amount:
    """What remains; 0 if more is used."""
    return max(0, amounts.add(limit, amounts.negated(used)))
