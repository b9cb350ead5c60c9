"""The pump delivers a stream to a real function as Lambda's event source mapping would."""

import base64
import time
from typing import Any

import pytest

from countledger.infra.local.stack import LocalStack
from countledger.infra.template import MappingSettings, mapping_settings
from tests.e2e.command import eventually
from tests.e2e.probe import Probe, make_probe

WINDOWED = mapping_settings()


@pytest.fixture
def probe(stack: LocalStack) -> Probe:
    return make_probe(stack)


def test_entries_arrive_as_lambda_delivers_them_in_order_and_nothing_else(probe: Probe) -> None:
    probe.put("head", prefix="s#")
    probe.put("a", "b", "c")
    probe.stack.client("dynamodb").delete_item(
        TableName=probe.table, Key={"counter": {"S": "c"}, "entry": {"S": "e#a"}}
    )

    probe.pump(WINDOWED).drain()

    assert probe.delivered() == [["a", "b", "c"]]
    note = probe.notes()[0]
    assert note["shardId"].startswith("shardId-")
    assert note["eventSourceARN"] == probe.stream_arn
    assert note["state"] == {}
    assert note["isFinalInvokeForWindow"] is False
    assert note["window"]["end"] > note["window"]["start"]
    record = note["first"]
    assert (record["eventName"], record["eventSource"]) == ("INSERT", "aws:dynamodb")
    assert base64.b64decode(record["dynamodb"]["NewImage"]["raw"]["B"]) == b"\x00\xff"
    assert abs(record["dynamodb"]["ApproximateCreationDateTime"] - time.time()) < 60
    assert record["dynamodb"]["SequenceNumber"].isdigit()


def test_a_reported_failure_is_the_checkpoint(probe: Probe) -> None:
    probe.put("a", "b", "report-1", "c", "report-2", "d")
    pump = probe.pump(WINDOWED)

    first = pump.step()
    second = pump.step()
    probe.heal()
    pump.drain()

    assert first.failed
    assert second.failed
    rest = ["report-1", "c", "report-2", "d"]
    assert probe.delivered() == [["a", "b", *rest], rest, rest]


def test_a_failing_batch_is_halved_down_to_the_failing_record(probe: Probe) -> None:
    probe.put("a", "b", "c", "raise")
    notes: list[Any] = []
    pump = probe.pump(MappingSettings(bisect=True, retries=1), notes.append)

    pump.drain()

    assert probe.delivered() == [
        ["a", "b", "c", "raise"],
        ["a", "b"],
        ["c", "raise"],
        ["c"],
        ["raise"],
        ["raise"],
    ]
    (note,) = notes
    assert note["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert note["DDBStreamBatchInfo"]["batchSize"] == 1


def test_a_window_keeps_state_and_is_closed(probe: Probe) -> None:
    probe.put("a", "b", "c")
    later_s = time.time()
    pump = probe.stack.new_pump(
        MappingSettings(batch_size=2, window_s=60),
        stream_arn=probe.stream_arn,
        function_name=probe.function,
        now_s=lambda: later_s,
    )

    pump.drain()
    later_s += 120
    pump.drain()
    probe.put("d")
    pump.drain()

    notes = probe.notes()
    seen = [(one["names"], one["state"], one["isFinalInvokeForWindow"]) for one in notes[:3]]
    assert seen == [
        (["a", "b"], {}, False),
        (["c"], {"seen": 2}, False),
        ([], {"seen": 3}, True),
    ]
    assert notes[3]["state"] == {}


def test_a_closed_shard_closes_its_window(probe: Probe) -> None:
    probe.put("a")
    probe.stack.client("dynamodb").update_table(
        TableName=probe.table, StreamSpecification={"StreamEnabled": False}
    )
    pump = probe.pump(WINDOWED)

    pump.drain()

    finals = [(note["names"], note["isFinalInvokeForWindow"]) for note in probe.notes()]
    assert finals == [(["a"], False), ([], True)]
    assert pump.step().idle


def test_latest_skips_what_was_there_before(probe: Probe) -> None:
    probe.put("before")
    pump = probe.pump(MappingSettings(starting_position="LATEST"))
    pump.step()

    probe.put("after")
    pump.drain()

    assert probe.delivered() == [["after"]]


def test_in_the_background_it_outlives_a_failing_function(probe: Probe) -> None:
    probe.put("raise")
    pump = probe.pump(WINDOWED)
    pump.start()
    try:
        eventually(lambda: len(probe.delivered()) >= 2)
        probe.heal()
        probe.put("after")
        eventually(lambda: any("after" in names for names in probe.delivered()))
    finally:
        pump.stop()
