"""From the app to the ledger: calls are lost, shards come again, writes fail; all count once."""

from __future__ import annotations

from botocore.exceptions import ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import Throttled, Unacknowledged, Unclear
from countledger.producers.event import Event
from tests.unit.ledger import memory
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.producers.ingest.world import World, law_holds
from tests.unit.producers.kinesis import streams
from tests.unit.producers.kinesis.streams import MemoryStream, producer_on

LOST = ReadTimeoutError(endpoint_url="https://kinesis")
CALLS = st.one_of(
    st.none(),
    st.builds(streams.Fault, error=st.just(LOST), applied=st.booleans()),
    st.builds(streams.Fault, refused=st.lists(st.integers(0, 5), max_size=3).map(tuple)),
    st.builds(streams.Fault, applied=st.just(True), cut=st.just(True)),
)
WRITES = st.one_of(
    st.none(),
    st.builds(memory.Fault, st.just(Unclear("lost")), st.booleans()),
    st.builds(memory.Fault, st.just(Throttled("slow"))),
)


@given(
    keyed=st.lists(st.booleans(), min_size=35, max_size=120),
    calls=st.lists(CALLS, max_size=20),
    # So many in a row that an entry is given up for now.
    writes=st.tuples(st.integers(0, 60), st.lists(WRITES, max_size=40)),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    again=st.lists(st.integers(0, 3), max_size=10),
)
def test_whatever_happens_on_the_way_every_event_counts_once(
    keyed: list[bool],
    calls: list[streams.Fault | None],
    writes: tuple[int, list[memory.Fault | None]],
    cuts: list[int],
    again: list[int],
) -> None:
    """What the stream did not acknowledge the app sends again; a shard goes on at its report."""
    stream, world = MemoryStream(faults=calls), World()
    producer = producer_on(stream, world.clock)
    # Large names, so that a hundred events are several records.
    events = [
        Event("c" * 500, number, f"key-{number}" if key else None, note={"n": "x" * 900})
        for number, key in enumerate(keyed, start=1)
    ]
    for outcome in producer.send_many(events):
        if isinstance(outcome, Unacknowledged):
            stream.faults.clear()
            producer.resend(outcome.entry)
    world.apply(b'{"v":1,"counter":"c","delta":1000,"key":"makes the namespace"}')
    world.dynamo.faults.extend([memory.Fault(Throttled("slow"))] * writes[0] + writes[1])
    records = stream.delivered(arrived_s=NOW_MS / 1_000)

    position = deliveries = 0
    while position < len(records):
        size = cuts[deliveries % len(cuts)]
        batch = records[position : position + size]
        outcome_of_batch = world.ingest.apply(batch, stream="s", shard="h")
        assert law_holds(outcome_of_batch)
        assert not outcome_of_batch.quarantined
        done = outcome_of_batch.retry_from
        position += len(batch) if done is None else done
        if deliveries < len(again):
            position = max(position - again[deliveries], 0)
        deliveries += 1

    assert sorted(world.deltas()) == [*range(1, len(events) + 1), 1_000]
