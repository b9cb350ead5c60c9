"""Verdicts: only behind a proof, and never a false drift."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pytest

from countledger.consumers.audit import why_not_exact
from countledger.consumers.proof import Proof
from countledger.consumers.record import counts
from countledger.consumers.verify import Judgement, _verdict, stored_total
from countledger.ledger import amount, keys
from countledger.ledger.errors import CorruptItem, CountledgerError, ServiceFailed
from countledger.ledger.exact import ExactSum
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS
from countledger.ledger.operations import Add, Put, Update
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World
from tests.unit.ledger.clocks import NOW_MS

_TOTAL = (COUNTER, keys.TOTAL)
_SKEW_MS = CLOCK_SKEW_DEFAULT_MS
EXACT, DRIFT, BUSY, UNREADABLE, _DELETING = Judgement


# ---- the decision ----

Stored: TypeAlias = "dict[str, object] | None"
_PROOF = Proof("proven", {}, frozenset())
_SUM = ExactSum(COUNTER, 5, 1, 1, 1, 0, 2.0)
_SAME: Stored = {"total": 5}
_CASES: dict[str, tuple[Stored, Stored, ExactSum | CountledgerError, Proof | None, Any, Any]] = {
    # what there is: before, after, exact sum, proof; the verdict at once, and once it settled
    "equal": (_SAME, _SAME, _SUM, _PROOF, EXACT, EXACT),
    "another total": ({"total": 7}, {"total": 7}, _SUM, _PROOF, BUSY, DRIFT),
    "another number of events": ({"events": 2}, {"events": 2}, _SUM, _PROOF, BUSY, DRIFT),
    "no total": (None, None, _SUM, _PROOF, BUSY, DRIFT),
    "a total that changed": (_SAME, {"version": 2}, _SUM, _PROOF, BUSY, BUSY),
    "another total of that version": (_SAME, {"updated_at": 2}, _SUM, _PROOF, BUSY, BUSY),
    "no proof": (_SAME, _SAME, _SUM, None, BUSY, BUSY),
    "a corrupt total": ({"total": "x"}, {"total": "x"}, _SUM, _PROOF, BUSY, UNREADABLE),
    "a corrupt ledger": (_SAME, _SAME, CorruptItem("bad"), _PROOF, UNREADABLE, UNREADABLE),
    "a ledger that moves": (_SAME, _SAME, ServiceFailed("again"), _PROOF, BUSY, BUSY),
}


@pytest.mark.parametrize(
    ("before", "after", "exact", "proof", "at_once", "settled"), _CASES.values(), ids=_CASES
)
def test_a_verdict_needs_a_proof_and_numbers_of_one_moment(  # noqa: PLR0917 - a case
    before: Stored,
    after: Stored,
    exact: ExactSum | CountledgerError,
    proof: Proof | None,
    at_once: Judgement,
    settled: Judgement,
) -> None:
    """Equal numbers need no time to settle: nothing is done because of them."""
    plain = {"total": 5, "events": 1, "entries": 1, "version": 1, "updated_at": 1}
    old, new = (
        stored_total(COUNTER, None if one is None else {**keys.total_key(COUNTER), **plain, **one})
        for one in (before, after)
    )

    found = [_verdict(old, new, exact, proof, settled=one).verdict for one in (False, True)]

    assert found == [at_once, settled]


_LONG = Decimal("1234567890123456789.0123456789012345678")


@pytest.mark.parametrize(
    ("total", "exact"),
    [
        (_LONG, _LONG),
        (10**37 + 2, 10**37),
        (Decimal("1E-130"), 10**37),
        (Decimal("1E+125"), 10**37),
        (10**120, 10**37),
    ],
    ids=str,
)
def test_how_far_a_total_is_off_is_exact_whatever_was_written_by_hand(
    world: World, total: int | Decimal, exact: int | Decimal
) -> None:
    world.handle(world.emit(exact), exact)
    world.dynamo.tables[COUNTERS][COUNTER, "total"] |= {
        "total": amount.canonical(total),
        "events": 3,
    }

    verdict = world.verdict()

    assert verdict.verdict is DRIFT
    assert verdict.drift == amount.add(total, amount.negated(exact))
    assert (verdict.events_drift, world.verdict("a:none").events_drift) == (2, 0)


# ---- the proof ----


def test_an_exact_total_is_found_at_once(world: World) -> None:
    world.handle(world.emit(5), 5)

    verdict = world.verdict()

    assert (verdict.verdict, verdict.total, verdict.exact) == (EXACT, 5, 5)
    assert "all stream records up to the read have been applied" in verdict.proof
    assert world.clock.slept_ms == []
    assert world.verdict("never:used").verdict is EXACT


def _within_the_skew(world: World) -> None:
    """The stream's clock may be ahead of ours: a record may be older than it looks."""
    world.write(5)
    ahead = world.show(counter="other:x")
    made_s = (NOW_MS + _SKEW_MS) / 1000
    ahead["dynamodb"]["ApproximateCreationDateTime"] = datetime.fromtimestamp(made_s, UTC)
    world.pass_over(ahead)
    world.show()  # our entry's record, after it


