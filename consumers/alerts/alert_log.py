"""The log of published alerts: the items of a firing, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from countledger.consumers.alerts.alert import Alert, decode_firing, encode_firing
from countledger.ledger import keys
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
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from countledger.consumers.alerts.alert import Firing
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.dynamo import DynamoClient


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
    places = keys.alert_log_keys(firing.counter, firing.state, firing.version, firing.at_ms)
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
