"""The plan of an admission: its writes, and what their answers mean. Pure.

An amount is counted under every limit of each of its counters, or under none. The counter of a
window (`used`) is made by the first write of the window, an upsert. So no job makes or resets it,
and two first writes meet in one item. Each admission names

- the window, by the key of the item;
- the quota, by its incarnation in the key: a quota that is deleted and created again begins with
  other items;
- the revision of the limit: once a write under a newer revision was stored, every older one is
  refused, and its process reads the limit again.

The marker of a key is of no quota: what was counted under a key stays so whatever becomes of the
quotas, and in whatever window its retry comes. It belongs to the first of the counters by name, and
names the windows that the amount is counted in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import add, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    BadQuota,
    CorruptItem,
    CountledgerError,
    IdempotencyKeyReused,
    TicketExpired,
    TicketResolved,
    Unclear,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Put,
    Update,
)
from countledger.producers.quotas.quota import (
    Admitted,
    CountedIn,
    Denied,
    LimitState,
    Ticket,
    counters_in,
    left_of,
    marker_expires_at,
    retry_after,
    tickets_until_ms,
    window_expires_at,
)
from countledger.producers.strict.change import FENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.calendar import Window
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Condition
    from countledger.producers.quotas.quota import CounterLimit

ACQUIRED: Final = "acquired"
RESERVED: Final = "reserved"
COMMITTED: Final = "committed"
RELEASED: Final = "released"
ADVICE: Final = (
    "the amount may be counted or not. With a key: call again with the same key. Without one: take "
    "it as not admitted; if it was counted, it is gone with its window"
)


class LimitChanged(CountledgerError):
    """The limits must be read again; nothing was written by this request (inner use)."""


class Share(NamedTuple):
    """One limit of one counter, as it was read, and the window of the call."""

    limit: CounterLimit
    window: Window

    @property
    def counted_in(self) -> CountedIn:
        quota, window = self.limit.quota, self.window
        return CountedIn(
            self.limit.counter,
            quota.prefix,
            quota.per,
            quota.incarnation,
            window.name,
            window.end_ms,
        )

    @property
    def key(self) -> Key:
        return self.counted_in.key


# ---- writes ----


def admission(table: str, share: Share, amount: Amount, *more: Condition) -> Update:
    """Count an amount that is not above the limit, if it still fits: one write unit.

    `more` holds of the counter of the window, if there is one.
    """
    limit = share.limit
    most = amounts.add(limit.amount, amounts.negated(amount))
    fits = AllOf(Compare("used", "<=", most), Compare("revision", "<=", limit.revision), *more)
    return Update(
        table,
        share.key,
        (
            Assign("revision", limit.revision),
            AssignOnce("expires_at", window_expires_at(share.window.end_ms)),
            Add("used", amount),
        ),
        AnyOf(Absent("part"), fits),
        returning="ALL_NEW",
    )


def raising(table: str, share: Share) -> Update:
    """Raise the fence of the counter of a window, which it may create: one write unit.

    A request that is under way would create it otherwise.
    """
    clauses = (
        AssignOnce("revision", share.limit.revision),
        AssignOnce("expires_at", window_expires_at(share.window.end_ms)),
        Add("used", 0),
        Add(FENCE, 1),
    )
    return Update(table, share.key, clauses, returning="ALL_NEW")


def marker(table: str, counted_in: Iterable[CountedIn], key_id: str, facts: Item) -> Put:
    """Record what was done under a key, if the key has no marker: of whatever window."""
    places = tuple(counted_in)
    item = {
        **keys.quota_marker_key(counters_in(places)[0], key_id),
        **facts,
        "counted_in": [list(one) for one in places],
        "expires_at": marker_expires_at(max(one.end_ms for one in places)),
    }
    return Put(table, item, Absent("part"))


def resolution(table: str, ticket: Ticket, state: str, actual: Amount, call: str) -> Update:
    """Resolve a reservation, if it is this one and open.

    What the marker says counts: a ticket may come back from a stranger with another amount.
    """
    return Update(
        table,
        ticket.marker_key,
        (Assign("state", state), Assign("actual", actual), Assign("resolved_by", call)),
        AllOf(
            Compare("call", "=", ticket.reservation),
            Compare("state", "=", RESERVED),
            Compare("amount", "=", ticket.amount),
            Compare("counted_in", "=", [list(one) for one in ticket.counted_in]),
        ),
    )


def correction(table: str, ticket: Ticket, place: CountedIn, actual: Amount) -> Update | None:
    """Count the actual amount instead of the reserved one, in one window of the reservation.

    Without a look at the limit: what was spent is spent. None: the two are equal.
    """
    difference = amounts.add(actual, amounts.negated(ticket.amount))
    if not difference:
        return None
    clauses = [Add("used", difference)]
    if difference > 0:
        clauses.append(Add("overrun", difference))
    # The counter of a window outlives its tickets. Were it gone, nothing may bring it back.
    return Update(table, place.key, tuple(clauses), Compare("used", ">=", ticket.amount))


# ---- decisions ----


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call wants, the same for every attempt.

    The time when it began (`at_ms`) decides the window. `counters` are sorted. `key` is as the
    caller gave it, without its time, and `key_id` its id, or drawn for this call. `reserve`: the
    amount may be corrected later. `again`: without a key, a request without an answer is sent
    again.
    """

    counters: tuple[str, ...]
    amount: Amount
    at_ms: int
    call: str
    key: str | None
    key_at_ms: int | None
    key_id: str
    reserve: bool
    again: bool

    @property
    def name(self) -> str:
        """Its counters, for messages."""
        return ", ".join(map(repr, self.counters))


