"""How far the deletion of a counter has come, as users are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many of the things that stay a report names.
_NAMED: Final = 5


class DeletionStage(StrEnum):
    """What became of a counter that is to be deleted."""

    MARKED = "marked"
    WAITING = "waiting"
    IN_USE = "in use"
    SKIPPED = "skipped"
    DELETED = "deleted"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far the deletion of a counter has come.

    Attributes:
        counter: its name.
        stage: `marked` just now; `waiting` until it is safe; `in use`: something was made behind
            the mark, it starts anew; `skipped` this time, for the reason given; `deleted`: its
            numbers are gone; `forgotten`: its name as well.
        next_at_ms: when the next call can go on; None: at any time, or there is nothing left.
        detail: one line for people.
    """

    counter: str
    stage: DeletionStage
    next_at_ms: int | None
    detail: str


def what_is_left(stays: Sequence[str]) -> str:
    """What a report says of a counter that was deleted, given what is kept under its name."""
    if not stays:
        return "nothing is left of it"
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    return f"the name is in use again; kept: {', '.join(stays[:_NAMED])}{more}"
