"""The DynamoDB client: it carries out operations, and knows nothing of counters.

It retries only the leftovers of a batch read: how often a write may be sent is decided where its
meaning is known. What the SDK retries is a matter of its client (see `connection`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.attributes import Item, Key, decode, encode
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.errors import Throttled, Unclear
from countledger.ledger.limits import BATCH_GET_KEYS
from countledger.ledger.operations import Page, Query, action
from countledger.ledger.processes import lock_open_in_forks
from countledger.ledger.service_errors import conditions, translated
from countledger.ledger.suspension import MakeWorkers, workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        ConsumedCapacityTypeDef,
        KeysAndAttributesTypeDef,
        TableDescriptionTypeDef,
    )

    from countledger.ledger.attempts import CallLimits
    from countledger.ledger.entry import PutBatch
    from countledger.ledger.operations import Delete, Put, Scan, Update, Write


# What the calls of one process consumed, as the service reports it.


# One for all meters: it is held for less than a microsecond.
_COUNTING: Final = lock_open_in_forks()


@dataclass(slots=True)
class Meter:
    """Capacity units, summed; safe to share between threads.

    A write whose condition failed is charged by the service but not reported with the failure: it
    counts as one unit in here (in a transaction as two for each item). `parent` counts the same
    units as part of a larger sum.
    """

    write_units: float = 0.0
    read_units: float = 0.0
    parent: Meter | None = None

    def written(self, consumed: Iterable[ConsumedCapacityTypeDef]) -> None:
        self._count(_units(consumed), 0.0)

    def refused(self, write_units: float = 1.0) -> None:
        """Note a write whose condition failed, by the least that it costs."""
        self._count(write_units, 0.0)

    def read(self, consumed: Iterable[ConsumedCapacityTypeDef]) -> None:
        self._count(0.0, _units(consumed))

    def _count(self, write_units: float, read_units: float) -> None:
        meter: Meter | None = self
        with _COUNTING.here:
            while meter is not None:
                meter.write_units += write_units
                meter.read_units += read_units
                meter = meter.parent


def _units(consumed: Iterable[ConsumedCapacityTypeDef]) -> float:
    units = 0.0
    for one in consumed:
        units += one.get("CapacityUnits", 0.0)
    return units


# Every call requests its units: to sum them, and because only the service itself reports them.
METERED: dict[str, Any] = {"ReturnConsumedCapacity": "TOTAL"}


@dataclass(frozen=True, slots=True)
class DynamoClient:
    """Carries out operations through a boto3 client.

    `limits` are of a call that its protocol tries again; None: the protocol's alone. `clock`,
    `random` and `backoff` time the tries of a batch read.
    """

    client: DynamoDBClient
    meter: Meter = field(default_factory=Meter)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    limits: CallLimits | None = None
    workers: MakeWorkers = workers

    def metered(self) -> DynamoClient:
        """The same client with a meter of its own, whose units count in this one's as well."""
        return replace(self, meter=Meter(parent=self.meter))

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item, or None: half a read unit, one if consistent, for each 4 KB."""
        what = f"GetItem on {table}"
        with translated(what):
            answer = self.client.get_item(
                TableName=table, Key=encode(key), ConsistentRead=consistent, **METERED
            )
        self.meter.read(consumed_in(answer, what))
        return decode(answer["Item"]) if "Item" in answer else None

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """The items of those keys that exist, in any order: half a read unit each for 4 KB.

        Twice that if consistent, and as much for a key that does not exist. Throttled if some keys
        stayed unanswered through every attempt.
        """
        items: list[Item] = []
        for start in range(0, len(keys), BATCH_GET_KEYS):
            items += self._get_batch(table, keys[start : start + BATCH_GET_KEYS], consistent)
        return items

    def _get_batch(self, table: str, keys: Sequence[Key], consistent: bool) -> list[Item]:  # noqa: FBT001 - handed on
        items: list[Item] = []
        asked: dict[str, KeysAndAttributesTypeDef] = {
            table: {"Keys": [encode(k) for k in keys], "ConsistentRead": consistent}
        }
        what = f"BatchGetItem on {table}"
        for _ in self.backoff.tries(self.clock, self.random):
            with translated(what):
                answer = self.client.batch_get_item(RequestItems=asked, **METERED)
            if "Responses" not in answer:
                raise _not_the_services(what)
            self.meter.read(_listed(answer.get("ConsumedCapacity", [])))  # some engines report none
            items += map(decode, of_the_table(answer["Responses"]))
            unanswered = list(answer.get("UnprocessedKeys", {}).values())
            if not unanswered:
                return items
            asked = {table: unanswered[0]}  # type: ignore[dict-item]  # two types of one shape
        raise Throttled(f"{what}: keys unanswered after {self.backoff.attempts} attempts")

    def page(self, read: Query | Scan) -> Page:
        call: Any = self.client.query if isinstance(read, Query) else self.client.scan
        what = f"{type(read).__name__} on {read.table}"
        with translated(what):
            answer = call(**read.arguments(), **METERED)
        self.meter.read(consumed_in(answer, what))
        last, items = answer.get("LastEvaluatedKey"), [decode(item) for item in answer["Items"]]
        return Page(items, decode(last) if last else None, answer.get("ScannedCount", len(items)))

    def pages(self, read: Query | Scan) -> Iterator[list[Item]]:
        """The pages of a query or scan, each read when the caller needs it; no snapshot."""
        while True:
            page = self.page(read)
            yield page.items
            if page.after is None:
                return
            read = replace(read, after=page.after)

    def put(self, write: Put) -> None:
        """One write unit for each KB, also where the condition fails (ConditionFailed)."""
        what = f"PutItem on {write.table}"
        with translated(what), conditions(self.meter):
            answer = self.client.put_item(**write.arguments(), **METERED)
        self.meter.written(consumed_in(answer, what))

    def update(self, write: Update) -> Item | None:
        """As `put`; returns the item as it is now, if the operation requests it."""
        what = f"UpdateItem on {write.table}"
        with translated(what), conditions(self.meter):
            answer = self.client.update_item(**write.arguments(), **METERED)
        self.meter.written(consumed_in(answer, what))
        attributes = answer.get("Attributes")
        return decode(attributes) if attributes else None

    def delete(self, write: Delete) -> None:
        """One write unit for each KB of the item, also where there is none (ConditionFailed)."""
        what = f"DeleteItem on {write.table}"
        with translated(what), conditions(self.meter):
            answer = self.client.delete_item(**write.arguments(), **METERED)
        self.meter.written(consumed_in(answer, what))

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """Write up to 100 items or none: two write units for each KB of each, also if cancelled.

        TransactionCancelled has a reason for each write. The same writes under one token count once
        in ten minutes; other writes under it are refused by TokenMismatch.

        Returns whether this very request was carried out. False: an earlier one with this token
        was, which shows by the read units that the service reports instead of write units.
        """
        what = f"TransactWriteItems on {', '.join(sorted({write.table for write in writes}))}"
        with translated(what), conditions(self.meter, 2.0 * len(writes)):
            actions: Any = [action(write) for write in writes]
            answer = self.client.transact_write_items(
                TransactItems=actions, ClientRequestToken=token, **METERED
            )
        consumed = consumed_in(answer, what)
        replayed = any(one.get("ReadCapacityUnits", 0.0) > 0 for one in consumed)
        (self.meter.read if replayed else self.meter.written)(consumed)
        return not replayed

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Up to 100 items as of one moment: two read units for each 4 KB of each.

        TransactionCancelled, with a reason for each key, if a write was under way.
        """
        gets: Any = [{"Get": {"TableName": table, "Key": encode(key)}} for key in keys]
        what = "TransactGetItems"
        with translated(what), conditions(self.meter, 0.0):
            answer = self.client.transact_get_items(TransactItems=gets, **METERED)
        self.meter.read(consumed_in(answer, what))
        found = (one.get("Item") for one in answer["Responses"])
        return [decode(item) if item else None for item in found]

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write up to 25 items once, a unit for each KB; returns those that were not taken."""
        return self._put_batch(table, [{"PutRequest": {"Item": encode(one)}} for one in items])

    def put_entries(self, batch: PutBatch) -> list[Item]:
        """`put_batch` of entries, which the fast transport takes as JSON."""
        puts_of_json = getattr(self.client, "puts_of_json", None)
        if puts_of_json is None:
            return self.put_batch(batch.table, batch.items)
        return self._put_batch(batch.table, puts_of_json(batch))

    def _put_batch(self, table: str, requests: Any) -> list[Item]:  # noqa: ANN401 - of a transport
        what = f"BatchWriteItem on {table}"
        with translated(what):
            answer = self.client.batch_write_item(RequestItems={table: requests}, **METERED)
        self.meter.written(consumed_in(answer, what))
        # An engine may leave out what is empty.
        left: Any = of_the_table(answer.get("UnprocessedItems", {}))
        return [decode(request["PutRequest"]["Item"]) for request in left]

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """What the service says of a table; no units."""
        what = f"DescribeTable of {table}"
        with translated(what):
            answer = self.client.describe_table(TableName=table)
        if "Table" not in answer:
            raise _not_the_services(what)
        return answer["Table"]


def consumed_in(answer: Any, what: str) -> list[ConsumedCapacityTypeDef]:  # noqa: ANN401 - of any call
    """The units in an answer; every request names them. Unclear if it holds none.

    botocore takes every answer with status 200 for a success, also one cut short or a proxy's page,
    and returns an empty one. It must not acknowledge an entry or count as a read.
    """
    if "ConsumedCapacity" not in answer:
        raise _not_the_services(what)
    return _listed(answer["ConsumedCapacity"])


def _listed(consumed: Any) -> list[ConsumedCapacityTypeDef]:  # noqa: ANN401 - of any call
    """One sum, or one for each table."""
    return consumed if isinstance(consumed, list) else [consumed]


def of_the_table(lists: Mapping[str, Sequence[Any]]) -> list[Any]:
    """What an answer lists of the one table: a table named by its ARN may be under its name."""
    return [one for listed in lists.values() for one in listed]


def _not_the_services(what: str) -> Unclear:
    return Unclear(f"{what}: no clear answer (it came with status 200, but is not the service's)")
