"""What became of alerts that were sent: the log of the published ones, and the dead letters.

A dead letter is an alert that its target did not accept; it waits in a queue, and is sent again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.consumers.alerts.message import (
    Alert,
    alert_in,
    decode_firing,
    encode_firing,
    message_of,
)
from countledger.consumers.alerts.rule import target_of
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
from countledger.ledger.errors import BadInput, BadPayload, BadSetting, CorruptItem, shown
from countledger.ledger.limits import ALERT_LOG_LIFE_MS, REASON_MAX_CHARACTERS, SECOND_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Put, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from typing import Self

    from mypy_boto3_sqs import SQSClient

    from countledger.consumers.alerts.message import Firing, Publisher
    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.dynamo import DynamoClient

_FORMAT: Final = 1
# Longer than most runs of `resend` take.
_HIDDEN_S: Final = 600


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
            raise BadSetting(f"limit {shown(limit)} is too small: give 1 or more")
        pages = self.dynamo.pages(self._query(counter, limit))
        items = (item for page in pages for item in page)
        found = decoded(items, decode_log, on_corrupt)
        yield from islice((one for logged in found for one in reversed(logged)), limit)

    def _query(self, counter: str | None, page_size: int | None) -> Query:
        condition: Any = Compare("counter", "=", keys.ALERT_LOG)
        if counter is not None:
            counter = keys.check_counter(counter)
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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An alert that its target refused.

    Attributes:
        alert: the alert.
        target: its target.
        reason: the last answer of the target.
        failed_at_ms: when the last attempt failed, in milliseconds since the epoch.
    """

    alert: Alert
    target: Target
    reason: str
    failed_at_ms: int


class DeadLetters(Protocol):
    """Stores dead letters."""

    def put(self, dead_letter: DeadLetter) -> None:
        """Store a dead letter, or raise `CountledgerError`."""


@dataclass(frozen=True, slots=True)
class QueueDeadLetters:
    """Dead letters in an SQS queue.

    Attributes:
        queue: the queue.
    """

    queue: MessageQueue

    @classmethod
    def at(cls, client: SQSClient, url: str, *, wait_s: int = 1) -> Self:
        """The dead letters in the queue of that URL."""
        name = "the dead letters of alerts"
        return cls(MessageQueue(client, url, name, hidden_s=_HIDDEN_S, wait_s=wait_s))

    def put(self, dead_letter: DeadLetter) -> None:
        """Store a dead letter. Cost: one message."""
        self.queue.send(encode_dead_letter(dead_letter))


@dataclass(frozen=True, slots=True)
class Resent:
    """The result for one dead letter (None: it could not be read).

    `reason`: why it is still in the queue; None if its target has accepted it.
    """

    dead_letter: DeadLetter | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resender:
    """Sends dead letters again.

    A dead letter is deleted after its target has accepted it. After a crash between the two it is
    sent a second time, with the same id.

    Attributes:
        dead_letters: the queue.
        publisher: sends them to their targets.
    """

    dead_letters: QueueDeadLetters
    publisher: Publisher

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send each dead letter once, while the results are iterated; a refused one stays.

        Args:
            limit: the maximum number; None means all.
        """
        with self.dead_letters.queue.reader() as reader:
            for message in islice(reader, limit):
                result = self._send(message.body)
                if result.reason is None:
                    reader.delete(message)
                yield result

    def _send(self, body: str) -> Resent:
        try:
            dead_letter = decode_dead_letter(body)
        except BadPayload as error:
            return Resent(None, str(error))
        refused = self.publisher.publish([dead_letter.alert], dead_letter.target)
        return Resent(dead_letter, refused[0].reason if refused else None)


def encode_dead_letter(dead_letter: DeadLetter) -> str:
    """The message of a dead letter."""
    failed_at = to_datetime(dead_letter.failed_at_ms).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "v": _FORMAT,
            "target": str(dead_letter.target),
            "reason": dead_letter.reason[:REASON_MAX_CHARACTERS],
            "failed_at": failed_at.replace("+00:00", "Z"),
            "failed_at_ms": dead_letter.failed_at_ms,
            "message": message_of(dead_letter.alert).model_dump(mode="json", exclude_none=True),
        }
    )


def decode_dead_letter(body: str) -> DeadLetter:
    """The dead letter in a message.

    Raises:
        BadPayload: the message is not a dead letter.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error
    if not isinstance(document, dict) or document.get("v") != _FORMAT:
        raise BadPayload(f"the message is not a dead letter of format {_FORMAT}")
    target, reason, failed_at_ms = (document.get(n) for n in ("target", "reason", "failed_at_ms"))
    if not (isinstance(target, str) and isinstance(reason, str) and isinstance(failed_at_ms, int)):
        raise BadPayload(
            "the message is not a dead letter: it lacks target, reason or failed_at_ms"
        )
    try:
        alert = alert_in(document.get("message"))
        return DeadLetter(alert, target_of(target), reason, failed_at_ms)
    except BadInput as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error
