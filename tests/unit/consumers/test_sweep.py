"""A batch read at a sweep gives what it gives record by record, or is left to that."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.record import EntryChange, MalformedRecord, are_sequences, sequence_of
from countledger.consumers.total_writer import (
    CounterChanges,
    Fold,
    fold,
    fold_one_by_one,
    folded_change,
    sweep,
)
from countledger.ledger import keys
from countledger.ledger.limits import STREAM_RECORD_MAX_AGE_MS
from tests.unit.consumers.records import COUNTER, image, record, with_stream
from tests.unit.ledger.clocks import NOW_MS

_DELTAS = st.sampled_from(["1", "-1", "0", "12.50", "1E+3", "9" * 38, "-0.001"])
_ENTRIES = st.sampled_from(
    [None, "e#018bcfe5-6800-7180-a4c0-91067b062169", "e#0f018bcfe5-6800-7180-a4c0-91067b062169"]
)


@st.composite
def _well_formed(draw: st.DrawFn) -> dict[str, Any]:
    """What the stream of `ledger` may carry, the rare kinds as often as the common one."""
    name = draw(st.sampled_from(["INSERT", "INSERT", "MODIFY", "REMOVE"]))
    return record(
        draw(st.integers(0, 10**40 - 1)),
        draw(_DELTAS),
        counter=draw(st.sampled_from(["a:b", "a:c", "d"])),
        name=name,
        entry=draw(_ENTRIES),
        age_ms=draw(st.sampled_from([0, 500, STREAM_RECORD_MAX_AGE_MS])),
        old=image(draw(_DELTAS), 3) if name == "MODIFY" else None,
        events=draw(st.sampled_from([None, 1, 25])),
    )


_CORRUPT_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, 5, 1.5, float("nan"), float("inf"), [], {}, {"v": {"N": "2"}}),
        *("", "x", "e#", "-5", "1_0", "٣", "a\nb", "\ud800", "1" * 41),
        *({"S": "x"}, {"S": 7}, {"N": "1"}, {"N": 1}),
    ]
)
_PLACES: list[tuple[str, ...]] = [
    ("eventName",),
    ("dynamodb",),
    ("dynamodb", "SequenceNumber"),
    ("dynamodb", "ApproximateCreationDateTime"),
    ("dynamodb", "Keys"),
    ("dynamodb", "Keys", "counter"),
    ("dynamodb", "Keys", "counter", "S"),
    ("dynamodb", "Keys", "entry"),
    ("dynamodb", "Keys", "entry", "S"),
    ("dynamodb", "NewImage"),
    ("dynamodb", "NewImage", "delta"),
    ("dynamodb", "NewImage", "delta", "N"),
    ("dynamodb", "NewImage", "events"),
    ("dynamodb", "NewImage", "v"),
]


@st.composite
def _corrupt(draw: st.DrawFn) -> dict[str, Any]:
    """A record of which one part is something else, or is missing."""
    whole = copy.deepcopy(draw(_well_formed()))
    *path, last = draw(st.sampled_from(_PLACES))
    part: dict[str, Any] = whole
    for name in path:
        part = part[name]
    if draw(st.booleans()):
        part.pop(last, None)
    else:
        part[last] = draw(_CORRUPT_VALUES)
    return whole


def _shown(folded: Fold) -> tuple[Any, ...]:
    changes = {counter: list(found) for counter, found in folded.changes.items()}
    told = [(one.reason, one.sequence) for one in folded.rejected]
    return changes, told, folded.records, folded.last_sequence, folded.last_created_at_ms


@given(st.lists(_well_formed(), max_size=12))
def test_a_sweep_gives_what_one_by_one_gives(records: list[dict[str, Any]]) -> None:
    assert sweep(records, NOW_MS) is not None
    assert _shown(fold(records, NOW_MS)) == _shown(fold_one_by_one(records, NOW_MS))


@given(st.lists(_well_formed(), max_size=5), _corrupt(), st.lists(_well_formed(), max_size=5))
def test_a_sweep_lets_nothing_pass_that_is_refused_one_by_one(
    before: list[dict[str, Any]], corrupt: dict[str, Any], behind: list[dict[str, Any]]
) -> None:
    records = [*before, corrupt, *behind]

    carefully = fold_one_by_one(records, NOW_MS)

    assert _shown(fold(records, NOW_MS)) == _shown(carefully)
    if carefully.rejected:
        assert sweep(records, NOW_MS) is None


_KEYS = st.one_of(
    _ENTRIES.filter(bool),
    st.from_regex(r"e#[0-9a-f]{0,3}(k[0-9a-f]{31,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"),
    st.sampled_from(["", "e#", "s#head", "settings", "e#k" + "0" * 32, "e#K" + "0" * 32]),
)


@given(st.lists(_KEYS, max_size=6))
def test_keys_are_entries_together_if_each_is_alone(texts: list[str]) -> None:
    assert keys.are_entries(texts) == all(keys.id_of(text) is not None for text in texts)


def test_a_key_that_holds_a_line_break_is_no_entry() -> None:
    entry = "e#k" + "0" * 32

    assert keys.are_entries([entry, entry])
    assert not keys.are_entries([f"{entry}\n{entry}"])


@given(st.lists(st.text("0123456789 -+_x٣", max_size=41), min_size=1, max_size=4))
def test_texts_pass_for_sequence_numbers_only_if_each_is_one(texts: list[str]) -> None:
    """Not the other way round: digits of other scripts are read one by one."""
    if are_sequences(texts):
        for text in texts:
            assert sequence_of({"dynamodb": {"SequenceNumber": text}}) == int(text)


@pytest.mark.parametrize("text", ["", "1" * 41, "-1", "1_0", " 1"])
def test_a_text_among_others_that_is_no_sequence_number_is_found(text: str) -> None:
    assert are_sequences(["1", "2" * 40])
    assert not are_sequences(["1", text, "2"])
    with pytest.raises(MalformedRecord):
        sequence_of(with_stream(record(1), SequenceNumber=text))


def test_changes_are_read_like_a_list() -> None:
    changes = fold([record(n, n) for n in (5, 6, 7)], NOW_MS).changes[COUNTER]

    assert len(changes) == 3
    assert changes[0] == EntryChange(5, COUNTER, 5, 1, 1)
    assert [change.sequence for change in changes] == [5, 6, 7]
    assert isinstance(changes[1:], CounterChanges)
    assert list(changes[1:]) == list(changes)[1:]
    assert list(changes.above(5)) == list(changes)[1:]
    assert folded_change(changes[1:]) == (6, 7, 13, 2, 2)
