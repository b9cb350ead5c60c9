"""The definition of a strict counter, fixed at creation: method, bins, how much it remembers.

A process reads a definition once and keeps it. Every write is conditional on `incarnation`, an id
that the creation of the counter draws: if the counter was deleted or recreated, the condition
fails, and the process reads the definition again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, describe, optional, require
from countledger.ledger.errors import BadSetting, CorruptItem, CountledgerError, shown
from countledger.ledger.limits import (
    BINS_MAX,
    HISTORY_DEFAULT,
    HISTORY_MAX,
    HISTORY_MIN,
    MARKER_WINDOW_DEFAULT_MS,
    MARKER_WINDOW_MAX_MS,
    MARKER_WINDOW_MIN_MS,
    SET_MAX_BYTES,
    SET_TOKENS_DEFAULT,
    SET_TOKENS_MAX,
)

if TYPE_CHECKING:
    from countledger.ledger.attributes import Key


class StaleDefinition(CountledgerError):
    """The counter is not the one that was read: it was deleted or recreated (inner use)."""


class Method(StrEnum):
    """How the changes of a counter are written; fixed at its creation."""

    ATOMIC = "atomic"
    OCC = "occ"
    HISTORY = "history"
    REQUEST_TOKEN = "request_token"  # noqa: S105 - a method, no secret
    MARKER = "marker"
    SET = "set"


SPREADABLE: Final = (Method.ATOMIC, Method.REQUEST_TOKEN, Method.MARKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice that one method has and no other."""

    name: str
    owner: Method
    default: int
    low: int
    high: int
    why: str

    def take(self, method: Method, value: object) -> int | None:
        """The choice, or its default; None for the other methods.

        Raises:
            BadSetting: the choice is for another method, no int, or out of its range.
        """
        if method is not self.owner:
            if value is not None:
                raise BadSetting(
                    f"{self.name} is a choice of method {self.owner}; this is {method}"
                )
            return None
        if value is None:
            return self.default
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadSetting(f"{self.name} {value!r} is not an int: give a whole number")
        if not self.low <= value <= self.high:
            raise BadSetting(
                f"{self.name} {shown(value)} is not between {self.low} and {self.high}: {self.why}"
            )
        return value


HISTORY: Final = Choice(
    name="history",
    owner=Method.HISTORY,
    default=HISTORY_DEFAULT,
    low=HISTORY_MIN,
    high=HISTORY_MAX,
    why="method occ remembers one change, and a longer history makes every write more expensive",
)
MAX_TOKENS: Final = Choice(
    name="max_tokens",
    owner=Method.SET,
    default=SET_TOKENS_DEFAULT,
    low=1,
    high=SET_TOKENS_MAX,
    why=f"a larger set would pass {SET_MAX_BYTES // 1024} KB, all written with every change",
)
WINDOW_MS: Final = Choice(
    name="window_ms",
    owner=Method.MARKER,
    default=MARKER_WINDOW_DEFAULT_MS,
    low=MARKER_WINDOW_MIN_MS,
    high=MARKER_WINDOW_MAX_MS,
    why="a retry within it is recognized, and until its end the marker is stored",
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A strict counter as it was created.

    Attributes:
        counter: its name.
        incarnation: the id that its creation drew.
        method: how changes are written.
        bins: over how many items its value is spread; 1 = only its own.
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
    def marker_window_ms(self) -> int:
        """For how long a key is remembered (`marker`)."""
        return self.window_ms or MARKER_WINDOW_DEFAULT_MS

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

    def is_of(self, item: Item | None) -> bool:
        """Whether an item exists and belongs to this incarnation."""
        return item is not None and item.get("incarnation") == self.incarnation

    def expect(self, item: Item | None) -> Item:
        """An item, if it belongs to this incarnation.

        Raises:
            StaleDefinition: it does not, or does not exist: the counter's markers and tokens mean
                nothing any more.
        """
        if item is None or not self.is_of(item):
            raise self.stale()
        return item

    def stale(self) -> StaleDefinition:
        """The error that says that the counter is another one."""
        return StaleDefinition(f"strict counter {self.counter!r} was deleted or recreated")


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
        BadSetting: a choice breaks its rule, or the method does not have it.
    """
    try:
        chosen = Method(method)
    except ValueError:
        raise BadSetting(f"method {method!r} is invalid: give one of {', '.join(Method)}") from None
    if isinstance(bins, bool) or not 1 <= bins <= BINS_MAX:
        raise BadSetting(f"bins {shown(bins)} must be a number from 1 to {BINS_MAX}")
    if bins > 1 and chosen not in SPREADABLE:
        raise BadSetting(
            f"a counter of method {chosen} cannot have bins: it remembers its changes in one item; "
            f"take {', '.join(SPREADABLE)}, or leave the bins out"
        )
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


def decode_definition(item: Item) -> Definition:
    """The definition in a main item.

    Raises:
        CorruptItem: an attribute is absent, of another type, or has an unknown value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    name = require(item, "method", str)
    if name not in list(Method):
        raise CorruptItem(
            f"strict counter {item.get('counter')!r} has the method {shown(name)}", item
        )
    bins = optional(item, "bins", int) or 1
    if not 1 <= bins <= BINS_MAX:
        raise CorruptItem(f"{describe(item)}: 'bins' is {shown(bins)}, no number of bins", item)
    return Definition(
        require(item, "counter", str),
        require(item, "incarnation", str),
        Method(name),
        bins,
        optional(item, "history", int),
        optional(item, "max_tokens", int),
        optional(item, "window_ms", int),
    )
