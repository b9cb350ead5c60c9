"""How far the removal of a counter has come, as users are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many of the things that stay a report names.
_NAMED: Final = 5


class Stage(StrEnum):
    """What became of a counter that is to be removed."""

    MARKED = "marked"
    WAITING = "waiting"
    IN_USE = "in use"
    LEFT = "left alone"
    REMOVED = "removed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Removal:
    """How far the removal of a counter has come.

    Attributes:
        counter: its name.
        stage: `marked` just now; `waiting` until it is safe; `in use`: something was made behind
            the mark, it starts anew; `left alone` this time, for the reason given; `removed`: its
            numbers are gone; `forgotten`: its name as well.
        next_at_ms: when the next call can go on; None: at any time, or there is nothing left.
        detail: one line for people.
    """

    counter: str
    stage: Stage
    next_at_ms: int | None
    detail: str


def what_is_left(stays: Sequence[str]) -> str:
    """What a report says of a counter that was removed, given what is kept under its name."""
    if not stays:
        return "nothing is left of it"
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    return f"the name is in use again; kept: {', '.join(stays[:_NAMED])}{more}"
