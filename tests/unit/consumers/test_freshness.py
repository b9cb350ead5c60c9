"""Up to which moment totals are complete: that of the slowest open shard."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from countledger.consumers.progress import ShardProgress
from countledger.consumers.proof import proven_freshness, shard_lags
from countledger.consumers.record import ShardName, StreamShard
from countledger.consumers.totals import Freshness, freshness_of
from countledger.infra.cli.totals import freshness_text
from tests.unit.consumers.world import World


def _shard(name: str, parent: str | None = None, *, closed: bool = False) -> StreamShard:
    return StreamShard(ShardName("label", name), parent, closed)


_CLOSED = _shard("a", closed=True)
_CASES: dict[str, tuple[list[StreamShard], dict[str, int], int | None, list[str]]] = {
    # the shards, up to when each was handled; the freshness, the idle ones
    "the slowest open one": (
        [_CLOSED, _shard("b", "a"), _shard("c")],
        {"a": 1, "b": 7, "c": 5},
        5,
        [],
    ),
    "a new one is where its ancestor ended": (
        [_CLOSED, _shard("b", "a", closed=True), _shard("c", "b")],
        {"a": 3},
        3,
        [],
    ),
    "one without news is idle": ([_shard("a", "gone"), _shard("b")], {"b": 4}, 4, ["label/a"]),
    "before the first record": ([_shard("a")], {}, None, ["label/a"]),
}


@pytest.mark.parametrize(("shards", "through", "freshness", "idle"), _CASES.values(), ids=_CASES)
def test_freshness_is_that_of_the_slowest_open_shard(
    shards: list[StreamShard], through: dict[str, int], freshness: int | None, idle: list[str]
) -> None:
    progress = {
        f"label/{name}": ShardProgress(f"label/{name}", "5", at_ms, at_ms, 1, 1, 2.0)
        for name, at_ms in through.items()
    }

    found = freshness_of(shards, progress)

    assert (found.handled_through_ms, list(found.idle)) == (freshness, idle)
    assert (found.handled_through is None) == (freshness is None)
    assert [one.shard for one in found.shards] == list(progress)


# ---- the lag: since when the oldest change waits that no total has ----


def _handled() -> World:
    world = World()
    world.add_shard("s")
    world.deliver([world.emit(1)])
    world.clock.at_ms += 10**8
    return world


def _two_shards() -> World:
    world = _handled()
    world.add_shard("t")
    world.emit(1, shard="t")
    world.clock.at_ms += 5_000
    world.emit(1)
    return world


def _deletion() -> World:
    """As compaction makes it; the materializer is not given it."""
    world = _handled()
    world.show(name="REMOVE")
    return world


def _child() -> World:
    """Its parent may have ended with records that were filtered out, above its progress."""
    world = World()
    world.add_shard("s", closed=True)
    world.emit(1)
    world.add_shard("t", parent="s")
    world.deliver([world.emit(1, shard="t")], "t")
    return world


@pytest.mark.parametrize(
    ("make", "lag_ms"),
    [(_handled, None), (_two_shards, 5_000), (_deletion, None), (_child, None)],
    ids=["handled long ago", "the oldest of two shards", "a deletion", "a parent of a shard"],
)
def test_the_lag_is_the_age_of_the_oldest_change_that_waits(
    make: Callable[[], World], lag_ms: int | None
) -> None:
    world = make()
    found = proven_freshness(world.connection())

    since_ms = None if lag_ms is None else world.clock.at_ms - lag_ms
    assert (found.waiting_since_ms, found.up_to_date) == (since_ms, lag_ms is None)


def test_each_shard_has_a_lag_of_its_own() -> None:
    """A shard that is handled to its end is not late, however old its last change is."""
    world = _two_shards()

    late, later = shard_lags(world.connection())

    now_ms = world.clock.at_ms
    assert (late.shard, later.shard) == ("label/s", "label/t")
    assert late.handled_through_ms is not None
    assert (late.waiting_since_ms, later.waiting_since_ms) == (now_ms, now_ms - 5_000)
    assert later.handled_through_ms is None


_NOTHING = Freshness((), None, ())
_QUIET = Freshness((), 3_600_000, ())


@pytest.mark.parametrize(
    ("freshness", "text"),
    [
        (_NOTHING, "no stream record was handled yet: every total is 0"),
        (_QUIET, "entries up to 1970-01-01T01:00:00.000Z are in the totals"),
        (replace(_QUIET, up_to_date=True), "up to date: every entry is in the totals"),
        (
            replace(_QUIET, up_to_date=False, waiting_since_ms=3_700_000),
            "150 s behind: later entries are not in the totals yet",
        ),
    ],
)
def test_freshness_is_said_in_words(freshness: Freshness, text: str) -> None:
    assert freshness_text(freshness, 3_850_400) == text
