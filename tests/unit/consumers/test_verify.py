"""Verdicts: only behind a proof, and never a false drift."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from countledger.consumers.stream import counts
from countledger.consumers.totals import TotalsReader
from countledger.consumers.verify import Judgement, Verifier
from countledger.ledger import amount, keys
from countledger.ledger.errors import BadCounterName
from countledger.ledger.exact import ExactReader
from countledger.ledger.expressions import Add, Assign
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.operations import Put, Update
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World
from tests.unit.ledger.clocks import NOW_MS

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item

_SKEW_MS = CLOCK_SKEW_DEFAULT_MS


@pytest.fixture
def world() -> World:
    """One open shard."""
    world = World()
    world.add_shard("s")
    return world


def test_a_total_that_took_in_everything_is_exact(world: World) -> None:
    """At once: nothing has to settle, nobody has to wait."""
    world.handle(world.emit(5), 5)

    verdict = world.verdict()

    assert verdict.verdict is Judgement.EXACT
    assert (verdict.total, verdict.exact, verdict.drift) == (5, 5, 0)
    assert "1 stream shard(s) past the read" in verdict.proof
    assert world.clock.slept_ms == []


def test_a_counter_nobody_ever_used_is_exact(world: World) -> None:
    """Zero and zero."""
    assert world.verdict("never:used").verdict is Judgement.EXACT


def test_a_total_edited_by_hand_is_drift(world: World) -> None:
    """Total minus ledger, said only after the stream had time to settle."""
    world.handle(world.emit(5), 5)
    world.dynamo.update(Update(COUNTERS, keys.total_key(COUNTER), (Add("total", 2),)))

    verdict = world.verdict()

    assert (verdict.verdict, verdict.drift) == (Judgement.DRIFT, 2)
    assert sum(world.clock.slept_ms) >= world.verifier().settle_ms


def test_a_drift_is_exact_whatever_the_length_of_its_numbers(world: World) -> None:
    """Of two equal decimals of 38 digits nothing is left."""
    long = Decimal("1234567890123456789012345678901234.5678")
    world.handle(world.emit(long), long)

    verdict = world.verdict()

    assert (verdict.verdict, verdict.drift) == (Judgement.EXACT, 0)


def test_a_wrong_number_of_events_is_drift_as_well(world: World) -> None:
    """Two errors that cancel out in the sum do not hide."""
    world.handle(world.emit(5), 5)
    world.dynamo.update(Update(COUNTERS, keys.total_key(COUNTER), (Add("events", 1),)))

    verdict = world.verdict()

    assert (verdict.verdict, verdict.drift, verdict.events_drift) == (Judgement.DRIFT, 0, 1)


def test_a_missing_total_is_drift(world: World) -> None:
    """A lost table `counters`, whose progress is there."""
    world.pass_over(world.emit(5))

    assert world.verdict().drift == -5


def test_a_lagging_shard_is_busy_and_no_drift(world: World) -> None:
    """The record is in the stream and nobody handles it."""
    world.emit(5)

    verdict = world.verdict()

    assert verdict.verdict is Judgement.BUSY
    assert "the stream has not been handled that far" in verdict.proof


def test_a_record_that_the_stream_does_not_show_yet_is_no_drift(world: World) -> None:
    """Written, not yet shown, then shown and handled while the verifier lets the stream settle."""
    world.write(5)

    def show_and_handle(_now_ms: int) -> None:
        if not world.stream.records["s"]:
            world.handle(world.show(), 5)

    world.clock.on_sleep = show_and_handle

    assert world.verdict().verdict is Judgement.EXACT


def test_a_total_that_moved_meanwhile_is_busy_until_it_rests(world: World) -> None:
    """Total and ledger of different moments are not compared."""
    world.emit(5)
    record = world.stream.records["s"][0]
    world.clock.on_sleep = lambda _now_ms: world.handle(record, 5) if not _handled(world) else None

    assert world.verdict().verdict is Judgement.EXACT


def _handled(world: World) -> bool:
    return any(item["part"] == "total" for item in world.dynamo.items(COUNTERS))


def test_a_total_that_never_rests_is_busy(world: World) -> None:
    """Its version is another one each time it is read."""
    world.handle(world.emit(5), 5)
    reads = 0

    @dataclass(frozen=True, slots=True)
    class Restless(TotalsReader):
        def item(self, counter: str) -> Item | None:
            nonlocal reads
            reads += 1
            update = Update(COUNTERS, keys.total_key(counter), (Assign("version", 100 + reads),))
            world.dynamo.update(update)
            return TotalsReader.item(self, counter)

    restless = Restless(world.dynamo, COUNTERS)
    exact = ExactReader(world.dynamo, LEDGER)
    verifier = Verifier(restless, exact, world.stream, world.clock)

    verdict = next(verifier.verify([COUNTER]))

    assert verdict.verdict is Judgement.BUSY
    assert "changed during the comparison" in verdict.proof


def test_a_stream_that_never_pauses_gets_a_verdict_all_the_same(world: World) -> None:
    """There is always a record not yet handled; progress passes the moment and its skew."""
    world.handle(world.emit(5), 5)

    pending = [world.emit(1, counter="other:x")]

    def traffic(_now_ms: int) -> None:
        pending.append(world.emit(1, counter="other:x"))
        if len(pending) > 3:
            world.handle(pending.pop(0), 1)

    world.clock.on_sleep = traffic

    verdict = world.verdict()

    assert verdict.verdict is Judgement.EXACT
    assert sum(world.clock.slept_ms) < _SKEW_MS + 30_000


def test_a_stalled_stream_is_called_busy_before_long(world: World) -> None:
    """Nothing moves: waiting out the skew would prove nothing."""
    world.emit(5)

    world.verdict()

    assert sum(world.clock.slept_ms) < 3 * (world.verifier().patience_ms + 6_000)


def test_progress_within_the_skew_proves_nothing(world: World) -> None:
    """The stream's clock may be ahead of ours: a record may be older than it looks."""
    world.write(5)
    ahead = world.show(counter="other:x")
    ahead["dynamodb"]["ApproximateCreationDateTime"] = datetime.fromtimestamp(
        (NOW_MS + _SKEW_MS) / 1000, UTC
    )
    world.pass_over(ahead)
    world.show()  # our entry's record, behind it

    assert world.verdict().verdict is Judgement.BUSY


