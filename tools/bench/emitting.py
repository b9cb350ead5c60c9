"""The ways to emit that are measured: ours and those of others, against the same answers."""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

import boto3
from botocore.config import Config

from countledger import AsyncCountLedger, CountLedger, Event, Settings
from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.producers.buffer.settings import Buffering
from tools.bench.way import Way, Work, uniform, with_each_transport, zipf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

REGION: Final = "us-east-1"
TABLE: Final = "bench-ledger"
_STREAM: Final = f"arn:aws:kinesis:{REGION}:000000000000:stream/bench"
IN_FLIGHT: Final = 16
# What a configuration can spare boto3: checks of arguments, and the user agent of each call.
TUNED: Final = Config(parameter_validation=False, user_agent="x", retries={"total_max_attempts": 1})


def ledger_at(url: str) -> CountLedger:
    """A client of ours."""
    settings = Settings(
        ledger_table=TABLE,
        counters_table="bench-counters",
        ingest_stream_arn=_STREAM,
        home_region=REGION,
    )
    return CountLedger(settings, endpoint_url=url)


def plain_item(counter: str) -> dict[str, Any]:
    """What somebody writes who keeps a ledger by hand."""
    return {
        "counter": {"S": counter},
        "entry": {"S": f"e#{uuid.uuid4()}"},
        "delta": {"N": "1"},
        "at": {"N": str(time.time_ns() // 1_000_000)},
        "origin": {"S": REGION},
    }


def _boto3_put(url: str) -> Work:
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url)

    def work(counters: Sequence[str]) -> float:
        for counter in counters:
            client.put_item(TableName=TABLE, Item=plain_item(counter))
        return len(counters)

    return work


def _boto3_batch(config: Config | None, url: str) -> Work:
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=url, config=config)

    def work(counters: Sequence[str]) -> float:
        for start in range(0, len(counters), BATCH_WRITE_ITEMS):
            some = counters[start : start + BATCH_WRITE_ITEMS]
            puts: Any = [{"PutRequest": {"Item": plain_item(counter)}} for counter in some]
            client.batch_write_item(RequestItems={TABLE: puts})
        return len(counters)

    return work


def _aiodynamo_put(url: str) -> Work:
    # Imported where it is measured: another way's process is to know nothing of it.
    from aiodynamo.client import Client  # noqa: PLC0415
    from aiodynamo.credentials import Key, StaticCredentials  # noqa: PLC0415
    from aiodynamo.http.aiohttp import AIOHTTP  # noqa: PLC0415
    from aiohttp import ClientSession  # noqa: PLC0415
    from yarl import URL  # noqa: PLC0415

    async def some(client: Client, counters: Iterator[str]) -> None:
        for counter in counters:
            typed = plain_item(counter)
            item = {name: value.get("S") or int(value["N"]) for name, value in typed.items()}
            await client.put_item(TABLE, item)

    async def put(counters: Iterator[str]) -> None:
        credentials = StaticCredentials(Key("x", "y"))
        async with ClientSession() as session:
            client = Client(AIOHTTP(session), credentials, REGION, URL(url))
            await asyncio.gather(*(some(client, counters) for _ in range(IN_FLIGHT)))

    def work(counters: Sequence[str]) -> float:
        asyncio.run(put(iter(counters)))
        return len(counters)

    return work


def ours(emit: Callable[[CountLedger, Sequence[str]], None], url: str) -> Work:
    """Whatever of ours: what it cost is what the service reported."""
    ledger = ledger_at(url)

    def work(counters: Sequence[str]) -> float:
        before = ledger.write_units
        emit(ledger, counters)
        return ledger.write_units - before

    return work


def _awaited(url: str) -> Work:
    """Entries on an event loop, several at a time; its clients are made before."""
    plain = ledger_at(url)
    ledger = AsyncCountLedger(plain.connection.settings, endpoint_url=url)
    runner = asyncio.Runner()

    async def some(counters: Iterator[str]) -> None:
        for counter in counters:
            await ledger.record(counter, 1)

    async def put(counters: Sequence[str]) -> None:
        left = iter(counters)
        await asyncio.gather(*(some(left) for _ in range(IN_FLIGHT)))

    def work(counters: Sequence[str]) -> float:
        before = ledger.write_units
        runner.run(put(counters))
        return ledger.write_units - before

    def close() -> None:
        runner.run(ledger.aclose())
        runner.close()

    runner.run(ledger.__aenter__())
    runner.run(put(["bench:one"]))
    finalize(work, close)
    return work


def _record(ledger: CountLedger, counters: Sequence[str]) -> None:
    for counter in counters:
        ledger.record(counter, 1)


def _record_keyed(ledger: CountLedger, counters: Sequence[str]) -> None:
    run = uuid.uuid4().hex
    for number, counter in enumerate(counters):
        ledger.record(counter, 1, key=f"{run}-{number}")


def _record_many(ledger: CountLedger, counters: Sequence[str]) -> None:
    _all_in(ledger.record_many(Event(counter, 1) for counter in counters))


def _record_many_keyed(ledger: CountLedger, counters: Sequence[str]) -> None:
    run = uuid.uuid4().hex
    events = (Event(counter, 1, f"{run}-{number}") for number, counter in enumerate(counters))
    _all_in(ledger.record_many(events))


def _buffered(buffering: Buffering, ledger: CountLedger, counters: Sequence[str]) -> None:
    with ledger.buffered(buffering) as producer:
        for counter in counters:
            producer.add(counter, 1)


def _buffered_awaited(url: str) -> Work:
    plain = ledger_at(url)
    ledger = AsyncCountLedger(plain.connection.settings, endpoint_url=url)

    async def emit(counters: Sequence[str]) -> None:
        async with ledger, await ledger.buffered() as producer:
            for counter in counters:
                await producer.add(counter, 1)

    def work(counters: Sequence[str]) -> float:
        before = ledger.write_units
        asyncio.run(emit(counters))
        return ledger.write_units - before

    return work


def _kinesis(ledger: CountLedger, counters: Sequence[str]) -> None:
    _all_in(ledger.kinesis.send_many(Event(counter, 1) for counter in counters))


def _all_in(outcomes: Iterable[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


_EACH: Final = partial(_buffered, Buffering())
_COALESCED: Final = partial(_buffered, Buffering(coalesce=True))

_OURS: Final = (
    Way("record", partial(ours, _record), 1_000),
    Way("record, with a key", partial(ours, _record_keyed), 1_000),
    Way("record_many, with keys", partial(ours, _record_many_keyed), 1_000),
    Way("record_many", partial(ours, _record_many), 100_000),
    Way("buffered", partial(ours, _EACH), 100_000),
    Way("buffered, coalescing, uniform", partial(ours, _COALESCED), 100_000, uniform),
    Way("buffered, coalescing, Zipf", partial(ours, _COALESCED), 100_000, zipf),
    Way("AsyncCountLedger: record, 16 in flight", _awaited, 4_000),
    Way("AsyncCountLedger: buffered", _buffered_awaited, 20_000),
)
# The first one is what the others are compared with.
WAYS: Final = (
    Way("boto3: put_item, one by one", _boto3_put, 1_000),
    Way("aiodynamo: put_item, 16 in flight", _aiodynamo_put, 4_000),
    Way("boto3: batch_write_item of 25", partial(_boto3_batch, None), 10_000),
    Way("boto3, tuned: batch_write_item of 25", partial(_boto3_batch, TUNED), 10_000),
    *(way for one in _OURS for way in with_each_transport(one)),
    Way("kinesis", partial(ours, _kinesis), 50_000, zipf),
)
