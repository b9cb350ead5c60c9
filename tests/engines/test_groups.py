"""Groups on every engine: members by group and by counter, totals page by page, their top."""

from itertools import pairwise

import pytest

from countledger.consumers.groups import Group, Groups
from countledger.consumers.rankings import Rankings
from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.consumers.totals import Listing
from countledger.ledger import keys
from countledger.ledger.errors import (
    AlreadyRanked,
    NamespaceUnknown,
    NoSuchGroup,
)
from countledger.ledger.indexes import PARTITIONS
from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.ledger.namespace import Namespaces
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.faults.sellers import metered, seller_of


def _groups(store: Store) -> Groups:
    return Groups(store.process())


def _rankings(store: Store) -> Rankings:
    return Rankings(store.connection)


def _moved(store: Store, counter: str, sequence: int, delta: int) -> float:
    dynamo = store.dynamo()
    step = FoldedChange(sequence, sequence, delta, 1, 1)
    dynamo.update(update_of(store.counters, counter, step, "s", 0))
    return dynamo.meter.write_units


def _recorded(store: Store, namespace: str, count: int) -> list[str]:
    store.namespaces().create(namespace)
    names = [f"{namespace}:c{number:03d}" for number in range(count)]
    items = [
        {**keys.total_key(name), "total": n, "events": 1, "entries": 1, "version": 1}
        for n, name in enumerate(names)
    ]
    for start in range(0, count, BATCH_WRITE_ITEMS):
        assert (
            store.dynamo().put_batch(store.counters, items[start : start + BATCH_WRITE_ITEMS]) == []
        )
    return names


def test_a_counter_has_groups_and_a_group_has_counters(store: Store, namespace: str) -> None:
    """Both ways, by name; adding and removing again changes nothing and says so."""
    groups = _groups(store)
    one, two = f"{namespace}-1", f"{namespace}-2"
    a, b = f"{namespace}:a", f"{namespace}:b"

    assert groups.add(one, [b, a, a]) == [b, a]
    assert groups.add(one, [a]) == []
    assert groups.add(two, [a, "total"]) == [a, "total"]
    assert [total.counter for total in groups.show(one)] == [a, b]
    assert list(groups.of(a)) == [one, two]
    assert list(groups.of(b)) == [one]
    assert Group(one, ranked=False) in list(groups.list())

    assert groups.remove(one, [a, f"{namespace}:none"]) == [a]
    assert list(groups.of(a)) == [two]
    assert groups.delete(two) == 2
    assert list(groups.of(a)) == []
    assert two not in [group.name for group in groups.list()]
    with pytest.raises(NoSuchGroup, match=two):
        groups.show(two)


def test_a_group_shows_the_totals_of_all_its_counters_page_by_page(
    store: Store, namespace: str
) -> None:
    """More than a hundred, of any kind, those never recorded as zeros; and from any place on."""
    names = _recorded(store, namespace, 130)
    strict = f"s{namespace}:spread"
    seller_of(store).create(strict, method="atomic", opening=7, bins=3)
    groups = _groups(store)
    groups.add(namespace, [*names, strict, f"{namespace}:none"])

    shown = list(groups.show(namespace))

    assert [one.counter for one in shown] == [*names, f"{namespace}:none", strict]
    assert [one.value for one in shown] == [*range(130), 0, 7]
    assert next(groups.show(namespace, after=names[99])).counter == names[100]
    assert [one.value for one in groups.top(namespace, 3)] == [129, 128, 127]


