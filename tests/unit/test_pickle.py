"""What another process gets pickled: clients by their settings, and values; no buffer."""

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing import get_context
from operator import attrgetter
from typing import TypeVar

import boto3
import pytest

from countledger import (
    AsyncCountLedger,
    BufferedProducer,
    Claim,
    CountLedger,
    Event,
    IdempotencyKey,
    RangeKey,
    Settings,
)
from countledger.ledger.errors import AlreadyClaimed, LedgerNotOpen
from countledger.producers.buffer.asynchronous import AsyncBufferedProducer
from countledger.telemetry import traced
from countledger.testing import MemoryStack

_T = TypeVar("_T")
_SETTINGS = {"ledger_table": "l", "counters_table": "c", "home_region": "eu-west-1"}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a stack whose region the environment names."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    return Settings.from_environment(**_SETTINGS)


def _again(value: _T) -> _T:
    again: _T = pickle.loads(pickle.dumps(value))  # noqa: S301 - made here
    return again


def test_a_client_is_pickled_as_its_settings(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = CountLedger(settings, endpoint_url="http://127.0.0.1:9")
    assert ledger.quotas is not None  # what it has opened stays
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    again = _again(_again(ledger))

    assert type(again) is CountLedger
    assert again.connection.settings == settings
    assert again.connection.region == "eu-west-1"
    assert again.connection.endpoint_url == "http://127.0.0.1:9"
    assert again.quotas is not ledger.quotas


def test_a_client_for_event_loops_is_pickled_and_is_not_open(settings: Settings) -> None:
    async def send() -> None:
        async with AsyncCountLedger(settings) as ledger:
            again = _again(ledger)
            assert again._ledger.connection.settings == settings
            with pytest.raises(LedgerNotOpen):
                await again.record("a", 1)
            async with again:
                pass

    asyncio.run(send())


def test_a_process_that_is_spawned_uses_the_client(settings: Settings) -> None:
    ledger = CountLedger(settings)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        got = pool.submit(attrgetter("connection.settings", "connection.region"), ledger)
        assert got.result(60) == (settings, "eu-west-1")
        with pytest.raises(AlreadyClaimed, match="c"):
            pool.submit(_raise, AlreadyClaimed("c", "s", ("v",), "o")).result(60)


def _raise(error: Exception) -> None:
    raise error


def _own_session(settings: Settings) -> object:
    return CountLedger(settings, session=boto3.Session("key", "secret"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_own_session, "session of your own.*create the client in the other process"),
        (lambda settings: traced(CountLedger(settings)), "call `traced` in the other process"),
        (lambda settings: CountLedger(settings).quotas, "pickle the `CountLedger`"),
        (lambda settings: CountLedger(settings).strict.change, "pickle the `CountLedger`"),
        (lambda _: MemoryStack().ledger, "the stack is in this process only"),
        (lambda _: MemoryStack().async_ledger, "the stack is in this process only"),
        (lambda _: MemoryStack().ledger.buffered(), "call `buffered` in the other process"),
        (
            lambda _: AsyncBufferedProducer(MemoryStack().ledger.buffered()),
            "call `buffered` in the other process",
        ),
        (
            lambda _: MemoryStack().ledger.buffered().add("a", 1),
            "call `buffered` in the other process",
        ),
    ],
)
def test_what_cannot_be_pickled_says_what_to_do(
    settings: Settings, make: Callable[[Settings], object], words: str
) -> None:
    made = make(settings)
    with pytest.raises(TypeError, match=words):
        pickle.dumps(made)
    if isinstance(made, BufferedProducer):
        made.close()


def test_values_are_pickled() -> None:
    stack = MemoryStack()
    ledger = stack.ledger
    at = datetime(2026, 1, 2, tzinfo=UTC)
    receipts = ledger.record_many([Event("a:b", 1, "k"), Event("a:b", Decimal("1.5"))])
    stack.deliver()
    ledger.strict.create("seats:hall", method="marker", lower=0, upper=10)
    ledger.quotas.create("llm:", limit=5, per="day")
    claim = Claim("email", "a@x", "u-1")
    ledger.claims.take(claim)
    values: list[object] = [
        Event("a:b", 1, IdempotencyKey("k", at), at, {"n": "t"}),
        RangeKey("topic", 1, 2),
        claim,
        Settings.from_environment(**_SETTINGS),
        *receipts,
        [*receipts],
        ledger.total("a:b"),
        ledger.exact("a:b"),
        ledger.head("a:b"),
        [*ledger.entries("a:b")],
        [*ledger.names()],
        ledger.audit.verify("a:b"),
        ledger.namespaces.get("seats"),
        ledger.strict.change("seats:hall", 3, key="k"),
        ledger.strict.show("seats:hall"),
        ledger.quotas.acquire("llm:a", 1),
        ledger.quotas.acquire("llm:a", 100),
        ledger.quotas.reserve("llm:a", 1),
        ledger.quotas.show("llm:a"),
        ledger.quotas.list(),
    ]
    for value in values:
        assert _again(value) == value
    assert [*_again(receipts)] == [*receipts]
