"""The pump delivers a stream to a real function as Lambda's event source mapping would."""

import base64
import time
from collections.abc import Callable
from typing import Any

import pytest

from countledger.infra.local.pump import PumpStalled
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import MappingSettings, mapping_settings
from tests.e2e.probe import Probe, make_probe

WINDOWED = mapping_settings()


@pytest.fixture
def probe(stack: LocalStack) -> Probe:
    return make_probe(stack)


def test_records_arrive_in_order_with_their_shard(probe: Probe) -> None:
    """With the template's settings a batch carries its shard, window and state, and is in order."""
    probe.put("a", "b", "c")

    probe.pump(WINDOWED).drain()

    note = probe.notes()[0]
    assert note["names"] == ["a", "b", "c"]
    assert note["shardId"].startswith("shardId-")
    assert note["eventSourceARN"] == probe.stream_arn
    assert note["state"] == {}
    assert note["isFinalInvokeForWindow"] is False
    assert note["window"]["end"] > note["window"]["start"]


def test_a_record_looks_as_lambda_delivers_it(probe: Probe) -> None:
    """Times are numbers, binary is base64, the stream is named."""
    probe.put("a")

    probe.pump(WINDOWED).drain()

    record = probe.notes()[0]["first"]
    assert record["eventName"] == "INSERT"
    assert record["eventSource"] == "aws:dynamodb"
    assert record["eventSourceARN"] == probe.stream_arn
    assert base64.b64decode(record["dynamodb"]["NewImage"]["raw"]["B"]) == b"\x00\xff"
    assert abs(record["dynamodb"]["ApproximateCreationDateTime"] - time.time()) < 60
    assert record["dynamodb"]["SequenceNumber"].isdigit()


def test_the_filter_holds_back_what_is_no_entry(probe: Probe) -> None:
    """Only INSERT and MODIFY of entries reach the function; the rest is passed over."""
    probe.put("head", prefix="s#")
    probe.put("a")
    probe.stack.client("dynamodb").delete_item(
        TableName=probe.table, Key={"counter": {"S": "c"}, "entry": {"S": "e#a"}}
    )

    probe.pump(WINDOWED).drain()

    assert probe.delivered() == [["a"]]


def test_a_reported_failure_is_the_checkpoint(probe: Probe) -> None:
    """What comes before the lowest reported record is done; it and the rest come again."""
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


def test_a_malformed_report_fails_the_whole_batch(probe: Probe) -> None:
    """An empty identifier says nothing: nothing of the batch is done."""
    probe.put("a", "nonsense")
    pump = probe.pump(MappingSettings(partial_failures=True))

    pump.step()
    probe.heal()
    pump.drain()

    assert probe.delivered() == [["a", "nonsense"], ["a", "nonsense"]]


def test_a_failing_batch_is_halved_down_to_the_failing_record(probe: Probe) -> None:
    """Bisecting isolates the record that makes the function fail; its neighbours pass."""
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


def test_without_a_limit_retries_never_end(probe: Probe) -> None:
    """With -1 nothing is given up: the shard waits until its failing record succeeds."""
    probe.put("raise")
    probe.put("after")
    pump = probe.pump(WINDOWED)

    with pytest.raises(PumpStalled, match="malformed"):
        pump.drain(timeout_s=2.0)
    assert all(batch[0] == "raise" for batch in probe.delivered())
    probe.heal()
    pump.drain()

    assert probe.delivered()[-1][-1] == "after"


def test_a_window_keeps_state_and_is_closed(probe: Probe) -> None:
    """State goes from batch to batch of a window; then a final call gets it, and it is dropped."""
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
    """At the end of a shard its window is closed early, and the pump is done with it."""
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
    """A mapping may begin at the end of the stream."""
    probe.put("before")
    pump = probe.pump(MappingSettings(starting_position="LATEST"))
    pump.step()

    probe.put("after")
    pump.drain()

    assert probe.delivered() == [["after"]]


def test_a_new_pump_delivers_everything_again(probe: Probe) -> None:
    """TRIM_HORIZON: redelivery is one pump more."""
    probe.put("a", "b")

    probe.pump(WINDOWED).drain()
    probe.pump(WINDOWED).drain()

    assert probe.delivered() == [["a", "b"], ["a", "b"]]


def test_in_the_background_it_outlives_a_failing_function(probe: Probe) -> None:
    """A running pump backs off and goes on when the function has recovered."""
    probe.put("raise")
    pump = probe.pump(WINDOWED)
    pump.start()
    try:
        _until(lambda: len(probe.delivered()) >= 2)
        probe.heal()
        probe.put("after")
        _until(lambda: any("after" in names for names in probe.delivered()))
    finally:
        pump.stop()


def test_a_thousand_records_make_one_batch(probe: Probe) -> None:
    """4,000 records arrive in four batches of the template's size."""
    entries = [
        {"PutRequest": {"Item": {"counter": {"S": "c"}, "entry": {"S": f"e#{number:05}"}}}}
        for number in range(4000)
    ]
    dynamodb = probe.stack.client("dynamodb")
    for start in range(0, len(entries), 25):
        dynamodb.batch_write_item(RequestItems={probe.table: entries[start : start + 25]})

    made = probe.pump(WINDOWED).drain()

    assert [len(one.sequences) for one in made] == [1000] * 4


def _until(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
