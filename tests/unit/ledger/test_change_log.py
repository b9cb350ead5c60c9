"""The change log: newest first, whatever the spread and the ids."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadSetting
from countledger.ledger.exact import newest_first
from countledger.ledger.ids import IdempotencyKey, id_of_key, new_id
from countledger.ledger.operations import Put
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

TABLE = "ledger"
COUNTER = "a:b"


def _entry(number: int, at_ms: int, kind: str, counter: str = COUNTER) -> Entry:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    made = {
        "made": new_id(at_ms),
        "bare": id_of_key(str(number)),
        "timed": id_of_key(IdempotencyKey(str(number), at)),
    }
    return Entry(counter=counter, id=made[kind], delta=number + 1, at_ms=at_ms, origin="r")


def _dynamo(entries: list[Entry], spread: int) -> MemoryClient:
    dynamo = MemoryClient()
    items = [encode_entry(entry, spread) for entry in entries]
    for item in [*items, {**keys.head_key(COUNTER), "generation": 1}]:
        dynamo.put(Put(TABLE, item))
    return dynamo


@settings(max_examples=60, deadline=None)
@given(
    times_ms=st.lists(st.integers(0, 2_000), max_size=20),
    kinds=st.lists(st.sampled_from(["made", "bare", "timed"]), min_size=20, max_size=20),
    spread=st.sampled_from([1, 16]),
    limit=st.none() | st.integers(1, 25),
)
def test_entries_come_newest_first(
    times_ms: list[int], kinds: list[str], spread: int, limit: int | None
) -> None:
    """As sorting them all would do it; the head and other counters are not among them."""
    entries = [_entry(n, NOW_MS + ms, kinds[n]) for n, ms in enumerate(times_ms)]
    dynamo = _dynamo([*entries, _entry(99, NOW_MS, "made", "a:c")], spread)

    found = list(newest_first(dynamo, TABLE, COUNTER, spread, limit))

    newest = sorted((e.at_ms for e in entries), reverse=True)
    assert [entry.at_ms for entry in found] == newest[:limit]
    assert {entry.id for entry in found} <= {entry.id for entry in entries}
    assert len({entry.id for entry in found}) == len(found)


@pytest.mark.parametrize("spread", [1, 16, 256])
def test_each_prefix_is_asked_twice_at_most(spread: int) -> None:
    dynamo = _dynamo([_entry(n, NOW_MS + n, "made") for n in range(50)], spread)

    list(newest_first(dynamo, TABLE, COUNTER, spread, 5))

    assert dynamo.calls.count("query") == 2 * spread


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    """The message says what to give."""
    with pytest.raises(BadSetting, match=r"limit .* is not a number of entries"):
        newest_first(_dynamo([], 1), TABLE, COUNTER, 1, limit)
