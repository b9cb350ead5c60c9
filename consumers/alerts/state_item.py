"""The item of an alert state in `counters`, and its two writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.consumers.alerts.alert import Firing
from countledger.consumers.alerts.crossing import Crossing
from countledger.consumers.alerts.judged import ScanAlert
from countledger.consumers.alerts.rule import Direction, target_of
from countledger.consumers.alerts.state import AlertState
from countledger.ledger import keys
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.attributes import check_format, describe, require
from countledger.ledger.errors import CorruptItem
from countledger.ledger.expressions import Absent, AllOf, AnyOf, Assign, Compare
from countledger.ledger.limits import ALERT_MADE_ANEW_MS, ALERT_STATE_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Put, Update

if TYPE_CHECKING:
    from countledger.consumers.alerts.state import PublishFiring, WriteState
    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Condition


def write_of(table: str, write: WriteState) -> Put:
    """The write of a state: one write unit for each KB.

    Over an earlier one, if that has been told and tells of no total that scan_alert; or where there
    is none. That of a total that was made anew is written over whatever version the one before it
    had.
    """
    state = write.state
    if write.over is not None:
        return Put(table, encode_state(state), _is_still(write.over))
    older = Compare("at", "<", state.at_ms - ALERT_MADE_ANEW_MS)
    not_younger = Compare("at", "<=", state.at_ms + ALERT_MADE_ANEW_MS)
    earlier = AllOf(Compare("version", "<", state.version), not_younger)
    told = Compare("published", "=", value=True)
    replaceable = AllOf(AnyOf(older, earlier), told, Absent("from_scan"), Absent("scan_alert"))
    return Put(table, encode_state(state), AnyOf(Absent("version"), replaceable))


def scan_write_of(table: str, write: WriteState) -> Put:
    """The same for a total that stands still: over the state that it keeps, or where none is."""
    there = Absent("version") if write.over is None else _is_still(write.over)
    return Put(table, encode_state(write.state), there)


def _is_still(state: AlertState) -> Condition:
    """That a state is there, and has been told."""
    return AllOf(
        Compare("version", "=", state.version),
        Compare("revision", "=", state.revision),
        Compare("published", "=", value=True),
        Compare("from_scan", "=", value=True) if state.from_scan else Absent("from_scan"),
    )


def published_write_of(table: str, tell: PublishFiring) -> Update:
    """The mark that the alerts of a firing have been told: one write unit for each KB."""
    firing = tell.firing
    # A total that scan_alert and its own record have the same version, but not the same alerts.
    same_kind = Compare("from_scan", "=", value=True) if tell.from_scan else Absent("from_scan")
    return Update(
        table,
        keys.alert_state_key(firing.counter, firing.rule),
        (Assign("published", value=True),),
        AllOf(
            Compare("version", "=", firing.version),
            Compare("revision", "=", firing.revision),
            same_kind,
        ),
    )


def encode_state(state: AlertState) -> Item:
    """The state's item. One that is armed may go once no record of its time can come again."""
    expires_at = (state.at_ms + ALERT_STATE_LIFE_MS) // SECOND_MS
    return {
        **keys.alert_state_key(state.counter, state.rule),
        "revision": state.revision,
        "version": state.version,
        "at": state.at_ms,
        "armed": state.armed,
        "published": state.published,
        "from_scan": state.from_scan or None,
        "before_scan": None if state.before_scan is None else _encode_before(state.before_scan),
        "scan_alert": None if state.scan_alert is None else _encode_scan_alert(state.scan_alert),
        "firing": None if state.firing is None else encode_firing(state.firing),
        "expires_at": expires_at if state.armed else None,
    }


def decode_state(item: Item) -> AlertState:
    """The state in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent, of another type, or of no known value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    counter = require(item, "counter", str)
    rule = require(item, "part", str).removeprefix(keys.ALERT_PREFIX)
    firing = item.get("firing")
    try:
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
            before_scan=_decode_before(counter, rule, item.get("before_scan")),
            scan_alert=_decode_scan_alert(item.get("scan_alert")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptItem(f"{describe(item)}: it is no state of an alert: {error!r}") from error
    fired = state.firing
    if fired and (fired.version, fired.revision) != (state.version, state.revision):
        # Its mark would never be set, and its alerts be told without end.
        raise CorruptItem(f"{describe(item)}: its alerts are of another version or revision")
    return state


def _encode_before(state: AlertState) -> dict[str, Any]:
    return {
        "revision": state.revision,
        "version": state.version,
        "at": state.at_ms,
        "armed": state.armed,
    }


def _decode_before(counter: str, rule: str, stored: dict[str, Any] | None) -> AlertState | None:
    if stored is None:
        return None
    at_ms = stored["at"]
    revision, version = stored["revision"], stored["version"]
    return AlertState(counter, rule, revision, version, at_ms, armed=stored["armed"])


def _encode_scan_alert(scan_alert: ScanAlert) -> dict[str, Any]:
    threshold = to_text(scan_alert.threshold)
    return {"revision": scan_alert.revision, "version": scan_alert.version, "threshold": threshold}


def _decode_scan_alert(stored: dict[str, Any] | None) -> ScanAlert | None:
    if stored is None:
        return None
    return ScanAlert(stored["revision"], stored["version"], from_number(stored["threshold"]))


def encode_firing(firing: Firing) -> dict[str, Any]:
    """A firing as an attribute. Its numbers are texts: an item's number holds one digit less."""
    return {
        "revision": firing.revision,
        "target": str(firing.target),
        "direction": str(firing.direction),
        "old": to_text(firing.old),
        "new": to_text(firing.new),
        "version": firing.version,
        "region": firing.region,
        "at": firing.at_ms,
        "thresholds": [_encode_crossing(one) for one in firing.crossings],
    }


def decode_firing(counter: str, rule: str, stored: dict[str, Any]) -> Firing:
    """The firing in an attribute.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    return Firing(
        rule,
        stored["revision"],
        target_of(stored["target"]),
        counter,
        Direction(stored["direction"]),
        tuple(map(_decode_crossing, stored["thresholds"])),
        from_number(stored["old"]),
        from_number(stored["new"]),
        stored["version"],
        stored["region"],
        stored["at"],
    )


def _encode_crossing(crossing: Crossing) -> str | list[str]:
    if crossing.through is None:
        return to_text(crossing.threshold)
    return [to_text(crossing.threshold), to_text(crossing.through), str(crossing.count)]


def _decode_crossing(stored: str | list[str]) -> Crossing:
    if isinstance(stored, str):
        return Crossing(from_number(stored))
    first, last, count = stored
    return Crossing(from_number(first), from_number(last), int(count))


def _flag(item: Item, name: str) -> bool:
    value = item.get(name)
    if not isinstance(value, bool):
        raise CorruptItem(f"{describe(item)}: {name!r} is {value!r}, not a flag")
    return value
