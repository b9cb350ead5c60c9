"""A name that is used again is another counter: no call and no clean-up confuses the two."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from countledger.consumers.leftovers import Leftovers
from countledger.infra.memory.tables import COUNTERS, MemoryClock
from countledger.ledger import keys
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import CounterExists, IdempotencyKeyReused, NoSuchCounter, Unclear
from countledger.ledger.limits import MINUTE_MS, TOKEN_LIFE_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Put
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.outcome import Applied, Duplicate
from countledger.testing import MemoryStack

COUNTER = "s:hall"
_AT = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Process:
    """A process with strict counters of its own knowledge, over shared tables.

    Attributes:
        late_ms: by how much its clock is late.
    """

    stack: MemoryStack = field(default_factory=lambda: MemoryStack(at=_AT))
    late_ms: int = 0

    def __post_init__(self) -> None:
        clock = self.stack.clock
        if self.late_ms:
            clock = MemoryClock(clock.now - timedelta(milliseconds=self.late_ms))
        to = self.stack.ledger.connection
        connection = replace(to, clock=clock, meter=Meter(), _shared={})
        self.namespaces = Namespaces(connection)
        self.strict = StrictCounters(connection)

    def make(self, **more: Any) -> None:  # noqa: ANN401 - of the method
        self.strict.create(COUNTER, **{"method": "marker", "lower": 0, "opening": 10, **more})

    def tidy(self, bins: int = 1) -> None:
        """As a deletion does once the counter is gone."""
        Leftovers(self.strict.connection).delete_markers(COUNTER, bins)

    @property
    def markers(self) -> list[str]:
        """The keys of all markers that are stored."""
        found = (item["part"] for item in self.stack.items(COUNTERS))
        return [part for part in found if part.startswith(keys.MARKER_PREFIX)]

    @property
    def value(self) -> object:
        """Of the counter as it is."""
        return self.strict.show(COUNTER).value


@pytest.fixture
def deleter() -> Process:
    """A process, whose namespace is made."""
    process = Process()
    process.namespaces.create("s", kind=Kind.STRICT)
    return process


def _other(deleter: Process, *, late_ms: int = 0) -> Process:
    return Process(deleter.stack, late_ms)


@pytest.mark.parametrize("shape", [{}, {"bins": 3}], ids=["one item", "bins"])
def test_cleaning_up_takes_no_marker_of_the_counter_that_has_the_name_now(
    deleter: Process, shape: dict[str, int]
) -> None:
    """Although the clock of its writer is 40 seconds late: the same key is not applied twice."""
    deleter.make(**shape)
    deleter.strict.change(COUNTER, -1, key="old")
    deleter.strict.delete(COUNTER)
    late = _other(deleter, late_ms=40_000)
    late.make(**shape)
    late.strict.change(COUNTER, -2, key="order-1")

    deleter.tidy(shape.get("bins", 1))

    assert isinstance(late.strict.change(COUNTER, -2, key="order-1"), Duplicate)
    assert late.value == 8
    assert len(late.markers) == 1


def test_cleaning_up_takes_all_markers_of_a_counter_that_is_gone(deleter: Process) -> None:
    for key in ("first", "second"):
        deleter.make()
        deleter.strict.change(COUNTER, -1, key=key)
        deleter.strict.withdraw(COUNTER, f"{key} given up")
        deleter.strict.delete(COUNTER)
    assert len(deleter.markers) == 4

    deleter.tidy()

    assert deleter.markers == []


def test_a_deletion_is_about_the_counter_that_has_the_name_as_it_begins(deleter: Process) -> None:
    other = _other(deleter)
    deleter.make()
    other.strict.delete(COUNTER)
    other.make(opening=3)

    deleter.strict.delete(COUNTER)

    with pytest.raises(NoSuchCounter):
        other.strict.show(COUNTER)
    with pytest.raises(NoSuchCounter):
        deleter.strict.delete(COUNTER)


def _is_suspended(process: Process, happens: Callable[[], object]) -> None:
    """The first answer is lost; then the process sleeps until its token is forgotten."""

    def sleep() -> None:
        happens()
        process.stack.clock.sleep_ms(TOKEN_LIFE_MS + MINUTE_MS)

    process.stack.lose_next_answer()
    process.stack.before_next_request(sleep)


def test_a_creation_that_was_suspended_makes_no_second_counter_of_the_same_id(
    deleter: Process,
) -> None:
    """It was made, deleted by somebody else, and would come back under the id that it had."""
    other = _other(deleter)
    _is_suspended(deleter, lambda: other.strict.delete(COUNTER))

    with pytest.raises(Unclear, match=COUNTER):
        deleter.make()

    with pytest.raises(NoSuchCounter):
        other.strict.show(COUNTER)


def test_a_name_that_is_taken_is_refused_with_the_method_that_it_has(deleter: Process) -> None:
    deleter.make()

    with pytest.raises(CounterExists, match=r"exists, of method (?!None)"):
        _other(deleter).make()


def test_bounds_of_a_suspended_process_are_not_moved_a_second_time(deleter: Process) -> None:
    """They were moved, and moved back by somebody else since."""
    other = _other(deleter)
    deleter.make(upper=10)
    _is_suspended(deleter, lambda: other.strict.set_bounds(COUNTER, upper=10))

    with pytest.raises(Unclear, match=COUNTER):
        deleter.strict.set_bounds(COUNTER, upper=20)

    assert other.strict.show(COUNTER).upper == 10


OTHER = "s:shelf"


@pytest.fixture
def pair(deleter: Process) -> Process:
    """Both counters of a joint change."""
    deleter.make()
    deleter.strict.create(OTHER, method="atomic", lower=0, opening=10)
    return deleter


def _recreated(pair: Process, name: str) -> Process:
    """Another process, which has deleted a counter and created it again."""
    other = _other(pair)
    other.strict.delete(name)
    other.strict.create(name, method="marker", lower=0, opening=10)
    return other


def _repeat(process: Process) -> Callable[[], object]:
    return lambda: process.strict.transactions.change({COUNTER: -1, OTHER: 1}, key="order-1")


@pytest.mark.parametrize("warm", [True, False], ids=["knows the old one", "knows the new one"])
@pytest.mark.parametrize("again", [COUNTER, OTHER])
def test_a_joint_change_is_no_duplicate_for_a_counter_that_was_made_again(
    pair: Process,
    again: str,
    warm: bool,  # noqa: FBT001 - of the case
) -> None:
    """It is in the one and not in the other: neither all of it nor nothing can be said to be in."""
    change = _repeat(pair)
    assert isinstance(change(), Applied)
    assert isinstance(change(), Duplicate)
    other = _recreated(pair, again)
    repeated = change if warm else _repeat(other)

    with pytest.raises(IdempotencyKeyReused, match="recreated"):
        repeated()
    with pytest.raises(IdempotencyKeyReused, match="recreated"):
        other.strict.transactions.withdraw("order-1")

    values = {name: other.strict.show(name).value for name in (COUNTER, OTHER)}
    assert values == {COUNTER: 9, OTHER: 11} | {again: 10}


def test_a_total_without_incarnation_is_not_a_counter_of_a_joint_change(pair: Process) -> None:
    """An item that somebody has written by hand in its place."""
    assert isinstance(_repeat(pair)(), Applied)
    pair.strict.delete(OTHER)
    pair.strict.connection.retrying.put(
        Put(COUNTERS, {**keys.total_key(OTHER), "total": 0, "version": 1})
    )

    with pytest.raises(IdempotencyKeyReused, match="recreated"):
        pair.strict.transactions.withdraw("order-1")


def test_a_joint_change_is_a_duplicate_for_a_process_that_knew_an_older_counter(
    pair: Process,
) -> None:
    """What it knows is old; the change is in the counters as they are."""
    other = _recreated(pair, OTHER)
    assert isinstance(_repeat(other)(), Applied)

    assert isinstance(_repeat(pair)(), Duplicate)
    assert isinstance(pair.strict.transactions.withdraw("order-1"), Duplicate)


def test_a_value_that_was_set_is_not_set_for_a_counter_that_was_made_again(pair: Process) -> None:
    assert isinstance(pair.strict.transactions.set_value(OTHER, 3, key="count-1"), Applied)
    assert isinstance(pair.strict.transactions.set_value(OTHER, 3, key="count-1"), Duplicate)
    other = _recreated(pair, OTHER)

    with pytest.raises(IdempotencyKeyReused, match="recreated"):
        pair.strict.transactions.set_value(OTHER, 3, key="count-1")

    assert other.strict.show(OTHER).value == 10
