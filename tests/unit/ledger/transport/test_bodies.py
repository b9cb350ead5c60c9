"""The JSON of requests."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.attributes import encode
from countledger.ledger.entry import Entry, PutBatch
from countledger.ledger.ids import new_id
from countledger.ledger.transport.client import puts_of_json, spelled
from tests.unit.ledger.clocks import NOW_MS

# Few counters, times and regions: most entries share them with others of their batch.
_TEXTS = st.text(max_size=20)
_IDS = st.builds(new_id, st.just(NOW_MS)) | _TEXTS
_DELTAS = st.integers(-(10**38) + 1, 10**38 - 1) | st.decimals("-1e18", "1e18", places=9)
_PLAIN = {
    "counter": st.sampled_from(["a", 'a"b\\', "ä\n"]) | st.text(min_size=1, max_size=20),
    "id": _IDS,
    "delta": _DELTAS,
    "at_ms": st.integers(5, 6) | st.integers(0, 1 << 47),
    "origin": st.sampled_from(["here", "there"]) | _TEXTS,
    "events": st.just(1) | st.integers(1, 3),
}
_ANY = _PLAIN | {
    "key": st.none() | _TEXTS,
    "note": st.none() | st.dictionaries(st.text(min_size=1), _TEXTS, min_size=1, max_size=3),
    "occurred_at_ms": st.none() | st.integers(-(10**13), 10**13),
}
# All of one origin and plain, or any.
_LISTS = st.one_of(
    st.lists(st.builds(Entry, **_PLAIN | {"origin": st.just('o"')}), min_size=1, max_size=25),
    st.lists(st.builds(Entry, **_ANY), min_size=1, max_size=25),
)


@given(_LISTS, st.data())
def test_the_json_of_a_batch_is_that_of_its_items(
    entries: list[Entry], data: st.DataObject
) -> None:
    spreads = data.draw(st.lists(st.sampled_from([1, 16, 256]), min_size=25, max_size=25))
    batch = PutBatch("t", entries, spreads[: len(entries)])

    puts = orjson.loads(spelled({"t": puts_of_json(batch)}))

    assert puts == {"t": [{"PutRequest": {"Item": encode(item)}} for item in batch.items]}
