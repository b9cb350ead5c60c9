"""What an event source mapping does next, as pure decisions."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from countledger.infra.local import shards
from countledger.infra.local.shards import (
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

PARTIAL: Final = MappingSettings(partial_failures=True)
BISECTING: Final = MappingSettings(partial_failures=True, bisect=True)
FAILED: Final = BatchFailed("x")


SUCCESSES: Final[list[object]] = [
    None,
    {},
    "",
    [],
    {"batchItemFailures": []},
    {"batchItemFailures": None},
]


def records(
    *sequences: str, created_s: float = 0.0, encoded: str = "{}"
) -> tuple[StreamRecord, ...]:
    return tuple(StreamRecord(sequence, created_s, encoded) for sequence in sequences)


def failing(*sequences: object) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": one} for one in sequences]}


@pytest.mark.parametrize(
    ("windowed", "answer", "verdict"),
    [
        *((False, one, BatchHandled({})) for one in SUCCESSES),
        (False, failing("3", "2"), BatchPartlyFailed(1, {})),
        # A report that names no record of the batch leaves nobody wiser: all of it failed.
        *((False, failing(*ids), None) for ids in ([""], [None], ["9"], ["2", ""])),
        (False, {"batchItemFailures": [{"item": "2"}]}, None),
        (False, {"batchItemFailures": ["2"]}, None),
        (False, {"batchItemFailures": "2"}, None),
        # A window demands state and keeps it.
        *((True, one, None) for one in (None, {}, {"state": None}, {"state": "x"})),
        # Lambda would end the window early; what cannot be played is not passed over.
        (True, {"state": {"n": "x" * shards.MAX_STATE_BYTES}}, None),
        (True, {"state": {"n": 1}}, BatchHandled({"n": 1})),
        (True, {"state": {"n": 1}, **failing("2")}, BatchPartlyFailed(1, {"n": 1})),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_the_lowest_reported_record_is_the_checkpoint_and_a_malformed_report_fails_all(
    answer: object, verdict: BatchVerdict | None, *, windowed: bool
) -> None:
    found = verdict_of(answer, RecordBatch(records("1", "2", "3")), PARTIAL, windowed=windowed)

    assert found == verdict if verdict else isinstance(found, BatchFailed)


def test_reports_count_only_where_the_mapping_asks_for_them() -> None:
    batch = RecordBatch(records("1"))

    assert verdict_of(failing("1"), batch, MappingSettings(), windowed=False) == BatchHandled({})


def batch(sequences: str, failures: int = 0) -> RecordBatch:
    return RecordBatch(records(*sequences), failures)


@pytest.mark.parametrize(
    ("before", "verdict", "settings", "handled", "again"),
    [
        (batch("12"), BatchHandled({}), BISECTING, 2, ()),
        (batch("123"), BatchPartlyFailed(1, {}), BISECTING, 1, (batch("23", 1),)),
        (batch("123", 1), FAILED, BISECTING, 0, (batch("1", 1), batch("23", 1))),
        (batch("12"), FAILED, PARTIAL, 0, (batch("12", 1),)),
        (batch("1"), FAILED, BISECTING, 0, (batch("1", 1),)),
        (batch("1", 1000), FAILED, BISECTING, 0, (batch("1", 1001),)),
    ],
    ids=[
        "what is handled is done",
        "from the checkpoint on all comes again",
        "a failed function has its batch halved and spends no retry",
        "without bisecting the whole batch comes again",
        "a single record cannot be halved",
        "without a limit nothing is withdrawn",
    ],
)
def test_what_follows_a_verdict(
    before: RecordBatch,
    verdict: BatchVerdict,
    settings: MappingSettings,
    handled: int,
    again: tuple[RecordBatch, ...],
) -> None:
    found = follow_up(before, verdict, settings)

    assert (found.handled, found.again, found.withdrawn) == (handled, again, None)


def test_after_the_last_retry_the_rest_is_withdrawn() -> None:
    found = follow_up(batch("12", 2), BatchPartlyFailed(1, {}), replace(PARTIAL, retries=2))

    assert (found.handled, found.again, found.withdrawn) == (1, (), batch("2", 3))


def test_no_record_is_lost_or_doubled_by_any_verdict() -> None:
    whole = batch("123456789")
    partly = (BatchPartlyFailed(index, {}) for index in range(9))
    verdicts: list[BatchVerdict] = [BatchHandled({}), FAILED, *partly]
    for settings in (PARTIAL, BISECTING, MappingSettings(retries=0)):
        for verdict in verdicts:
            found = follow_up(whole, verdict, settings)
            parts = [whole.records[: found.handled], *(one.records for one in found.again)]
            if found.withdrawn is not None:
                parts.append(found.withdrawn.records)

            assert sum(parts, ()) == whole.records


LARGE: Final = "x" * (shards.MAX_EVENT_BYTES // 2)
MIXED: Final = (
    records("1", created_s=59) + records("2", created_s=119) + records("3", created_s=120)
)


@pytest.mark.parametrize(
    ("waiting", "settings", "window", "size"),
    [
        (records(*"12345"), MappingSettings(batch_size=3), None, 3),
        (records(*"12"), MappingSettings(batch_size=3), None, 2),
        (MIXED, MappingSettings(), TumblingWindow(60, 60), 2),
        (records(*"123", encoded=LARGE), MappingSettings(), None, 1),
        (records("1", encoded=LARGE * 3), MappingSettings(), None, 1),
    ],
    ids=["its size", "what there is", "its window", "the size of an event", "one record at least"],
)
def test_a_batch_ends_at(
    waiting: tuple[StreamRecord, ...],
    settings: MappingSettings,
    window: TumblingWindow | None,
    size: int,
) -> None:
    assert next_batch_size(waiting, settings, window) == size


def test_windows_begin_at_multiples_of_their_length() -> None:
    assert [window_start(899.9, 900), window_start(900.0, 900)] == [0, 900]


def test_an_event_has_its_shard_and_state_only_in_a_window() -> None:
    """Lambda delivers so where no window is set: without a shard id."""
    one = RecordBatch(records("1", encoded='{"a":1}'))
    plain = shards.event(one, shard_id="s", stream_arn="arn", window=None)
    window = TumblingWindow(900, 900, {"n": 1})
    last = shards.event(RecordBatch(()), shard_id="s", stream_arn="arn", window=window, final=True)

    assert json.loads(plain) == {"Records": [{"a": 1}]}
    assert json.loads(last) == {
        "Records": [],
        "shardId": "s",
        "eventSourceARN": "arn",
        "window": {"start": "1970-01-01T00:15:00Z", "end": "1970-01-01T00:30:00Z"},
        "state": {"n": 1},
        "isFinalInvokeForWindow": True,
        "isWindowTerminatedEarly": False,
    }


def test_the_note_of_a_failure_names_the_range_and_not_what_is_in_it() -> None:
    withdrawn = RecordBatch(records("4", "7", encoded='{"secret":1}'), failures=3)
    note = shards.on_failure_note(withdrawn, shard_id="s", stream_arn="arn")

    assert note["requestContext"]["approximateInvokeCount"] == 3
    info = note["DDBStreamBatchInfo"]
    assert (info["startSequenceNumber"], info["endSequenceNumber"]) == ("4", "7")
    assert info["batchSize"] == 2
    assert "secret" not in json.dumps(note)
