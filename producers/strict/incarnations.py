"""The incarnations of the counters that changed together: what their marker says of them."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import IdempotencyKeyReused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext


def check_counters(context: MethodContext, change_id: str, key_text: str) -> None:
    """Check that a key's changes are in the counters that have their names now.

    A read unit for each KB of the marker, and one for each counter.

    Raises:
        IdempotencyKeyReused: one of the counters was deleted or recreated, since.
        Throttled, Unclear, Unreachable: it could not be read.
    """
    marker = context.reads.get(context.table, keys.keyed_key(change_id), consistent=True)
    if marker is not None and "void" not in marker:
        counters = [*marker.get("changes", {}), *marker.get("set", {})]
        check_same(marker, incarnations_of(context, counters), key_text)


def incarnations_of(context: MethodContext, counters: Collection[str]) -> dict[str, str]:
    """The ids of those of the counters that exist: one read unit each."""
    places = [keys.total_key(counter) for counter in counters]
    items = context.reads.get_many(context.table, places, consistent=True)
    return {item["counter"]: item["incarnation"] for item in items if "incarnation" in item}


def check_same(marker: Item, incarnations: Mapping[str, str], key_text: str) -> None:
    """Check that a marker belongs to these incarnations of its counters.

    Raises:
        IdempotencyKeyReused: it belongs to others.
    """
    if marker.get("incarnations") != digest_of(incarnations):
        raise IdempotencyKeyReused(
            f"idempotency key {key_text!r} was used before one of its counters was deleted "
            "or recreated: its changes are not in that counter; new changes need a new key"
        )


def digest_of(incarnations: Mapping[str, str]) -> str:
    """Stands for the incarnations of all counters: 32 characters, however many they are."""
    text = "\n".join(
        f"{counter}#{incarnation}" for counter, incarnation in sorted(incarnations.items())
    )
    return blake2b(text.encode(), digest_size=16, person=b"incarnations").hexdigest()
