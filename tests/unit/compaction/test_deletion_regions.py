"""A counter is deleted in all regions of its ledger, whichever of them does it and is lost."""

import pytest

from countledger.compaction.deletion import (
    Deletion,
    DeletionMark,
    DeletionStage,
    empty_head,
)
from countledger.compaction.lease import Epoch, epoch_of
from countledger.compaction.salvage import LedgerCopy, Salvage, SalvageReport
from countledger.ledger import keys
from countledger.ledger.errors import ServiceFailed
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.limits import HOUR_MS, STREAM_RECORD_MAX_AGE_MS
from countledger.ledger.operations import Delete, Put
from countledger.ledger.tombstones import tombstone
from tests.unit.compaction.parts import HOME, LEDGER, Stack
from tests.unit.compaction.world import COUNTER, World
from tests.unit.ledger.memory import MemoryClient

_OTHER = "b"


def _two_regions(*, apart: bool = False) -> World:
    """A counter in two regions; they have one copy, or each its own."""
    world = World()
    world.record()
    _join(world)
    if apart:
        world.copies[_OTHER] = MemoryClient(description=world.dynamo.description)
    return world


def _join(world: World) -> None:
    world.description["Replicas"] = [{"RegionName": _OTHER, "ReplicaStatus": "ACTIVE"}]


def _arrive(world: World, *sort_keys: str) -> None:
    """What the home's copy shows arrives in the other one, or some of it."""
    there = world.copies[_OTHER]
    shown = {item["entry"]: item for item in world.dynamo.items(LEDGER)}
    for item in there.items(LEDGER):
        if not sort_keys and item["entry"] not in shown:
            there.delete(Delete(LEDGER, {name: item[name] for name in ("counter", "entry")}))
    for sort_key, item in shown.items():
        if not sort_keys or sort_key in sort_keys:
            there.put(Put(LEDGER, item))


def _delete(world: World) -> Deletion:
    return world.deleter().delete(COUNTER)


def _mark(world: World) -> DeletionMark:
    mark = world.deleter().mark(COUNTER)
    assert mark is not None
    return mark


def test_the_total_of_each_other_region_goes_after_that_of_the_home() -> None:
    world = _two_regions()

    world.delete(DeletionStage.MARKED, DeletionStage.DELETED)

    assert world.cleared == [(_OTHER, COUNTER)]
    assert (_mark(world).region, world.total) == (HOME, None)
    world.delete(DeletionStage.FORGOTTEN)
    assert world.item(keys.deletion_key(COUNTER)) is None


def test_nothing_goes_before_it_is_proven_in_every_region() -> None:
    world = _two_regions()
    world.delete(DeletionStage.MARKED)
    world.unproven_in = {_OTHER: "it drifts"}

    found = _delete(world)

    assert (found.stage, found.detail) == (DeletionStage.SKIPPED, f"in {_OTHER}: it drifts")
    assert world.total is not None


def test_a_deletion_waits_until_no_region_s_stream_delivers_a_record_again() -> None:
    """A region that was cut off may have counted the last entry long after the home did."""
    world = _two_regions()
    world.delete(DeletionStage.MARKED)
    changed_ms = world.clock.at_ms - HOUR_MS
    world.totals_in[_OTHER] = {**keys.total_key(COUNTER), "updated_at": changed_ms}

    found = _delete(world)

    assert found.stage is DeletionStage.WAITING
    assert found.next_at_ms is not None
    assert found.next_at_ms > changed_ms + STREAM_RECORD_MAX_AGE_MS
    assert world.total is not None


def test_an_entry_that_only_another_region_shows_stops_a_deletion() -> None:
    world = _about_to_be_deleted()
    world.use(1)
    _arrive(world)
    for item in world.entries():
        world.dynamo.delete(Delete(LEDGER, {name: item[name] for name in ("counter", "entry")}))

    assert _step(world).stage is DeletionStage.IN_USE
    assert world.total is not None


def _step(world: World) -> Deletion:
    """A call, in which what the home writes about its lease arrives at once."""
    for _ in range(3):
        found = _delete(world)
        _arrive(world, keys.LEASE)
        if "lease" not in found.detail:
            break
    return found


def _compacted(world: World) -> None:
    """All is merged in both regions."""
    for _ in range(20):
        world.compact()
        _arrive(world)
        if world.head.generation and not world.head.covers:
            return
    raise AssertionError(world.head)


def _about_to_be_deleted() -> World:
    """Marked in both regions long ago, and all is merged."""
    world = _two_regions(apart=True)
    _arrive(world)
    _step(world)
    _arrive(world)
    world.later()
    _compacted(world)
    return world


def _deleted_at_home(*arrived: str) -> World:
    """The numbers are deleted at home, and only some of that has arrived in the other region."""
    world = _about_to_be_deleted()
    found = _step(world)
    assert (found.stage, world.total) == (DeletionStage.SKIPPED, None), found
    assert "the empty head has not arrived in b" in found.detail
    assert world.cleared == []
    if arrived:
        _arrive(world, *arrived)
    return world


def test_a_region_that_shows_the_tombstone_of_an_earlier_mark_has_not_the_mark_yet() -> None:
    world = _about_to_be_deleted()
    there = world.copies[_OTHER]
    gone = tombstone(keys.deletion_key(COUNTER), _mark(world).id, world.clock.at_ms, 0)
    there.put(Put(LEDGER, gone))

    waiting = _delete(world)
    _arrive(world)
    _step(world)
    _arrive(world)
    done = _step(world)

    assert (waiting.stage, waiting.detail) == (
        DeletionStage.SKIPPED,
        "the mark has not arrived in b",
    )
    assert done.stage is DeletionStage.DELETED


