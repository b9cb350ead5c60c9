"""The alert state of a counter under a rule, and what each change of the total does to it: a table.

The state is one item. It is written only when it changes, and it holds the alerts that the change
fires. A state is written in three steps:

    write      if the stored version is lower and its alerts are published
    publish    send the alerts that the state holds
    mark       set `published`, if the stored state is still this one

So the alerts of the next change are written only after the last ones were published: a crash at any
point loses none. `ACTIONS` says what to do; it looks up what the stored state means for a change
(`AlertStatus`) and what the change does under the rule (`AlertInput`). All of it is pure.

Without a stored state a rule is armed. A rule without a re-arm level is always armed.

*Recreated totals.* A change of another incarnation than the state's, not made before it, belongs to
a new total. Where one of the two names none, a change does that was made more than
`ALERT_MADE_ANEW_MS` later and whose version is not higher. From then on all changes of the old
total count as evaluated, whatever their versions.

*Windows.* Each window of a counter has a state of its own. It is written by the alert, and kept for
as long as the window can change. So a revision of a rule alerts once for each window.

*Initial scan.* A scan reads totals, so it may be ahead of the changes in the stream. The state that
it writes keeps the state that it replaces (`before_scan`). Changes up to the scanned version are
evaluated by that earlier state: the state goes back to the first of them that fires or re-arms. It
then remembers the alert of the scan (`scan_alert`) until a change passes its version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.crossing import crossings, direction_of, is_back, last_passed
from countledger.consumers.alerts.message import (
    Firing,
    checked_incarnation,
    decode_firing,
    encode_firing,
)
from countledger.consumers.alerts.rule import Crossing, Direction
from countledger.ledger import keys
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.attributes import check_format, describe, require
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import ALERT_MADE_ANEW_MS, ALERT_STATE_LIFE_MS, SECOND_MS
from countledger.ledger.operations import (
    Absent,
    AllOf,
    AnyOf,
    Assign,
    Compare,
    Put,
    Update,
    unchanged,
)

if TYPE_CHECKING:
    from countledger.consumers.alerts.crossing import TotalChange
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition


# The alert state of a counter under a rule as it is stored: its item, and the writes of it.


@dataclass(frozen=True, slots=True)
class ScanAlert:
    """The alert of an initial scan that may be ahead of the stream."""

    revision: str
    version: int
    threshold: Amount


@dataclass(frozen=True, slots=True)
class AlertState:
    """What is stored about a counter under a rule.

    Attributes:
        revision: the revision by which the state was last changed.
        version: of the total after the change that changed this state.
        at_ms: when the stream made the record of that change.
        armed: whether the next crossing alerts; without a re-arm level always.
        firing: the alerts of the change, or None if it only armed the rule again.
        from_scan: whether the initial scan wrote it. Changes up to its version are still to be
            evaluated, by `before_scan`.
        scan_alert: the alert of a scan whose version no change has passed yet; else None.
        incarnation: of the total; None: of a window, or of a total that names none.
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
    incarnation: str | None = None

    @property
    def has_unpublished_alerts(self) -> bool:
        return not self.published and self.firing is not None

    @property
    def latest_scan_alert(self) -> ScanAlert | None:
        """The alert of the scan that wrote this state, or that this state remembers."""
        if not self.from_scan or self.firing is None:
            return self.scan_alert
        return ScanAlert(self.revision, self.version, self.firing.crossings[0].threshold)

    def is_older_total_than(self, change: TotalChange) -> bool:
        """Whether the total may have been deleted and recreated between this state and a change."""
        return self.at_ms < change.at_ms - ALERT_MADE_ANEW_MS

    def is_of_another_total_than(self, change: TotalChange) -> bool:
        """Whether both name their incarnation, and these differ."""
        return len({self.incarnation, change.incarnation} - {None}) > 1

    def is_replaced_by(self, change: TotalChange) -> bool:
        """Whether it belongs to a total that was deleted before a change."""
        if self.is_of_another_total_than(change):
            return self.at_ms <= change.at_ms
        return self.is_older_total_than(change) and change.version <= self.version

    def includes(self, change: TotalChange) -> bool:
        """Whether a change is at or before this state, or of the total before this one."""
        if self.is_of_another_total_than(change):
            return change.at_ms < self.at_ms
        is_much_older = change.at_ms < self.at_ms - ALERT_MADE_ANEW_MS
        return is_much_older or change.version <= self.version


