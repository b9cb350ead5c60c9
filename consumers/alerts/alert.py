"""The alert: one crossing of one threshold, and its id; and the log of alerts.

The id is made of what the alert is, and of nothing that a second delivery could change: region,
rule and revision, the total's version, threshold, direction and counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from countledger.consumers.alerts.rule import Crossing, Direction, target_of
from countledger.ledger import keys
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.attributes import (
    Item,
    check_format,
    decoded,
    describe,
    optional_time,
    require,
)
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadSetting, CorruptItem, shown
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.limits import ALERT_LOG_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Put, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.dynamo import DynamoClient


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
    test: bool = False

    @property
    def id(self) -> str:
        """The identity of the alert; the same at each delivery."""
        threshold = to_text(self.threshold)
        rule = f"{self.rule}@{self.revision}"
        parts = (self.region, rule, str(self.version), threshold, str(self.direction), self.counter)
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
    """Sends alerts to their targets."""

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in order; the result is those that the target did not take."""


@dataclass(frozen=True, slots=True)
class Firing:
    """All alerts of one update of a total under one rule: stored in one write, published together.

    Attributes as of `Alert`, with the target of its alerts and the crossed thresholds in order.
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

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Its alerts, in order."""
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
            )
            for one in self.crossings
        )


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


@dataclass(frozen=True, slots=True)
class LoggedAlert:
    """A published alert.

    Attributes:
        alert: the alert.
        published_at_ms: when it was last published, milliseconds since the epoch.
        reason: why it became a dead letter; None: its target accepted it.
    """

    alert: Alert
    published_at_ms: int
    reason: str | None = None

    @property
    def published_at(self) -> datetime:
        """When it was last published, in UTC."""
        return to_datetime(self.published_at_ms)


def plan_log(
    table: str, firing: Firing, published_at_ms: int, dead: Mapping[int, str]
) -> tuple[Put, ...]:
    """The two items of a published firing: one write unit each for each KB.

    `dead`: why alerts of the firing became dead letters, by their index in it.
    """
    said: Item = {
        "of_counter": firing.counter,
        "rule": firing.rule,
        "firing": encode_firing(firing),
        "published_at": published_at_ms,
        "dead": {str(place): reason for place, reason in dead.items()} or None,
        "expires_at": (firing.at_ms + ALERT_LOG_LIFE_MS) // SECOND_MS,
    }
    places = keys.alert_log_keys(firing.counter, firing.rule, firing.version, firing.at_ms)
    return tuple(Put(table, {**key, **said}) for key in places)


@dataclass(frozen=True, slots=True)
class AlertLog:
    """Reads the alert log: the published alerts of the last ninety days.

    Each firing is logged twice: in the partition of its counter, and in one for all counters, which
    takes about 1,000 firings a second. So one query lists either.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry its reads.
        table: the table `counters`.
    """

    dynamo: DynamoClient
    table: str

    def newest(
        self,
        counter: str | None = None,
        *,
        limit: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[LoggedAlert]:
        """The alerts of a counter, or of all, newest first: as `Alerts.log`."""
        if limit is not None and limit < 1:
            raise BadSetting(f"limit {limit} is too small: give 1 or more")
        pages = self.dynamo.pages(self._query(counter, limit))
        items = (item for page in pages for item in page)
        found = decoded(items, decode_log, on_corrupt)
        yield from islice((one for logged in found for one in reversed(logged)), limit)

    def _query(self, counter: str | None, page_size: int | None) -> Query:
        condition: Any = Compare("counter", "=", keys.ALERT_LOG)
        if counter is not None:
            keys.check_counter(counter)
            condition = AllOf(Compare("counter", "=", counter), BeginsWith("part", keys.LOG_PREFIX))
        return Query(self.table, condition, forward=False, page_size=page_size)


def decode_log(item: Item) -> list[LoggedAlert]:
    """The alerts of one item, in the order in which the total crossed their thresholds.

    Raises:
        CorruptItem: an attribute is absent, of another type, or has an unknown value.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    counter, rule = require(item, "of_counter", str), require(item, "rule", str)
    published_at_ms = optional_time(item, "published_at")
    dead: dict[str, str] = item.get("dead") or {}
    try:
        firing = decode_firing(counter, rule, require(item, "firing", dict))
        if published_at_ms is None:
            raise CorruptItem(f"{describe(item)} has no 'published_at'", item)
        to_datetime(firing.at_ms)
        return [
            LoggedAlert(alert, published_at_ms, dead.get(str(place)))
            for place, alert in enumerate(firing.alerts)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptItem(f"{describe(item)}: not a logged alert: {shown(error)}", item) from error