def _child(world: World) -> None:
    world.emit(5)
    world.close("s")
    world.add_shard("child", parent="s")


def _child_with_progress(world: World) -> None:
    _child(world)
    world.handle(world.show(shard="child"), 5, shard="child")


def _filtered(world: World) -> None:
    world.handle(world.emit(5), 5)
    world.show(name="REMOVE")


def _shown_late(world: World) -> None:
    """Written, not yet shown; shown and handled while the verifier lets the stream settle."""
    world.write(5)
    handled: list[dict[str, Any]] = []

    def show_and_handle(_now_ms: int) -> None:
        if not handled:
            handled.append(world.show())
            world.handle(handled[0], 5)

    world.clock.on_sleep = show_and_handle


_STREAMS: dict[str, tuple[Callable[[World], object], Judgement]] = {
    "nobody handles the record": (lambda world: world.emit(5), BUSY),
    "progress within the clock skew proves nothing": (_within_the_skew, BUSY),
    "a closed parent has unread records": (_child, BUSY),
    "a child with progress proves its parent": (_child_with_progress, EXACT),
    "records that the filter keeps back are not waited for": (_filtered, EXACT),
    "a record that is not shown yet is no drift": (_shown_late, EXACT),
}


@pytest.mark.parametrize(("scenario", "judgement"), _STREAMS.values(), ids=_STREAMS)
def test_a_verdict_waits_for_the_stream(
    world: World, scenario: Callable[[World], object], judgement: Judgement
) -> None:
    scenario(world)

    assert world.verdict().verdict is judgement


def test_a_stream_that_never_pauses_gets_a_verdict_all_the_same(world: World) -> None:
    """There is always a record not yet handled; progress passes the moment and its skew."""
    world.handle(world.emit(5), 5)
    pending = [world.emit(1, counter="other:x")]

    def traffic(_now_ms: int) -> None:
        pending.append(world.emit(1, counter="other:x"))
        if len(pending) > 3:
            world.handle(pending.pop(0), 1)

    world.clock.on_sleep = traffic

    assert world.verdict().verdict is EXACT
    assert sum(world.clock.slept_ms) < _SKEW_MS + 30_000


def test_a_stalled_stream_is_busy_before_long(world: World) -> None:
    """Nothing moves: waiting out the skew would prove nothing."""
    world.emit(5)

    world.verdict()

    assert sum(world.clock.slept_ms) < 3 * (world.verifier().patience_ms + 6_000)


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
    record = {"eventName": name, "dynamodb": {"Keys": {"entry": {"S": entry}}}}

    assert counts(record) is passes


# ---- many counters ----


def test_a_hundred_counters_share_one_proof(world: World) -> None:
    """In their order, also where one of them drifts: that one waits for the stream to settle."""
    names = [f"a:{n}" for n in range(150)]
    for name in names:
        world.handle(world.emit(1, counter=name), 1)
    world.dynamo.update(Update(COUNTERS, keys.total_key("a:7"), (Add("total", 1),)))

    verdicts = list(world.verifier().verify(names))

    assert [v.counter for v in verdicts] == names
    assert [v.counter for v in verdicts if v.verdict is not EXACT] == ["a:7"]
    assert sum(world.clock.slept_ms) >= world.verifier().settle_ms


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("at", 10**30), ("at", -1), ("events", 10**37), ("delta", Decimal("1E-130"))],
    ids=str,
)
def test_an_entry_that_was_edited_stops_no_other_counter(
    world: World, attribute: str, value: object
) -> None:
    """The service holds numbers that no entry carries."""
    for counter in ("a:corrupt", "a:sound"):
        world.handle(world.emit(10**37, counter=counter), 10**37)
    (item,) = (one for one in world.dynamo.items(LEDGER) if one["counter"] == "a:corrupt")
    world.dynamo.put(Put(LEDGER, {**item, attribute: value}))
    beside = f"{item['entry'][:-1]}{'1' if item['entry'].endswith('0') else '0'}"
    world.dynamo.put(Put(LEDGER, {**item, "entry": beside, "delta": 10**37}))

    corrupt, sound = world.verifier().verify(["a:corrupt", "a:sound"])

    assert corrupt.verdict in (UNREADABLE, DRIFT)
    assert sound.verdict is EXACT


_FINAL: dict[str, tuple[Callable[[World], object], list[str]]] = {
    "exact": (lambda _: None, []),
    "it drifts": (lambda world: world.write(7), ["drift", "repair"]),
    "it is missing": (lambda world: world.dynamo.tables[COUNTERS].pop(_TOTAL), ["drift"]),
    "its stream lags": (lambda world: world.emit(7), ["busy"]),
}


@pytest.mark.parametrize(("change", "says"), _FINAL.values(), ids=_FINAL)
def test_only_an_exact_total_is_final(
    world: World, change: Callable[[World], object], says: list[str]
) -> None:
    """A counter is deleted only then."""
    world.handle(world.emit(5), 5)
    change(world)

    found = why_not_exact(world.verifier(), COUNTER)

    assert (found is None) == (not says)
    assert all(word in (found or "") for word in says)