def test_a_total_stays_until_its_region_shows_the_empty_head() -> None:
    """Else a repair there would make it again from entries that the region still shows."""
    world = _deleted_at_home()

    waiting = _step(world)
    _arrive(world)
    done = _step(world)

    assert (waiting.stage, done.stage) == (DeletionStage.SKIPPED, DeletionStage.DELETED)
    assert world.cleared == [(_OTHER, COUNTER)]


@pytest.mark.parametrize("missing", [keys.HEAD, COUNTER], ids=["head", "mark"])
def test_head_and_mark_are_everywhere_before_the_numbers_go(missing: str) -> None:
    """A region that becomes home must find both."""
    world = _about_to_be_deleted()
    there = world.copies[_OTHER]
    key = keys.deletion_key(COUNTER) if missing == COUNTER else keys.head_key(COUNTER)
    item = there.get(LEDGER, key)
    assert item is not None
    there.put(Put(LEDGER, item | ({"at": 1} if missing == COUNTER else {"run": "another"})))

    found = _step(world)

    assert found.stage is DeletionStage.SKIPPED
    assert world.total is not None


def test_an_empty_head_without_its_note_is_noted_again() -> None:
    """The totals that nobody has deleted yet go: here that is the one of the new home."""
    world = _deleted_at_home(keys.HEAD)
    _promoted_alone(world)

    assert _delete(world).stage is DeletionStage.DELETED
    assert world.cleared == [(HOME, COUNTER)]
    assert (_mark(world).region, _mark(world).tidied) == ("", True)


def test_a_note_without_the_empty_head_is_taken_back() -> None:
    """Nothing was deleted here; the deletion begins again where it was."""
    world = _deleted_at_home(COUNTER)
    _promoted_alone(world)
    assert world.head.generation

    assert _delete(world).stage is DeletionStage.DELETED
    assert world.cleared == []
    assert (_mark(world).region, world.total) == (HOME, None)


def _promoted_alone(world: World) -> None:
    """The home is lost, and this process runs in the other region, which is home and alone."""
    lost, world.dynamo = world.dynamo, world.copies.pop(_OTHER)
    world.stack = Stack(dynamo=world.dynamo, clock=world.clock)
    world.namespaces = world.stack.namespaces
    del world.description["Replicas"]
    settings = lost.get(LEDGER, keys.namespace_key("likes"))
    assert settings is not None
    world.dynamo.put(Put(LEDGER, settings))
    world.stack.total(COUNTER, updated_at=1)
    epoch = Epoch(number=1, home=HOME, id="promoted")
    world.dynamo.put(epoch_of(LEDGER, epoch, None))
    world.later(HOUR_MS)  # the lease of the lost home is over


def test_what_is_not_home_begins_and_cancels_nothing() -> None:
    world = _two_regions()
    world.delete(DeletionStage.MARKED)
    mark = _mark(world)
    world.dynamo.put(epoch_of(LEDGER, Epoch(number=1, home=_OTHER, id="promoted"), None))

    assert _delete(world).stage is DeletionStage.SKIPPED
    with pytest.raises(ServiceFailed, match="the home region is b"):
        world.deleter().cancel(COUNTER)
    assert _mark(world) == mark


def test_a_write_of_a_deletion_leaves_only_under_the_lease() -> None:
    """A process that was suspended before it sent the mark may be home no more."""
    world = _two_regions()
    world.before_write(lambda: None)  # the lease
    world.before_write(world.later)  # the mark

    assert _delete(world).stage is DeletionStage.SKIPPED
    assert world.item(keys.deletion_key(COUNTER)) is None


def test_a_salvage_takes_over_an_empty_head_that_arrived_elsewhere() -> None:
    """Else the two regions would show different heads for ever, and nothing would be merged."""
    world = World()
    here, there = world.dynamo, MemoryClient()
    before = Head(generation=3, run="run", incarnation="first", sum=5, entries=1, to_at_ms=1)
    here.put(Put(LEDGER, encode_head(COUNTER, before)))
    mark = _mark_of_a_deletion()
    empty = encode_head(COUNTER, empty_head(mark, 4))
    there.put(Put(LEDGER, empty))

    report = _salvage(world, there).run(SalvageReport())

    assert (report.heads, world.head.run) == (1, mark.id)


def test_a_salvage_that_was_suspended_takes_over_no_head_of_a_deleted_counter() -> None:
    """There was no head when it looked, and there is none days later: the name was forgotten."""
    world, there = World(), MemoryClient()
    first = Head(generation=1, run="run", incarnation="run", sum=5, entries=1, to_at_ms=1)
    there.put(Put(LEDGER, encode_head(COUNTER, first)))
    world.before_write(world.later)

    with pytest.raises(ServiceFailed, match="suspended"):
        _salvage(world, there).run(SalvageReport())

    assert world.item(keys.head_key(COUNTER)) is None


def _salvage(world: World, there: MemoryClient) -> Salvage:
    return Salvage(
        connection=world.process(),
        source=LedgerCopy(dynamo=there, table=LEDGER),
        target=LedgerCopy(dynamo=world.dynamo, table=LEDGER),
        held=lambda: True,
        in_service=True,
    )


def _mark_of_a_deletion() -> DeletionMark:
    world = World()
    world.record()
    _delete(world)
    return _mark(world)
