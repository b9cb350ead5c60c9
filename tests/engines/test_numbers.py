"""Numbers are exact from the event to the sum, on every engine that keeps what it says."""

from dataclasses import replace
from decimal import Decimal

import pytest

from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.ledger import amount
from countledger.ledger.amount import Amount, parse_delta
from countledger.ledger.errors import BadDelta, SumOverflow, Unclear
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Update
from countledger.producers.event import Event, make_entry
from tests.engines.differences import Difference
from tests.engines.store import Store

BIGGEST = 10**38 - 1
NUMBERS: list[Amount] = [
    1,
    -1,
    2**63,
    10**20 - 1,
    1 - 10**20,
    Decimal("0.1"),
    Decimal("-0.000000001"),
    Decimal("12345678901234567890.123456789"),
    Decimal("-99999999999999999999.999999999"),
    Decimal("1E+19"),
    Decimal("5.00"),
]
BY_HAND: list[Amount] = [
    BIGGEST,
    -BIGGEST,
    Decimal("-0.00000000000000000000000000000000000001"),
    Decimal("1234567890123456789.0123456789012345678"),
]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_a_delta_comes_back_exactly(store: Store, counter: str, number: Amount) -> None:
    """The largest, decimals, negatives, exponents: the same value and type, in entry and sum."""
    store.recorder().record(Event(counter, number, "key"))

    (item,) = store.entry_items(counter)
    total = store.exact().read(counter).value
    assert item["delta"] == total == number
    assert type(item["delta"]) is type(total) is type(parse_delta(number))
    assert store.recorder().record(Event(counter, number, "key")).status == "duplicate"


@pytest.mark.parametrize("number", BY_HAND, ids=str)
def test_a_larger_delta_that_is_there_is_read(store: Store, counter: str, number: Amount) -> None:
    """No producer takes it; what another program wrote counts all the same, to the last digit."""
    recorder = store.recorder()
    with pytest.raises(BadDelta, match="more than 20 digits"):
        Event(counter, number)
    for _ in range(2):
        now_ms = recorder.connection.clock.now_ms()
        entry = make_entry(Event(counter, 1), now_ms=now_ms, origin="by hand", new_id=new_id)
        recorder.resend(replace(entry, delta=number))

    assert store.exact().read(counter).value == amount.add(number, number)


def test_spellings_of_one_number_are_one_delta(store: Store, counter: str) -> None:
    """A retry may spell its delta otherwise: 1, 1.0 and 1E0 are the same change."""
    recorder = store.recorder()
    spelled: list[Amount] = [Decimal("1.0"), 1, Decimal("1E0"), Decimal("1.000")]

    statuses = [recorder.record(Event(counter, one, "key")).status for one in spelled]

    assert statuses == ["recorded", "duplicate", "duplicate", "duplicate"]


def test_a_foreign_spelling_is_read_as_the_same_number(store: Store, counter: str) -> None:
    """An item that another program wrote as 1.0 is a duplicate of 1."""
    receipt = store.recorder().record(Event(counter, 1, "key"))
    (item,) = store.entry_items(counter)
    key = {"counter": {"S": counter}, "entry": {"S": item["entry"]}}
    client = store.client()
    client.update_item(
        TableName=store.ledger,
        Key=key,
        UpdateExpression="SET delta = :d",
        ExpressionAttributeValues={":d": {"N": "1.0"}},
    )
    stored = client.get_item(TableName=store.ledger, Key=key)["Item"]["delta"]["N"]
    assert stored == ("1.0" if store.engine.has(Difference.KEEPS_NUMBERS_AS_SENT) else "1")

    assert store.recorder().record(Event(counter, 1, "key")).id == receipt.id
    assert store.exact().read(counter).value == 1


def test_an_exact_sum_never_rounds(store: Store, counter: str) -> None:
    """Ten tenths are one; the large and the small both stay."""
    deltas: list[Amount] = [*[Decimal("0.1")] * 10, 10**19, Decimal("1E-7"), -(10**19)]
    list(store.recorder().record_many(Event(counter, delta) for delta in deltas))

    assert store.exact().read(counter).value == Decimal("1.0000001")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (10**37, 1),
        (-(10**37), -1),
        (Decimal("1E+20"), Decimal("1E-17")),
        (BIGGEST - 1, 1),
        (BIGGEST, 1),
        (6 * 10**37, 6 * 10**37),
        (-BIGGEST, -1),
    ],
    ids=str,
)
def test_a_total_keeps_38_significant_digits(
    store: Store, counter: str, first: Amount, second: Amount
) -> None:
    """Also beyond 10^38 a total is exact and can be read, as long as 38 digits tell it."""
    dynamo = store.dynamo()
    dynamo.update(_update(store, counter, 1, first))
    if "E" in str(second) and store.engine.has(Difference.ADD_FAILS_ON_EXPONENTS):
        with pytest.raises(Unclear, match="invalid literal"):
            dynamo.update(_update(store, counter, 2, second))
        return
    dynamo.update(_update(store, counter, 2, second))

    assert store.totals().read(counter).value == amount.add(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [(BIGGEST, 2), (10**37, Decimal("0.1")), (-BIGGEST, Decimal("-0.5"))],
    ids=str,
)
def test_a_total_past_38_significant_digits_is_refused(
    store: Store, counter: str, first: Amount, second: Amount
) -> None:
    """No engine may round what it cannot hold; the materializer then sets the change aside."""
    dynamo = store.dynamo()
    dynamo.update(_update(store, counter, 1, first))

    if store.engine.has(Difference.ADD_PASSES_38_DIGITS):
        dynamo.update(_update(store, counter, 2, second))
        return
    with pytest.raises(SumOverflow):
        dynamo.update(_update(store, counter, 2, second))
    assert store.totals().read(counter).value == first


def _update(store: Store, counter: str, sequence: int, delta: Amount) -> Update:
    delta = amount.canonical(delta)
    step = FoldedChange(first=sequence, last=sequence, delta=delta, events=1, entries=1)
    return update_of(store.counters, counter, step, "shard", 0)
