"""What a state says of the moves of its counter: which were judged, and what stands ahead of them.

Moves come in order, and come again. A total that was told of where it stood was read, so it may lie
ahead of the moves that brought it there: up to it they are judged by what was known before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.alerts.crossings import Crossing, crossings, direction_of
from countledger.consumers.alerts.rule import Direction
from countledger.ledger.limits import ALERT_MADE_ANEW_MS

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.state import State
    from countledger.consumers.alerts.total_change import Move
    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class Stood:
    """A total that was told of where it stood.

    Attributes:
        revision: of the rule.
        version: of the total.
        threshold: that was told.
    """

    revision: str
    version: int
    threshold: Amount


def of_this_total(state: State | None, move: Move) -> State | None:
    """The state, unless the total was deleted and made anew since: versions begin again then."""
    if state is None or not _is_anew(state, move):
        return state
    return state if move.version > state.version else None


def has_judged(state: State, move: Move) -> bool:
    """Whether a state lies behind a move."""
    if move.at_ms < state.at_ms - ALERT_MADE_ANEW_MS:
        return True  # whatever its version: it may be of the total before this one
    return move.version <= state.version


def has_met(state: State, rule: Rule) -> bool:
    """Whether something was told by this revision already."""
    stood = state.stood
    return rule.revision in (state.revision, None if stood is None else stood.revision)


def up_to(state: State | None, move: Move) -> State | None:
    """The state of the moves before this one: up to where a total stood, what was known before."""
    if state is None or not state.standing or _is_anew(state, move):
        return state
    return state.before if has_judged(state, move) else state


def stood_ahead(state: State | None, move: Move) -> Stood | None:
    """What stood where a move comes to, or further on."""
    if state is None or _is_anew(state, move):
        return None
    stood = stood_in(state)
    return stood if stood is not None and move.version <= stood.version else None


def stood_in(state: State) -> Stood | None:
    """The total of which a state tells that it stood."""
    if not state.standing or state.firing is None:
        return state.stood
    return Stood(state.revision, state.version, state.firing.crossings[0].threshold)


def was_told(stood: Stood, move: Move, rule: Rule) -> bool:
    """Whether all that a move sets off was told where its total stood; what it passed was not."""
    way = Direction.FALLING if rule.direction is Direction.FALLING else Direction.RISING
    if (move.version, rule.revision) != (stood.version, stood.revision):
        return False
    crossed = crossings(move.old, move.new, rule)
    return direction_of(move.old, move.new) is way and set(crossed) <= {Crossing(stood.threshold)}


def is_armed(state: State | None, move: Move, rule: Rule) -> bool:
    """Whether a crossing alerts. Of another revision a state says nothing: one begins armed."""
    if state is None or rule.rearm is None:
        return True
    if state.standing and state.revision != rule.revision:
        return is_armed(state.before, move, rule)
    stood = state.stood
    if stood is not None and stood.revision == rule.revision and stood.version < move.version:
        return False  # it was told there, and nothing was set off since
    return state.revision != rule.revision or state.armed


def _is_anew(state: State, move: Move) -> bool:
    return state.at_ms < move.at_ms - ALERT_MADE_ANEW_MS
