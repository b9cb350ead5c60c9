"""QuarantineStore of stream records, and what can be done about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from countledger.consumers.auditor import Auditor
from countledger.consumers.quarantine import quarantined_of
from countledger.consumers.redrive import RepairCounter, review_alert_log
from countledger.consumers.repair import Repairer
from countledger.ledger.quarantine_record import (
    CONTENT_MAX_BYTES,
    QuarantineSource,
    decode_quarantined,
    encode_quarantined,
)
from tests.unit.consumers.records import record, with_stream
from tests.unit.consumers.world import COUNTER, World
from tests.unit.ledger.clocks import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.repair import Repair


def test_a_copy_holds_the_record_and_tells_its_counter() -> None:
    """As it came, with when the stream made it."""
    malformed = record(111, 5)

    copy = quarantined_of(malformed, "no delta", "label/s", QuarantineSource.LEDGER, NOW_MS)

    assert json.loads(copy.content) == malformed
    assert (copy.counter, copy.sequence, copy.where) == (COUNTER, "111", "label/s")
    assert copy.at_ms == NOW_MS


def test_the_same_record_has_the_same_name() -> None:
    """Whatever the reason and the hour; another record, shard or stream has another one."""
    first = quarantined_of(record(111), "r", "a/s", QuarantineSource.LEDGER, NOW_MS).id

    assert quarantined_of(record(111), "q", "a/s", QuarantineSource.LEDGER, NOW_MS + 9).id == first
    assert quarantined_of(record(112), "r", "a/s", QuarantineSource.LEDGER, NOW_MS).id != first
    assert quarantined_of(record(111), "r", "b/s", QuarantineSource.LEDGER, NOW_MS).id != first


def test_a_record_that_several_rules_cannot_evaluate_is_kept_for_each_reason() -> None:
    """Each concerns somebody else."""
    names = {
        quarantined_of(record(111), why, "a", QuarantineSource.COUNTERS, NOW_MS).id for why in "aab"
    }

    assert len(names) == 2


_HUGE = "é" * CONTENT_MAX_BYTES


@pytest.mark.parametrize(
    "malformed",
    [
        None,
        5,
        "text",
        {},
        {"dynamodb": None},
        {"dynamodb": "x" * 2 * CONTENT_MAX_BYTES},
        with_stream(record(1), SequenceNumber=None),
        with_stream(record(1), Keys={"counter": {"S": _HUGE}}),
        with_stream(record(1), NewImage={"note": {"S": _HUGE}}),
        with_stream(record(1), ApproximateCreationDateTime=1e300),
        with_stream(record(1), ApproximateCreationDateTime=-5),
        with_stream(record(1), ApproximateCreationDateTime=float("nan")),
        with_stream(record(1), NewImage={"note": {"S": "\ud800"}}),
    ],
)
def test_whatever_comes_has_a_copy_of_a_name_that_stays(malformed: Any) -> None:  # noqa: ANN401
    """MalformedRecord has no shape, and its item fits."""
    copies = [
        quarantined_of(malformed, "r" * 9_000, "s" * 9_000, QuarantineSource.LEDGER, NOW_MS + n)
        for n in (0, 1)
    ]

    assert copies[0].id == copies[1].id
    kept = decode_quarantined(encode_quarantined(copies[0]))
    assert kept.id == copies[0].id
    assert len(kept.content) <= CONTENT_MAX_BYTES
    assert kept.at.year >= 1970


def test_of_a_huge_record_the_keys_are_kept_and_it_says_so() -> None:
    """The rest can be read from the ledger."""
    huge = with_stream(record(111), NewImage={"note": {"S": _HUGE}})

    copy = quarantined_of(huge, "r", "s", QuarantineSource.LEDGER, NOW_MS)

    assert json.loads(copy.content)["dynamodb"]["Keys"] == huge["dynamodb"]["Keys"]
    assert copy.cut_from_bytes is not None
    assert copy.cut_from_bytes > CONTENT_MAX_BYTES


class _Auditor(Auditor):
    """The product's repair over memory, without namespaces."""

    def __init__(self, world: World) -> None:
        object.__setattr__(self, "verifier", world.verifier())

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        """Of these."""
        return Repairer(self.verifier, dry_run).repair(counters)


def test_the_counter_of_a_record_that_was_set_aside_is_repaired() -> None:
    """The ledger has its entry; done again it finds the total exact, and nothing counts twice."""
    world = World()
    world.add_shard("s")
    world.handle(world.emit(5), 5)
    missed = world.emit(7)
    world.pass_over(missed)
    copy = quarantined_of(missed, "r", "label/s", QuarantineSource.LEDGER, NOW_MS)
    redrive = RepairCounter(_Auditor(world))

    answers = [redrive(copy, even_if_counted=False) for _ in range(2)]

    assert [answer.resolved for answer in answers] == [True, True]
    assert "repaired" in answers[0].detail
    assert world.total()["total"] == 12


def test_a_counter_that_cannot_be_repaired_now_stays() -> None:
    """The stream has not been handled to its end."""
    world = World()
    world.add_shard("s")
    world.handle(world.emit(5), 5)
    missed = world.emit(7)
    copy = quarantined_of(missed, "r", "label/s", QuarantineSource.LEDGER, NOW_MS)

    answer = RepairCounter(_Auditor(world))(copy, even_if_counted=False)

    assert not answer.resolved
    assert world.total()["total"] == 5


def test_what_cannot_be_cured_says_what_to_do() -> None:
    """A record without a counter; a change of a total that was not judged."""
    nameless = quarantined_of(cast("Any", {}), "r", "s", QuarantineSource.LEDGER, NOW_MS)
    unjudged = quarantined_of(record(1), "r", "s", QuarantineSource.COUNTERS, NOW_MS)

    first = RepairCounter(_Auditor(World()))(nameless, even_if_counted=False)
    second = review_alert_log(unjudged, even_if_counted=True)

    assert (first.resolved, second.resolved) == (False, False)
    assert "verify --all" in first.detail
    assert f"alert log {COUNTER}" in second.detail
