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

A total that was told of where it scan_alert (`decide_scan`) has come there by changes that may
still have to be judged. So its state keeps the one that it was written over, and they are judged by
that: the state goes back to the first of them that sets something off, and on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.consumers.alerts import judged
from countledger.consumers.alerts.alert import Firing, firing_of
from countledger.consumers.alerts.crossing import crossings, direction_of, is_back, standing
from countledger.consumers.alerts.rule import Direction

if TYPE_CHECKING:
    from countledger.consumers.alerts.crossing import Crossing
    from countledger.consumers.alerts.judged import ScanAlert
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.total_change import TotalChange


@dataclass(frozen=True, slots=True)
class AlertState:
    """What is known of a counter under a rule.

    Attributes:
        counter: whose total.
        rule: the rule's name.
        revision: the revision that judged last.
        version: of the total, as it was when this state changed last.
        at_ms: when that was, by the stream's record.
        armed: whether the next crossing alerts; of a rule without a re-arm level always.
        firing: what the change set off, or None where it only armed the rule again.
        published: whether its alerts have been told, all of them.
        from_scan: whether it was made for a total that did not change (`decide_scan`). Records up
            to that version are still to be judged, as far as `before` says.
        before_scan: of such a state the one that it was written over, if there was one.
        scan_alert: of a state that was written over such a one what scan_alert there; None once it
            is passed.
    """

    counter: str
    rule: str
    revision: str
    version: int
    at_ms: int
    armed: bool
    firing: Firing | None = None
    published: bool = True
    from_scan: bool = False
    before_scan: AlertState | None = None
    scan_alert: ScanAlert | None = None


@dataclass(frozen=True, slots=True)
class PublishFiring:
    """The next step is to tell what lies in the state.

    Attributes:
        firing: what that is.
        from_scan: whether it is of a total that did not change.
    """

    firing: Firing
    from_scan: bool = False


@dataclass(frozen=True, slots=True)
class WriteState:
    """The next step is to write a state.

    Attributes:
        state: which.
        over: the state that has to be there: one that tells of a total that scan_alert, or for that
            of such a total the last one. None: any that is earlier, but for these.
    """

    state: AlertState
    over: AlertState | None = None


def decide(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    """The next step for a change under a rule, or None where nothing is left to do.

    Args:
        state: as it is stored, as far as is known. One that is older than what is stored does no
            harm: its write is refused, and the item that refuses it tells.
        change: of a counter that the rule watches, at a time when this revision is in force.
        rule: the revision.
    """
    if state is not None and not state.published and state.firing is not None:
        return PublishFiring(state.firing, state.from_scan)
    known = judged.of_this_total(judged.up_to(state, change), change)
    if known is not None and judged.has_evaluated(known, change):
        return None
    scan_alert = judged.scan_alert_ahead(state, change)
    if scan_alert is not None and judged.was_published(scan_alert, change, rule):
        return None
    behind = _state_behind(known, change, rule) or _begun(state, change, rule)
    if behind is None:
        return None
    over_scan = state is not None and judged.scan_alert_in(state) is not None
    return WriteState(replace(behind, scan_alert=scan_alert), over=state if over_scan else None)


def decide_scan(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    """As `decide`, for the initial scan: a total that is beyond the threshold already alerts.

    Args:
        state: as it is stored, as far as is known.
        change: the total where it stands, from its value to the same.
        rule: a new revision, which has judged nothing yet.
    """
    if state is not None and not state.published and state.firing is not None:
        return PublishFiring(state.firing, state.from_scan)
    known = judged.of_this_total(state, change)
    if known is not None and (change.version < known.version or judged.has_met(known, rule)):
        return None
    beyond = standing(change.new, rule)
    if beyond is None:
        return None
    falling = rule.direction is Direction.FALLING
    fired = _fire(change, rule, Direction.FALLING if falling else Direction.RISING, (beyond,))
    before = known
    if known is not None:
        before = (
            known.before_scan if known.from_scan else replace(known, firing=None, scan_alert=None)
        )
    return WriteState(replace(fired, from_scan=True, before_scan=before), over=state)


def may_matter(change: TotalChange, rule: Rule) -> bool:
    """Whether a change can change anything under a rule, whatever its state."""
    if crossings(change.old, change.new, rule):
        return True
    # A state may be left from a total of that name that was deleted: see `_begun`.
    return rule.rearm is not None and (change.begins or _was_back(change, rule))


def published(state: AlertState) -> AlertState:
    """The state, once its alerts have been told."""
    return replace(state, published=True)


def _state_behind(known: AlertState | None, change: TotalChange, rule: Rule) -> AlertState | None:
    """The state behind a change that has not been judged, or None where it stays as it is."""
    was_armed = judged.is_armed(known, change, rule)
    if was_armed or is_back(change.old, rule):
        crossed = crossings(change.old, change.new, rule)
        if crossed:
            return _fire(change, rule, direction_of(change.old, change.new), crossed)
    if not was_armed and _was_back(change, rule):
        return _state_of(change, rule, armed=True)
    return None


def _begun(state: AlertState | None, change: TotalChange, rule: Rule) -> AlertState | None:
    """The state of a total that was made again, where the one before it had disarmed the rule.

    A new total begins armed, so it says nothing new of this change. But the next one may have a
    version above the old state's, and would be taken for a change of the old total.
    """
    if state is None or judged.of_this_total(state, change) is not None:
        return None
    if judged.is_armed(state, change, rule):
        return None
    return _state_of(change, rule, armed=True)


def _was_back(change: TotalChange, rule: Rule) -> bool:
    """Whether a total was at the re-arm level: from there it may have begun, made again."""
    return is_back(change.new, rule) or is_back(change.old, rule)


def _fire(
    change: TotalChange, rule: Rule, direction: Direction, crossed: tuple[Crossing, ...]
) -> AlertState:
    firing = firing_of(rule, change, direction, crossed)
    return _state_of(change, rule, armed=rule.rearm is None, firing=firing)


def _state_of(
    change: TotalChange, rule: Rule, *, armed: bool, firing: Firing | None = None
) -> AlertState:
    return AlertState(
        change.counter,
        rule.name,
        rule.revision,
        change.version,
        change.at_ms,
        armed=armed,
        firing=firing,
        published=firing is None,
    )