def test_a_ranked_group_keeps_its_order_by_itself(store: Store, namespace: str) -> None:
    """Members that are there, added later, and never recorded; whatever moves them moves them."""
    names = _recorded(store, namespace, 4)
    late = f"{namespace}:late"
    groups = _groups(store)
    groups.add(namespace, names[:3])

    done: list[int] = []
    assert groups.switch_ranking(namespace, on=True, on_member=done.append) == 3
    assert done == [1, 2, 3]
    groups.add(namespace, [names[3], late])
    assert [one.counter for one in groups.top(namespace)] == [*names[:0:-1], names[0], late]
    assert store.totals().read(late).version == 0
    assert _rankings(store).switch_on(namespace, wait=False) == 4
    _moved(store, late, 1, 5)
    _moved(store, names[0], 2, 9)
    groups.remove(namespace, [names[3]])

    assert [(one.counter, one.value) for one in groups.top(namespace)] == [
        (names[0], 9),
        (late, 5),
        (names[2], 2),
        (names[1], 1),
    ]
    groups.switch_ranking(namespace, on=False)
    item = store.item(store.counters, keys.total_key(late)) or {}
    assert "ranked_group" not in item
    assert [one.value for one in groups.top(namespace, 1)] == [9]


def test_a_counter_is_ranked_in_one_group(store: Store, namespace: str) -> None:
    """A second one that would rank it is refused and left as it was; unranked ones are many."""
    names = _recorded(store, namespace, 2)
    groups = _groups(store)
    one, two = f"{namespace}-1", f"{namespace}-2"
    groups.add(one, names[:1])
    groups.switch_ranking(one, on=True)
    groups.add(two, names)

    with pytest.raises(AlreadyRanked, match=one):
        groups.switch_ranking(two, on=True)
    assert not groups.get(two).ranked
    groups.remove(two, names[:1])
    groups.switch_ranking(two, on=True)
    with pytest.raises(AlreadyRanked, match=names[0]):
        groups.add(two, names[:1])
    assert list(groups.of(names[0])) == [one]


def test_the_counters_of_a_namespace_are_listed(store: Store, namespace: str) -> None:
    """Strict ones by name, others as they are found; none of another namespace."""
    names = _recorded(store, namespace, 5)
    _recorded(store, f"{namespace}x", 1)
    seller = seller_of(store)
    for name in ("b", "a"):
        seller.create(f"s{namespace}:{name}", method="atomic", opening=5, bins=2)
    listing = Listing(store.process())

    assert sorted(one.counter for one in listing.counters(namespace)) == names
    found = [(one.counter, one.value) for one in listing.counters(f"s{namespace}")]
    assert found == [(f"s{namespace}:a", 5), (f"s{namespace}:b", 5)]
    with pytest.raises(NamespaceUnknown):
        listing.counters(f"u{namespace}")


def test_plain_names_are_listed_as_of_the_namespace_default(store: Store, namespace: str) -> None:
    if not any(one.name == "default" for one in store.namespaces().list()):
        store.namespaces().create("default")
    names = {f"plain-{namespace}", f"default:{namespace}"}
    for name in names:
        _moved(store, name, 1, 1)

    found = {one.counter for one in Listing(store.process()).counters("default")}

    assert names <= found
    assert all(keys.namespace_of(one) == "default" for one in found)


# ---- P9 ---------------------------------------------------------------------------------------


def test_p9_in_a_ranked_group_it_costs_two_units_more(store: Store, namespace: str) -> None:
    """To add and to remove, and for what moves the total; the plain neighbour costs one unit."""
    names = _recorded(store, namespace, 2)
    groups = _groups(store)
    dynamo = groups.connection.retrying
    Namespaces(groups.connection).get(namespace)
    groups.add(namespace, [])
    groups.switch_ranking(namespace, on=True)

    before = metered(dynamo)
    groups.add(namespace, names[:1])
    added = metered(dynamo)
    assert (added[0] - before[0], added[1] - before[1]) == (4, 1 + 3)
    assert _moved(store, names[0], 2, 5) == 3
    assert _moved(store, names[1], 2, 5) == 1
    _rankings(store).switch_on(namespace, wait=False)
    assert [_moved(store, name, 3, 5) for name in names] == [5, 3]
    groups.remove(namespace, names[:1])
    assert metered(dynamo)[0] - added[0] == 4
    assert _moved(store, names[0], 4, 5) == 3


