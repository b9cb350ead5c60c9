"""Groups and rankings under crashes and lost answers; beside each other the explorer has them."""

import pytest

from countledger.consumers.groups import Groups
from countledger.consumers.materializer import Materializer
from countledger.consumers.rankings import Rankings
from countledger.consumers.total_writer import rank_clauses_of
from countledger.ledger import keys
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import KeptRecords, Store
from tests.faults.canary import WrongNumber
from tests.faults.injection import Crash, Fault, Kind, faults


def _groups(store: Store) -> Groups:
    dynamo = store.connection.dynamo("standard").metered()
    return Groups(store.process(dynamo=dynamo))


def _names(store: Store, counter: str, number: int) -> tuple[str, list[str]]:
    store.namespaces().create(keys.namespace_of(counter))
    return f"group-{counter}", [f"{counter}-{n}" for n in range(number)]


def _expect_board(groups: Groups, group: str) -> None:
    """Of a ranked group the board holds the members, no more and no less."""
    members = {one.counter for one in groups.show(group)}
    on_board = {one.counter for one in groups.top(group, 100)}
    if on_board != members:
        raise WrongNumber(f"on the board of {group}: {on_board}, and members are {members}")


@pytest.mark.parametrize("end", ["delete", "unrank"])
def test_a_removal_that_died_leaves_no_place_behind_its_group(
    store: Store, counter: str, end: str
) -> None:
    """The membership is gone, the place is not: it goes with the board, and another may rank it."""
    group, names = _names(store, counter, 2)
    groups, later = _groups(store), _groups(store)
    groups.add(group, names)
    groups.switch_ranking(group, on=True)
    crash = faults(groups.connection.retrying.client, at="UpdateItem", plan=[Fault(Kind.CRASH)])
    with crash, pytest.raises(Crash):
        groups.remove(group, names[:1])

    if end == "delete":
        later.delete(group)
    else:
        later.switch_ranking(group, on=False)

    later.add(f"{group}-2", names)
    later.switch_ranking(f"{group}-2", on=True)
    _expect_board(later, f"{group}-2")


def test_a_rule_that_cannot_be_read_lets_the_batch_come_again(store: Store, counter: str) -> None:
    """No total is written without knowing whether it is ranked; delivered again it counts once."""
    namespace = keys.namespace_of(counter)
    store.namespaces().create(namespace)
    rankings = Rankings(store.process(HandClock()))
    rankings.switch_on(namespace)
    store.recorder().record(Event(counter, 5))
    ((shard, records),) = store.records(counter, 1).items()
    clock = HandClock()
    unretried = store.connection.dynamo("none").metered()
    clauses = rank_clauses_of(store.process(clock, dynamo=unretried))
    materializer = Materializer(store.process(clock), KeptRecords(), rank_clauses=clauses)

    with faults(unretried.client, at="GetItem", plan=[Fault(Kind.THROTTLE)]):
        failed = materializer.apply(records, shard)
    done = materializer.apply(records, shard)
    again = materializer.apply(records, shard)

    assert list(failed.failed) == [counter]
    assert (done.retry_from, again.duplicates) == (None, 1)
    assert [(one.counter, one.value) for one in rankings.top(namespace)] == [(counter, 5)]
