"""What an event source mapping does next, as pure decisions."""

import json
from typing import Any

import pytest

from countledger.infra.local import delivery
from countledger.infra.local.delivery import (
    BatchFailed,
    BatchHandled,
    BatchPartlyFailed,
    BatchVerdict,
    RecordBatch,
    StreamRecord,
    TumblingWindow,
    follow_up,
    next_batch_size,
    verdict_of,
    window_start,
)
from countledger.infra.template import MappingSettings

PARTIAL = MappingSettings(partial_failures=True)
BISECTING = MappingSettings(partial_failures=True, bisect=True)


def records(
    *sequences: str, created_s: float = 0.0, encoded: str = "{}"
) -> tuple[StreamRecord, ...]:
    return tuple(StreamRecord(sequence, created_s, encoded) for sequence in sequences)


def failing(*sequences: object) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": one} for one in sequences]}


# ---- what an answer means ----


@pytest.mark.parametrize(
    "answer", [None, {}, "", [], {"batchItemFailures": []}, {"batchItemFailures": None}]
)
def test_an_answer_without_failures_is_success(answer: object) -> None:
    """An empty answer, and an empty or absent list, mean that all is handled."""
    assert verdict_of(
        answer, RecordBatch(records("1", "2")), PARTIAL, windowed=False
    ) == BatchHandled({})


def test_the_lowest_reported_record_is_the_checkpoint() -> None:
    """The order of the report does not matter, its place in the batch does."""
    verdict = verdict_of(
        failing("3", "2"), RecordBatch(records("1", "2", "3")), PARTIAL, windowed=False
    )

    assert verdict == BatchPartlyFailed(1, {})


@pytest.mark.parametrize(
    "answer",
    [
        failing(""),
        failing(None),
        failing("9"),
        failing("2", ""),
        {"batchItemFailures": [{"item": "2"}]},
        {"batchItemFailures": ["2"]},
        {"batchItemFailures": "2"},
    ],
)
def test_a_malformed_report_fails_the_batch(answer: object) -> None:
    """A report that names no record of the batch leaves nobody wiser: all of it failed."""
    assert isinstance(
        verdict_of(answer, RecordBatch(records("1", "2")), PARTIAL, windowed=False), BatchFailed
    )


def test_reports_count_only_where_the_mapping_asks_for_them() -> None:
    """Without ReportBatchItemFailures the list is ignored."""
    verdict = verdict_of(failing("1"), RecordBatch(records("1")), MappingSettings(), windowed=False)

    assert verdict == BatchHandled({})


@pytest.mark.parametrize("answer", [None, {}, {"state": None}, {"state": "x"}])
def test_a_window_demands_state(answer: object) -> None:
    """An answer without state fails the invocation."""
    assert isinstance(
        verdict_of(answer, RecordBatch(records("1")), PARTIAL, windowed=True), BatchFailed
    )


def test_state_goes_on() -> None:
    """What the function keeps is handed on, also when a part of the batch failed."""
    batch = RecordBatch(records("1", "2"))

    assert verdict_of({"state": {"n": 1}}, batch, PARTIAL, windowed=True) == BatchHandled({"n": 1})
    answer = {"state": {"n": 1}, **failing("2")}
    assert verdict_of(answer, batch, PARTIAL, windowed=True) == BatchPartlyFailed(1, {"n": 1})


def test_state_beyond_a_megabyte_is_refused() -> None:
    """Lambda would end the window early; what cannot be played is not passed over."""
    answer = {"state": {"n": "x" * delivery.MAX_STATE_BYTES}}

    assert isinstance(
        verdict_of(answer, RecordBatch(records("1")), PARTIAL, windowed=True), BatchFailed
    )


# ---- what follows ----


def test_what_is_handled_is_done() -> None:
    """Success leaves nothing to do."""
    done = follow_up(RecordBatch(records("1", "2")), BatchHandled({}), BISECTING)

    assert (done.handled, done.again, done.withdrawn) == (2, (), None)


def test_from_the_checkpoint_on_all_comes_again() -> None:
    """What comes before is done; the reported record and all after it are the next batch."""
    next_ = follow_up(RecordBatch(records("1", "2", "3")), BatchPartlyFailed(1, {}), BISECTING)

    assert next_.handled == 1
    assert next_.again == (RecordBatch(records("2", "3"), failures=1),)


def test_a_failed_function_has_its_batch_halved_and_spends_no_retry() -> None:
    """Both halves come again, in order, and count no failure."""
    next_ = follow_up(RecordBatch(records("1", "2", "3"), failures=1), BatchFailed("x"), BISECTING)

    assert next_.again == (RecordBatch(records("1"), 1), RecordBatch(records("2", "3"), 1))


