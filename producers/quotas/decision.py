"""The writes of quotas, and what their answers mean: admitted, denied, or another limit. Pure.

The counter of a window (`used`) is made by the first write of the window, an upsert. So no job
makes or resets it, and two first writes meet in one item. Each admission names

- the window, by the key of the item;
- the quota, by its incarnation in the key: a quota that is deleted and created again begins with
  other items;
- the revision of the limit: once a write under a newer revision was stored, every older one is
  refused, and its process reads the limit again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import add, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    CorruptItem,
    CountledgerError,
    IdempotencyKeyReused,
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
    Denied,
    Ticket,
    denied,
    left_of,
    marker_expires_at,
    tickets_until_ms,
    window_expires_at,
)
from countledger.producers.strict.fence import FENCE

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.calendar import Window
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


def admission(
    table: str, limit: CounterLimit, window: Window, amount: Amount, *more: Condition
) -> Update:
    """Count an amount that is not above the limit, if it still fits: one write unit.

    `more` holds of the counter of the window, if there is one.
    """
    most = amounts.add(limit.amount, amounts.negated(amount))
    fits = AllOf(Compare("used", "<=", most), Compare("revision", "<=", limit.revision), *more)
    return Update(
        table,
        keys.quota_window_key(limit.quota.incarnation, limit.counter, window.name),
        (
            Assign("revision", limit.revision),
            AssignOnce("expires_at", window_expires_at(window.end_ms)),
            Add("used", amount),
        ),
        AnyOf(Absent("part"), fits),
        returning="ALL_NEW",
    )


def raising(table: str, limit: CounterLimit, window: Window) -> Update:
    """Raise the fence of the counter of a window, which it may create: one write unit.

    A request that is under way would create it otherwise.
    """
    clauses = (
        AssignOnce("revision", limit.revision),
        AssignOnce("expires_at", window_expires_at(window.end_ms)),
        Add("used", 0),
        Add(FENCE, 1),
    )
    key = keys.quota_window_key(limit.quota.incarnation, limit.counter, window.name)
    return Update(table, key, clauses, returning="ALL_NEW")


def marker(table: str, limit: CounterLimit, window: Window, key_id: str, facts: Item) -> Put:
    """Record what was done under a key, if the key has no marker: of whatever window."""
    item = {
        **keys.quota_marker_key(limit.quota.incarnation, limit.counter, key_id),
        **facts,
        "window": window.name,
        "window_end": window.end_ms,
        "expires_at": marker_expires_at(window.end_ms),
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
            Compare("window", "=", ticket.window),
        ),
    )


def correction(table: str, ticket: Ticket, actual: Amount) -> Update | None:
    """Count the actual amount instead of the reserved one, in the window of the reservation.

    Without a look at the limit: what was spent is spent. None: the two are equal.
    """
    difference = amounts.add(actual, amounts.negated(ticket.amount))
    if not difference:
        return None
    clauses = [Add("used", difference)]
    if difference > 0:
        clauses.append(Add("overrun", difference))
    # The counter of a window outlives its tickets. Were it gone, nothing may bring it back.
    return Update(table, ticket.window_key, tuple(clauses), Compare("used", ">=", ticket.amount))


class LimitChanged(CountledgerError):
    """The limit must be read again; nothing was written by this request (inner use)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call wants, the same for every attempt.

    Attributes:
        counter: its counter.
        amount: how much.
        at_ms: when the call began; decides the window.
        call: the identity of the call.
        key: as the caller gave it, without its time; None: none.
        key_at_ms: when the key was made, if the caller gave that.
        key_id: the id of the key, or drawn for this call.
        reserve: whether the amount may be corrected later.
        again: without a key: whether a request without an answer is sent again.
    """

    counter: str
    amount: Amount
    at_ms: int
    call: str
    key: str | None
    key_at_ms: int | None
    key_id: str
    reserve: bool
    again: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """An amount under one limit, as it was read, in one window."""

    wanted: Wanted
    limit: CounterLimit
    window: Window

    @property
    def marker_key(self) -> dict[str, str]:
        """Where the key of the call is remembered."""
        wanted = self.wanted
        return keys.quota_marker_key(self.limit.quota.incarnation, wanted.counter, wanted.key_id)

    def denied(self, used: Amount | None, now_ms: int) -> Denied:
        """The outcome for an amount that does not fit; `used` as far as it is known."""
        return denied(self.limit, self.wanted.amount, used, self.window, now_ms)

    def refused(self, item: Item | None, now_ms: int) -> Denied:
        """Why the counter of the window refuses the amount.

        Raises:
            LimitChanged: it knows a newer revision.
            CorruptItem: it has no reason.
        """
        found = item or {}
        if found.get("revision", 0) > self.limit.revision:
            raise LimitChanged("the counter of the window knows a newer limit")
        used = found.get("used")
        if used is None or add(used, self.wanted.amount) <= self.limit.amount:
            raise CorruptItem(
                f"quota of {self.wanted.counter!r}: what window {self.window.name} has used "
                f"({used}) contradicts its refusal; the item was changed by hand",
                item,
            )
        return self.denied(used, now_ms)

    def admitted(self, used: Amount | None, reservation: str | None = None) -> Admitted:
        """The outcome for an amount that is counted; `used` as far as it is known."""
        wanted, window = self.wanted, self.window
        ticket = None
        if wanted.reserve:
            ticket = Ticket(
                wanted.counter,
                wanted.amount,
                self.limit.quota.incarnation,
                window.name,
                wanted.key_id,
                reservation or wanted.call,
                to_datetime(tickets_until_ms(window.end_ms)),
            )
        left = None if used is None else left_of(self.limit.amount, used)
        ends = to_datetime(window.end_ms)
        return Admitted(wanted.counter, wanted.amount, window.name, left, ends, ticket=ticket)

    def meaning_of(self, marker: Item) -> Admitted:
        """What a marker that exists says of this call, in whatever window it is counted.

        Raises:
            IdempotencyKeyReused: it is of another amount, or of another kind of call.
            TicketResolved: it is of a reservation that is committed or released.
        """
        wanted, state = self.wanted, marker.get("state")
        reserved = state != ACQUIRED
        if marker.get("amount") != wanted.amount or reserved is not wanted.reserve:
            raise IdempotencyKeyReused(
                f"idempotency key {wanted.key!r} of {wanted.counter!r} was used to "
                f"{'reserve' if reserved else 'acquire'} {marker.get('amount')}, and now comes to "
                f"{'reserve' if wanted.reserve else 'acquire'} {to_text(wanted.amount)}: a new "
                "call needs a new key"
            )
        if reserved and state != RESERVED:
            raise TicketResolved(
                f"the reservation under key {wanted.key!r} of {wanted.counter!r} is {state}: what "
                "is done again needs a new key"
            )
        call = marker.get("call")
        window = replace(self.window, name=marker["window"], end_ms=marker["window_end"])
        counted = replace(self, window=window).admitted(None, call)
        return replace(counted, duplicate=call != wanted.call)

    def used_elsewhere(self) -> IdempotencyKeyReused:
        """The error for a token that stands for other writes."""
        return IdempotencyKeyReused(
            f"idempotency key {self.wanted.key!r} of {self.wanted.counter!r} was used within ten "
            "minutes: with another amount, in the window before, or before the limit was changed. "
            "It is not counted again; only method marker finds out which"
        )

    def unknown(self) -> Unclear:
        """The error while a request may be applied yet."""
        return Unclear(f"to acquire from the quota of {self.wanted.counter!r}: {ADVICE}")
