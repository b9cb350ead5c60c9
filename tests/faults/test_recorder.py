"""What an app hears, and what the ledger holds, when a write of an entry goes wrong."""

from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pytest

from countledger.ledger.attempts import Send
from countledger.ledger.attributes import Item
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    IdempotencyKeyReused,
    Unacknowledged,
)
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Put, PutBatch
from countledger.producers import sender
from countledger.producers.event import Event, Receipt, Status
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, judged
from tests.faults.injection import GARBLED, Fault, Kind, faults
from tests.faults.leftovers import unprocessed
from tests.faults.numbers import expect_sum
from tests.faults.product import recorder_of, writer_of
from tests.faults.ways import deltas, known, many, one_batch

# ---- rules to switch off ----


def fresh_id_for_every_attempt(patch: pytest.MonkeyPatch) -> None:
    """The id is made when the entry is sent, not when it is made."""

    def renewed(item: Item) -> Item:
        made_of = len(new_id(item["at"]))
        return {**item, "entry": f"{item['entry'][:-made_of]}{new_id(item['at'])}"}

    def send(operation: Put | PutBatch, check: Any) -> Send:  # noqa: ANN401 - handed on
        if isinstance(operation, PutBatch):
            again = [replace(one, id=new_id(one.at_ms)) for one in operation.entries]
            return Send(replace(operation, entries=again), check)
        return Send(replace(operation, item=renewed(operation.item)), check)

    patch.setattr(sender, "Send", send)


def unprocessed_items_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What a batch leaves is taken for written."""
    real = DynamoClient.put_entries

    def put_entries(dynamo: DynamoClient, batch: PutBatch) -> list[Item]:
        real(dynamo, batch)
        return []

    patch.setattr(DynamoClient, "put_entries", put_entries)


def payload_never_compared(patch: pytest.MonkeyPatch) -> None:
    """Whatever stands under the key is a duplicate."""

    def judge(entry: Entry, _stored: Item) -> Receipt:
        return Receipt(entry.counter, entry.id, Status.DUPLICATE)

    patch.setattr(sender, "judge_existing", judge)


# ---- laws ----


@judged(fresh_id_for_every_attempt)
@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT, applied=True), GARBLED[1]], ids=str)
def test_an_applied_batch_is_sent_again_as_it_was(
    rule: Rule, store: Store, counter: str, fault: Fault
) -> None:
    """A batch carries no condition: only the same bytes under the same ids make it harmless."""
    with rule.watched():
        recorder = known(recorder_of(store), counter)
        with faults(writer_of(recorder), at="BatchWriteItem", plan=[fault]):
            outcomes = many(recorder, counter)
        expect_sum(store, counter, deltas(outcomes))


@judged(unprocessed_items_forgotten)
def test_p1_what_is_acknowledged_of_a_batch_is_written(
    rule: Rule, store: Store, counter: str
) -> None:
    """An entry that the service left unprocessed is acknowledged only once it was taken."""
    with rule.watched():
        recorder = known(recorder_of(store), counter)
        with unprocessed(writer_of(recorder), [10, 3]):
            outcomes = one_batch(recorder, counter)
        expect_sum(store, counter, deltas(outcomes))


def test_p1_what_is_left_of_a_table_of_another_account_is_sent_again(
    store: Store, counter: str
) -> None:
    """Its ARN is given for its name; the service may answer under the name."""
    arn = store.client().describe_table(TableName=store.ledger)["Table"]["TableArn"]
    known(recorder_of(store), counter)
    settings = replace(store.connection.settings, ledger_table=arn)
    recorder = recorder_of(replace(store, connection=replace(store.connection, settings=settings)))

    with unprocessed(writer_of(recorder), [10, 3]) as asked:
        outcomes = one_batch(recorder, counter)

    assert asked[1:] == [10, 3]
    expect_sum(store, counter, deltas(outcomes))


@judged(payload_never_compared)
def test_p2_a_retry_is_a_duplicate_and_another_delta_is_refused(
    rule: Rule, store: Store, counter: str
) -> None:
    with rule.watched():
        acknowledged: dict[str, int] = {}
        for key, delta in (("a", 1), ("b", 2), ("a", 1), ("a", 5), ("b", 2)):
            with suppress(IdempotencyKeyReused):
                recorder_of(store).record(Event(counter, delta, key))
                acknowledged[key] = delta
        expect_sum(store, counter, acknowledged.values())


@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT, applied=True), GARBLED[1]], ids=str)
def test_after_a_lost_answer_the_own_entry_is_recorded_and_anothers_is_not(
    store: Store, counter: str, fault: Fault
) -> None:
    """Finding its very item means that it was applied; another process's says duplicate."""
    mine = known(recorder_of(store), counter)
    # Made at another time, so that its entry is not the very same to the last byte.
    other = recorder_of(store, HandClock(mine.clock.now_ms() - 10_000))
    with faults(writer_of(mine), plan=[fault]):
        assert mine.record(Event(counter, 1, "mine")).status is Status.RECORDED

    other.record(Event(counter, 1, "theirs"))
    with faults(writer_of(mine), plan=[Fault(fault.kind)]):
        assert mine.record(Event(counter, 1, "theirs")).status is Status.DUPLICATE
    with (
        faults(writer_of(mine), plan=[Fault(fault.kind)]),
        pytest.raises(IdempotencyKeyReused),
    ):
        mine.record(Event(counter, 2, "theirs"))

    expect_sum(store, counter, [1, 1])


def test_an_endpoint_that_fails_after_a_lost_answer_leaves_it_open(
    store: Store, counter: str
) -> None:
    """The first attempt may have been applied, so the entry comes back, not `Unreachable`."""
    recorder = known(recorder_of(store), counter)
    plan = chain([Fault(Kind.TIMEOUT, applied=True)], repeat(Fault(Kind.UNREACHABLE)))

    with faults(writer_of(recorder), plan=plan), pytest.raises(Unacknowledged) as raised:
        recorder.record(Event(counter, 7))

    expect_sum(store, counter, [7])
    assert recorder_of(store).resend(raised.value.entry).status is Status.DUPLICATE
    expect_sum(store, counter, [7])


def test_a_refused_batch_is_sent_one_by_one(store: Store, counter: str) -> None:
    """The service names no culprit; the good ones are recorded, each once."""
    recorder = known(recorder_of(store), counter)

    with (
        faults(writer_of(recorder), at="BatchWriteItem", plan=[Fault(Kind.REJECT)]),
        faults(writer_of(recorder), at="PutItem", plan=[None, Fault(Kind.REJECT)]),
    ):
        outcomes = list(recorder.record_many([Event(counter, 7)] * 5))

    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == ["Receipt", "RequestRejected", "Receipt", "Receipt", "Receipt"]
    expect_sum(store, counter, [7] * 4)
