"""A name that is used again while its deletion goes on: nothing is lost, doubled or taken along."""

from contextlib import nullcontext

import pytest

from countledger.compaction.deletion import DeletionStage
from countledger.compaction.report import CompactionStep, Retire, RunOutcome, Verb
from countledger.ledger import keys
from countledger.ledger.entry import Entry
from countledger.ledger.errors import BadSetting, ServiceFailed
from countledger.ledger.exact import ExactReader
from countledger.ledger.ids import new_id
from countledger.ledger.limits import DAY_MS, HOUR_MS, LEASE_MS, MINUTE_MS
from countledger.producers.ingest.ingest import LateStatus, late_status
from tests.unit.compaction.world import COUNTER, DELTAS, World
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import afterwards

_SUM = sum(DELTAS)


def _reused(*, with_entries: bool = True) -> World:
    """A counter of old entries, whose name had another counter, of which an empty head is left."""
    world = World()
    if with_entries:
        world.use(*DELTAS)
    world.empty()
    world.age()
    return world


def test_the_head_of_the_counter_that_uses_the_name_again_is_not_forgotten() -> None:
    world = _reused()
    world.compact()

    world.forget()

    assert world.exact() == _SUM


@pytest.mark.parametrize(("hours", "again"), [(11, False), (13, True)])
def test_an_exact_read_that_took_half_a_day_starts_over(hours: int, *, again: bool) -> None:
    """From "no head" to the first one there may have been a whole deletion."""
    world = World()
    world.use(*DELTAS)
    world.dynamo.plans.append(afterwards(lambda: world.later(hours * HOUR_MS), "query"))

    found = ExactReader(connection_on(world.dynamo, world.clock)).read(COUNTER)

    assert (found.value, found.read_units) == (_SUM, 4.0 if again else 2.0)


@pytest.mark.parametrize("retire", list(Retire))
def test_a_strongly_consistent_table_is_merged_by_single_deletes_alone(retire: Retire) -> None:
    """It takes no transactions: a run by them is refused before it writes anything."""
    world = World()
    world.age()
    world.description["MultiRegionConsistency"] = "STRONG"

    report = world.compact(retire=retire)

    refused = retire is Retire.TRANSACTION
    assert report.outcome is (RunOutcome.FAILED if refused else RunOutcome.MERGED)
    assert isinstance(report.error, BadSetting) is refused
    assert (world.item(keys.head_key(COUNTER)) is None) is refused


@pytest.mark.parametrize("late", [False, True])
def test_a_deletion_that_stood_still_is_not_sent_under_an_old_time(*, late: bool) -> None:
    """Its empty head would be forgotten before a day is over."""
    # Its right to write would end long before.
    world = World(lease_ms=DAY_MS)
    world.use(*DELTAS)
    world.stack.total(COUNTER, updated_at=world.clock.at_ms)
    world.delete(DeletionStage.MARKED)
    assert world.compact().outcome is RunOutcome.MERGED
    world.before_write(lambda: world.later(HOUR_MS + late))

    if late:
        with pytest.raises(ServiceFailed, match="was suspended"):
            world.deleter().delete(COUNTER)
    deleted = world.deleter().delete(COUNTER)

    assert deleted.stage is DeletionStage.DELETED
    assert deleted.next_at_ms is not None
    assert deleted.next_at_ms - world.clock.at_ms >= DAY_MS - HOUR_MS


@pytest.mark.parametrize("late", [False, True])
def test_a_membership_leaves_soon_after_the_time_that_it_carries(*, late: bool) -> None:
    """Later it could pass for one of a counter that was deleted in between."""
    world = World()
    groups = world.groups()
    groups.add("group", [])
    world.before_write(lambda: world.later(MINUTE_MS + late))

    with pytest.raises(ServiceFailed, match="again") if late else nullcontext():
        groups.add("group", [COUNTER])

    assert [one.group for one in groups.memberships.of(COUNTER)] == ([] if late else ["group"])


def test_what_expired_is_not_said_to_be_uncounted_while_the_empty_head_is_there() -> None:
    """It may have been counted and deleted; what is younger than the mark was not."""
    world = World()
    world.use(*DELTAS)
    world.empty()
    head = world.head
    assert head.to_at_ms is not None
    entries = [
        Entry(counter=COUNTER, id=new_id(at_ms), delta=1, at_ms=at_ms, origin="r")
        for at_ms in (head.to_at_ms, head.to_at_ms + 1)
    ]

    found = [late_status(entry, None, head) for entry in entries]

    assert found == [LateStatus.UNKNOWN, LateStatus.UNCOUNTED]


@pytest.mark.parametrize(
    ("slept_ms", "outcome"), [(LEASE_MS - 1, RunOutcome.MERGED), (LEASE_MS, RunOutcome.WAITING)]
)
def test_a_run_that_slept_past_its_right_to_merge_publishes_nothing(
    slept_ms: int, outcome: RunOutcome
) -> None:
    """Another region may have joined and be home by then."""
    world = World()
    world.age()

    def at_publish(step: CompactionStep) -> None:
        if step.verb is Verb.PUBLISH:
            world.before_write(lambda: world.later(slept_ms))

    report = world.compactor().compact(COUNTER, on_step=at_publish)

    assert report.outcome is outcome
    assert (world.head.generation > 0) is (outcome is RunOutcome.MERGED)


@pytest.mark.parametrize("retire", Retire)
@pytest.mark.parametrize(("hours", "outcome"), [(11, RunOutcome.MERGED), (13, RunOutcome.FAILED)])
def test_a_run_that_slept_for_half_a_day_deletes_nothing(
    retire: Retire, hours: int, outcome: RunOutcome
) -> None:
    """By then an entry of the next counter may have that key: one that expired and was resent."""
    world = World(lease_ms=DAY_MS)
    world.age()

    def sleep() -> None:
        world.later(hours * HOUR_MS)

    def at_retire(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE and retire is Retire.DELETE:
            world.before_delete(world.entries()[0]["entry"], sleep)
        elif step.verb is Verb.RETIRE:
            world.before_write(sleep)

    report = world.compactor(retire=retire).compact(COUNTER, on_step=at_retire)

    assert report.outcome is outcome
    assert len(world.entries()) == (0 if outcome is RunOutcome.MERGED else len(DELTAS))
