"""The message of an alert, the same JSON on the bus and on a topic; and the dead letters.

Numbers of counters are strings of plain digits: a total has up to 38 digits, and a JSON reader that
uses floats would round after the 16th. The version is below 2^53, so it is a JSON number.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)

from countledger.consumers.alerts.rule import Crossing, Direction, target_of
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.calendar import Per
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadPayload, BadTime, CorruptItem, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from countledger.consumers.alerts.rule import Rule, Target
    from countledger.ledger.amount import Amount


# The alert: one crossing of one threshold, and its id; and the log of alerts.
#
# The id is made of what the alert is, and of nothing that a second delivery could change: region,
# rule and revision, the total's incarnation and version, threshold, direction and counter.


INCARNATION_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
_INCARNATION: Final = re.compile(INCARNATION_PATTERN)


@dataclass(frozen=True, slots=True)
class AlertWindow:
    """One minute, hour, day or month of a counter.

    Attributes:
        windows: the id of the counter's windows, as its total names them: a counter that is deleted
            and used again has windows of another id.
        name: unique among the windows of its kind, as `2026-11-22`.
        start_ms: its first millisecond.
        end_ms: the first millisecond after it.
        last_ms: nothing is added to it later than that; None: it has no such bound.
    """

    windows: str
    per: Per
    name: str
    start_ms: int
    end_ms: int
    zone: str
    last_ms: int | None = None


def checked_incarnation(found: object) -> str | None:
    """The incarnation that a total's item names, if any; `ValueError`: no id can contain it."""
    if found is None or (isinstance(found, str) and _INCARNATION.fullmatch(found)):
        return found
    raise ValueError(f"{shown(found)} is no incarnation of a total")


def state_name(rule: str, window: AlertWindow | None) -> str:
    """The name of the alert state of a rule for a counter, or for one of its windows."""
    return rule if window is None else f"{rule}#{window.windows}#{window.name}"


def encode_window(window: AlertWindow) -> dict[str, Any]:
    return {name: value for name, value in asdict(window).items() if value is not None} | {
        "per": str(window.per)
    }


