"""The engine itself: it finds what is wrong in the fewest steps, and shows how to get there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger.errors import Unclear
from countledger.ledger.operations import Put
from tests.exploring.linear import DIED, Called, Certainty, Effect, order_of
from tests.exploring.report import report_of, script_of
from tests.exploring.scope import Beginnings, Capability, Case
from tests.exploring.search import Bounds, Fault, Start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.world import Contents

_KEY: Final = {"counter": "x", "part": "y"}


def _add(ledger: CountLedger) -> int:
    """Read, then write: another call in between is lost."""
    dynamo = ledger.connection.dynamo("none")
    number = (dynamo.get(COUNTERS, _KEY, consistent=True) or {}).get("n", 0) + 1
    dynamo.put(Put(COUNTERS, {**_KEY, "n": number}))
    return int(number)


def _add_until_answered(ledger: CountLedger) -> int:
    try:
        return _add(ledger)
    except Unclear:
        return _add_until_answered(ledger)


def _counted(number: int, _call: str) -> Iterator[Effect]:
    yield Effect(number + 1, number + 1)


def _shows(number: int, contents: Contents) -> bool:
    item = contents.tables[COUNTERS].get(("x", "y"))
    return (0 if item is None else item["n"]) == number


def _add_after_another_read(ledger: CountLedger) -> int:
    for part in ("quiet", "quiet again"):
        ledger.connection.dynamo("none").get(COUNTERS, {"counter": "x", "part": part})
    return _add(ledger)


_RACE: Final = Capability(
    name="race",
    calls={
        "add": _add,
        "add until answered": _add_until_answered,
        "read, add": _add_after_another_read,
    },
    scripts=(("add",), ("add until answered",)),
    starts={"empty": Beginnings(lambda _: None, 0)},
    model=_counted,
    agrees=_shows,
)


def _case(text: str, faults: int) -> Case:
    return Case.parse(_RACE, text, Bounds(faults=faults))


def test_two_calls_that_overtake_each_other_are_found_in_the_fewest_steps() -> None:
    case = _case("empty: add | add", 1)

    found = case.run()

    assert found.violation is not None
    assert found.violation.found.faults == 0
    assert len(found.violation.found.choices()) == 6


def test_a_request_that_lands_late_is_found() -> None:
    case = _case("empty: add until answered", 1)

    found = case.run()

    assert found.violation is not None
    assert found.violation.found.faults == 1
    assert "lands" in "\n".join(script_of(found.violation.found))


def test_one_call_without_a_fault_is_right_and_has_one_schedule() -> None:
    found = _case("empty: add", 0).run(count=True)

    assert (found.violation, found.complete, found.schedules) == (None, True, 1)


def test_a_call_that_dies_may_be_applied_or_not() -> None:
    """Its request lands at any later moment, or never: both are right."""
    found = _case("empty: add", 1).run()

    assert found.violation is None


def test_a_violation_is_replayed_by_its_choices() -> None:
    case = _case("empty: add | add", 0)
    found = case.run().violation
    assert found is not None

    search, state = case.search()
    for choice in found.found.choices():
        state = [*search.successors(state)][choice]

    assert [*script_of(state)] == [*script_of(found.found)]
    assert "--replay" in report_of(case, found)


def test_a_search_that_ends_early_says_so() -> None:
    found = Case.parse(_RACE, "empty: add", Bounds(faults=1, states=3)).run()

    assert (found.states, found.complete) == (3, False)


def test_each_kind_of_fault_makes_states_of_its_own() -> None:
    sizes = {
        kind: Case.parse(_RACE, "empty: add", Bounds(kinds=frozenset({kind}))).run().states
        for kind in Fault
    }
    plain = Case.parse(_RACE, "empty: add", Bounds(kinds=frozenset())).run().states

    assert [kind for kind, size in sizes.items() if size <= plain] == [Fault.STALE]


def test_a_read_that_nobody_changes_makes_no_states_and_hides_nothing() -> None:
    sizes = []
    for quiet in (lambda _: False, lambda what: "quiet" in what):
        for faults in (0, 1):
            bounds = Bounds(faults=faults, quiet=quiet)
            found = Case(_RACE, "empty", (("read, add",), ("add",)), bounds).run()
            assert found.violation is not None
        alone = Case(_RACE, "empty", (("read, add",),), Bounds(quiet=quiet)).run()
        assert alone.violation is None
        sizes.append(alone.states)

    assert sizes[1] < sizes[0]


def test_actors_that_do_the_same_change_places_and_hide_nothing() -> None:
    text = "empty: add | add"
    found = Case.parse(_RACE, text, Bounds(faults=0, alike=True)).run()
    assert found.violation is not None
    assert len(found.violation.found.choices()) == 6
    firsts = [
        [*search.successors(state)]
        for search, state in (
            Case.parse(_RACE, text, Bounds(alike=alike)).search() for alike in (False, True)
        )
    ]
    assert [sum("begins" in one.move.what for one in after) for after in firsts] == [2, 1]


def test_a_throttle_that_the_sdk_takes_back_makes_no_states() -> None:
    def add(ledger: CountLedger) -> int:
        ledger.connection.dynamo("standard").put(Put(COUNTERS, {**_KEY, "n": 1}))
        return 1

    patient = replace(_RACE, calls={"add": add})
    sizes = [
        Case.parse(patient, "empty: add", Bounds(kinds=kinds)).run().states
        for kinds in (frozenset({Fault.THROTTLE}), frozenset[Fault]())
    ]

    assert sizes[0] == sizes[1]


def test_a_case_is_read_as_it_is_written() -> None:
    case = _case("empty: add, add | add until answered", 1)

    assert str(case) == "empty: add, add | add until answered"
    assert case.scripts == (("add", "add"), ("add until answered",))


def _call(answer: object, certainty: Certainty, told: int, at_ms: int, until_ms: int) -> Called:
    actor = 0 if told == 0 else 1
    return Called(actor, 0, "add", answer, certainty, Start((told, 0), at_ms), until_ms)


def test_an_answer_counts_from_the_calls_that_had_ended_before() -> None:
    first, second = _call(2, Certainty.SURE, 0, 0, 0), _call(1, Certainty.SURE, 1, 0, 0)

    assert order_of([first, second], _counted, 0, lambda number: number == 2) is None


def test_a_call_without_an_answer_has_no_effect_after_its_bound() -> None:
    unclear = _call(DIED, Certainty.MAYBE, 0, 0, 10)
    late, early = (_call(1, Certainty.SURE, 1, at_ms, at_ms) for at_ms in (11, 10))

    assert order_of([unclear, late], _counted, 0, lambda number: number == 2) is None
    assert order_of([unclear, early], _counted, 0, lambda number: number == 2) is not None
