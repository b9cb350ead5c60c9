"""Quarantined stream records: their message, their copy, and what can be done about them."""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.audit import Auditor, RepairCounter, review_alert_log
from countledger.consumers.quarantine import body, quarantined_of
from countledger.consumers.verify import Repair, Repairer
from countledger.consumers.window_audit import WindowRebuilder
from countledger.consumers.window_verify import WindowVerifier
from countledger.ledger.limits import MESSAGE_MAX_BYTES
from countledger.ledger.operations import Put
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
    decode_quarantined,
    encode_quarantined,
)
from tests.unit.consumers.records import record, with_stream
from tests.unit.consumers.world import COUNTER, LEDGER, World
from tests.unit.ledger.clocks import NOW_MS

# The limit of SQS for one message, most of its life.
_SQS_MAX_BYTES = 262_144
_HUGE = "é" * 400_000
_HUGE_IMAGE = with_stream(record(111), NewImage={"note": {"S": _HUGE}})
_MALFORMED: list[Any] = [
    None,
    5,
    "text",
    {},
    {"dynamodb": None},
    {"n": Decimal("1.5")},
    _HUGE,
    [[_HUGE]],
    {"dynamodb": _HUGE},
    {**record(111), "userIdentity": "\U0001f600" * 100_000},
    _HUGE_IMAGE,
    with_stream(record(1), Keys={"counter": {"S": _HUGE}}),
    with_stream(record(1), NewImage={"note": {"S": "\ud800"}}),
    with_stream(record(1), SequenceNumber="1" * 400_000),
    with_stream(record(1), SequenceNumber=None),
    *(with_stream(record(1), ApproximateCreationDateTime=at) for at in (1e300, -5, float("nan"))),
]


def _copy(
    malformed: Any,  # noqa: ANN401 - whatever comes
    reason: str = "r",
    shard: str = "label/s",
    source: QuarantineSource = QuarantineSource.LEDGER,
    at_ms: int = NOW_MS,
) -> QuarantinedRecord:
    return quarantined_of(malformed, reason, shard, source, at_ms)


def test_a_record_is_kept_whole_with_its_reason() -> None:
    malformed = record(111, 5)

    copy = _copy(malformed, "no delta")

    assert json.loads(body(malformed, "no delta", "label/s", "ledger/1")) == {
        "reason": "no delta",
        "shard": "label/s",
        "quarantine_id": "ledger/1",
        "record": malformed,
    }
    assert (json.loads(copy.content), copy.reason) == (malformed, "no delta")
    assert (copy.counter, copy.sequence, copy.where) == (COUNTER, "111", "label/s")
    assert (copy.at_ms, copy.cut_from_bytes) == (NOW_MS, None)


def test_a_record_that_just_fits_is_kept_whole() -> None:
    empty = len(body({"x": ""}, "r", "s", "ledger/1"))
    fits, too_long = ({"x": "y" * (MESSAGE_MAX_BYTES - empty + more)} for more in (0, 1))

    assert json.loads(body(fits, "r", "s", "ledger/1"))["record"] == fits
    assert len(body(fits, "r", "s", "ledger/1")) == MESSAGE_MAX_BYTES
    assert json.loads(body(too_long, "r", "s", "ledger/1"))["record"] != too_long


def test_of_a_huge_record_the_keys_are_kept() -> None:
    """The rest can be read from the ledger; the copy says that it was cut."""
    keys = _HUGE_IMAGE["dynamodb"]["Keys"]
    message = json.loads(body(_HUGE_IMAGE, "no delta", "s", "ledger/1"))
    copy = _copy(_HUGE_IMAGE)

    assert message["record"]["dynamodb"] == {"Keys": keys, "SequenceNumber": "111"}
    assert json.loads(copy.content)["dynamodb"]["Keys"] == keys
    assert (copy.cut_from_bytes or 0) > CONTENT_MAX_BYTES


@pytest.mark.parametrize("malformed", _MALFORMED, ids=range(len(_MALFORMED)))
@pytest.mark.parametrize("reason", ["r", "y" * 400_000], ids=["", "a long reason"])
def test_whatever_comes_fits_into_the_queue_and_has_a_copy_of_one_name(
    malformed: Any,  # noqa: ANN401
    reason: str,
) -> None:
    """Refused by the queue, a malformed record would block its stream for ever."""
    text = body(malformed, reason, "s", "ledger/1")
    first, again = (_copy(malformed, reason, "s" * 9_000, at_ms=NOW_MS + n) for n in (0, 1))

    assert len(text.encode()) < _SQS_MAX_BYTES
    assert "record" in json.loads(text)
    assert json.loads(text)["reason"].startswith(reason[:100])
    kept = decode_quarantined(encode_quarantined(first))
    assert first.id == again.id == kept.id
    assert len(kept.content) <= CONTENT_MAX_BYTES
    assert kept.at.year >= 1970


def test_the_same_record_has_the_same_name() -> None:
    """In `counters` a record is kept for each reason: several rules may fail to evaluate it."""
    first = _copy(record(111)).id
    counters = [_copy(record(111), why, source=QuarantineSource.COUNTERS).id for why in "aab"]

    assert _copy(record(111), "q", at_ms=NOW_MS + 9).id == first
    assert first not in (_copy(record(112)).id, _copy(record(111), shard="b/s").id)
    assert len(set(counters)) == 2


class _Auditor(Auditor):
    """The product's repair over memory, without namespaces."""

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "verifier", world.verifier())

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        return Repairer(self.verifier, dry_run).repair(counters)


def _redrive(world: World) -> RepairCounter:
    windows = WindowRebuilder(WindowVerifier(world.verifier()))
    return RepairCounter(_Auditor(world), windows.rebuild)


@pytest.mark.parametrize("handled", [True, False], ids=["", "the stream lags"])
def test_the_counter_of_a_quarantined_record_is_repaired(*, handled: bool) -> None:
    """The ledger has its entry; done again it finds the total exact, and nothing counts twice."""
    world = World()
    world.add_shard("s")
    world.handle(world.emit(5), 5)
    missed = world.emit(7)
    if handled:
        world.pass_over(missed)
    redrive = _redrive(world)

    answers = [redrive(_copy(missed), even_if_counted=False) for _ in range(2)]

    assert [answer.resolved for answer in answers] == [handled, handled]
    assert ("repaired" in answers[0].detail) is handled
    assert world.total()["total"] == (12 if handled else 5)


def test_what_cannot_be_repaired_says_what_to_do() -> None:
    """A record without a counter; a change of a total that was not evaluated."""
    unevaluated = _copy(record(1), source=QuarantineSource.COUNTERS)

    world = World()
    world.add_shard("s")
    world.handle(world.emit(5), 5)
    world.dynamo.put(Put(LEDGER, {"counter": COUNTER, "entry": "e#bad", "delta": 1}))

    corrupt = _redrive(world)(_copy(record(1)), even_if_counted=False)
    first = _redrive(World())(_copy({}), even_if_counted=False)
    second = review_alert_log(unevaluated, even_if_counted=True)

    assert (corrupt.resolved, first.resolved, second.resolved) == (False, False, False)
    assert "'e#bad'" in corrupt.detail
    assert "by hand, then resend" in corrupt.detail
    assert "verify --all" in first.detail
    assert f"alert log {COUNTER}" in second.detail
