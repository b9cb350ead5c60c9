"""What a reader says when its answer is lost or is not the service's: never a wrong number."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from countledger.consumers.totals import TotalsReader
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import Throttled, Unclear
from countledger.ledger.exact import ExactReader, newest_first
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.delivery import deliver, written
from tests.faults.injection import GARBLED, Fault, Kind, faults
from tests.faults.leftovers import unanswered
from tests.faults.play import ON_THE_ENGINE

Read = Callable[[Store, DynamoClient, str], object]


def _total(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return TotalsReader(store.process(dynamo=dynamo)).read(counter).value


def _totals(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return TotalsReader(store.process(dynamo=dynamo)).read_many([counter])[counter].value


def _exact(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return ExactReader(store.process(dynamo=dynamo)).read(counter).value


def _log(store: Store, dynamo: DynamoClient, counter: str) -> object:
    return sum(int(entry.delta) for entry in newest_first(dynamo, store.ledger, counter, 1))


READS = pytest.mark.parametrize("read", [_total, _totals, _exact, _log])


@READS
@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p3_a_reader_gets_over_faults(store: Store, counter: str, read: Read, fault: Fault) -> None:
    """The SDK asks again; a read may be repeated as often as one likes."""
    shard, records = written(store, counter, each=4)
    deliver(store.materializer(), records, shard)
    dynamo = store.dynamo()

    with faults(dynamo.client, plan=[fault, fault]):
        assert read(store, dynamo, counter) == 15


@READS
def test_what_is_not_the_services_is_unclear(store: Store, counter: str, read: Read) -> None:
    """Every read says so, whichever call it was."""
    with faults((dynamo := store.dynamo()).client, plan=GARBLED[:1]), pytest.raises(Unclear):
        read(store, dynamo, counter)


@ON_THE_ENGINE
@pytest.mark.parametrize("named_by", ["name", "ARN"])
def test_p3_keys_left_unanswered_are_asked_for_again(
    store: Store, counter: str, named_by: str
) -> None:
    """A table of another account is named by its ARN; the service may answer under its name."""
    described = store.client().describe_table(TableName=store.counters)["Table"]
    table = store.counters if named_by == "name" else described["TableArn"]
    names = [f"{counter}/{number}" for number in range(8)]
    shard, records = written(store, *names, each=1)
    deliver(store.materializer(), records, shard)
    dynamo = replace(store.dynamo(), clock=(clock := HandClock()))

    with unanswered(dynamo.client, [5, 2, 1]) as asked:
        totals = TotalsReader(store.process(dynamo=dynamo).with_counters(table)).read_many(names)

    assert asked == [8, 5, 2, 1]
    assert len(clock.slept_ms) == 3
    assert [totals[name].value for name in names] == [1] * 8


@ON_THE_ENGINE
def test_p3_keys_that_stay_unanswered_are_an_error(store: Store, counter: str) -> None:
    names = [f"{counter}/{number}" for number in range(20)]
    dynamo = replace(store.dynamo(), clock=HandClock())
    attempts = dynamo.backoff.attempts

    with unanswered(dynamo.client, range(attempts + 1, 1, -1)), pytest.raises(Throttled):
        TotalsReader(store.process(dynamo=dynamo)).read_many(names)
