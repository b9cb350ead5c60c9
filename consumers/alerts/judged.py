"""What a state says of the changes of its counter: which of them were evaluated already.

Moves come in order, and come again. A total that was told of where it scan_alert was read, so it
may lie ahead of the changes that brought it there: up to it they are judged by what was known
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.alerts.crossing import Crossing, crossings, direction_of
from countledger.consumers.alerts.rule import Direction
from countledger.ledger.limits import ALERT_MADE_ANEW_MS

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.state import AlertState
    from countledger.consumers.alerts.total_change import TotalChange
    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class ScanAlert:
    """A total that was told of where it scan_alert.

    Attributes:
        revision: of the rule.
        version: of the total.
        threshold: that was told.
    """

    revision: str
    version: int
    threshold: Amount


def of_this_total(state: AlertState | None, change: TotalChange) -> AlertState | None:
    """The state, unless the total was deleted and made anew since: versions begin again then."""
    if state is None or not _is_anew(state, change):
        return state
    return state if change.version > state.version else None


def has_evaluated(state: AlertState, change: TotalChange) -> bool:
    """Whether a state lies behind a change."""
    if change.at_ms < state.at_ms - ALERT_MADE_ANEW_MS:
        return True  # whatever its version: it may be of the total before this one
    return change.version <= state.version


def has_met(state: AlertState, rule: Rule) -> bool:
    """Whether something was told by this revision already."""
    scan_alert = state.scan_alert
    return rule.revision in (state.revision, None if scan_alert is None else scan_alert.revision)


def up_to(state: AlertState | None, change: TotalChange) -> AlertState | None:
    """The state before this change: up to the total of a scan, the state before the scan."""
    if state is None or not state.from_scan or _is_anew(state, change):
        return state
    return state.before_scan if has_evaluated(state, change) else state


def scan_alert_ahead(state: AlertState | None, change: TotalChange) -> ScanAlert | None:
    """What scan_alert where a change comes to, or further on."""
    if state is None or _is_anew(state, change):
        return None
    scan_alert = scan_alert_in(state)
    return scan_alert if scan_alert is not None and change.version <= scan_alert.version else None


def scan_alert_in(state: AlertState) -> ScanAlert | None:
    """The total of which a state tells that it scan_alert."""
    if not state.from_scan or state.firing is None:
        return state.scan_alert
    return ScanAlert(state.revision, state.version, state.firing.crossings[0].threshold)


def was_published(scan_alert: ScanAlert, change: TotalChange, rule: Rule) -> bool:
    """Whether the initial scan has published all that a change sets off."""
    way = Direction.FALLING if rule.direction is Direction.FALLING else Direction.RISING
    if (change.version, rule.revision) != (scan_alert.version, scan_alert.revision):
        return False
    crossed = crossings(change.old, change.new, rule)
    return direction_of(change.old, change.new) is way and set(crossed) <= {
        Crossing(scan_alert.threshold)
    }


def is_armed(state: AlertState | None, change: TotalChange, rule: Rule) -> bool:
    """Whether a crossing alerts. Of another revision a state says nothing: one begins armed."""
    if state is None or rule.rearm is None:
        return True
    if state.from_scan and state.revision != rule.revision:
        return is_armed(state.before_scan, change, rule)
    scanned = state.scan_alert
    if scanned and scanned.revision == rule.revision and scanned.version < change.version:
        return False  # it was told there, and nothing was set off since
    return state.revision != rule.revision or state.armed


def _is_anew(state: AlertState, change: TotalChange) -> bool:
    return state.at_ms < change.at_ms - ALERT_MADE_ANEW_MS
