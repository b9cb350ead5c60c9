"""The candidates for a transport, call by call, against the same answers.

Each way makes one kind of call with what one client offers for it: plain values where it takes
them, typed ones where it does not. Nothing of countledger runs above them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

import boto3

from countledger.ledger.limits import BATCH_WRITE_ITEMS
from tools.bench.emitting import IN_FLIGHT, REGION, TABLE, TUNED, ledger_at
from tools.bench.way import Way, Work

# What one call is of: a plain item, or its key.
Call: TypeAlias = Callable[[list[dict[str, Any]]], object]

_SET: Final = "SET #a = :a ADD #b :b, #c :c, #d :d"
_NAMES: Final = {"#a": "at", "#b": "delta", "#c": "events", "#d": "version"}
_VALUES: Final = {":a": 1_800_000_000_000, ":b": 5, ":c": 2, ":d": 1}
# Items in one transaction.
_TOGETHER: Final = 2


def plain_item(counter: str) -> dict[str, Any]:
    """An entry in plain values."""
    return {
        "counter": counter,
        "entry": f"e#{uuid.uuid4()}",
        "delta": 1,
        "at": time.time_ns() // 1_000_000,
        "origin": REGION,
    }


def _key(item: dict[str, Any]) -> dict[str, Any]:
    return {"counter": item["counter"], "part": "total"}


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    return {n: {"S": v} if isinstance(v, str) else {"N": str(v)} for n, v in item.items()}


# ---- what speaks boto3's language: boto3 itself, and the fast transport ----


def _of_boto3(client: Any) -> dict[str, Call]:  # noqa: ANN401 - either of both
    def put(items: list[dict[str, Any]]) -> object:
        return client.put_item(TableName=TABLE, Item=_typed(items[0]))

    def batch(items: list[dict[str, Any]]) -> object:
        puts = [{"PutRequest": {"Item": _typed(item)}} for item in items]
        return client.batch_write_item(RequestItems={TABLE: puts})

    def update(items: list[dict[str, Any]]) -> object:
        return client.update_item(
            TableName=TABLE,
            Key=_typed(_key(items[0])),
            UpdateExpression=_SET,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues=_typed(_VALUES),
        )

    def get(items: list[dict[str, Any]]) -> object:
        return client.get_item(TableName=TABLE, Key=_typed(_key(items[0])))

    def transact(items: list[dict[str, Any]]) -> object:
        puts = [{"Put": {"TableName": TABLE, "Item": _typed(item)}} for item in items]
        return client.transact_write_items(TransactItems=puts, ClientRequestToken=uuid.uuid4().hex)

    return {"put": put, "batch": batch, "update": update, "get": get, "transact": transact}


def _boto3(url: str, *, tuned: bool) -> dict[str, Call]:
    return _of_boto3(
        boto3.client(
            "dynamodb", region_name=REGION, endpoint_url=url, config=TUNED if tuned else None
        )
    )


def _fast(url: str) -> dict[str, Call]:
    return _of_boto3(ledger_at(url).connection.dynamo("none").client)


# ---- others ----


def _pydynox(url: str) -> dict[str, Call]:
    # Imported where it is measured: another way's process is to know nothing of it.
    from pydynox import DynamoDBClient  # noqa: PLC0415

    client = DynamoDBClient(region=REGION, access_key="bench", secret_key="bench", endpoint_url=url)  # noqa: S106

    def transact(items: list[dict[str, Any]]) -> object:
        puts = [{"type": "put", "table": TABLE, "item": item} for item in items]
        return client.sync_transact_write(puts, client_request_token=uuid.uuid4().hex)

    def update(items: list[dict[str, Any]]) -> object:
        return client.sync_update_item(
            TABLE,
            _key(items[0]),
            update_expression=_SET,
            expression_attribute_names=_NAMES,
            expression_attribute_values=_VALUES,
        )

    return {
        "put": lambda items: client.sync_put_item(TABLE, items[0]),
        "batch": lambda items: client.sync_batch_write(TABLE, put_items=items),
        "update": update,
        "get": lambda items: client.sync_get_item(TABLE, _key(items[0])),
        "transact": transact,
    }


def _pynamodb(url: str) -> dict[str, Call]:
    from pynamodb.attributes import NumberAttribute, UnicodeAttribute  # noqa: PLC0415
    from pynamodb.connection import Connection  # noqa: PLC0415
    from pynamodb.models import Model  # noqa: PLC0415
    from pynamodb.transactions import TransactWrite  # noqa: PLC0415

    class Row(Model):
        class Meta:
            table_name = TABLE
            region = REGION
            host = url

        counter = UnicodeAttribute(hash_key=True)
        entry = UnicodeAttribute(range_key=True)
        delta = NumberAttribute()
        at = NumberAttribute()
        origin = UnicodeAttribute()

    def batch(items: list[dict[str, Any]]) -> object:
        with Row.batch_write() as writer:
            for item in items:
                writer.save(Row(**item))
        return None

    def update(items: list[dict[str, Any]]) -> object:
        row = Row(items[0]["counter"], "total")
        return row.update(
            actions=[Row.at.set(1_800_000_000_000), Row.delta.add(5)], add_version_condition=False
        )

    def get(items: list[dict[str, Any]]) -> object:
        try:
            return Row.get(items[0]["counter"], "total")
        except Row.DoesNotExist:
            return None

    connection = Connection(region=REGION, host=url)

    def transact(items: list[dict[str, Any]]) -> object:
        token = uuid.uuid4().hex
        with TransactWrite(connection=connection, client_request_token=token) as transaction:
            for item in items:
                transaction.save(Row(**item))
        return None

    return {
        "put": lambda items: Row(**items[0]).save(add_version_condition=False),
        "batch": batch,
        "update": update,
        "get": get,
        "transact": transact,
    }


async def _aiodynamo_call(client: Any, kind: str, items: list[dict[str, Any]]) -> None:  # noqa: ANN401
    from aiodynamo.errors import ItemNotFound  # noqa: PLC0415
    from aiodynamo.expressions import F  # noqa: PLC0415
    from aiodynamo.models import BatchWriteRequest  # noqa: PLC0415
    from aiodynamo.operations import Put  # noqa: PLC0415

    if kind == "put":
        await client.put_item(TABLE, items[0])
    elif kind == "batch":
        await client.batch_write({TABLE: BatchWriteRequest(items_to_put=items)})
    elif kind == "update":
        change = F("at").set(1_800_000_000_000) & F("delta").add(5) & F("version").add(1)
        await client.update_item(TABLE, _key(items[0]), change)
    elif kind == "get":
        try:
            await client.get_item(TABLE, _key(items[0]))
        except ItemNotFound:
            return
    else:
        puts = [Put(table=TABLE, item=item) for item in items]
        await client.transact_write_items(puts, request_token=uuid.uuid4().hex)


def _aiodynamo(kind: str, size: int, url: str) -> Work:
    from aiodynamo.client import Client  # noqa: PLC0415
    from aiodynamo.credentials import Key, StaticCredentials  # noqa: PLC0415
    from aiodynamo.http.aiohttp import AIOHTTP  # noqa: PLC0415
    from aiohttp import ClientSession  # noqa: PLC0415
    from yarl import URL  # noqa: PLC0415

    async def every(counters: Sequence[str]) -> None:
        groups = iter(range(0, len(counters), size))
        async with ClientSession() as session:
            credentials = StaticCredentials(Key("bench", "bench"))
            client = Client(AIOHTTP(session), credentials, REGION, URL(url))

            async def some() -> None:
                for start in groups:
                    items = [plain_item(counter) for counter in counters[start : start + size]]
                    await _aiodynamo_call(client, kind, items)

            together: list[Awaitable[None]] = [some() for _ in range(IN_FLIGHT)]
            await asyncio.gather(*together)

    def work(counters: Sequence[str]) -> float:
        asyncio.run(every(counters))
        return 0.0

    return work


# ---- the ways ----

_SIZES: Final = {
    "put": 1,
    "batch": BATCH_WRITE_ITEMS,
    "update": 1,
    "get": 1,
    "transact": _TOGETHER,
}
# The calls, and the headings of their columns.
KINDS: Final = {
    "put": "put",
    "batch": "batch of 25",
    "update": "update",
    "get": "get",
    "transact": "transaction of 2",
}
_CLIENTS: Final[dict[str, Callable[[str], dict[str, Call]]]] = {
    "boto3": partial(_boto3, tuned=False),
    "boto3, tuned": partial(_boto3, tuned=True),
    "pynamodb": _pynamodb,
    "pydynox": _pydynox,
    "countledger's own": _fast,
}
# The candidates in the order of their rows; the first is what the others are compared with.
CANDIDATES: Final = (
    "boto3",
    "boto3, tuned",
    "pynamodb",
    "aiodynamo",
    "pydynox",
    "countledger's own",
)


def _call(client: Callable[[str], dict[str, Call]], kind: str, size: int, url: str) -> Work:
    call = client(url)[kind]

    def work(counters: Sequence[str]) -> float:
        for start in range(0, len(counters), size):
            call([plain_item(counter) for counter in counters[start : start + size]])
        return 0.0

    return work


def _way(candidate: str, kind: str) -> Way:
    size = _SIZES[kind]
    own = candidate == "countledger's own"
    if candidate == "aiodynamo":
        prepare: Callable[[str], Work] = partial(_aiodynamo, kind, size)
    else:
        prepare = partial(_call, _CLIENTS[candidate], kind, size)
    calls = 200 if size == BATCH_WRITE_ITEMS else 800
    return Way(candidate, prepare, calls * size, transport="fast" if own else None, per=size)


@cache
def ways(kind: str) -> tuple[Way, ...]:
    """Each candidate's way to make one kind of call."""
    return tuple(_way(candidate, kind) for candidate in CANDIDATES)
