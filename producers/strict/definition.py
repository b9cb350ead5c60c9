"""What is fixed of a strict counter when it is made: its method, its bins, how much it remembers.

A process reads a definition once and keeps it. Every write asks for `made`, the id of that making:
a counter that was deleted, or deleted and made again, fails the condition and is read anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.errors import BadSetting, CorruptItem
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


class Method(StrEnum):
    """How changes of a counter are written; fixed when it is made."""

    ATOMIC = "atomic"
    OCC = "occ"
    HISTORY = "history"
    CRT = "crt"
    MARKER = "marker"
    SET = "set"


SPREADABLE: Final = (Method.ATOMIC, Method.CRT, Method.MARKER)


@dataclass(frozen=True, slots=True)
class Definition:
    """A strict counter as it was made.

    Attributes:
        counter: its name.
        made: the id of this making.
        method: how changes are written.
        bins: over how many items its value is spread; 1 = none but its own.
        history: how many changes it remembers (`history`).
        max_tokens: how many keys it takes in its life (`set`).
        window_ms: for how long a key is remembered (`marker`).
    """

    counter: str
    made: str
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
    made: str,
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
    _check_bins(chosen, bins)
    return Definition(
        counter,
        made,
        chosen,
        bins,
        history=_HISTORY.take(chosen, history),
        max_tokens=_MAX_TOKENS.take(chosen, max_tokens),
        window_ms=_WINDOW_MS.take(chosen, window_ms),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A choice that one method has and no other."""

    name: str
    owner: Method
    default: int
    low: int
    high: int
    why: str

    def take(self, method: Method, value: object) -> int | None:
        """The choice, or its default; None for the other methods."""
        if method is not self.owner:
            if value is not None:
                raise BadSetting(
                    f"{self.name} is a choice of method {self.owner}; this is {method}"
                )
            return None
        if value is None:
            return self.default
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadSetting(f"{self.name} {value!r} is no int")
        if not self.low <= value <= self.high:
            raise BadSetting(
                f"{self.name} {value} is not between {self.low} and {self.high}: {self.why}"
            )
        return value


_HISTORY = _Choice(
    name="history",
    owner=Method.HISTORY,
    default=HISTORY_DEFAULT,
    low=HISTORY_MIN,
    high=HISTORY_MAX,
    why="one change is what method occ remembers, and more make every write dearer",
)
_MAX_TOKENS = _Choice(
    name="max_tokens",
    owner=Method.SET,
    default=SET_TOKENS_DEFAULT,
    low=1,
    high=SET_TOKENS_MAX,
    why=f"a larger set would pass {SET_MAX_BYTES // 1024} KB, all written with every change",
)
_WINDOW_MS = _Choice(
    name="window_ms",
    owner=Method.MARKER,
    default=MARKER_WINDOW_DEFAULT_MS,
    low=MARKER_WINDOW_MIN_MS,
    high=MARKER_WINDOW_MAX_MS,
    why="a retry within it is recognised, and until then its marker is stored",
)


def _check_bins(method: Method, bins: int) -> None:
    if isinstance(bins, bool) or not 1 <= bins <= BINS_MAX:
        raise BadSetting(f"bins {bins!r} must be a number from 1 to {BINS_MAX}")
    if bins > 1 and method not in SPREADABLE:
        raise BadSetting(
            f"a counter of method {method} cannot have bins: what it remembers lies in one item; "
            f"take {', '.join(SPREADABLE)}, or leave the bins out"
        )


def encode_definition(definition: Definition) -> Item:
    """Its attributes in the counter's main item."""
    return {
        **definition.main,
        "made": definition.made,
        "method": str(definition.method),
        "bins": definition.bins if definition.bins > 1 else None,
        "history": definition.history,
        "max_tokens": definition.max_tokens,
        "window_ms": definition.window_ms,
    }


def decode_definition(item: Item) -> Definition:
    """The definition in a main item.

    Raises:
        CorruptItem: an attribute is absent, of another type, or of no known value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    name = require(item, "method", str)
    if name not in list(Method):
        raise CorruptItem(f"strict counter {item.get('counter')!r} has the method {name!r}")
    return Definition(
        require(item, "counter", str),
        require(item, "made", str),
        Method(name),
        optional(item, "bins", int) or 1,
        optional(item, "history", int),
        optional(item, "max_tokens", int),
        optional(item, "window_ms", int),
    )
