"""Strict counters on a table with multi-region strong consistency, which no local engine has.

The in-memory dynamo stands for such a table: it describes itself as one and takes no transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from countledger.ledger import keys
from countledger.ledger.errors import (
    AccessDenied,
    BadBounds,
    BadSetting,
    CounterExists,
    CountledgerError,
    NoSuchCounter,
    RequestRejected,
    ServiceFailed,
    TableNotFound,
    Throttled,
    Unclear,
    Unreachable,
    WrongRegion,
)
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.strict.context import MethodContext
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import Method, define
from countledger.producers.strict.known import ONE_REGION, KnownPlacement, Placement, placement_of
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, Withdrawn
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, afterwards

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

HOME, AWAY, FAR = "us-east-1", "us-east-2", "us-west-2"
TABLE, COUNTER = "counters", "n:c"
SINGLE = (Method.ATOMIC, Method.OCC, Method.HISTORY, Method.SET)


def _described(consistency: str | None, *regions: str) -> TableDescriptionTypeDef:
    said: dict[str, Any] = {"Replicas": [{"RegionName": region} for region in regions]}
    if consistency is not None:
        said["MultiRegionConsistency"] = consistency
    return cast("TableDescriptionTypeDef", said)


class Crash(Exception):
    """The process ends here; nothing of the product catches it."""


@dataclass
class World:
    """One table seen from several regions."""

    tables: dict[str, Any] = field(default_factory=dict)
    consistency: str | None = "STRONG"

    def seller(
        self, region: str = HOME, *, says: TableDescriptionTypeDef | Exception | None = None
    ) -> StrictCounters:
        others = [one for one in (HOME, AWAY, FAR) if one != region]
        description = _described(self.consistency, *others) if says is None else says
        dynamo = MemoryClient(tables=self.tables, description=description)
        random = Random(7)  # noqa: S311 - jitter
        context = MethodContext(dynamo, dynamo, TABLE, clock=ManualClock(), random=random)
        namespaces = Namespaces(dynamo, "ledger", region=region, home_region=HOME)
        return StrictCounters(context, namespaces, region, HOME)

    def parts(self) -> list[str]:
        """The sort keys in the table `counters`."""
        return [part for _, part in self.tables.get(TABLE, {})]


def _dynamo(seller: StrictCounters) -> MemoryClient:
    return cast("MemoryClient", seller.context.dynamo)


@pytest.fixture
def world() -> World:
    """A table with multi-region strong consistency."""
    return World()


# ---- the decision -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("description", "strong", "regions"),
    [
        (_described("STRONG", AWAY, FAR), True, {AWAY, FAR}),
        (_described("EVENTUAL", AWAY), False, {AWAY}),
        (_described(None, AWAY), False, {AWAY}),
        (cast("TableDescriptionTypeDef", {}), False, set()),
        (cast("TableDescriptionTypeDef", {"Replicas": [{}]}), False, set()),
    ],
)
def test_a_description_says_the_placement(
    description: TableDescriptionTypeDef, *, strong: bool, regions: set[str]
) -> None:
    assert placement_of(description) == Placement(strong, frozenset(regions))


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("bins", [1, 3])
def test_what_rests_on_transactions_is_refused_with_the_reason(method: Method, bins: int) -> None:
    """And only that; a table of one region takes everything."""
    spreadable = method in {Method.ATOMIC, Method.CRT, Method.MARKER}
    definition = define(COUNTER, "made", method, bins=bins if spreadable else 1)
    strong = Placement(strong=True, regions=frozenset({HOME, AWAY}))

    ONE_REGION.check_definition(definition)
    if method in SINGLE and definition.bins == 1:
        strong.check_definition(definition)
        return
    reason = "bins are" if definition.bins > 1 else f"method {method} is a transaction"
    with pytest.raises(BadSetting, match=f"{reason}.*: take atomic, occ, history or set"):
        strong.check_definition(definition)


@pytest.mark.parametrize(
    ("placement", "region", "allowed"),
    [
        (ONE_REGION, HOME, True),
        (ONE_REGION, AWAY, False),
        (Placement(strong=True, regions=frozenset({AWAY, FAR})), HOME, True),
        (Placement(strong=True, regions=frozenset({HOME, FAR})), AWAY, True),
        # A table of that name there, but not a replica of the one at home.
        (Placement(strong=True, regions=frozenset({FAR})), AWAY, False),
        # It copies itself without that consistency: a copy cannot keep a bound.
        (Placement(strong=False, regions=frozenset({HOME, FAR})), AWAY, False),
    ],
)
def test_the_description_decides_about_the_region(
    placement: Placement, region: str, *, allowed: bool
) -> None:
    """The home region always; another only as a replica of a strongly consistent table."""
    if allowed:
        placement.check_region(COUNTER, region, HOME)
        return
    with pytest.raises(WrongRegion, match=f"home region {HOME}.*this is {region}"):
        placement.check_region(COUNTER, region, HOME)


@pytest.mark.parametrize("refusal", [AccessDenied, TableNotFound, RequestRejected, ServiceFailed])
def test_a_table_that_may_not_be_described_is_of_one_region(
    world: World, refusal: type[CountledgerError]
) -> None:
    placed = KnownPlacement(world.seller(says=refusal("no")).context)

    assert [placed.get(), placed.get()] == [ONE_REGION, ONE_REGION]
    assert cast("MemoryClient", placed.context.dynamo).calls == ["describe"]
    with pytest.raises(WrongRegion):
        world.seller(AWAY, says=refusal("no")).change(COUNTER, 1)


@pytest.mark.parametrize("passing", [Throttled, Unclear, Unreachable])
def test_a_description_that_cannot_be_had_just_now_decides_nothing(
    world: World, passing: type[CountledgerError]
) -> None:
    """Neither this call nor a later one takes the table for something else."""
    seller = world.seller(says=passing("not now"))

    for _ in range(2):
        with pytest.raises(passing):
            seller.create(COUNTER, method="atomic")
    assert world.tables == {}


# ---- at work ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SINGLE)
def test_a_counter_works_from_every_region_of_the_table(world: World, method: Method) -> None:
    """Made here, changed there; one bound for all; nothing of it needs a transaction."""
    home, away = world.seller(), world.seller(AWAY)
    made = home.create(COUNTER, method=method, lower=0, upper=2)
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
    away.delete(COUNTER)
    with pytest.raises(NoSuchCounter):
        home.change(COUNTER, 1)
    assert world.parts() == []


@pytest.mark.parametrize("choice", [{"method": "crt"}, {"method": "marker"}, {"bins": 2}])
def test_a_refused_counter_leaves_nothing_behind(world: World, choice: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="multi-region strong consistency"):
        world.seller().create(COUNTER, **{"method": "atomic", **choice})

    assert world.tables == {}


def test_at_home_a_change_needs_no_description(world: World) -> None:
    """Creating asks once; changing, reading and listing never."""
    world.seller().create(COUNTER, method="atomic")
    home, away = world.seller(), world.seller(AWAY)
    for seller in (home, away):
        for _ in range(2):
            seller.change(COUNTER, 1)
            seller.show(COUNTER)
            list(seller.list("n"))

    assert _dynamo(home).calls.count("describe") == 0
    assert _dynamo(away).calls.count("describe") == 1


def test_a_crash_while_creating_or_deleting_leaves_an_entry_that_list_skips(world: World) -> None:
    """The entry is written first and deleted last, so a listed counter exists."""
    seller = world.seller()
    seller.namespaces.for_use(COUNTER, Kind.STRICT)
    _dynamo(seller).faults.extend([None, Fault(Crash())])

    with pytest.raises(Crash):
        seller.create(COUNTER, method="atomic")

    assert world.parts() == [COUNTER]
    assert list(seller.list("n")) == []
    with pytest.raises(NoSuchCounter):
        seller.change(COUNTER, 1)
    world.seller().create(COUNTER, method="occ", opening=4)
    assert [one.value for one in seller.list("n")] == [4]

    _dynamo(seller).faults.extend([None, Fault(Crash())])
    with pytest.raises(Crash):
        seller.delete(COUNTER)
    assert list(seller.list("n")) == []
    assert world.parts() == [COUNTER]


def test_deleting_leaves_the_entry_of_one_made_again_meanwhile(world: World) -> None:
    seller, other = world.seller(), world.seller(AWAY)
    seller.create(COUNTER, method="atomic")
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
    seller.namespaces.for_use(COUNTER, Kind.STRICT)
    faults = [None] * which + [fault]

    _dynamo(seller).faults.extend(faults)
    made = seller.create(COUNTER, method="atomic", opening=3)
    assert (made.value, [one.value for one in seller.list("n")]) == (3, [3])
    _dynamo(seller).faults.extend(faults)
    assert seller.set_bounds(COUNTER, upper=9).upper == 9
    _dynamo(seller).faults.clear()
    _dynamo(seller).faults.extend(faults)
    seller.delete(COUNTER)

    assert world.parts() == []


def test_a_name_that_is_taken_keeps_its_entry(world: World) -> None:
    """Who creates it again gets a clear error, and the directory still knows its incarnation."""
    seller = world.seller()
    seller.create(COUNTER, method="atomic")
    entry = dict(world.tables[TABLE][keys.STRICT_PREFIX + "n", COUNTER])

    with pytest.raises(CounterExists, match="of method atomic"):
        world.seller(AWAY).create(COUNTER, method="occ")

    assert world.tables[TABLE][keys.STRICT_PREFIX + "n", COUNTER] == entry


@pytest.mark.parametrize("method", SINGLE)
def test_a_conflict_between_regions_is_tried_again_and_counts_once(
    world: World, method: Method
) -> None:
    """The service refuses one of two writes at the same moment; nothing of it is in."""
    seller = world.seller()
    seller.create(COUNTER, method=method)
    _dynamo(seller).faults.extend([Fault(Throttled("ReplicatedWriteConflict"))] * 3)

    assert isinstance(seller.change(COUNTER, 1), Applied)
    assert seller.show(COUNTER).value == 1
