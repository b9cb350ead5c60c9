"""An exact read leaves out what either head covers, whatever the amounts, in little memory."""

import tracemalloc
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import amount
from countledger.ledger.entry import Entry
from countledger.ledger.exact import ExactAccumulator
from countledger.ledger.head import NO_HEAD, Covered, Head

_AMOUNTS = st.one_of(
    st.integers(-(10**37), 10**37),
    st.decimals(allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19)),
).filter(lambda value: value != 0 and amount.fits(value))
_ENTRIES = st.lists(st.tuples(_AMOUNTS, st.integers(1, 9), st.sampled_from(["", "1", "2", "12"])))


def _entry(delta: int | Decimal, events: int = 1, at_ms: int = 7) -> Entry:
    value = amount.canonical(delta)
    return Entry(counter="c", id="i", delta=value, at_ms=at_ms, origin="here", events=events)


@given(_ENTRIES)
def test_what_a_head_covers_is_left_out(drawn: list[tuple[int | Decimal, int, str]]) -> None:
    """Of the first head, of the second, of both."""
    entries = {f"e#{n}": _entry(delta, events) for n, (delta, events, _) in enumerate(drawn)}
    covered = {
        number: {
            key: Covered(entry.delta)
            for (key, entry), (_, _, heads) in zip(entries.items(), drawn, strict=True)
            if number in heads
        }
        for number in ("1", "2")
    }
    seen = ExactAccumulator(Head(generation=1, covers=covered["1"]))
    for key, entry in entries.items():
        seen.note(key, entry)

    seen.leave_out(Head(generation=2, covers=covered["2"]))

    left = [e for k, e in entries.items() if k not in covered["1"] and k not in covered["2"]]
    assert seen.sum == amount.total_of(entry.delta for entry in left)
    assert (seen.events, seen.entries) == (sum(entry.events for entry in left), len(left))
    assert seen.read == len(entries)


def test_under_a_bare_key_only_the_entry_of_that_time_is_left_out() -> None:
    """One made later is another one."""
    for at_ms, left in ((7, 0), (8, 1)):
        seen = ExactAccumulator(NO_HEAD)
        seen.note("e#k", _entry(5, at_ms=at_ms))

        seen.leave_out(Head(generation=1, covers={"e#k": Covered(5, at_ms=7)}))

        assert seen.entries == left


def test_an_entry_takes_less_than_a_hundred_bytes() -> None:
    """What is kept of each until the second head is known."""
    seen, count = ExactAccumulator(NO_HEAD), 20_000
    entry = _entry(5)
    tracemalloc.start()
    for number in range(count):
        seen.note(f"e#01a3185c-5007-7000-8000-{number:012x}", entry)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept_bytes < 100 * count
