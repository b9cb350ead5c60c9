"""What is fixed of a strict counter when it is made: its method, its bins, how much it remembers.

A process reads a definition once and keeps it. Every write is conditional on `incarnation`, an id
that the creation of the counter draws: if the counter was deleted or recreated, the condition
fails, and the process reads the definition again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, describe, optional, require
from countledger.ledger.errors import BadSetting, CorruptItem, shown
from countledger.ledger.limits import BINS_MAX
from countledger.producers.strict.choices import (
    HISTORY,
    MAX_TOKENS,
    SPREADABLE,
    WINDOW_MS,
    Method,
    check_bins,
)

if TYPE_CHECKING:
    from countledger.ledger.attributes import Key

__all__ = [
    "SPREADABLE",
    "Definition",
    "Method",
    "decode_definition",
    "define",
    "encode_definition",
]


@dataclass(frozen=True, slots=True)
class Definition:
    """A strict counter as it was made.

    Attributes:
        counter: its name.
        incarnation: the id that its creation drew.
        method: how changes are written.
        bins: over how many items its value is spread; 1 = none but its own.
        history: how many changes it remembers (`history`).
        max_tokens: how many keys it takes in its life (`set`).
        window_ms: for how long a key is remembered (`marker`).
    """

    counter: str
    incarnation: str
    method: Method
    bins: int = 1
    history: int | None = None
    max_tokens: int | None = None
    window_ms: int | None = None

    @property
    def main(self) -> Key:
        """The key of the item that holds the definition and, without bins, the value."""
        return keys.total_key(self.counter)

    @property
    def places(self) -> list[Key]:
        """The keys of the items that hold the value."""
        if self.bins == 1:
            return [self.main]
        return [keys.bin_key(self.counter, number) for number in range(self.bins)]


def define(
    counter: str,
    incarnation: str,
    method: str,
    *,
    bins: int = 1,
    history: int | None = None,
    max_tokens: int | None = None,
    window_ms: int | None = None,
) -> Definition:
    """A definition by the caller's choices, with defaults for the chosen method.

    Raises:
        BadSetting: a choice breaks its rule, or is none of this method.
    """
    try:
        chosen = Method(method)
    except ValueError:
        raise BadSetting(f"method {method!r} is none of {', '.join(Method)}") from None
    check_bins(chosen, bins)
    return Definition(
        counter,
        incarnation,
        chosen,
        bins,
        history=HISTORY.take(chosen, history),
        max_tokens=MAX_TOKENS.take(chosen, max_tokens),
        window_ms=WINDOW_MS.take(chosen, window_ms),
    )


def encode_definition(definition: Definition) -> Item:
    """Its attributes in the counter's main item."""
    return {
        **definition.main,
        "incarnation": definition.incarnation,
        "method": str(definition.method),
        "bins": definition.bins if definition.bins > 1 else None,
        "history": definition.history,
        "max_tokens": definition.max_tokens,
        "window_ms": definition.window_ms,
    }


def _bins_in(item: Item) -> int:
    bins = optional(item, "bins", int) or 1
    if not 1 <= bins <= BINS_MAX:
        raise CorruptItem(f"{describe(item)}: 'bins' is {shown(bins)}, no number of bins", item)
    return bins


def decode_definition(item: Item) -> Definition:
    """The definition in a main item.

    Raises:
        CorruptItem: an attribute is absent, of another type, or of no known value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    name = require(item, "method", str)
    if name not in list(Method):
        raise CorruptItem(
            f"strict counter {item.get('counter')!r} has the method {shown(name)}", item
        )
    return Definition(
        require(item, "counter", str),
        require(item, "incarnation", str),
        Method(name),
        _bins_in(item),
        optional(item, "history", int),
        optional(item, "max_tokens", int),
        optional(item, "window_ms", int),
    )
