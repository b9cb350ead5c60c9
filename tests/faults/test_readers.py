"""What a reader says when its answer is lost or is not the service's: never a wrong number."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from countledger.consumers.totals import TotalsReader
from countledger.ledger import dynamo as door_module
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import Throttled, Unclear
from countledger.ledger.exact import ExactReader, newest_first
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.delivery import deliver, written
from tests.faults.injection import GARBLED, Fault, Kind, faults
from tests.faults.leftovers import unanswered

Read = Callable[[Store, DynamoClient, str], object]


def _total(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return TotalsReader(dynamo, store.counters).read(counter).value


def _totals(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return TotalsReader(dynamo, store.counters).read_many([counter])[counter].value


def _exact(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return ExactReader(dynamo, store.ledger).read(counter).value


def _log(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return sum(int(entry.delta) for entry in newest_first(dynamo, store.ledger, counter, 1))


READS = pytest.mark.parametrize("read", [_total, _totals, _exact, _log])


def answers_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """An empty answer means that nothing is there."""
    patch.setattr(door_module, "consumed_in", lambda _answer, _what: [])


@READS
@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p3_a_reader_gets_over_faults(store: Store, counter: str, read: Read, fault: Fault) -> None:
    """The SDK asks again; a read may be repeated as often as one likes."""
    shard, records = written(store, counter, each=4)
    deliver(store.materializer(), records, shard)
    dynamo = store.dynamo()

    with faults(dynamo.client, plan=[fault, fault]):
        assert read(store, dynamo, counter) == 15


@judged(answers_taken_as_they_come)
def test_p3_an_answer_that_is_not_the_services_is_no_number(
    rule: Rule, store: Store, counter: str
) -> None:
    """Status 200 and the page of a proxy: that a total is zero may not be said."""
    with rule.watched():
        shard, records = written(store, counter, each=4)
        deliver(store.materializer(), records, shard)
        dynamo = store.dynamo()
        with faults(dynamo.client, plan=GARBLED[:1]), suppress(Unclear):
            answer = _total(store, dynamo, counter)
            raise WrongNumber(f"{answer} instead of an error")


@READS
def test_what_is_not_the_services_is_unclear(store: Store, counter: str, read: Read) -> None:
    """Every read says so, whichever call it was."""
    with faults((dynamo := store.dynamo()).client, plan=GARBLED[:1]), pytest.raises(Unclear):
        read(store, dynamo, counter)


def test_p3_keys_left_unanswered_are_asked_for_again(store: Store, counter: str) -> None:
    names = [f"{counter}/{number}" for number in range(8)]
    shard, records = written(store, *names, each=1)
    deliver(store.materializer(), records, shard)
    dynamo = replace(store.dynamo(), clock=(clock := HandClock()))

    with unanswered(dynamo.client, [5, 2, 1]) as asked:
        totals = TotalsReader(dynamo, store.counters).read_many(names)

    assert asked == [8, 5, 2, 1]
    assert len(clock.slept_ms) == 3
    assert [totals[name].value for name in names] == [1] * 8


def test_p3_totals_of_a_table_of_another_account_are_all_there(store: Store, counter: str) -> None:
    """Its ARN is given for its name; the service may answer under the name."""
    arn = store.client().describe_table(TableName=store.counters)["Table"]["TableArn"]
    names = [f"{counter}/{number}" for number in range(8)]
    shard, records = written(store, *names, each=1)
    deliver(store.materializer(), records, shard)
    dynamo = replace(store.dynamo(), clock=HandClock())

    with unanswered(dynamo.client, [5, 2]) as asked:
        totals = TotalsReader(dynamo, arn).read_many(names)

    assert asked == [8, 5, 2]
    assert [totals[name].value for name in names] == [1] * 8


def test_p3_keys_that_stay_unanswered_are_an_error(store: Store, counter: str) -> None:
    names = [f"{counter}/{number}" for number in range(20)]
    dynamo = replace(store.dynamo(), clock=HandClock())
    attempts = dynamo.backoff.attempts

    with unanswered(dynamo.client, range(attempts + 1, 1, -1)), pytest.raises(Throttled):
        TotalsReader(dynamo, store.counters).read_many(names)
