"""Groups and rankings under crashes, lost answers and each other."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, count, repeat
from random import Random

import pytest

from countledger.consumers.groups import Groups
from countledger.consumers.materializer import Materializer
from countledger.consumers.memberships import GroupBoard
from countledger.consumers.namespace_rules import RankRules
from countledger.consumers.rankings import Rankings
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchGroup
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.store import KeptRecords, Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import LOST_ANSWERS, Crash, Fault, Kind, faults
from tests.faults.strict.sellers import before_request


def without_the_second_look(patch: pytest.MonkeyPatch) -> None:
    """Believe that who was a member is one still."""
    patch.setattr(GroupBoard, "_is_member", lambda _self, _counter: True)


def _groups(store: Store) -> Groups:
    dynamo = store.connection.dynamo("standard").metered()
    return Groups(TotalsReader(dynamo, store.counters), store.namespaces())


def _names(store: Store, counter: str, number: int) -> tuple[str, list[str]]:
    store.namespaces().create(keys.namespace_of(counter))
    return f"group-{counter}", [f"{counter}-{n}" for n in range(number)]


def _expect_board(groups: Groups, group: str) -> None:
    """Of a ranked group the board holds the members, no more and no less."""
    members = {one.counter for one in groups.show(group)}
    on_board = {one.counter for one in groups.top(group, 100)}
    if on_board != members:
        raise WrongNumber(f"on the board of {group}: {on_board}, and members are {members}")


def _act(groups: Groups, what: str, group: str, names: list[str]) -> None:
    match what:
        case "add":
            groups.add(group, names[2:])
        case "remove":
            groups.remove(group, names[:1])
        case _:
            groups.switch_ranking(group, on=what == "rank")


@pytest.mark.parametrize("crash", [Fault(Kind.CRASH), Fault(Kind.CRASH, applied=True)], ids=str)
@pytest.mark.parametrize("what", ["add", "remove", "rank", "unrank"])
def test_a_crash_anywhere_is_made_good_by_the_same_call(
    store: Store, counter: str, what: str, crash: Fault
) -> None:
    """Whatever the k-th request was, the call again leaves members and board as they should be."""
    for k in count():
        group, names = _names(store, f"{counter}{k}{crash.applied}", 3)
        groups = _groups(store)
        groups.add(group, names[:2])
        groups.switch_ranking(group, on=what != "rank")
        died = False
        plan = chain(repeat(None, k), [crash], repeat(Fault(Kind.CRASH)))
        with faults(groups.totals.dynamo.client, plan=plan):
            try:
                _act(groups, what, group, names)
            except Crash:
                died = True
        _act(groups, what, group, names)

        if what == "unrank":
            groups.switch_ranking(group, on=True)
        _expect_board(groups, group)
        assert len(list(groups.show(group))) == {"add": 3, "remove": 1}.get(what, 2)
        if not died:
            assert k > 2
            break


@pytest.mark.parametrize("end", ["delete", "unrank"])
def test_a_removal_that_died_leaves_no_place_behind_its_group(
    store: Store, counter: str, end: str
) -> None:
    """The membership is gone, the place is not: it goes with the board, and another may rank it."""
    group, names = _names(store, counter, 2)
    groups, later = _groups(store), _groups(store)
    groups.add(group, names)
    groups.switch_ranking(group, on=True)
    crash = faults(groups.totals.dynamo.client, at="UpdateItem", plan=[Fault(Kind.CRASH)])
    with crash, pytest.raises(Crash):
        groups.remove(group, names[:1])

    if end == "delete":
        later.delete(group)
    else:
        later.switch_ranking(group, on=False)

    later.add(f"{group}-2", names)
    later.switch_ranking(f"{group}-2", on=True)
    _expect_board(later, f"{group}-2")


def test_a_deletion_that_died_is_ended_by_the_same_call(store: Store, counter: str) -> None:
    """Whatever the k-th request was: no member, no place and no group is left."""
    for k in count():
        group, names = _names(store, f"{counter}{k}", 1)
        groups = _groups(store)
        groups.add(group, names)
        groups.switch_ranking(group, on=True)
        died = False
        plan = chain(repeat(None, k), repeat(Fault(Kind.CRASH)))
        with faults(groups.totals.dynamo.client, plan=plan):
            try:
                groups.delete(group)
            except Crash:
                died = True
        with suppress(NoSuchGroup):  # nothing was left to do
            groups.delete(group)

        assert group not in {one.name for one in groups.list()}
        assert list(groups.of(names[0])) == []
        assert "ranked_group" not in (store.item(store.counters, keys.total_key(names[0])) or {})
        if not died:
            assert k > 4
            break


@pytest.mark.parametrize("fault", LOST_ANSWERS, ids=str)
def test_a_lost_answer_leaves_a_member_and_its_place(
    store: Store, counter: str, fault: Fault
) -> None:
    """The SDK sends again; each write sets what is to be."""
    group, names = _names(store, counter, 2)
    groups = _groups(store)
    groups.add(group, [])
    groups.switch_ranking(group, on=True)

    for operation in ("PutItem", "UpdateItem"):
        with faults(groups.totals.dynamo.client, at=operation, plan=[fault, fault]):
            groups.add(group, names)

    _expect_board(groups, group)
    with faults(groups.totals.dynamo.client, at="DeleteItem", plan=[fault]):
        groups.remove(group, names[:1])
    _expect_board(groups, group)


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
        before_request(
            groups.totals.dynamo.client, "UpdateItem", 1, lambda: _remove(other, group, names)
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

    with before_request(groups.totals.dynamo.client, "DeleteItem", 1, add):
        groups.delete(group)

    assert list(groups.of(names[0])) == [group]
    assert [one.counter for one in groups.show(group)] == names
    assert not groups.get(group).ranked
    assert "ranked_group" not in (store.item(store.counters, keys.total_key(names[0])) or {})


def test_a_group_that_goes_while_it_is_ranked_is_said_to_be_gone(
    store: Store, counter: str
) -> None:
    """Between the look and the switch."""
    group, names = _names(store, counter, 1)
    groups, other = _groups(store), _groups(store)
    groups.add(group, names)

    def delete() -> None:
        other.delete(group)

    with (
        before_request(groups.totals.dynamo.client, "UpdateItem", 1, delete),
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
    rankings = Rankings(store.dynamo(), store.counters, store.namespaces(), HandClock())
    rankings.switch_on(namespace)
    store.recorder().record(Event(counter, 5))
    ((shard, records),) = store.records(counter, 1).items()
    clock = HandClock()
    rules = RankRules(store.connection.dynamo("none").metered(), store.counters, clock)
    materializer = Materializer(store.dynamo(), store.counters, KeptRecords(), clock, ranks=rules)

    with faults(rules.dynamo.client, at="GetItem", plan=[Fault(Kind.THROTTLE)]):
        failed = materializer.apply(records, shard)
    done = materializer.apply(records, shard)
    again = materializer.apply(records, shard)

    assert list(failed.failed) == [counter]
    assert (done.retry_from, again.duplicates) == (None, 1)
    assert [(one.counter, one.total) for one in rankings.top(namespace)] == [(counter, 5)]


def test_a_sweep_that_dies_is_ended_by_the_next(store: Store, counter: str) -> None:
    """Some totals have their place and some do not; switching on again gives it to the rest."""
    namespace = keys.namespace_of(counter)
    store.namespaces().create(namespace)
    names = [f"{counter}-{n}" for n in range(5)]
    for name in names:
        item = {"total": 1, "events": 1, "entries": 1, "version": 1}
        store.dynamo().put_batch(store.counters, [{**keys.total_key(name), **item}])
    dynamo = store.connection.dynamo("none").metered()
    rankings = Rankings(dynamo, store.counters, store.namespaces(), HandClock())

    plan = [None, None, *repeat(Fault(Kind.CRASH), 9)]
    with faults(dynamo.client, at="UpdateItem", plan=plan), suppress(Crash):
        rankings.switch_on(namespace)
    half = len(rankings.top(namespace))
    rest = rankings.switch_on(namespace)

    assert (half, rest) == (2, 3)
    assert [one.counter for one in rankings.top(namespace)] == names
