"""Groups and rankings under crashes, lost answers and each other."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from countledger.consumers.group_board import GroupBoard
from countledger.consumers.groups import Groups
from countledger.consumers.materializer import Materializer
from countledger.consumers.rankings import Rankings
from countledger.consumers.total_writer import rank_clauses_of
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchGroup
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import KeptRecords, Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Crash, Fault, Kind, before_call, faults


def without_the_second_look(patch: pytest.MonkeyPatch) -> None:
    """Believe that who was a member is one still."""
    patch.setattr(GroupBoard, "is_member", lambda _self, _counter: True)


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


@judged(without_the_second_look)
def test_a_member_that_goes_while_it_is_placed_is_taken_off(
    store: Store, counter: str, rule: Rule
) -> None:
    """It is removed between its membership and its place, by somebody who finds no place yet."""
    group, names = _names(store, counter, 1)
    groups, other = _groups(store), _groups(store)
    groups.add(group, [])
    groups.switch_ranking(group, on=True)

    with (
        rule.watched(),
        before_call(
            groups.connection.retrying.client, "UpdateItem", lambda: _remove(other, group, names)
        ),
    ):
        groups.add(group, names)
        _expect_board(groups, group)


@pytest.mark.parametrize("ranked", [False, True])
def test_what_is_added_while_a_group_is_deleted_is_in_a_group(
    store: Store, counter: str, *, ranked: bool
) -> None:
    """Its membership comes behind the last look, and before the group itself goes."""
    group, names = _names(store, counter, 1)
    groups, other = _groups(store), _groups(store)
    groups.add(group, [])
    groups.switch_ranking(group, on=ranked)

    def add() -> None:
        other.add(group, names)

    with before_call(groups.connection.retrying.client, "PutItem", add):
        groups.delete(group)

    assert list(groups.of(names[0])) == [group]
    assert [one.counter for one in groups.show(group)] == names
    assert not groups.get(group).ranked
    assert "ranked_group" not in (store.item(store.counters, keys.total_key(names[0])) or {})


def test_a_group_that_is_made_again_is_not_the_one_that_is_deleted(
    store: Store, counter: str
) -> None:
    """The process was suspended, and another one deleted the group meanwhile."""
    group, names = _names(store, counter, 1)
    groups, other = _groups(store), _groups(store)
    groups.add(group, [])

    def make_again() -> None:
        other.delete(group)
        other.add(group, names)
        other.switch_ranking(group, on=True)

    with before_call(groups.connection.retrying.client, "PutItem", make_again):
        groups.delete(group)

    assert groups.get(group).ranked
    assert list(groups.of(names[0])) == [group]
    _expect_board(groups, group)


def test_a_group_that_goes_while_it_is_ranked_is_said_to_be_gone(
    store: Store, counter: str
) -> None:
    group, names = _names(store, counter, 1)
    groups, other = _groups(store), _groups(store)
    groups.add(group, names)

    def delete() -> None:
        other.delete(group)

    with (
        before_call(groups.connection.retrying.client, "PutItem", delete),
        pytest.raises(NoSuchGroup, match=group),
    ):
        groups.switch_ranking(group, on=True)


def _remove(groups: Groups, group: str, names: list[str]) -> None:
    groups.remove(group, names)


def test_in_whatever_order_they_come_the_board_holds_the_members(
    store: Store, counter: str
) -> None:
    """Four threads add, remove and switch one group's ranking; when all is quiet it is right."""
    group, names = _names(store, counter, 6)
    first = _groups(store)
    first.add(group, names[:3])

    def act(number: int) -> None:
        groups, random = _groups(store), Random(number)  # noqa: S311 - a fixed course of events
        for _ in range(12):
            some = random.sample(names, 2)
            match random.randrange(4):
                case 0 | 1:
                    groups.add(group, some)
                case 2:
                    groups.remove(group, some)
                case _:
                    groups.switch_ranking(group, on=random.random() < 0.7)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, range(4)))

    if first.get(group).ranked:
        _expect_board(first, group)
    first.switch_ranking(group, on=True)
    _expect_board(first, group)
    first.delete(group)
    with pytest.raises(NoSuchGroup):
        first.top(group)
    for name in names:
        assert "ranked_group" not in (store.item(store.counters, keys.total_key(name)) or {})


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
