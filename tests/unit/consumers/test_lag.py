"""The lag of the totals is that of the oldest change in the stream that no total has."""

from __future__ import annotations

from countledger.consumers.proof import waiting_since_ms
from countledger.consumers.totals import TotalsReader
from countledger.ledger.limits import SECOND_MS
from tests.unit.consumers.world import COUNTERS, World


def _lag(world: World) -> int | None:
    shards = world.stream.shards()
    progress = TotalsReader(world.dynamo, COUNTERS).progress(str(one.shard) for one in shards)
    return waiting_since_ms(world.stream, shards, progress)


def _seconds(at_ms: int) -> int:
    return at_ms // SECOND_MS * SECOND_MS


def test_nothing_waits_in_a_stream_that_was_handled() -> None:
    """However long ago that was."""
    world = World()
    world.add_shard("s")
    assert _lag(world) is None
    world.deliver([world.emit(1)])
    world.clock.at_ms += 10**8

    assert _lag(world) is None


def test_the_oldest_waiting_change_of_any_shard_counts() -> None:
    """Also of one that nobody began to read."""
    world = World()
    world.add_shard("s")
    world.add_shard("t")
    world.deliver([world.emit(1)])
    world.clock.at_ms += 5000
    first_ms = world.clock.now_ms()
    world.emit(1, shard="t")
    world.clock.at_ms += 5000
    world.emit(1)

    assert _lag(world) == _seconds(first_ms)


def test_what_the_materializer_is_not_given_does_not_wait() -> None:
    """Deletions, as compaction makes them, are filtered out before it."""
    world = World()
    world.add_shard("s")
    world.deliver([world.emit(1)])
    world.show(name="REMOVE")

    assert _lag(world) is None


def test_a_shard_whose_child_is_being_read_was_handled_to_its_end() -> None:
    """It may have ended with records that were filtered out, and no progress behind them."""
    world = World()
    world.add_shard("s", closed=True)
    world.emit(1)
    world.add_shard("t", parent="s")
    world.deliver([world.emit(1, shard="t")], "t")

    assert _lag(world) is None