def decode_window(stored: dict[str, Any]) -> AlertWindow:
    """The window in an attribute; if it is none, `ValueError, KeyError, TypeError`."""
    return AlertWindow(**{**stored, "per": Per(stored["per"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One crossing, as it is published.

    Attributes:
        rule: the rule's name.
        revision: which revision of it.
        counter: whose total crossed.
        direction: rising or falling: which way.
        threshold: what it crossed; of a range the first.
        through: of a range (more than a hundred thresholds in one update) the last; else None.
        count: how many thresholds that are.
        old: the total before the update.
        new: the total after it.
        version: of the total after the update.
        region: where it was evaluated.
        at_ms: when the stream made the update's record, in whole seconds.
        window: of whose sum it is; None: of the total.
        incarnation: which total of that name it is; None: of a window, or of a total without one.
        test: whether it only tests the way to the target.
    """

    rule: str
    revision: str
    counter: str
    direction: Direction
    threshold: Amount
    through: Amount | None = None
    count: int = 1
    old: Amount
    new: Amount
    version: int
    region: str
    at_ms: int
    window: AlertWindow | None = None
    incarnation: str | None = None
    test: bool = False

    @property
    def id(self) -> str:
        """The identity of the alert; the same at each delivery."""
        threshold = to_text(self.threshold)
        rule = f"{self.rule}@{self.revision}"
        window = () if self.window is None else (self.window.windows, self.window.name)
        crossed = (str(self.version), threshold, str(self.direction), self.counter)
        incarnation = () if self.incarnation is None else (self.incarnation,)
        parts = (self.region, rule, *incarnation, *window, *crossed)
        return "/".join(("test", *parts) if self.test else parts)

    @property
    def dedup(self) -> str:
        """The SHA-256 of the id: 64 hex digits, for readers that keep the ids they have seen."""
        return sha256(self.id.encode()).hexdigest()

    @property
    def at(self) -> datetime:
        """When the stream made the update's record, in UTC."""
        return to_datetime(self.at_ms)


@dataclass(frozen=True, slots=True)
class FailedAlert:
    """An alert that its target did not take, and the last answer; `silent`: there was no answer."""

    alert: Alert
    reason: str
    silent: bool = False


class Publisher(Protocol):
    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in order; the result is those that the target did not take."""


@dataclass(frozen=True, slots=True)
class Firing:
    """All alerts of one update of a total under one rule: stored in one write, published together.

    Or those of one window in an update. Attributes as of `Alert`, with the target of its alerts and
    the crossed thresholds in order.
    """

    rule: str
    revision: str
    target: Target
    counter: str
    direction: Direction
    crossings: tuple[Crossing, ...]
    old: Amount
    new: Amount
    version: int
    region: str
    at_ms: int
    window: AlertWindow | None = None
    incarnation: str | None = None

    @property
    def state(self) -> str:
        """The name of its state, in the key."""
        return state_name(self.rule, self.window)

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(
            Alert(
                rule=self.rule,
                revision=self.revision,
                counter=self.counter,
                direction=self.direction,
                threshold=one.threshold,
                through=one.through,
                count=one.count,
                old=self.old,
                new=self.new,
                version=self.version,
                region=self.region,
                at_ms=self.at_ms,
                window=self.window,
                incarnation=self.incarnation,
            )
            for one in self.crossings
        )


def encode_firing(firing: Firing) -> dict[str, Any]:
    """A firing as an attribute. Its numbers are texts: an item's number holds one digit less."""
    optional = {
        "window": None if firing.window is None else encode_window(firing.window),
        "incarnation": firing.incarnation,
    }
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
    } | {name: value for name, value in optional.items() if value is not None}


def decode_firing(counter: str, rule: str, stored: dict[str, Any]) -> Firing:
    """The firing in an attribute; if it is none, as `decode_window`, or `AttributeError`."""
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
        decode_window(stored["window"]) if "window" in stored else None,
        checked_incarnation(stored.get("incarnation")),
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


def trial_alert(rule: Rule, counter: str, at_ms: int) -> Alert:
    """An alert, marked as a test, at the threshold of a rule; its version, the time, is unique."""
    return Alert(
        rule=rule.name,
        revision=rule.revision,
        counter=counter,
        direction=Direction.FALLING if rule.direction is Direction.FALLING else Direction.RISING,
        threshold=rule.threshold,
        old=rule.threshold,
        new=rule.threshold,
        version=at_ms,
        region=rule.evaluate_in,
        at_ms=at_ms,
        test=True,
    )


_DIGITS: Final = r"^-?[0-9]{1,77}(\.[0-9]{1,38})?$"


_Number = Annotated[str, Field(pattern=_DIGITS)]


_Moment = Annotated[
    AwareDatetime,
    PlainSerializer(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class WindowMessage(BaseModel):
    """The window whose sum crossed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    windows: str = Field(
        description="The id of the counter's windows: another one if the counter was deleted and "
        "used again, or if the windows of its namespace were changed."
    )
    per: Literal["minute", "hour", "day", "month"] = Field(description="The kind of window.")
    name: str = Field(description="The window, as 2026-11-22.")
    start: _Moment = Field(description="Its beginning, in UTC.")
    end: _Moment = Field(description="Its end, in UTC: the beginning of the next one.")
    time_zone: str = Field(description="The time zone whose hours, days and months they are.")


class AlertMessage(BaseModel):
    """An alert of countledger: a total crossed a threshold from one update to the next."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = Field(description="The format of this message.")
    id: str = Field(
        description="The alert's id: region/rule@revision/version/threshold/direction/counter, "
        "with the incarnation (of a window: windows/name) before the version, and the prefix test/ "
        "if it is a test. A message may arrive more than once, with one id."
    )
    dedup: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the id: the same in a bounded length."
    )
    rule: str = Field(description="The rule's name.")
    revision: str = Field(description="The revision of the rule that evaluated it.")
    counter: str = Field(description="The counter whose total crossed.")
    direction: Literal["rising", "falling"] = Field(
        description="The direction in which the total crossed."
    )
    threshold: _Number = Field(description="The threshold; of a range the first threshold crossed.")
    through: _Number | None = Field(
        default=None,
        description="Only of a range (more than 100 thresholds in one update): the last one.",
    )
    count: _Number | None = Field(
        default=None, description="Only of a range: how many thresholds were crossed."
    )
    old: _Number = Field(description="The total before the update, or what was available of it.")
    new: _Number = Field(description="The total after the update, or what is available of it.")
    version: int = Field(ge=0, lt=2**53, description="The version of the total after the update.")
    region: str = Field(description="The region that evaluated it.")
    at: _Moment = Field(description="When the update was made, in whole seconds of UTC.")
    window: WindowMessage | None = Field(
        default=None,
        description="Only of a rule with a window: threshold, old and new are of its sum.",
    )
    incarnation: str | None = Field(
        default=None,
        pattern=INCARNATION_PATTERN,
        description="Which total of that name it is: a counter that was deleted and created again "
        "has another one. Absent of a window, and of a total without one.",
    )
    test: Literal[True] | None = Field(default=None, description="Only of a test message: true.")


def message_of(alert: Alert) -> AlertMessage:
    """The message of an alert; of an edit by hand a value may have no form: `CorruptItem`."""
    try:
        return _message_of(alert)
    except (BadTime, TypeError, ValueError) as error:
        what = f"an alert of rule {alert.rule!r} for counter {alert.counter!r}"
        said = " ".join(str(error).split())
        raise CorruptItem(f"{what} has no form as a message: {said}") from error


def _message_of(alert: Alert) -> AlertMessage:
    is_range = alert.through is not None
    return AlertMessage(
        v=1,
        id=alert.id,
        dedup=alert.dedup,
        rule=alert.rule,
        revision=alert.revision,
        counter=alert.counter,
        direction="falling" if alert.direction is Direction.FALLING else "rising",
        threshold=to_text(alert.threshold),
        through=None if alert.through is None else to_text(alert.through),
        count=str(alert.count) if is_range else None,
        old=to_text(alert.old),
        new=to_text(alert.new),
        version=alert.version,
        region=alert.region,
        at=alert.at,
        window=None if alert.window is None else _window_message_of(alert.window),
        incarnation=alert.incarnation,
        test=True if alert.test else None,
    )


def _window_message_of(window: AlertWindow) -> WindowMessage:
    return WindowMessage(
        windows=window.windows,
        per=window.per.value,
        name=window.name,
        start=to_datetime(window.start_ms),
        end=to_datetime(window.end_ms),
        time_zone=window.zone,
    )


def _window_in(found: WindowMessage) -> AlertWindow:
    return AlertWindow(
        found.windows,
        Per(found.per),
        found.name,
        to_ms(found.start),
        to_ms(found.end),
        found.time_zone,
    )


def body_of(alert: Alert) -> str:
    """The message as it is sent: JSON in one line; attributes that are None are left out."""
    return message_of(alert).model_dump_json(exclude_none=True)


def alert_in(message: Any) -> Alert:  # noqa: ANN401 - from outside
    """The alert in a message, if it is one and its id matches its content: else `BadPayload`."""
    try:
        found = AlertMessage.model_validate(message)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "message"
        raise BadPayload(f"not the message of an alert: {where}: {first['msg']}") from error
    alert = Alert(
        rule=found.rule,
        revision=found.revision,
        counter=found.counter,
        direction=Direction(found.direction),
        threshold=from_number(found.threshold),
        through=None if found.through is None else from_number(found.through),
        count=int(found.count or 1),
        old=from_number(found.old),
        new=from_number(found.new),
        version=found.version,
        region=found.region,
        at_ms=to_ms(found.at),
        window=None if found.window is None else _window_in(found.window),
        incarnation=found.incarnation,
        test=bool(found.test),
    )
    if alert.id != found.id:
        raise BadPayload(f"not the message of an alert: its id is {found.id!r}, not {alert.id!r}")
    return alert
