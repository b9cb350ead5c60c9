"""The alert state of a counter under a rule as it is stored: its item, and the writes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from countledger.consumers.alerts.alert import checked_incarnation, decode_firing, encode_firing
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
    from countledger.consumers.alerts.alert import Firing
    from countledger.consumers.alerts.crossing import TotalChange
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition


@dataclass(frozen=True, slots=True)
class ScanAlert:
    """The alert of an initial scan that may be ahead of the stream.

    Attributes:
        revision: of the rule.
        version: of the total that the scan read.
        threshold: for which it alerted.
    """

    revision: str
    version: int
    threshold: Amount


@dataclass(frozen=True, slots=True)
class AlertState:
    """What is stored about a counter under a rule.

    Attributes:
        counter: the counter.
        rule: the rule's name.
        revision: the revision by which the state was last changed.
        version: of the total after the change that changed this state.
        at_ms: when the stream made the record of that change, milliseconds since the epoch.
        armed: whether the next crossing alerts; without a re-arm level always.
        firing: the alerts of the change, or None if it only armed the rule again.
        published: whether all of them are published.
        from_scan: whether the initial scan wrote it. Changes up to its version are still to be
            evaluated, by `before_scan`.
        before_scan: the state that the scan replaced, if any.
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
        """Whether it holds alerts that are not published yet."""
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
    """The next step: write a state.

    Attributes:
        state: the state.
        over: the state that must be stored: one with a scan alert or of another incarnation, or any
            for a scan. None: any earlier state without a scan alert.
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
    """The item of a state."""
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
    """The state in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent, of another type, or of no known value.
        NewerFormat: a later release wrote it.
    """
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