def test_a_closed_parent_with_unread_records_is_busy(world: World) -> None:
    """Its child shows nothing, and may not be read before it."""
    world.emit(5)
    world.close("s")
    world.add_shard("child", parent="s")

    assert world.verdict().verdict is Judgement.BUSY


def test_a_parent_is_proven_by_a_child_with_progress(world: World) -> None:
    """A child is read only when its parent has been handled to its end."""
    world.emit(5)
    world.close("s")
    world.add_shard("child", parent="s")
    child_record = world.show(shard="child")
    world.handle(child_record, 5, shard="child")

    verdict = world.verdict()

    assert verdict.verdict is Judgement.EXACT


def test_records_that_the_filter_keeps_back_are_not_waited_for(world: World) -> None:
    """Compaction's deletions never reach the materializer."""
    world.handle(world.emit(5), 5)
    world.show(name="REMOVE")

    assert world.verdict().verdict is Judgement.EXACT


@pytest.mark.parametrize(
    ("name", "entry", "passes"),
    [
        ("INSERT", "e#1", True),
        ("MODIFY", "e#1", True),
        ("REMOVE", "e#1", False),
        ("INSERT", "s#head", False),
        ("MODIFY", "settings", False),
    ],
)
def test_counts_is_the_mappings_filter(name: str, entry: str, *, passes: bool) -> None:
    """INSERT and MODIFY of entries."""
    record = {"eventName": name, "dynamodb": {"Keys": {"entry": {"S": entry}}}}

    assert counts(record) is passes


def test_a_hundred_counters_share_one_proof(world: World) -> None:
    """In their order, also where one of them drifts."""
    names = [f"a:{n}" for n in range(150)]
    for name in names:
        world.handle(world.emit(1, counter=name), 1)
    world.dynamo.update(Update(COUNTERS, keys.total_key("a:7"), (Add("total", 1),)))

    verdicts = list(world.verifier().verify(names))

    assert [v.counter for v in verdicts] == names
    assert [v.counter for v in verdicts if v.verdict is not Judgement.EXACT] == ["a:7"]


def test_a_bad_name_is_refused(world: World) -> None:
    """By the grammar of counters."""
    with pytest.raises(BadCounterName):
        world.verdict("a#b")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("at", 10**30), ("at", -1), ("events", 10**37), ("delta", Decimal("1E-130"))],
    ids=str,
)
def test_an_entry_that_was_corrupt_by_hand_stops_no_other_counter(
    world: World, attribute: str, value: object
) -> None:
    """The service holds numbers that no entry carries; no verdict on the other hangs on them."""
    for counter in ("a:corrupt", "a:sound"):
        world.handle(world.emit(10**37, counter=counter), 10**37)
    (item,) = (one for one in world.dynamo.items(LEDGER) if one["counter"] == "a:corrupt")
    world.dynamo.put(Put(LEDGER, {**item, attribute: value}))
    beside = f"{item['entry'][:-1]}{'1' if item['entry'].endswith('0') else '0'}"
    world.dynamo.put(Put(LEDGER, {**item, "entry": beside, "delta": 10**37}))

    corrupt, sound = world.verifier().verify(["a:corrupt", "a:sound"])

    assert corrupt.verdict in (Judgement.UNREADABLE, Judgement.DRIFT)
    assert sound.verdict is Judgement.EXACT


@pytest.mark.parametrize("value", [Decimal("1E-130"), Decimal("1E+125"), 10**120], ids=str)
def test_a_total_that_was_corrupt_by_hand_can_be_told(world: World, value: int | Decimal) -> None:
    """Whatever number stands there: how far it is off is exact."""
    world.handle(world.emit(10**37), 10**37)
    world.dynamo.tables[COUNTERS][COUNTER, "total"]["total"] = amount.canonical(value)

    verdict = world.verdict()

    assert verdict.verdict is Judgement.DRIFT
    assert verdict.drift == amount.add(value, -(10**37))


def test_a_long_decimal_does_not_drift(world: World) -> None:
    """Not by a rounding of how far it is off either."""
    long = Decimal("1234567890123456789.0123456789012345678")
    world.handle(world.emit(long), long)

    verdict = world.verdict()

    assert (verdict.verdict, verdict.drift) == (Judgement.EXACT, 0)
