"""One change on its way: to one item, or split over several bins at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from countledger.ledger.errors import CorruptItem, RequestRejected, TransactionCancelled
from countledger.ledger.operations import Update
from countledger.producers.strict.context import StaleDefinition
from countledger.producers.strict.state import decode_state, has_headroom, moved, of, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.errors import Reason
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import BoundReached, Refusal, StrictOutcome


@dataclass(frozen=True, slots=True)
class Part:
    """What one item is to take of a change; all of it, unless it is split over bins."""

    key: Key
    delta: Amount


class PendingChange(Protocol):
    """A change under one method, and what is known of its attempts so far."""

    def at(self, parts: Sequence[Part]) -> StrictOutcome:
        """Bring it in at these items, retrying as the method allows.

        Returns:
            `BoundReached` where an item has no room: nothing was written there, and another place
            may be tried. (Its numbers are those of the item, which may be a bin.)

        Raises:
            StaleDefinition: the counter is not the one that was read.
        """

    def confirm_refusal(self, refused: Refusal) -> StrictOutcome:
        """Make a refusal final: no request of this call may bring the change in any more."""


def update_of(table: str, definition: Definition, part: Part, now_ms: int | None) -> Update:
    """The write that moves an item by its part, if there is room: one write unit."""
    return Update(
        table,
        part.key,
        moved(part.delta, now_ms),
        of(definition.incarnation, has_headroom(part.delta)),
        returning="ALL_NEW",
    )


def refused_by(definition: Definition, part: Part, item: Item | None) -> BoundReached:
    """Why an item that a condition met has refused its part.

    Raises:
        StaleDefinition: it is gone, or belongs to another incarnation of the counter.
    """
    if item is None or item.get("incarnation") != definition.incarnation:
        raise StaleDefinition(f"strict counter {definition.counter!r} was deleted or recreated")
    refused = refusal(definition.counter, decode_state(item), part.delta)
    if refused is None:
        raise CorruptItem(
            f"strict counter {definition.counter!r}: total, bounds and rooms contradict each "
            "other; an item was changed by hand"
        )
    return refused


def refused_among(
    definition: Definition, parts: Sequence[Part], reasons: Sequence[Reason]
) -> BoundReached | None:
    """The refusal in a cancelled transaction; None where another try may pass.

    Raises:
        StaleDefinition: as `refused_by`.
        RequestRejected: the service calls a write invalid.
    """
    for part, reason in zip(parts, reasons, strict=True):
        if reason.condition_failed:
            return refused_by(definition, part, reason.item)
    check_passing(reasons)
    return None


def check_passing(reasons: Sequence[Reason]) -> None:
    """Nothing but conflicts and throttles: another try may pass.

    Raises:
        RequestRejected: something else.
    """
    if not any(reason.passing for reason in reasons):
        raise RequestRejected(str(TransactionCancelled(tuple(reasons))))
