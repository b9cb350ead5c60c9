"""What the calls of a quota answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.amount import Amount, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from countledger.ledger.calendar import Window
    from countledger.producers.quotas.quota import CounterLimit


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
