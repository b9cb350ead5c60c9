"""Entries of every kind that can travel through Kinesis."""

from decimal import Decimal

from hypothesis import strategies as st

from countledger.ledger import keys, texts
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.ids import IdempotencyKey, id_of_key, new_id
from countledger.producers.kinesis import bound
from tests.unit.ledger.clocks import NOW_MS

ORIGIN = "eu-west-1"
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_NAMES = _TEXT.filter(keys.is_counter)
_KEYS = _TEXT.filter(lambda text: bool(text) and texts.broken_rule(text, 1_024) is None)
_DELTAS = st.one_of(
    st.integers(-(10**20) + 1, 10**20 - 1).filter(bool),
    st.decimals("-1e6", "1e6", places=3).filter(lambda d: d != d.to_integral_value()),
).map(lambda delta: delta.normalize() if isinstance(delta, Decimal) else delta)
_NOTES = st.none() | st.dictionaries(st.text('aé\n"\\', min_size=1), _TEXT, max_size=3)
_MOMENTS = st.none() | st.integers(-62_135_596_800_000, 253_402_300_799_999)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """An entry with an id, a bare key or a key with its time."""
    at_ms = draw(st.integers(1, NOW_MS))
    kind = draw(st.sampled_from(["id", "bare", "timed"]))
    key = None if kind == "id" else draw(_KEYS)
    if key is None:
        entry_id = new_id(at_ms)
    elif kind == "bare":
        entry_id = id_of_key(key)
    else:
        entry_id = id_of_key(IdempotencyKey(key, to_datetime(at_ms)))
    made = Entry(
        counter=draw(_NAMES),
        id=entry_id,
        delta=draw(_DELTAS),
        at_ms=at_ms,
        origin=ORIGIN,
        events=draw(st.integers(1, 1000)) if kind == "id" else 1,
        key=key,
        note=draw(_NOTES) or None,
        occurred_at_ms=draw(_MOMENTS),
    )
    return bound(made)


def entry(delta: int = 1, counter: str = "likes:post-1", *, at_ms: int = NOW_MS) -> Entry:
    return bound(Entry(counter=counter, id=new_id(at_ms), delta=delta, at_ms=at_ms, origin=ORIGIN))