def test_without_bisecting_the_whole_batch_comes_again() -> None:
    """A retry is spent."""
    next_ = follow_up(RecordBatch(records("1", "2")), BatchFailed("x"), PARTIAL)

    assert next_.again == (RecordBatch(records("1", "2"), failures=1),)


def test_a_single_record_cannot_be_halved() -> None:
    """It spends its retries like any batch."""
    next_ = follow_up(RecordBatch(records("1")), BatchFailed("x"), BISECTING)

    assert next_.again == (RecordBatch(records("1"), failures=1),)


def test_after_the_last_retry_the_rest_is_given_up() -> None:
    """With two retries the third failure is the last; what had been handled stays handled."""
    settings = MappingSettings(partial_failures=True, retries=2)
    batch = RecordBatch(records("1", "2"), failures=2)

    next_ = follow_up(batch, BatchPartlyFailed(1, {}), settings)

    assert next_.handled == 1
    assert next_.again == ()
    assert next_.withdrawn == RecordBatch(records("2"), failures=3)


def test_without_a_limit_nothing_is_given_up() -> None:
    """With -1, not after a thousand failures either."""
    next_ = follow_up(RecordBatch(records("1"), failures=1000), BatchFailed("x"), BISECTING)

    assert next_.withdrawn is None
    assert next_.again == (RecordBatch(records("1"), failures=1001),)


def test_no_record_is_lost_or_doubled_by_any_verdict() -> None:
    """Handled, again and given up are the batch, in order, whatever was said."""
    batch = RecordBatch(records(*"123456789"))
    partly = (BatchPartlyFailed(index, {}) for index in range(9))
    verdicts: list[BatchVerdict] = [BatchHandled({}), BatchFailed("x"), *partly]
    for settings in (PARTIAL, BISECTING, MappingSettings(retries=0)):
        for verdict in verdicts:
            next_ = follow_up(batch, verdict, settings)
            parts = [batch.records[: next_.handled], *(one.records for one in next_.again)]
            if next_.withdrawn is not None:
                parts.append(next_.withdrawn.records)

            assert sum(parts, ()) == batch.records


# ---- batches, windows, events ----


def test_a_batch_ends_at_its_size() -> None:
    """No more records than the mapping allows."""
    assert next_batch_size(records(*"12345"), MappingSettings(batch_size=3), None) == 3
    assert next_batch_size(records(*"12"), MappingSettings(batch_size=3), None) == 2


def test_a_batch_ends_at_its_window() -> None:
    """A record of a later window waits; one that comes late is delivered in the open one."""
    window = TumblingWindow(60, 60)
    mixed = records("1", created_s=59) + records("2", created_s=119) + records("3", created_s=120)

    assert next_batch_size(mixed, MappingSettings(), window) == 2


def test_a_batch_fits_into_an_event() -> None:
    """Large records make small batches, but one record always goes."""
    large = "x" * (delivery.MAX_EVENT_BYTES // 2)

    assert next_batch_size(records(*"123", encoded=large), MappingSettings(), None) == 1
    assert next_batch_size(records("1", encoded=large * 3), MappingSettings(), None) == 1


def test_windows_are_aligned() -> None:
    """They begin at multiples of their length since 1970."""
    assert window_start(899.9, 900) == 0
    assert window_start(900.0, 900) == 900


def test_an_event_without_a_window_has_records_only() -> None:
    """That is how Lambda delivers where no window is set: without a shard id."""
    event = delivery.event(
        RecordBatch(records("1", encoded='{"a":1}')), shard_id="s", stream_arn="arn", window=None
    )

    assert json.loads(event) == {"Records": [{"a": 1}]}


def test_an_event_of_a_window_says_where_and_when() -> None:
    """It carries shard, stream, window, state, and whether it is the last."""
    event = delivery.event(
        RecordBatch(()),
        shard_id="s",
        stream_arn="arn",
        window=TumblingWindow(900, 900, {"n": 1}),
        final=True,
    )

    assert json.loads(event) == {
        "Records": [],
        "shardId": "s",
        "eventSourceARN": "arn",
        "window": {"start": "1970-01-01T00:15:00Z", "end": "1970-01-01T00:30:00Z"},
        "state": {"n": 1},
        "isFinalInvokeForWindow": True,
        "isWindowTerminatedEarly": False,
    }


def test_the_note_of_a_failure_names_the_range() -> None:
    """It says where the records lie, not what they hold."""
    withdrawn = RecordBatch(records("4", "7", encoded='{"secret":1}'), failures=3)
    note = delivery.on_failure_note(withdrawn, shard_id="s", stream_arn="arn")

    assert note["requestContext"]["approximateInvokeCount"] == 3
    assert note["DDBStreamBatchInfo"]["startSequenceNumber"] == "4"
    assert note["DDBStreamBatchInfo"]["endSequenceNumber"] == "7"
    assert note["DDBStreamBatchInfo"]["batchSize"] == 2
    assert "secret" not in json.dumps(note)