@dataclass(frozen=True, slots=True)
class Decision:
    """An amount under each limit of its counters, as they were read, in one window each.

    All writes of the amount follow the order of the shares: by counter, then the shortest window
    first. The first one is fenced.
    """

    wanted: Wanted
    shares: tuple[Share, ...]

    @property
    def counted_in(self) -> tuple[CountedIn, ...]:
        return tuple(one.counted_in for one in self.shares)

    @property
    def marker_key(self) -> dict[str, str]:
        """Where the key of the call is remembered."""
        return keys.quota_marker_key(self.wanted.counters[0], self.wanted.key_id)

    @property
    def facts(self) -> Item:
        """What the marker says beside the windows."""
        wanted = self.wanted
        facts = {
            "call": wanted.call,
            "amount": wanted.amount,
            "state": RESERVED if wanted.reserve else ACQUIRED,
            "key": wanted.key,
            "at": wanted.at_ms,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def impossible(self, now_ms: int) -> Denied | None:
        """The outcome for an amount above a limit, which no window ever admits."""
        above = [one for one in self.shares if self.wanted.amount > one.limit.amount]
        if not above:
            return None
        if any(one.limit.read_at_ms < self.wanted.at_ms for one in above):
            raise LimitChanged("never is said of a limit that was read by this call only")
        return self._denied(above[0], None, now_ms)

    def refused(self, reasons: Iterable[Reason], now_ms: int) -> Denied:
        """Why windows refuse the amount: of several, the one that ends last.

        `LimitChanged`: one knows a newer revision. `CorruptItem`: one has no reason.
        """
        denied = [
            self._refused(share, reason.item, now_ms)
            for share, reason in zip(self.shares, reasons, strict=True)
            if reason.condition_failed
        ]
        return max(denied, key=lambda one: one.resets_at)

    def _refused(self, share: Share, item: Item | None, now_ms: int) -> Denied:
        found, limit = item or {}, share.limit
        if found.get("revision", 0) > limit.revision:
            raise LimitChanged("the counter of the window knows a newer limit")
        used = found.get("used")
        if used is None or add(used, self.wanted.amount) <= limit.amount:
            raise CorruptItem(
                f"quota of {limit.counter!r}: what window {share.window.name} has used "
                f"({used}) contradicts its refusal; the item was changed by hand",
                item,
            )
        return self._denied(share, used, now_ms)

    def _denied(self, share: Share, used: Amount | None, now_ms: int) -> Denied:
        limit, window = share.limit, share.window
        never = self.wanted.amount > limit.amount
        return Denied(
            limit.counter,
            limit.quota.prefix,
            limit.quota.per,
            window.name,
            self.wanted.amount,
            limit.amount,
            used,
            to_datetime(window.end_ms),
            None if never else retry_after(now_ms, window.end_ms),
        )

    def admitted(
        self,
        duplicate: bool | None = False,  # noqa: FBT001, FBT002 - as of `Admitted`
        counted_in: tuple[CountedIn, ...] | None = None,
        reservation: str | None = None,
    ) -> Admitted:
        """The outcome for an amount that is counted, by this call or an earlier one."""
        wanted, places = self.wanted, counted_in or self.counted_in
        ticket = None
        if wanted.reserve:
            until_ms = tickets_until_ms(min(one.end_ms for one in places))
            until = to_datetime(until_ms)
            call = reservation or wanted.call
            ticket = Ticket(wanted.amount, places, wanted.key_id, call, until)
        return Admitted(wanted.amount, self.states(places, {}), duplicate, ticket)

    def states(
        self, places: Iterable[CountedIn], used: Mapping[CountedIn, Amount]
    ) -> tuple[LimitState, ...]:
        """Each limit that an amount is counted under; what it has left as far as that is known."""
        known = {(one.limit.counter, one.limit.quota.incarnation): one.limit for one in self.shares}
        states = []
        for one in places:
            limit = known.get((one.counter, one.incarnation))
            most = None if limit is None else limit.amount
            left = None if most is None or one not in used else left_of(most, used[one])
            ends = to_datetime(one.end_ms)
            states.append(
                LimitState(one.counter, one.prefix, str(one.per), one.window, most, left, ends)
            )
        return tuple(states)

    def meaning_of(self, marker: Item) -> Admitted:
        """What a marker that exists says of this call, in whatever windows it is counted."""
        wanted, state = self.wanted, marker.get("state")
        places = counted_in_of(marker)
        reserved = state != ACQUIRED
        if counters_in(places) != wanted.counters:
            raise IdempotencyKeyReused(
                f"idempotency key {wanted.key!r} of {wanted.counters[0]!r} was used for "
                f"{', '.join(counters_in(places))}, and now comes for {wanted.name}: a new call "
                "needs a new key"
            )
        if marker.get("amount") != wanted.amount or reserved is not wanted.reserve:
            raise IdempotencyKeyReused(
                f"idempotency key {wanted.key!r} of {wanted.name} was used to "
                f"{'reserve' if reserved else 'acquire'} {marker.get('amount')}, and now comes to "
                f"{'reserve' if wanted.reserve else 'acquire'} {to_text(wanted.amount)}: a new "
                "call needs a new key"
            )
        if reserved and state != RESERVED:
            raise _resolved(
                f"the reservation under key {wanted.key!r} of {wanted.name}",
                marker,
                "what is done again needs a new key",
            )
        call = marker.get("call")
        return self.admitted(call != wanted.call, places, call)

    def used_elsewhere(self) -> IdempotencyKeyReused:
        """The error for a token that stands for other writes."""
        return IdempotencyKeyReused(
            f"idempotency key {self.wanted.key!r} of {self.wanted.name} was used within ten "
            "minutes: with another amount, in the window before, or before a limit was changed. "
            "It is not counted again; only method marker finds out which"
        )

    def unknown(self) -> Unclear:
        """The error while a request may be applied yet."""
        return Unclear(f"to acquire from the quotas of {self.wanted.name}: {ADVICE}")


def counted_in_of(marker: Item) -> tuple[CountedIn, ...]:
    return tuple(
        CountedIn(counter, prefix, per, incarnation, window, int(end_ms))
        for counter, prefix, per, incarnation, window, end_ms in marker["counted_in"]
    )


def resolved_by(marker: Item | None, ticket: Ticket, state: str, actual: Amount) -> object:
    """Which call has resolved a reservation in the wanted way.

    `TicketExpired`: its marker is gone. `BadQuota`: the ticket was changed.
    """
    if marker is None or marker.get("call") != ticket.reservation:
        raise expired(ticket)
    if (marker.get("amount"), counted_in_of(marker)) != (ticket.amount, ticket.counted_in):
        raise BadQuota(
            f"the ticket of {ticket.counter!r} has another amount or window than its reservation: "
            "give the ticket as it was answered"
        )
    if marker.get("state") == RESERVED:
        windows = ", ".join(one.window for one in ticket.counted_in)
        raise CorruptItem(
            f"quota of {ticket.counter!r}: what window {windows} has used does not include "
            "this reservation; the item was changed by hand",
            marker,
        )
    if (marker.get("state"), marker.get("actual")) != (state, actual):
        raise _resolved(
            f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r}",
            marker,
            f"it cannot be {state} ({to_text(actual)}) any more",
        )
    return marker.get("resolved_by")


def _resolved(what: str, marker: Item, rest: str) -> TicketResolved:
    """The error for a reservation that was resolved, in another way or under this key."""
    state, actual = marker.get("state"), marker.get("actual")
    done = RELEASED if state == RELEASED else f"committed ({actual})"
    return TicketResolved(f"{what} is {done}: {rest}", actual=None if state == RELEASED else actual)


def expired(ticket: Ticket) -> TicketExpired:
    windows = ", ".join(one.window for one in ticket.counted_in)
    return TicketExpired(
        f"the reservation of {to_text(ticket.amount)} of {ticket.counter!r} could be resolved "
        f"until {ticket.until.isoformat()}: it stays counted in window {windows}"
    )
