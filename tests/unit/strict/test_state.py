"""The headroom: the condition for the service and the verdict here never contradict."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.memory.tables import holds
from countledger.ledger import amount, keys
from countledger.ledger.attributes import Item, decode, encode
from countledger.ledger.operations import Put, Update
from countledger.producers.strict.change import refusal
from countledger.producers.strict.creation import plan_bounds
from countledger.producers.strict.definition import (
    Definition,
    Method,
    StrictState,
    decode_state,
    encode_definition,
    encode_state,
    has_headroom,
    moved,
    of,
)
from countledger.producers.strict.reader import created
from tests.unit.ledger.memory import MemoryClient

KEY = keys.total_key("n:c")
AMOUNTS = st.one_of(
    st.integers(-50, 50),
    st.integers(-5_000, 5_000).map(lambda n: amount.canonical(Decimal(n) / 100)),
)
DELTAS = AMOUNTS.filter(bool)
BOUNDS = st.one_of(st.none(), AMOUNTS)
STATES = st.builds(
    StrictState,
    incarnation=st.just("made"),
    version=st.just(1),
    total=AMOUNTS,
    lower=BOUNDS,
    upper=BOUNDS,
)


def stored(state: StrictState) -> Item:
    """The attributes as they lie in the table."""
    return decode(encode(encode_state(state)))


@given(state=STATES, delta=DELTAS)
def test_the_condition_and_the_verdict_agree(state: StrictState, delta: amount.Amount) -> None:
    told = refusal("n:c", state, delta)

    assert holds(of("made", has_headroom(delta)), stored(state)) == (told is None)


@given(state=STATES, deltas=st.lists(DELTAS, max_size=6))
def test_headroom_follows_the_total(state: StrictState, deltas: list[amount.Amount]) -> None:
    dynamo = MemoryClient()
    dynamo.put(Put("t", {**KEY, **stored(state)}))
    for delta in deltas:
        dynamo.update(Update("t", KEY, moved(delta, 5)))

    item = dynamo.get("t", KEY) or {}
    found = decode_state(item)

    assert found.total == amount.total_of([state.total, *deltas])
    assert found.version == 1 + len(deltas)
    assert {**item, **stored(found)} == item


@given(state=STATES, lower=BOUNDS, upper=BOUNDS)
def test_moved_bounds_leave_the_headroom_right(
    state: StrictState, lower: amount.Amount | None, upper: amount.Amount | None
) -> None:
    """Set, moved or taken away: the headroom is that of the new bounds, the total is untouched."""
    dynamo = MemoryClient()
    dynamo.put(Put("t", {**KEY, **stored(state)}))

    dynamo.update(plan_bounds("t", KEY, state, (lower, upper), force=True))

    item = dynamo.get("t", KEY) or {}
    found = decode_state(item)
    assert (found.total, found.lower, found.upper) == (state.total, lower, upper)
    assert {**item, **stored(found)} == item


@given(state=STATES, lower=BOUNDS, upper=BOUNDS)
def test_without_force_a_bound_stops_at_the_value(
    state: StrictState, lower: amount.Amount | None, upper: amount.Amount | None
) -> None:
    write = plan_bounds("t", KEY, state, (lower, upper), force=False)
    outside = (lower is not None and state.total < lower) or (
        upper is not None and state.total > upper
    )

    assert write.condition is not None
    assert holds(write.condition, stored(state)) is not outside


def test_another_incarnation_of_the_counter_is_refused() -> None:
    item = stored(StrictState("new", 1, 5))

    assert not holds(of("old"), item)
    assert holds(of("new"), item)


@pytest.mark.parametrize(("remembered", "units"), [(0, 1), (40, 2)])
@pytest.mark.parametrize(
    ("method", "kept"), [(Method.HISTORY, ("tags", list)), (Method.SET, ("tokens", set))], ids=str
)
def test_a_counter_that_remembers_more_says_that_a_change_writes_more(
    method: Method, kept: tuple[str, type], remembered: int, units: int
) -> None:
    """A unit for each KB; a tag or token has 26 bytes."""
    definition = Definition("n:c", "made", method, history=40, max_tokens=40)
    state = encode_state(StrictState("made", 1, 5, lower=0, upper=9))
    name, collection = kept
    memory = {name: collection(f"{number:026}" for number in range(remembered))}

    shown = created(definition, [{**encode_definition(definition), **state, **memory}])

    assert shown.write_units == units