@dataclass(frozen=True, slots=True)
class PublishFiring:
    """The next step: publish these alerts of the state, which an initial scan fired or a change."""

    firing: Firing
    from_scan: bool = False


@dataclass(frozen=True, slots=True)
class WriteState:
    """The next step: write a state, over the one that must be stored, if it is named.

    That is one with a scan alert or of another incarnation, or any for a scan. None: any earlier
    state without a scan alert.
    """

    state: AlertState
    over: AlertState | None = None


def write_of(table: str, write: WriteState) -> Put:
    """The write of a state for a change: one write unit for each KB.

    Condition: nothing is stored; or exactly `write.over` is; or a state that is published, has no
    scan alert, and is earlier: by version within one incarnation, or by time if its total was
    recreated since. Of a window it is also of another revision.
    """
    state = write.state
    if write.over is not None:
        return Put(table, encode_state(state), _is_still(write.over))
    older_total = Compare("at", "<", state.at_ms - ALERT_MADE_ANEW_MS)
    not_later = Compare("at", "<=", state.at_ms + ALERT_MADE_ANEW_MS)
    earlier = AllOf(Compare("version", "<", state.version), not_later, *_same_total(state))
    is_published = Compare("published", "=", value=True)
    replaceable = AllOf(
        AnyOf(older_total, earlier), is_published, Absent("from_scan"), Absent("scan_alert")
    )
    if state.firing is not None and state.firing.window is not None:
        # A window alerts once for each revision of the rule.
        replaceable = AllOf(replaceable, Compare("revision", "<>", state.revision))
    return Put(table, encode_state(state), AnyOf(Absent("version"), replaceable))


def scan_write_of(table: str, write: WriteState) -> Put:
    """The write of a state for an initial scan: over exactly `write.over`, or over nothing."""
    same = Absent("version") if write.over is None else _is_still(write.over)
    return Put(table, encode_state(write.state), same)


def _is_still(state: AlertState) -> Condition:
    """The condition that a state is stored, and published."""
    return AllOf(
        Compare("version", "=", state.version),
        Compare("revision", "=", state.revision),
        Compare("published", "=", value=True),
        _same_origin(from_scan=state.from_scan),
        unchanged("incarnation", state.incarnation),
    )


def published_write_of(table: str, step: PublishFiring) -> Update:
    """The mark that the alerts of a firing are published: one write unit for each KB."""
    firing = step.firing
    return Update(
        table,
        keys.alert_state_key(firing.counter, firing.state),
        (Assign("published", value=True),),
        AllOf(
            Compare("version", "=", firing.version),
            Compare("revision", "=", firing.revision),
            _same_origin(from_scan=step.from_scan),
            *_same_total(firing),
        ),
    )


def _same_total(one: AlertState | Firing) -> tuple[Condition, ...]:
    """The condition that the stored state is not of another incarnation, where both are named."""
    same = AnyOf(Absent("incarnation"), Compare("incarnation", "=", one.incarnation))
    return () if one.incarnation is None else (same,)


def _same_origin(*, from_scan: bool) -> Condition:
    """A scan and the change that led to its total have one version, but different alerts."""
    return unchanged("from_scan", from_scan or None)


def encode_state(state: AlertState) -> Item:
    fired = state.firing
    return {
        **keys.alert_state_key(state.counter, state.rule if fired is None else fired.state),
        "revision": state.revision,
        "version": state.version,
        "at": state.at_ms,
        "armed": state.armed,
        "published": state.published,
        "from_scan": state.from_scan or None,
        "before_scan": None if state.before_scan is None else _encode_before(state.before_scan),
        "scan_alert": None if state.scan_alert is None else _encode_scan(state.scan_alert),
        "incarnation": state.incarnation,
        "firing": None if state.firing is None else encode_firing(state.firing),
        "expires_at": _expires_at(state),
    }


def _expires_at(state: AlertState) -> int | None:
    """When a state expires, in seconds; None: never.

    An armed one when no record of its time can come again; that of a window when no record of the
    window can.
    """
    window = None if state.firing is None else state.firing.window
    last_ms: int | None = state.at_ms
    if window is not None:
        last_ms = None if window.last_ms is None else max(window.last_ms, state.at_ms)
    if last_ms is None or not state.armed:
        return None
    return (last_ms + ALERT_STATE_LIFE_MS) // SECOND_MS


