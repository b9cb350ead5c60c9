"""The quotas of a stack: create and change them, acquire, reserve, commit and release."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from countledger.ledger import keys
from countledger.ledger.attempts import ask, raise_exhausted
from countledger.ledger.attributes import decoded, require
from countledger.ledger.calendar import window_of, zone_of
from countledger.ledger.errors import BadQuota, NoSuchQuota, shown
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key
from countledger.ledger.limits import TICKET_LIFE_MS
from countledger.ledger.operations import Get
from countledger.producers.quotas.acquiring import acquiring, committing, releasing
from countledger.producers.quotas.administration import (
    Limits,
    creating,
    deleting,
    limiting,
    only,
    reading,
)
from countledger.producers.quotas.guard import Guard, OnFailure, OnUnpriced
from countledger.producers.quotas.plan import Share, Wanted
from countledger.producers.quotas.quota import (
    Admitted,
    CounterLimit,
    Ticket,
    Usage,
    check_amount,
    check_counters,
    check_method,
    check_per,
    check_prefix,
    check_zone,
    decode_override,
    decode_quota,
    usage_of,
)
from countledger.producers.strict.change import check_key_age

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Steps
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.producers.quotas.quota import Committed, Denied, Quota


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of a stack. Safe to share between threads and tasks.

    They live in the home region alone. A quota's counters have names of their own: the quota of
    `llm:team-1` and a ledger counter `llm:team-1` have nothing to do with each other.

    A changed limit is seen by every process within five seconds, and at once for a counter in whose
    window a write under the new limit was stored.

    Attributes:
        observe: called with the outcome of each acquire, reserve and commit, for metrics.
    """

    connection: Connection
    limits: Limits = field(init=False)
    observe: Callable[[Admitted | Denied | Committed], object] = lambda _outcome: None

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.connection))

    def create(
        self,
        prefix: str,
        *,
        limit: Amount,
        per: str,
        time_zone: str = "UTC",
        method: str = "marker",
    ) -> Quota:
        """Create the quota of every counter whose name begins with a prefix: one write unit.

        Prefix and kind of window identify a quota. A counter may have several, as of a day and of a
        month: an amount must fit into all of them.

        Args:
            prefix: at least a namespace and its colon, as `llm:`. If several quotas of one kind of
                window fit a counter, the one with the longest prefix holds.
            limit: how much each counter may use in one window, 0 or more.
            per: the kind of window: `minute` (of UTC), `hour`, `day` or `month` of the time zone.
            time_zone: a name of the IANA database.
            method: how `acquire` remembers a key: `request_token` for ten minutes, `marker`
                for at least a day. Of several quotas of a counter all must have `request_token`.

        Raises:
            QuotaExists: a quota of that prefix and kind of window exists.
            BadQuota: an argument breaks its rule.
            Unclear, Throttled: look with `list`, and call again.
            WrongRegion: this is not the home region.
        """
        self._refuse_elsewhere(prefix)
        prefix = check_prefix(prefix)
        kind = str(check_per(per))
        item = {
            **keys.quota_key(prefix, kind),
            "prefix": prefix,
            "limit": check_amount("limit", limit, zero=True),
            "per": kind,
            "time_zone": check_zone(time_zone),
            "method": str(check_method(method)),
            "updated_at": self.connection.clock.now_ms(),
        }
        return self.connection.run(creating(self.connection, item))

    def set_limit(self, prefix: str, limit: Amount, *, per: str | None = None) -> None:
        """Change the limit of a quota, also while it is used: a read unit and a write unit.

        Args:
            prefix: of the quota.
            limit: how much each counter may use in one window, 0 or more.
            per: its kind of window; None: the prefix has one quota.

        Raises:
            NoSuchQuota: no quota has that prefix and kind of window.
            Unclear: no clear answer. Also if another call has changed a limit since an attempt that
                got no answer: that change stays.
            BadQuota: an argument breaks its rule, or `per` is missing.
            Throttled, WrongRegion: as `create`.
        """
        self._refuse_elsewhere(prefix)
        amount = check_amount("limit", limit, zero=True)
        kind = None if per is None else check_per(per)
        self.connection.run(limiting(self.connection, check_prefix(prefix), kind, amount))

    def override(self, counter: str, limit: Amount | None, *, per: str | None = None) -> None:
        """Give one counter a limit of its own; None: that of its quota again.

        Two or three read units and four write units.

        Args:
            counter: whose.
            limit: its own limit.
            per: the kind of window; None: the counter has one quota.

        Raises:
            NoSuchQuota: no quota is for the counter, or none of that kind of window.
            Unclear, BadQuota: as `set_limit`.
            Throttled, WrongRegion: as `create`.
        """
        self._refuse_elsewhere(counter)
        amount = None if limit is None else check_amount("limit", limit, zero=True)
        kind = None if per is None else check_per(per)
        counter = keys.check_counter(counter)
        self.limits.forget(counter)
        limits = self.connection.run(self.limits.of(counter, self.connection.attempts()))
        quotas = [one.quota for one in limits if kind in {None, one.quota.per}]
        if not quotas:
            raise NoSuchQuota(f"no quota per {kind} is for counter {counter!r}")
        quota = only(quotas, f"counter {counter!r}")
        self.connection.run(limiting(self.connection, quota.prefix, quota.per, amount, counter))
        self.limits.forget(counter)

    def delete(self, prefix: str, *, per: str | None = None) -> None:
        """Delete a quota: a read unit, a write unit, and one for each counter's own limit.

        A process that has read the quota admits under it for up to five seconds more. What the
        windows have used expires by itself. A quota that is created again begins with empty
        windows; what was counted under a key stays counted once.

        Args:
            prefix: of the quota.
            per: its kind of window; None: the prefix has one quota.

        Raises:
            NoSuchQuota: no quota has that prefix and kind of window.
            BadQuota: `per` is missing, or is none.
            Unclear, Throttled, WrongRegion: as `create`.
        """
        self._refuse_elsewhere(prefix)
        kind = None if per is None else check_per(per)
        self.connection.run(deleting(self.connection, check_prefix(prefix), kind))

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> list[Quota]:
        """All quotas, by their prefixes: a read unit for each 4 KB.

        Args:
            on_corrupt: called with the error of each corrupt quota; the quota is skipped.

        Raises:
            CorruptItem: one is corrupt, and `on_corrupt` is not given.
            WrongRegion: this is not the home region.
        """
        self._refuse_elsewhere("all")
        items = self.connection.run(reading(self.connection, keys.QUOTA_PREFIX))
        return [*decoded(items, decode_quota, on_corrupt)]

    def overrides(self, quota: Quota, *, on_corrupt: OnCorrupt | None = None) -> dict[str, Amount]:
        """The limits that counters of a quota have of their own: a read unit for each 4 KB.

        Args:
            quota: whose.
            on_corrupt: called with the error of each corrupt limit; the limit is skipped.

        Raises:
            CorruptItem: one is corrupt, and `on_corrupt` is not given.
            WrongRegion: this is not the home region.
        """
        self._refuse_elsewhere(quota.prefix)
        partition = keys.QUOTA_PREFIX + quota.incarnation
        items = self.connection.run(reading(self.connection, partition))
        own = (item for item in items if "limit" in item)
        return dict(decoded(own, decode_override, on_corrupt))

    def show(self, counter: str) -> Sequence[Usage]:
        """What a counter has used under each of its quotas, in the present windows.

        A read unit, and up to two for each quota. The shortest window is first.

        Raises:
            NoSuchQuota: no quota is for the counter.
            WrongRegion: this is not the home region.
        """
        counter = keys.check_counter(counter)
        self._refuse_elsewhere(counter)
        return self.connection.run(self._showing(counter))

    def usage(
        self, prefix: str, *, per: str | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Sequence[Usage]:
        """What every counter of a quota has used in the present window, by name.

        A read unit for each 4 KB, at least 16, and up to two for the quota and the limits of single
        counters. A counter that has used nothing is not listed.

        Args:
            prefix: of the quota.
            per: its kind of window; None: the prefix has one quota.
            on_corrupt: called with the error of each corrupt item; the item is skipped.

        Raises:
            NoSuchQuota: no quota has that prefix and kind of window.
            BadQuota: `per` is missing, or is none.
            CorruptItem: an item is corrupt, and `on_corrupt` is not given.
            WrongRegion: this is not the home region.
        """
        self._refuse_elsewhere(prefix)
        kind = None if per is None else check_per(per)
        quotas = [
            one
            for one in self.list(on_corrupt=on_corrupt)
            if one.prefix == check_prefix(prefix) and kind in {None, one.per}
        ]
        if not quotas:
            raise NoSuchQuota(f"there is no quota {prefix} {kind or ''}: `list` shows them")
        quota = only(quotas, f"prefix {prefix!r}")
        now_ms = self.connection.clock.now_ms()
        own = self.overrides(quota, on_corrupt=on_corrupt) if quota.overridden else {}
        window = window_of(now_ms, quota.per, zone_of(quota.time_zone))
        items: list[Item] = []
        for partition in keys.quota_window_partitions(quota.incarnation, window.name):
            items += self.connection.run(reading(self.connection, partition))

        def decode(item: Item) -> Usage:
            counter = require(item, "part", str).removeprefix(keys.WINDOW_PREFIX)
            amount = own.get(counter, quota.limit)
            limit = CounterLimit(counter, quota, amount, quota.revision, now_ms, own=counter in own)
            return usage_of(limit, window, item)

        return sorted(decoded(items, decode, on_corrupt), key=lambda one: one.counter)

    def acquire(
        self,
        counter: str | Sequence[str],
        amount: Amount = 1,
        *,
        key: str | IdempotencyKey | None = None,
        prefer: Literal["under", "over"] = "under",
    ) -> Admitted | Denied:
        """Count an amount in the present windows, if every limit allows it; else under none.

        One limit: one write unit without a key; with one two (method `request_token`) or four
        (method `marker`), and a read unit. Several limits, of one counter or of several: two write
        units for each, two more for a marker, and a read unit for each. The limits are read at most
        every five seconds: one read unit for each counter, and one for each quota whose counters
        have limits of their own.

        Args:
            counter: whose; or several, for example of an organisation, a team and a user.
            amount: how much, more than 0, for each counter.
            key: what a retry repeats, also in a later window: it is not counted again. It belongs
                to the first of the counters by name, whatever their order.
            prefer: without a key, after a lost answer: `under` sends nothing more, so the amount is
                counted once or not at all; `over` sends it again, so it may be counted twice.

        Raises:
            NoSuchQuota: no quota is for a counter.
            IdempotencyKeyReused: the key was used for something else, or for other counters.
            KeyExpired, ClockSkew: the key's time is too long ago, or in the future.
            BadQuota, BadCounterName, BadKey: an argument breaks its rule.
            Unclear: no clear answer. With a key, call again; without one, it is not admitted.
            Throttled: nothing was counted; call again.
            WrongRegion: this is not the home region.
        """
        return self.connection.run(self._acquiring(counter, amount, key, prefer, reserve=False))

    def reserve(
        self,
        counter: str | Sequence[str],
        amount: Amount,
        *,
        key: str | IdempotencyKey | None = None,
    ) -> Admitted | Denied:
        """As `acquire`, for a cost that is known afterwards, always with a marker.

        Two write units for each limit and two for the marker, and a read unit for each limit. The
        outcome has a `ticket`, which `commit` or `release` resolves, until a day after the end of
        the window that ends first. If neither is called, the amount stays counted in its windows,
        and in no other.

        Raises:
            TicketResolved: the reservation under this key was committed or released; its `actual`
                is the amount that it was committed with.
            As `acquire`.
        """
        return self.connection.run(self._acquiring(counter, amount, key, "over", reserve=True))

    def commit(self, ticket: Admitted | Ticket, actual: Amount | None = None) -> Committed:
        """Count what was used instead of what was reserved, in the windows of the reservation.

        Two write units for each limit and two for the marker; one in all if both are equal. More
        than was reserved is counted as well, even past the limit: the outcome and `show` report it
        as an overrun.

        Args:
            ticket: of a reservation.
            actual: what was used, 0 or more; None: what was reserved.

        Raises:
            TicketResolved: it was released, or committed with another amount.
            TicketExpired: its time is over; it stays counted.
            BadQuota: the amount, or the ticket, is not valid.
            Unclear, Throttled: call again with the same ticket; it cannot be counted twice.
            WrongRegion: this is not the home region.
        """
        return self.connection.run(self._committing(ticket, actual))

    def release(self, ticket: Admitted | Ticket) -> bool:
        """Count nothing for a reservation: two write units for each limit, and two for the marker.

        Returns:
            Whether this call did it; False: it was released before.

        Raises:
            TicketResolved: it was committed.
            TicketExpired, BadQuota, Unclear, Throttled, WrongRegion: as `commit`.
        """
        return self.connection.run(releasing(self.connection, self._ticket_of(ticket)))

    def guard(
        self,
        counter: str,
        amount: Amount = 1,
        *,
        actual: Callable[[Any], Amount] | None = None,
        on_failure: OnFailure = "release",
        on_unpriced: OnUnpriced = "commit",
        on_error: Callable[[Exception], object] | None = None,
    ) -> Guard:
        """A decorator for functions and generator functions, also asynchronous ones, and methods.

        Denied calls do not run. The calls for an asynchronous function run in a thread (those of
        `AsyncCountLedger` in the event loop).

        Without `actual` it acquires the amount before each call. With it, it reserves the amount
        and commits `actual(answer)`. A generator reserves before its first part, and
        commits `actual` of the list of its parts when it ends, is closed or is cancelled.

        An error after the function has returned never replaces its answer, unless `on_unpriced`
        says so: if `actual` raises, or returns no exact amount, what was reserved is committed; if
        the commit or the release fails, the reservation stays counted.

        Args:
            counter: whose limit.
            amount: what each call acquires, or reserves.
            actual: what a call has used, by its answer: an `int` or a `Decimal`, 0 or more.
            on_failure: what is done with a reservation if the function raises: `release` it, or
                `commit` it; of a generator what `actual` makes of its parts so far.
            on_unpriced: what happens if `actual` gives no amount: `commit` reports the error and
                gives the answer; `raise` raises `NotPriced`, which has the answer. A generator that
                is closed or cancelled reports it in any case.
            on_error: called with the error of `actual`, of the commit or of the release; None: the
                error is logged. What `on_error` raises is logged with it.

        Raises:
            BadQuota: what is decorated is no function, as a class or a cached function; `actual` or
                `on_error` is a coroutine or generator function, or cannot be called.
            QuotaDenied: by the decorated function, with the outcome in `denied`.
            NotPriced: by the decorated function, with `on_unpriced="raise"`.
        """
        return Guard(self, counter, amount, actual, on_error, on_failure, on_unpriced)

    def _acquiring(
        self,
        counter: str | Sequence[str],
        amount: Amount,
        key: str | IdempotencyKey | None,
        prefer: str,
        *,
        reserve: bool,
    ) -> Steps[Admitted | Denied]:
        counters = check_counters(counter)
        what = ", ".join(map(repr, counters))
        self._refuse_elsewhere(", ".join(counters))
        if prefer not in {"under", "over"}:
            raise BadQuota(f"prefer {shown(prefer)} must be `under` or `over`")
        now_ms = self.connection.clock.now_ms()
        call = self.connection.ids.new_id(now_ms)
        # Without a key nothing else can repeat the call after its attempts.
        until_ms = now_ms + self.connection.token_life_ms
        key_at_ms = None
        if isinstance(key, IdempotencyKey):
            skew_ms, key_at_ms = self.connection.clock_skew_ms, key.at_ms
            named = f"idempotency key {key.key!r} of {what}"
            check_key_age(named, key_at_ms, now_ms, TICKET_LIFE_MS, skew_ms)
            until_ms = min(until_ms, key_at_ms + TICKET_LIFE_MS)
        elif key is not None:
            key = check_key(key)
        wanted = Wanted(
            counters=counters,
            amount=check_amount("amount", amount),
            at_ms=now_ms,
            call=call,
            key=key.key if isinstance(key, IdempotencyKey) else key,
            key_at_ms=key_at_ms,
            key_id=call if key is None else id_of_key(key),
            reserve=reserve,
            again=prefer == "over",
        )
        outcome = yield from acquiring(
            self.connection, self.limits, wanted, self.connection.attempts(until_ms)
        )
        self.observe(outcome)
        return outcome

    def _committing(self, ticket: Admitted | Ticket, actual: Amount | None) -> Steps[Committed]:
        given = self._ticket_of(ticket)
        amount = given.amount if actual is None else check_amount("actual", actual, zero=True)
        committed = yield from committing(self.connection, given, amount)
        self.observe(committed)
        return committed

    def _ticket_of(self, given: Admitted | Ticket) -> Ticket:
        ticket = given.ticket if isinstance(given, Admitted) else given
        if ticket is None:
            raise BadQuota(f"{given.counter!r} was acquired, not reserved: it has no ticket")
        self._refuse_elsewhere(ticket.counter)
        return ticket

    def _showing(self, counter: str) -> Steps[Sequence[Usage]]:
        attempts = self.connection.attempts()
        self.limits.forget(counter)
        limits = yield from self.limits.of(counter, attempts)
        now_ms = self.connection.clock.now_ms()
        shares = [
            Share(one, window_of(now_ms, one.quota.per, zone_of(one.quota.time_zone)))
            for one in limits
        ]

        def give_up(exhausted: Exhausted[None]) -> Any:  # noqa: ANN401 - it only raises
            raise_exhausted(exhausted, f"to read the quotas of {counter!r}", "try again")

        found = []
        for share in shares:
            item = yield from ask(Get(self.connection.counters, share.key), attempts, give_up)
            found.append(usage_of(share.limit, share.window, item))
        return found

    def _refuse_elsewhere(self, what: str) -> None:
        """Allow calls in the home region only."""
        self.connection.refuse_elsewhere(f"{what!r}: quotas work")
