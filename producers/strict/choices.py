"""What a caller may choose when a strict counter is made, with the bounds of each choice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from countledger.ledger.errors import BadSetting
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


class Method(StrEnum):
    """How changes of a counter are written; fixed when it is made."""

    ATOMIC = "atomic"
    OCC = "occ"
    HISTORY = "history"
    CRT = "crt"
    MARKER = "marker"
    SET = "set"


SPREADABLE: Final = (Method.ATOMIC, Method.CRT, Method.MARKER)


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


HISTORY: Final = Choice(
    name="history",
    owner=Method.HISTORY,
    default=HISTORY_DEFAULT,
    low=HISTORY_MIN,
    high=HISTORY_MAX,
    why="one change is what method occ remembers, and more make every write dearer",
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
    why="a retry within it is recognised, and until then its marker is stored",
)


def check_bins(method: Method, bins: int) -> None:
    """Whether a counter of that method may have so many bins.

    Raises:
        BadSetting: naming the rule that they break.
    """
    if isinstance(bins, bool) or not 1 <= bins <= BINS_MAX:
        raise BadSetting(f"bins {bins!r} must be a number from 1 to {BINS_MAX}")
    if bins > 1 and method not in SPREADABLE:
        raise BadSetting(
            f"a counter of method {method} cannot have bins: what it remembers lies in one item; "
            f"take {', '.join(SPREADABLE)}, or leave the bins out"
        )
