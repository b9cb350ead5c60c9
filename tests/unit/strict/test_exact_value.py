"""Setting a strict counter: its writes leave it at the value, between its bounds."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.memory.tables import holds
from countledger.ledger import amount, keys
from countledger.ledger.amount import Amount
from countledger.ledger.attributes import Item
from countledger.ledger.operations import Assign, Update
from countledger.producers.strict.definition import (
    StrictState,
    deal_state,
    decode_state,
    define,
    encode_state,
    whole_of,
)
from countledger.producers.strict.multi_update import plan_value
from tests.unit.ledger.memory import MemoryClient

KEY = keys.total_key("n:c")
AMOUNTS = st.integers(-(10**9), 10**9) | st.decimals(-1000, 1000, places=2).map(amount.canonical)


@st.composite
def counters(draw: st.DrawFn) -> tuple[StrictState, Amount, int]:
    """A counter between bounds (some absent), a value between them, and over how many bins."""
    low, first, second, high = sorted(draw(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)))
    value, total = draw(st.permutations([first, second]))
    lower = draw(st.sampled_from([None, low]))
    upper = draw(st.sampled_from([None, amount.add(high, 1)]))
    state = StrictState("made", draw(st.integers(1, 9)), amount.canonical(total), lower, upper)
    return state, amount.canonical(value), draw(st.sampled_from([1, 2, 7]))


def _item_after(update: Update, before: Item) -> Item:
    dynamo = MemoryClient(tables={"t": {("n:c", "total"): before}})
    dynamo.update(Update("t", KEY, update.clauses))
    return dynamo.items("t")[0]


@given(counters())
def test_it_is_at_the_value_between_the_same_bounds(
    case: tuple[StrictState, Amount, int],
) -> None:
    """With bins as without; the headroom is what the bound leaves, and every version moves."""
    whole, value, bins = case
    definition = define("n:c", "made", "atomic", bins=bins)
    before = [whole] if bins == 1 else deal_state(whole, bins)

    updates = plan_value("t", definition, before, value, 0)
    items = [
        _item_after(update, {**KEY, **_present(state)})
        for update, state in zip(updates, before, strict=True)
    ]

    after = [decode_state(item) for item in items]
    assert whole_of(after).total == value
    assert (whole_of(after).lower, whole_of(after).upper) == (whole.lower, whole.upper)
    for item, state in zip(items, after, strict=True):
        rooms = encode_state(state)
        assert (item["headroom_up"], item["headroom_down"]) == (
            rooms["headroom_up"],
            rooms["headroom_down"],
        )
        assert state.lower is None or state.lower <= state.total
        assert state.upper is None or state.total <= state.upper
    assert [one.version for one in after] == [one.version + 1 for one in before]


def test_a_change_in_between_refuses_it() -> None:
    """Every write requires the version that was read, and this incarnation of the counter."""
    definition = define("n:c", "made", "atomic", bins=3)
    states = deal_state(StrictState("made", 4, Decimal("1.5"), 0, 9), 3)

    for update, state in zip(plan_value("t", definition, states, 7, 0), states, strict=True):
        assert update.condition is not None
        read = _present(state)
        assert holds(update.condition, read)
        assert not holds(update.condition, {**read, "version": 5})
        assert not holds(update.condition, {**read, "incarnation": "again"})


def _present(state: StrictState) -> Item:
    return {name: value for name, value in encode_state(state).items() if value is not None}


def test_without_a_time_no_time_is_written() -> None:
    """A token's transaction must be the same in every process that repeats it."""
    definition = define("n:c", "made", "request_token")
    state = StrictState("made", 3, 5, 0, None)

    (timeless,) = plan_value("t", definition, [state], 7, None)
    (timed,) = plan_value("t", definition, [state], 7, 1)

    assert set(timed.clauses) - set(timeless.clauses) == {Assign("updated_at", 1)}
    assert len(timed.clauses) == len(timeless.clauses) + 1