def decode_state(item: Item) -> AlertState:
    check_format(item)
    counter = require(item, "counter", str)
    rule = require(item, "part", str).removeprefix(keys.ALERT_PREFIX).partition("#")[0]
    firing = item.get("firing")
    try:
        incarnation = checked_incarnation(item.get("incarnation"))
        state = AlertState(
            counter,
            rule,
            require(item, "revision", str),
            require(item, "version", int),
            require(item, "at", int),
            armed=_flag(item, "armed"),
            firing=None if firing is None else decode_firing(counter, rule, firing),
            published=_flag(item, "published"),
            from_scan=item.get("from_scan") is True,
            before_scan=_decode_before(counter, rule, item.get("before_scan"), incarnation),
            scan_alert=_decode_scan(item.get("scan_alert")),
            incarnation=incarnation,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptItem(f"{describe(item)}: not a valid alert state: {error!r}") from error
    fired = state.firing
    if fired and (fired.version, fired.revision) != (state.version, state.revision):
        # The mark could never be set, and the alerts would be published again without end.
        raise CorruptItem(f"{describe(item)}: its alerts are of another version or revision")
    return state


def _encode_before(state: AlertState) -> dict[str, Any]:
    return {
        "revision": state.revision,
        "version": state.version,
        "at": state.at_ms,
        "armed": state.armed,
    }


def _decode_before(
    counter: str, rule: str, stored: dict[str, Any] | None, incarnation: str | None
) -> AlertState | None:
    if stored is None:
        return None
    revision, version, at_ms = stored["revision"], stored["version"], stored["at"]
    before = AlertState(counter, rule, revision, version, at_ms, armed=stored["armed"])
    return replace(before, incarnation=incarnation)


def _encode_scan(alert: ScanAlert) -> dict[str, Any]:
    threshold = to_text(alert.threshold)
    return {"revision": alert.revision, "version": alert.version, "threshold": threshold}


def _decode_scan(stored: dict[str, Any] | None) -> ScanAlert | None:
    if stored is None:
        return None
    return ScanAlert(stored["revision"], stored["version"], from_number(stored["threshold"]))


def _flag(item: Item, name: str) -> bool:
    value = item.get(name)
    if not isinstance(value, bool):
        raise CorruptItem(f"{describe(item)}: {name!r} is {value!r}, not a flag")
    return value


class AlertStatus(StrEnum):
    """What the stored state means for a change (or a scan) under a rule: the rows of the table."""

    UNPUBLISHED = "the state holds alerts that are not published yet"
    EVALUATED = "the state includes the change; for a scan: it is newer, or its revision alerted"
    ARMED = "no state, or an earlier one: the next crossing alerts"
    DISARMED = "an earlier state that alerted, and the total has not been back at the re-arm level"
    RECREATED = "a disarmed state of an earlier total of that name; a new total starts armed"


class AlertInput(StrEnum):
    """What a change of a total does under a rule: the columns of the table."""

    CROSSES_FROM_REARM = "crosses a threshold, and starts at or beyond the re-arm level"
    CROSSES = "crosses a threshold, and starts between re-arm level and threshold"
    RETURNS = "crosses nothing, and starts or ends at or beyond the re-arm level"
    PASSES = "crosses nothing, and stays away from the re-arm level"
    PUBLISHED_BY_SCAN = "crosses only the threshold for which the initial scan has alerted"
    SCAN_BEYOND = "initial scan: the total is at or beyond the threshold"
    SCAN_SHORT = "initial scan: the total is not"


class AlertAction(StrEnum):
    """What the evaluator does next."""

    PUBLISH = "publish the alerts of the state and mark it; then look again"
    FIRE = "write a state that holds the alerts of the change"
    REARM = "write an armed state"
    FIRE_SCAN = "write a state that holds the alert of the scan"
    NOTHING = "the change is done"


@dataclass(frozen=True, slots=True)
class Impossible:
    """A cell of the table that no state and change can reach, and why."""

    reason: str


_Cell = AlertAction | Impossible


def _table() -> dict[tuple[AlertStatus, AlertInput], _Cell]:
    publish, fire, rearm, scan, nothing = AlertAction
    status = AlertStatus
    by_revision = Impossible("a scan only looks whether its revision has alerted")
    other_total = Impossible("the scan alert is of the earlier total, and is not compared")
    rows: dict[AlertStatus, tuple[_Cell, ...]] = {
        # CROSSES_          CROSSES  RETURNS  PASSES   PUBLISHED_   SCAN_BEYOND  SCAN_SHORT
        # FROM_REARM                                   BY_SCAN
        status.UNPUBLISHED: (publish, publish, publish, publish, publish, publish, publish),
        status.EVALUATED: (nothing, nothing, nothing, nothing, nothing, nothing, nothing),
        status.ARMED: (fire, fire, nothing, nothing, nothing, scan, nothing),
        status.DISARMED: (fire, nothing, rearm, nothing, nothing, by_revision, by_revision),
        status.RECREATED: (fire, fire, rearm, rearm, other_total, by_revision, by_revision),
    }
    return {
        (row, column): cell
        for row, cells in rows.items()
        for column, cell in zip(AlertInput, cells, strict=True)
    }


ACTIONS: Final = _table()


def decide(
    state: AlertState | None, change: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    """The next step for a change under a rule; None if nothing is left to do.

    The rule watches the counter, and this revision is effective then. An outdated state does no
    harm: its write is refused, and the refusal carries the stored item.
    """
    status = status_of(state, change, rule)
    scan_alert = scan_alert_ahead(state, change)
    match ACTIONS[status, input_of(change, rule, scan_alert)]:
        case AlertAction.PUBLISH if state is not None and state.firing is not None:
            return PublishFiring(state.firing, state.from_scan)
        case AlertAction.FIRE:
            way = direction_of(change.old, change.new)
            firing = firing_of(rule, change, way, crossings(change.old, change.new, rule))
            after = _state_after(change, rule, firing)
        case AlertAction.REARM:
            after = _state_after(change, rule)
        case Impossible(reason):
            raise AssertionError(f"{status}: {reason}")
        case _:
            return None
    exact = state and (state.latest_scan_alert or state.is_of_another_total_than(change))
    return WriteState(replace(after, scan_alert=scan_alert), state if exact else None)


def decide_scan(
    state: AlertState | None, total: TotalChange, rule: Rule
) -> PublishFiring | WriteState | None:
    """As `decide`, for the initial scan: a total that is beyond the threshold already alerts.

    The total is a change from its value to the same; the revision is new, and has evaluated nothing
    yet.
    """
    passed = last_passed(total.new, rule)
    column = AlertInput.SCAN_SHORT if passed is None else AlertInput.SCAN_BEYOND
    match ACTIONS[scan_status_of(state, total, rule), column]:
        case AlertAction.PUBLISH if state is not None and state.firing is not None:
            return PublishFiring(state.firing, state.from_scan)
        case AlertAction.FIRE_SCAN if passed is not None:
            firing = firing_of(rule, total, _scan_direction(rule), (passed,))
            before = None if state is None or state.is_replaced_by(total) else state
            if before is not None:
                plain = replace(before, firing=None, scan_alert=None)
                before = before.before_scan if before.from_scan else plain
            after = _state_after(total, rule, firing)
            return WriteState(replace(after, from_scan=True, before_scan=before), over=state)
        case _:
            return None


def may_matter(change: TotalChange, rule: Rule) -> bool:
    """Whether a change can have any effect under a rule, whatever the state."""
    if input_of(change, rule) is not AlertInput.PASSES:
        return True
    # A disarmed state may be left of an earlier total of that name.
    return rule.rearm is not None and change.is_first


def firing_of(
    rule: Rule, change: TotalChange, direction: Direction, crossings: tuple[Crossing, ...]
) -> Firing:
    return Firing(
        rule.name,
        rule.revision,
        rule.target,
        change.counter,
        direction,
        crossings,
        change.old,
        change.new,
        change.version,
        rule.evaluate_in,
        change.at_ms,
        change.window,
        change.incarnation,
    )


def status_of(state: AlertState | None, change: TotalChange, rule: Rule) -> AlertStatus:
    """The row of the table for a change."""
    if state is None:
        return AlertStatus.ARMED
    if state.has_unpublished_alerts:
        return AlertStatus.UNPUBLISHED
    if rule.window is not None and state.revision == rule.revision:
        return AlertStatus.EVALUATED  # a window alerts once, whatever its sum does afterwards
    return _published_status_of(state, change, rule)


def _published_status_of(state: AlertState, change: TotalChange, rule: Rule) -> AlertStatus:
    if state.is_replaced_by(change):
        armed = is_armed(state, change, rule)
        return AlertStatus.ARMED if armed else AlertStatus.RECREATED
    known = state_before(state, change)
    if known is None or known.is_replaced_by(change):
        return AlertStatus.ARMED
    if known.includes(change):
        return AlertStatus.EVALUATED
    return AlertStatus.ARMED if is_armed(known, change, rule) else AlertStatus.DISARMED


def scan_status_of(state: AlertState | None, total: TotalChange, rule: Rule) -> AlertStatus:
    """The row of the table for an initial scan."""
    if state is not None and state.has_unpublished_alerts:
        return AlertStatus.UNPUBLISHED
    if state is None or state.is_replaced_by(total):
        return AlertStatus.ARMED
    scanned = None if state.scan_alert is None else state.scan_alert.revision
    alerted = rule.revision in (state.revision, scanned)
    newer = total.version < state.version
    return AlertStatus.EVALUATED if newer or alerted else AlertStatus.ARMED


def input_of(change: TotalChange, rule: Rule, scan_alert: ScanAlert | None = None) -> AlertInput:
    """The column of the table for a change; `scan_alert`: of a scan at or after the change."""
    crossed = crossings(change.old, change.new, rule)
    if crossed:
        if scan_alert is not None and _published_by(scan_alert, change, rule, crossed):
            return AlertInput.PUBLISHED_BY_SCAN
        from_rearm = is_back(change.old, rule)
        return AlertInput.CROSSES_FROM_REARM if from_rearm else AlertInput.CROSSES
    if rule.rearm is not None and (is_back(change.new, rule) or is_back(change.old, rule)):
        return AlertInput.RETURNS
    return AlertInput.PASSES


def state_before(state: AlertState, change: TotalChange) -> AlertState | None:
    """The state by which a change is evaluated: of a scan ahead of it, the one before the scan."""
    if state.from_scan and not state.is_older_total_than(change) and state.includes(change):
        return state.before_scan
    return state


def is_armed(state: AlertState | None, change: TotalChange, rule: Rule) -> bool:
    """Whether a crossing alerts by a state; every revision starts armed."""
    if state is None or rule.rearm is None:
        return True
    if state.from_scan and state.revision != rule.revision:
        return is_armed(state.before_scan, change, rule)
    scanned = state.scan_alert
    if scanned and scanned.revision == rule.revision and scanned.version < change.version:
        return False  # the scan alerted, and nothing has changed the state since
    return state.revision != rule.revision or state.armed


def scan_alert_ahead(state: AlertState | None, change: TotalChange) -> ScanAlert | None:
    """The alert of a scan at or after a change."""
    scanned = None if state is None else state.latest_scan_alert
    if state is None or scanned is None or state.is_of_another_total_than(change):
        return None
    ahead = change.version <= scanned.version and not state.is_older_total_than(change)
    return scanned if ahead else None


def _published_by(
    scan_alert: ScanAlert, change: TotalChange, rule: Rule, crossed: tuple[Crossing, ...]
) -> bool:
    """Whether a scan has alerted for all that a change crosses."""
    if (change.version, rule.revision) != (scan_alert.version, scan_alert.revision):
        return False
    same_way = direction_of(change.old, change.new) is _scan_direction(rule)
    return same_way and crossed == (Crossing(scan_alert.threshold),)


def _scan_direction(rule: Rule) -> Direction:
    return Direction.FALLING if rule.direction is Direction.FALLING else Direction.RISING


def _state_after(change: TotalChange, rule: Rule, firing: Firing | None = None) -> AlertState:
    return AlertState(
        change.counter,
        rule.name,
        rule.revision,
        change.version,
        change.at_ms,
        armed=firing is None or rule.rearm is None,
        firing=firing,
        published=firing is None,
        incarnation=change.incarnation,
    )
