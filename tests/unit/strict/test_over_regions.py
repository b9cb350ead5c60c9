"""Strict counters over regions, on a table with multi-region strong consistency.

No local engine has such a table. The in-memory dynamo stands for it: its clients share one copy,
as all regions show the latest version, and the table is never asked for a transaction.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from countledger.ledger import keys
from countledger.ledger.errors import (
    BadBounds,
    BadSetting,
    ConditionFailed,
    CounterExists,
    NamespaceUnknown,
    NoSuchCounter,
    Refused,
    StackNotFound,
    Throttled,
    Unclear,
    WrongKind,
    WrongRegion,
)
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, MINUTE_MS, SIGNED_REQUEST_LIFE_MS
from countledger.ledger.namespace import Kind
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, Withdrawn
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, afterwards, held_back

HOME, AWAY, FAR = "us-east-1", "us-east-2", "us-west-2"
TABLE, COUNTER = "strict", "n:c"
SINGLE = (Method.ATOMIC, Method.OCC, Method.HISTORY, Method.SET)
# A request of a creation leaves within a minute, and can be applied for a quarter of an hour.
TOO_YOUNG_MS = MINUTE_MS + SIGNED_REQUEST_LIFE_MS + CLOCK_SKEW_DEFAULT_MS


class Crash(Exception):
    """The process ends here; nothing of the product catches it."""


@dataclass
class World:
    """The tables seen from several regions; the namespaces are replicated already."""

    tables: dict[str, Any] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)

    def seller(self, region: str = HOME, strict_table: str | None = TABLE) -> StrictCounters:
        dynamo = MemoryClient(tables=self.tables)
        return StrictCounters(
            connection_on(
                dynamo, self.clock, region=region, home_region=HOME, strict_table=strict_table
            )
        )

    def create(self, counter: str = COUNTER, **choices: Any) -> None:  # noqa: ANN401 - of create
        """A counter that is old enough to be deleted."""
        self.seller().create(counter, **{"method": "atomic", "regions": True, **choices})
        self.clock.sleep_ms(TOO_YOUNG_MS + 1)

    def parts(self) -> list[str]:
        """The sort keys in the table `strict`."""
        return [part for _, part in self.tables.get(TABLE, {})]


def _dynamo(seller: StrictCounters) -> MemoryClient:
    return cast("MemoryClient", seller.connection.unretried)


@pytest.fixture
def world() -> World:
    """A table with multi-region strong consistency."""
    return World()


# ---- which table ------------------------------------------------------------------------------


def test_the_kind_of_a_namespace_decides_about_the_table(world: World) -> None:
    """Once and for all: later counters of the namespace need not name it."""
    seller = world.seller()
    seller.create(COUNTER, method="atomic", regions=True)
    seller.create("n:d", method="occ")
    seller.create("m:c", method="atomic")

    assert {key[0] for key in world.tables[TABLE]} == {"strict#n", "n:c", "n:d"}
    assert {key[0] for key in world.tables["counters"]} == {"strict#m", "m:c"}
    with pytest.raises(WrongKind, match="of kind strict;"):
        seller.create("m:d", method="atomic", regions=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda away: away.create("m:d", method="atomic"),
        lambda away: away.change("m:c", 1),
        lambda away: away.show("m:c"),
        lambda away: away.list("m"),
        lambda away: away.delete("m:c"),
        lambda away: away.transactions.transfer("m:c", "m:d", 1, key="k"),
        lambda away: away.transactions.withdraw("k"),
    ],
)
def test_what_is_not_over_regions_works_at_home_only(
    world: World, use: Callable[[StrictCounters], object]
) -> None:
    world.seller().create("m:c", method="atomic")

    with pytest.raises(WrongRegion, match=f"home region {HOME}.*this is {AWAY}"):
        use(world.seller(AWAY))


def test_a_namespace_is_created_in_the_home_region(world: World) -> None:
    with pytest.raises(NamespaceUnknown, match=HOME):
        world.seller(AWAY).create(COUNTER, method="atomic", regions=True)
    assert TABLE not in world.tables


def test_a_stack_without_the_table_gets_no_such_namespace(world: World) -> None:
    without = world.seller(strict_table=None)

    with pytest.raises(StackNotFound, match="COUNTLEDGER_STRICT_TABLE"):
        without.create(COUNTER, method="atomic", regions=True)
    assert world.tables == {}


@pytest.mark.parametrize(
    "use",
    [
        lambda seller: seller.transactions.transfer("n:c", "m:c", 1, key="k"),
        lambda seller: seller.transactions.change({"m:c": 1, "n:c": -1}, key="k"),
        lambda seller: seller.transactions.set_value("n:c", 5, key="k"),
    ],
)
def test_what_needs_a_transaction_is_refused_with_what_to_do(
    world: World, use: Callable[[StrictCounters], object]
) -> None:
    seller = world.seller()
    seller.create("n:c", method="atomic", regions=True)
    seller.create("m:c", method="atomic")

    with pytest.raises(BadSetting, match="no transactions: change each alone"):
        use(seller)


# ---- at work ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SINGLE)
def test_a_counter_works_from_every_region_of_the_table(world: World, method: Method) -> None:
    """Made here, changed there; one bound for all; nothing of it needs a transaction."""
    home, away = world.seller(), world.seller(AWAY)
    made = home.create(COUNTER, method=method, lower=0, upper=2, regions=True)
    key = None if method is Method.ATOMIC else "order-1"

    assert (made.value, made.upper) == (0, 2)
    assert isinstance(away.change(COUNTER, 1, key=key), Applied)
    if key is not None:
        assert isinstance(home.change(COUNTER, 1, key=key), Duplicate)
    assert isinstance(home.change(COUNTER, 1), Applied)
    assert away.change(COUNTER, 1) == BoundReached(COUNTER, 2, "upper", 2, 1)
    assert away.set_bounds(COUNTER, upper=3).upper == 3
    with pytest.raises(BadBounds, match="--force"):
        home.set_bounds(COUNTER, upper=1)
    assert isinstance(home.change(COUNTER, 1), Applied)
    assert [one.value for one in away.list("n")] == [3]
    if method is Method.SET:
        assert isinstance(away.withdraw(COUNTER, "order-2"), Withdrawn)
    world.clock.sleep_ms(TOO_YOUNG_MS + 1)
    away.delete(COUNTER)
    with pytest.raises(NoSuchCounter):
        home.change(COUNTER, 1)
    assert world.parts() == []


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"method": "request_token"}, "method request_token is a transaction"),
        ({"method": "marker"}, "method marker is a transaction"),
        ({"bins": 2}, "bins are"),
    ],
)
def test_a_refused_counter_leaves_nothing_behind(
    world: World, choice: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadSetting, match=f"{why}.*: take atomic, occ, history or set"):
        world.create(**choice)

    assert world.tables == {}
    # A namespace that exists refuses it as well, for every caller.
    world.create()
    with pytest.raises(BadSetting, match=why):
        world.seller().create("n:d", **{"method": "atomic", **choice})


def test_a_crash_while_creating_or_deleting_leaves_an_entry_that_list_skips(world: World) -> None:
    """The entry is written first and deleted last, so a listed counter exists."""
    seller = world.seller()
    seller.tables.namespaces.for_use(COUNTER, Kind.STRICT_REGIONS)
    _dynamo(seller).faults.extend([None, Fault(Crash())])

    with pytest.raises(Crash):
        seller.create(COUNTER, method="atomic")

    assert world.parts() == [COUNTER]
    assert list(seller.list("n")) == []
    with pytest.raises(NoSuchCounter):
        seller.change(COUNTER, 1)
    world.create(method="occ", opening=4)
    assert [one.value for one in seller.list("n")] == [4]

    _dynamo(seller).faults.extend([None, Fault(Crash())])
    with pytest.raises(Crash):
        seller.delete(COUNTER)
    assert list(seller.list("n")) == []
    assert world.parts() == [COUNTER]


def test_a_late_request_of_a_creation_creates_no_deleted_counter(world: World) -> None:
    """So a counter is not deleted before the request has expired."""
    seller = world.seller()
    seller.create(COUNTER, method="atomic", regions=True)
    with pytest.raises(Refused, match=r"created less than 17 min ago.*Delete it in 17 min 1 s"):
        seller.delete(COUNTER)

    world.clock.sleep_ms(TOO_YOUNG_MS)
    with pytest.raises(Refused):
        seller.delete(COUNTER)
    world.clock.sleep_ms(1)
    seller.delete(COUNTER)


def test_a_creation_is_not_sent_again_after_a_minute(world: World) -> None:
    """The process stood still: its request could be applied after a deletion."""
    seller = world.seller()
    seller.tables.namespaces.for_use(COUNTER, Kind.STRICT_REGIONS)
    frozen = afterwards(lambda: world.clock.sleep_ms(MINUTE_MS + 1), "put")
    _dynamo(seller).plans.append(frozen)

    with pytest.raises(Throttled, match="nothing was written"):
        seller.create(COUNTER, method="atomic")
    assert world.parts() == [COUNTER]


def test_a_late_move_of_a_bound_moves_nothing_back(world: World) -> None:
    """Its request is conditional on the move before, and other moves came since."""
    world.create(upper=10)
    seller = world.seller()
    late: list[Callable[[], object]] = []

    _dynamo(seller).plans.append(held_back(late, "update"))
    seller.set_bounds(COUNTER, upper=20)
    seller.set_bounds(COUNTER, upper=10)

    with pytest.raises(ConditionFailed):
        late[0]()
    assert seller.show(COUNTER).upper == 10


def test_deleting_leaves_the_entry_of_one_made_again_meanwhile(world: World) -> None:
    seller, other = world.seller(), world.seller(AWAY)
    world.create()
    main = keys.total_key(COUNTER)

    again = afterwards(
        lambda: other.create(COUNTER, method="atomic", opening=5),
        "delete",
        where=lambda write: write.key == main,
    )
    _dynamo(seller).plans.append(again)
    seller.delete(COUNTER)

    assert [one.value for one in other.list("n")] == [5]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Unclear("lost")),
        Fault(Unclear("lost"), applied=True),
        Fault(Throttled("ReplicatedWriteConflict")),
    ],
    ids=["lost request", "lost answer", "conflict"],
)
@pytest.mark.parametrize("which", [0, 1])
def test_creating_and_deleting_survive_a_lost_answer(
    world: World, which: int, fault: Fault
) -> None:
    """Whichever of the two writes it was; the next try finds its own work."""
    seller = world.seller()
    seller.tables.namespaces.for_use(COUNTER, Kind.STRICT_REGIONS)
    faults = [None] * which + [fault]

    _dynamo(seller).faults.extend(faults)
    made = seller.create(COUNTER, method="atomic", opening=3)
    assert (made.value, [one.value for one in seller.list("n")]) == (3, [3])
    _dynamo(seller).faults.extend(faults)
    assert seller.set_bounds(COUNTER, upper=9).upper == 9
    world.clock.sleep_ms(TOO_YOUNG_MS + 1)
    _dynamo(seller).faults.clear()
    _dynamo(seller).faults.extend(faults)
    seller.delete(COUNTER)

    assert world.parts() == []


def test_a_name_that_is_taken_keeps_its_entry(world: World) -> None:
    """Who creates it again gets a clear error, and the directory still knows its incarnation."""
    world.create()
    entry = dict(world.tables[TABLE][keys.STRICT_PREFIX + "n", COUNTER])

    with pytest.raises(CounterExists, match="of method atomic"):
        world.seller(AWAY).create(COUNTER, method="occ")

    assert world.tables[TABLE][keys.STRICT_PREFIX + "n", COUNTER] == entry


@pytest.mark.parametrize("method", SINGLE)
def test_a_conflict_between_regions_is_tried_again_and_counts_once(
    world: World, method: Method
) -> None:
    """The service refuses one of two writes at the same moment; nothing of it is in."""
    world.create(method=method)
    seller = world.seller()
    _dynamo(seller).faults.extend([Fault(Throttled("ReplicatedWriteConflict"))] * 3)

    assert isinstance(seller.change(COUNTER, 1), Applied)
    assert seller.show(COUNTER).value == 1