def test_p9_a_member_that_was_just_removed_costs_a_unit_more(store: Store, namespace: str) -> None:
    """A removal costs what a deletion costs; the tombstone is named by a second request."""
    (name,) = _recorded(store, namespace, 1)
    groups = _groups(store)
    dynamo = groups.connection.retrying
    groups.add(namespace, [])

    written = [metered(dynamo)[0]]
    for call in (groups.add, groups.remove, groups.add, groups.remove):
        assert call(namespace, [name]) == [name]
        written.append(metered(dynamo)[0])

    assert [now - then for then, now in pairwise(written)] == [2, 2, 3, 2]
    assert list(groups.of(name)) == []
    assert list(groups.show(namespace)) == []


def test_p9_a_removal_without_a_place_costs_a_unit_more_if_the_group_was_ranked(
    store: Store, namespace: str
) -> None:
    """It refuses a placement that is under way; also of a counter that was never recorded."""
    (name,) = _recorded(store, namespace, 1)
    never = f"{namespace}:never"
    groups = _groups(store)
    dynamo = groups.connection.retrying
    Namespaces(groups.connection).get(namespace)
    groups.add(namespace, [])
    for on in (True, False):
        groups.switch_ranking(namespace, on=on)
    groups.add(namespace, [name, never])

    before = metered(dynamo)
    assert groups.remove(namespace, [name, never]) == [name, never]

    after = metered(dynamo)
    assert (after[0] - before[0], after[1] - before[1]) == (2 * 3, 1 + 2 * 3)
    assert store.totals().read(never).version == 0
    groups.add(namespace, [name])
    before = metered(dynamo)
    groups.switch_ranking(namespace, on=False)
    after = metered(dynamo)
    assert (after[0] - before[0]) == 1 + 1
    groups.add(namespace, [name, never])
    groups.switch_ranking(namespace, on=True)
    assert [one.counter for one in groups.top(namespace)] == [name, never]


def test_p9_what_the_deletion_of_a_group_costs(store: Store, namespace: str) -> None:
    """One read unit more if it was never ranked: another call may just have switched that on."""
    names = _recorded(store, namespace, 3)
    groups = _groups(store)
    dynamo = groups.connection.retrying
    costs: dict[tuple[bool, ...], tuple[float, float]] = {}

    for switches in ((), (True,), (True, False)):
        groups.add(namespace, names)
        for on in switches:
            groups.switch_ranking(namespace, on=on)
        written, read = metered(dynamo)
        assert groups.delete(namespace) == 3
        after = metered(dynamo)
        costs[switches] = after[0] - written, after[1] - read

    strays = PARTITIONS * 0.5
    assert costs == {
        (): (1 + 3 * 2, 5 + strays + 3 * 1),
        (True,): (1 + 3 * 4, 4 + strays + 3 * 2),
        (True, False): (1 + 3 * 3, 4 + strays + 3 * 2),
    }


def test_p9_the_totals_of_a_group_cost_half_a_unit_each(store: Store, namespace: str) -> None:
    """And the memberships by their size; of a ranked group the top costs the same for any size."""
    names = _recorded(store, namespace, 20)
    groups = _groups(store)
    dynamo = groups.connection.retrying
    groups.add(namespace, names)
    blind = store.engine.has(Difference.NO_UNITS_FOR_BATCH_GET)

    before = metered(dynamo)[1]
    list(groups.show(namespace))
    shown = metered(dynamo)[1]
    assert shown - before == 1 + 0.5 + (0 if blind else 20 * 0.5)

    groups.switch_ranking(namespace, on=True)
    before = metered(dynamo)[1]
    groups.top(namespace, 3)
    assert metered(dynamo)[1] - before == 1 + PARTITIONS * 0.5
