"""A batch of one shard, from its records to totals, quarantine and progress."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from countledger.consumers import materializer
from countledger.consumers.handler import shard_of
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import (
    ShardDirectory,
    ShardProgress,
    decode_progress,
)
from countledger.consumers.record import ShardName
from countledger.ledger import departure, keys
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import (
    BadPayload,
)
from countledger.ledger.limits import INVOCATION_MARGIN_MS, INVOCATION_TIME_MS
from tests.unit.connections import connection_on
from tests.unit.consumers.records import record
from tests.unit.consumers.world import Kept, opened
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient, at

TABLE = "counters"
SHARD = ShardName("label", "shardId-1")


def _materializer(dynamo: MemoryClient, quarantine: Kept | None = None) -> Materializer:
    shards = ShardDirectory({str(SHARD): NOW_MS})  # its entry need not be renewed
    return Materializer(connection_on(dynamo, ManualClock()), quarantine or Kept(), shards=shards)


def _totals(dynamo: MemoryClient) -> dict[str, object]:
    return {i["counter"]: i["total"] for i in dynamo.items(TABLE) if i["part"] == "total"}


def _progress(dynamo: MemoryClient) -> ShardProgress:
    item = dynamo.get(TABLE, keys.progress_key(str(SHARD)))
    assert item is not None
    return decode_progress(item)


@pytest.mark.parametrize("name", ["alerts#rules", "stream#label/s", "a:", "x" * 513, "a\nb"])
def test_what_no_counter_can_be_called_gets_no_total(name: str) -> None:
    dynamo, quarantine = MemoryClient(), Kept()
    records = [record(100, 1, counter=name), record(101, 2, counter="a:x")]

    outcome = _materializer(dynamo, quarantine).apply(records, SHARD)

    assert (outcome.retry_from, outcome.quarantined) == (None, 1)
    assert [one for one, _ in quarantine.records] == records[:1]
    assert _totals(dynamo) == {"a:x": 2}


def test_lag_is_the_age_of_the_last_record() -> None:
    dynamo = MemoryClient()

    assert _materializer(dynamo).apply([record(100, age_ms=7_000)], SHARD).lag_ms == 7_000
    assert _materializer(dynamo).apply([record(101, age_ms=-7_000)], SHARD).lag_ms == 0


_ARN = {"eventSourceARN": "arn"}
_NO_SHARD = [{}, {"Records": []}, {"shardId": "s"}, _ARN, {"shardId": None, **_ARN}]


@pytest.mark.parametrize("event", [*_NO_SHARD, {"shardId": 7, **_ARN}])
def test_an_event_that_names_no_shard_is_refused(event: dict[str, Any]) -> None:
    """Without it nothing can be applied exactly once; the message says what to set."""
    with pytest.raises(BadPayload, match="TumblingWindowInSeconds"):
        shard_of(event)


class _Broken(BaseException):
    """No error of the service's: this process is at its end."""


def test_nothing_is_on_its_way_any_more_when_a_batch_breaks_off() -> None:
    """Else a batch that comes again would meet updates of the one before, still to land."""
    broken = Event()

    def broken_at_one(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if write.key["counter"] == "a:0":
            broken.set()
            raise _Broken
        if not write.key["counter"].startswith("stream#"):
            assert broken.wait(10)
        return request()

    dynamo = MemoryClient(plans=[at(broken_at_one)])

    with pytest.raises(_Broken):
        _materializer(dynamo).apply([record(100 + n, counter=f"a:{n}") for n in range(40)], SHARD)

    assert len(_totals(dynamo)) == 39


def _slow(takes_ms: int) -> tuple[MemoryClient, list[str], Materializer]:
    """A client whose writes of totals take a while, which counters it wrote, and its user."""
    clock, written = ManualClock(), list[str]()

    def slow(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if write.key["part"] == SHARD.id:
            return None
        clock.at_ms += takes_ms
        departure.leave()
        written.append(str(write.key["counter"]))
        return request()

    opened(SHARD, dynamo := MemoryClient())
    dynamo = replace(dynamo, plans=[at(slow)])
    return dynamo, written, Materializer(connection_on(dynamo, clock), Kept())


@pytest.fixture
def _one_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that the order of writes can be told."""
    monkeypatch.setattr(materializer, "_WRITERS", 1)
    materializer._writers.cache_clear()
    yield
    materializer._writers.cache_clear()


@pytest.mark.usefixtures("_one_writer")
def test_a_deadline_moves_the_part_that_is_applied() -> None:
    dynamo, written, slow = _slow(10_000)
    names = [f"a:{n:02}" for n in range(40)]
    records = [record(100 + n, 1, counter=name) for n, name in enumerate(names)]

    deadline = Deadline(slow.connection.clock, NOW_MS + 95_000, NOW_MS + 115_000)
    outcome = slow.apply(records, SHARD, deadline)

    totals = [name for name in written if name in names]
    assert totals == names[:9]
    assert outcome.retry_from == 109
    assert outcome.late == len(outcome.failed) == 31
    assert (_progress(dynamo).sequence, _progress(dynamo).records) == ("108", 9)


_FUNCTION_MS = INVOCATION_TIME_MS - INVOCATION_MARGIN_MS


@pytest.mark.usefixtures("_one_writer")
@pytest.mark.parametrize(
    ("takes_ms", "given"), [(50, True), (_FUNCTION_MS, False)], ids=["given", "the function's own"]
)
def test_no_update_leaves_after_the_deadline(takes_ms: int, *, given: bool) -> None:
    """Not even one that was begun before it: its watermark may be gone when it lands."""
    _, written, slow = _slow(takes_ms)
    deadline = Deadline(slow.connection.clock, NOW_MS + takes_ms, NOW_MS + takes_ms)

    outcome = slow.apply([record(100)], SHARD, deadline if given else None)

    assert (outcome.retry_from, outcome.late, written) == (100, 1, [])
