"""The writes of quotas, each with the condition that makes it safe. Pure.

The counter of a window (`used`) is made by the first write of the window, an upsert. So no job
makes or resets it, and two first writes meet in one item. Each admission names

- the window, by the key of the item;
- the quota, by its incarnation in the key: a quota that is deleted and created again begins with
  other items;
- the revision of the limit: once a write under a newer revision was stored, every older one is
  refused, and its process reads the limit again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger import amount as amounts
from countledger.ledger import keys
from countledger.ledger.expressions import Absent, Add, AllOf, AnyOf, Assign, AssignOnce, Compare
from countledger.ledger.operations import Put, Update
from countledger.producers.quotas.quota import marker_expires_at, window_expires_at

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.calendar import Window
    from countledger.producers.quotas.outcome import Ticket
    from countledger.producers.quotas.quota import CounterLimit

ACQUIRED: Final = "acquired"
RESERVED: Final = "reserved"
COMMITTED: Final = "committed"
RELEASED: Final = "released"


def admission(table: str, limit: CounterLimit, window: Window, amount: Amount) -> Update:
    """Count an amount that is not above the limit, if it still fits: one write unit."""
    most = amounts.add(limit.amount, amounts.negated(amount))
    fits = AllOf(Compare("used", "<=", most), Compare("revision", "<=", limit.revision))
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
    """Resolve a reservation, if it is this one and open."""
    return Update(
        table,
        ticket.marker_key,
        (Assign("state", state), Assign("actual", actual), Assign("resolved_by", call)),
        AllOf(
            Compare("call", "=", ticket.reservation),
            Compare("state", "=", RESERVED),
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
