"""A stream that was switched off and on is another stream: its numbers begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.materializer import Materializer
from countledger.consumers.stream import ShardName, label_of
from tests.unit.consumers.world import COUNTERS, World

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = "arn:aws:dynamodb:r:1:table/t/stream"
OLD, NEW = (label_of(f"{TABLE}/2026-01-0{day}T00:00:00.000") for day in (1, 2))


def _deliver(world: World, records: Sequence[dict[str, Any]], stream: str, begin: int) -> int:
    """Records under numbers from `begin` on, from the shard that both streams call `s`."""
    events = [
        {
            **record,
            "dynamodb": {
                **record["dynamodb"],
                "SequenceNumber": str(begin + number),
                "ApproximateCreationDateTime": world.clock.now_ms() / 1000,
            },
        }
        for number, record in enumerate(records)
    ]
    made = Materializer(world.dynamo, COUNTERS, world.quarantine, world.clock)
    return made.apply(events, ShardName(stream, "s")).duplicates


@given(before=st.integers(1, 5), after=st.integers(1, 5), lower=st.booleans())
def test_records_of_a_new_stream_are_not_taken_for_old_ones(
    before: int,
    after: int,
    lower: bool,  # noqa: FBT001 - a case
) -> None:
    """Whatever their numbers: watermarks go by the stream's label and the shard."""
    world = World()
    world.add_shard("s")
    assert _deliver(world, [world.emit(1) for _ in range(before)], OLD, 1000) == 0

    news = [world.emit(10) for _ in range(after)]
    begin = 1 if lower else 1000
    assert _deliver(world, news, NEW, begin) == 0
    assert _deliver(world, news, NEW, begin) == after, "delivered again"

    assert world.total()["total"] == before + 10 * after


def test_a_late_reader_of_the_old_stream_counts_nothing_twice() -> None:
    """Its watermark stays beside the new one."""
    world = World()
    world.add_shard("s")
    olds = [world.emit(1) for _ in range(3)]
    _deliver(world, olds, OLD, 5)
    _deliver(world, [world.emit(10)], NEW, 1)

    assert _deliver(world, olds, OLD, 5) == 3
    assert world.total()["total"] == 13
