"""The prefilter of the evaluator: it never hides a record that may matter to a rule."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.crossing import total_change_of
from countledger.consumers.alerts.evaluator import Prefilter, chains_of
from countledger.consumers.alerts.rule import Rule
from countledger.consumers.alerts.rule_index import RuleIndex
from countledger.consumers.record import sequence_of
from countledger.ledger.amount import Amount
from countledger.ledger.limits import HOUR_MS
from tests.unit.alerts.evaluating import START_MS, World, record, rule
from tests.unit.consumers.records import with_stream
from tests.unit.ledger.clocks import NOW_MS

PLAIN = record(2, 3, 5)


def _hides(of: dict[str, Any], *rules: Rule, now_ms: int = NOW_MS) -> bool:
    return Prefilter(RuleIndex(rules or [rule(10)]), now_ms).crosses_nothing(of)


def _image(**more: object) -> dict[str, Any]:
    image = {**PLAIN["dynamodb"]["NewImage"], **more}
    return {name: value for name, value in image.items() if value is not None}


@pytest.mark.parametrize("way", ["rising", "falling", "both"])
@pytest.mark.parametrize(
    ("old", "new"), [(3, 5), (5, 3), (11, 12), (12, 11), (0, 9), (20, 11), (0, 10**38)]
)
def test_a_total_that_stays_on_its_side_is_hidden(old: int, new: int, way: str) -> None:
    assert _hides(record(2, old, new), rule(10 if new < 10**38 else -1, way))


_READ: dict[str, dict[str, Any]] = {
    "up to a threshold": record(2, 9, 10),
    "down to a threshold": record(2, 11, 10),
    "away from a threshold": record(2, 10, 11),
    "over a threshold": record(2, 1, 100),
    "back over it": record(2, 100, 1),
    "no change": record(2, 5, 5),
    "the first total": record(1, None, 5),
    "a removed total": {**PLAIN, "eventName": "REMOVE"},
    "an unknown event": {**PLAIN, "eventName": "UPSERT"},
    "a decimal": record(2, 3, Decimal("5.5")),
    "from a decimal": record(2, Decimal("3.5"), 5),
    "below zero": record(2, -3, 5),
    "longer than a message holds": with_stream(
        record(2, 11, 12), NewImage=_image(total={"N": "1" + "0" * 77})
    ),
    "holds": record(2, 3, 5, held={"N": "2"}),
    "a last hold that ends": with_stream(PLAIN, OldImage=_image(held={"N": "2"}, total={"N": "3"})),
    "a first hold": with_stream(PLAIN, NewImage=_image(held={"N": "2"}, total={"N": "6"})),
    "bins": with_stream(PLAIN, NewImage=_image(bins={"N": "4"}, total={"N": "6"})),
    "another format": with_stream(PLAIN, NewImage=_image(v={"N": "2"}, total={"N": "6"})),
    "from another format": with_stream(PLAIN, OldImage=_image(v={"N": "2"}, total={"N": "3"})),
    "no old image": with_stream(PLAIN, OldImage=None),
    "no total": with_stream(PLAIN, NewImage=_image(total=None)),
    "no text": with_stream(PLAIN, NewImage=_image(total={"N": 6})),
    "no time": with_stream(PLAIN, ApproximateCreationDateTime=None),
    "never": with_stream(PLAIN, ApproximateCreationDateTime=float("inf")),
    "no keys": with_stream(PLAIN, Keys=None),
    "no text as its key": with_stream(PLAIN, Keys={"counter": {"S": 1}, "part": {"S": "total"}}),
    "another item": with_stream(PLAIN, Keys={"counter": {"S": "a"}, "part": {"S": "rank"}}),
    "the directory": with_stream(PLAIN, Keys={"counter": {"S": "a#b"}, "part": {"S": "total"}}),
}


@pytest.mark.parametrize("of", _READ.values(), ids=_READ)
def test_any_other_record_is_read(of: dict[str, Any]) -> None:
    assert _hides(PLAIN)
    assert not _hides(of)


def test_a_record_whose_rules_may_be_gone_is_read() -> None:
    at_last = START_MS + 30 * HOUR_MS

    assert _hides(PLAIN, now_ms=at_last - 1_000)
    assert not _hides(PLAIN, now_ms=at_last + 1)


@pytest.mark.parametrize("more", [{"step": 10}, {"rearm": 1}])
def test_a_rule_that_looks_at_more_than_its_threshold_reads_all(more: dict[str, Any]) -> None:
    assert not _hides(PLAIN, rule(10), rule(20, name="another", **more))
    assert _hides(PLAIN, rule(10), rule(20, name="another", prefix="c:", **more))


def test_a_revision_that_has_ended_is_looked_at() -> None:
    """Which revision was effective when the record was made, the reader decides."""
    ended = rule(4, revision="r0", effective_until_ms=START_MS)

    assert not _hides(PLAIN, ended, rule(10))


def test_what_is_hidden_is_counted_and_not_read_further() -> None:
    """Its version is of no use to anybody."""
    world = World([rule(10)])

    outcome = world.deliver([with_stream(PLAIN, NewImage=_image(version={"N": "x"}))])

    assert (outcome.changes, outcome.quarantined, outcome.published) == (1, 0, 0)


_TOTALS = st.integers(-3, 12) | st.sampled_from([Decimal("4.5"), 10**30])
_RULES = st.builds(
    rule,
    st.integers(-2, 12),
    st.sampled_from(["rising", "falling", "both"]),
    name=st.sampled_from(["one", "two"]),
    revision=st.sampled_from(["r1", "r2"]),
)


@given(old=_TOTALS, new=_TOTALS, rules=st.lists(_RULES, max_size=4))
def test_no_rule_has_anything_to_do_for_what_is_hidden(
    old: Amount, new: Amount, rules: list[Rule]
) -> None:
    index, one = RuleIndex(rules), record(2, old, new)
    if not Prefilter(index, NOW_MS).crosses_nothing(one):
        return

    change = total_change_of(one, sequence_of(one), NOW_MS)

    assert change is not None
    assert not chains_of([change], index)
