"""The alert state of a counter under a rule: what was judged last, and whether it has been told.

One item, written only when it changes, with the alerts that it sets off in it:

    write      on condition that its version is below this one's, and that it has been told
    tell       publish the alerts that lie in it
    settle     mark it told, on condition that it is still that one

So the alerts of the next update are written only once the last ones have been told, and none is
lost wherever a process dies. A record at or below the state's version has been judged: if its
alerts lie in the state untold they are told, else nothing is left to do. All of `decide` is pure.

A record of a lower version, made much later, is of a total that was deleted and made anew; from
then on those of the total before it count as judged, whatever their versions.

Without a state a rule is armed. A rule without a re-arm level is armed always.

A total that was told of where it stood (`decide_now`) has come there by moves that may still have
to be judged. So its state keeps the one that it was written over, and they are judged by that: the
state goes back to the first of them that sets something off, and on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.consumers.alerts import judged
from countledger.consumers.alerts.alert import Firing, firing_of
from countledger.consumers.alerts.crossings import crossings, direction_of, is_back, standing
from countledger.consumers.alerts.rule import Direction

if TYPE_CHECKING:
    from countledger.consumers.alerts.crossings import Crossing
    from countledger.consumers.alerts.judged import Stood
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.total_change import Move


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a counter under a rule.

    Attributes:
        counter: whose total.
        rule: the rule's name.
        revision: the revision that judged last.
        version: of the total, as it was when this state changed last.
        at_ms: when that was, by the stream's record.
        armed: whether the next crossing alerts; of a rule without a re-arm level always.
        firing: what the change set off, or None where it only armed the rule again.
        told: whether its alerts have been told, all of them.
        standing: whether it was made for a total that did not move (`decide_now`). Records up to
            that version are still to be judged, as far as `before` says.
        before: of such a state the one that it was written over, if there was one.
        stood: of a state that was written over such a one what stood there; None once it is passed.
    """

    counter: str
    rule: str
    revision: str
    version: int
    at_ms: int
    armed: bool
    firing: Firing | None = None
    told: bool = True
    standing: bool = False
    before: State | None = None
    stood: Stood | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """The next step is to tell what lies in the state.

    Attributes:
        firing: what that is.
        standing: whether it is of a total that did not move.
    """

    firing: Firing
    standing: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """The next step is to write a state.

    Attributes:
        state: which.
        over: the state that has to be there: one that tells of a total that stood, or for that of
            such a total the last one. None: any that is earlier, but for these.
    """

    state: State
    over: State | None = None


def decide(state: State | None, move: Move, rule: Rule) -> Tell | Write | None:
    """The next step for a move under a rule, or None where nothing is left to do.

    Args:
        state: as it is stored, as far as is known. One that is older than what is stored does no
            harm: its write is refused, and the item that refuses it tells.
        move: of a counter that the rule watches, at a time when this revision is in force.
        rule: the revision.
    """
    if state is not None and not state.told and state.firing is not None:
        return Tell(state.firing, state.standing)
    known = judged.of_this_total(judged.up_to(state, move), move)
    if known is not None and judged.has_judged(known, move):
        return None
    stood = judged.stood_ahead(state, move)
    if stood is not None and judged.was_told(stood, move, rule):
        return None
    behind = _state_behind(known, move, rule) or _begun(state, move, rule)
    if behind is None:
        return None
    tells_of_one = state is not None and judged.stood_in(state) is not None
    return Write(replace(behind, stood=stood), over=state if tells_of_one else None)


def decide_now(state: State | None, move: Move, rule: Rule) -> Tell | Write | None:
    """As `decide`, for a total that does not move: it alerts if it is beyond the threshold already.

    Args:
        state: as it is stored, as far as is known.
        move: the total where it stands, from its value to the same.
        rule: a new revision, which has judged nothing yet.
    """
    if state is not None and not state.told and state.firing is not None:
        return Tell(state.firing, state.standing)
    known = judged.of_this_total(state, move)
    if known is not None and (move.version < known.version or judged.has_met(known, rule)):
        return None
    beyond = standing(move.new, rule)
    if beyond is None:
        return None
    falling = rule.direction is Direction.FALLING
    fired = _fire(move, rule, Direction.FALLING if falling else Direction.RISING, (beyond,))
    before = known
    if known is not None:
        before = known.before if known.standing else replace(known, firing=None, stood=None)
    return Write(replace(fired, standing=True, before=before), over=state)


def concerns(move: Move, rule: Rule) -> bool:
    """Whether a move can change anything under a rule, whatever its state."""
    if crossings(move.old, move.new, rule):
        return True
    # A state may be left from a total of that name that was deleted: see `_begun`.
    return rule.rearm is not None and (move.begins or _was_back(move, rule))


def told(state: State) -> State:
    """The state, once its alerts have been told."""
    return replace(state, told=True)


def _state_behind(known: State | None, move: Move, rule: Rule) -> State | None:
    """The state behind a move that has not been judged, or None where it stays as it is."""
    was_armed = judged.is_armed(known, move, rule)
    if was_armed or is_back(move.old, rule):
        crossed = crossings(move.old, move.new, rule)
        if crossed:
            return _fire(move, rule, direction_of(move.old, move.new), crossed)
    if not was_armed and _was_back(move, rule):
        return _state_of(move, rule, armed=True)
    return None


def _begun(state: State | None, move: Move, rule: Rule) -> State | None:
    """The state of a total that was made again, where the one before it had disarmed the rule.

    A new total begins armed, so it says nothing new of this move. But the next one may have a
    version above the old state's, and would be taken for a move of the old total.
    """
    if state is None or judged.of_this_total(state, move) is not None:
        return None
    if judged.is_armed(state, move, rule):
        return None
    return _state_of(move, rule, armed=True)


def _was_back(move: Move, rule: Rule) -> bool:
    """Whether a total was at the re-arm level: from there it may have begun, made again."""
    return is_back(move.new, rule) or is_back(move.old, rule)


def _fire(move: Move, rule: Rule, direction: Direction, crossed: tuple[Crossing, ...]) -> State:
    firing = firing_of(rule, move, direction, crossed)
    return _state_of(move, rule, armed=rule.rearm is None, firing=firing)


def _state_of(move: Move, rule: Rule, *, armed: bool, firing: Firing | None = None) -> State:
    return State(
        move.counter,
        rule.name,
        rule.revision,
        move.version,
        move.at_ms,
        armed=armed,
        firing=firing,
        told=firing is None,
    )
