"""A record of any size is done after some invocations, whatever ends each of them."""

import base64
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.departure import Deadline
from countledger.ledger.errors import AccessDenied, Throttled
from countledger.ledger.limits import INGEST_PIECE
from countledger.ledger.operations import Delete
from countledger.ledger.quarantine import QuarantineStore
from countledger.producers.ingest.entries import RejectionKind
from countledger.producers.ingest.ingest import (
    Ingest,
    IngestOutcome,
    IngestQuarantine,
    quarantined_of,
)
from countledger.producers.kinesis import bundle, encode, unpack_record
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.ingest.test_ingest import keyed, packed
from tests.unit.producers.ingest.world import World, law_holds
from tests.unit.producers.kinesis.entries import entry
from tests.unit.producers.kinesis.streams import delivered

PIECE = 5


@dataclass
class Ticking(ManualClock):
    """Each look at it takes a millisecond."""

    def now_ms(self) -> int:
        self.sleep_ms(1)
        return super().now_ms()


def one_record(*messages: bytes) -> bytes:
    """An aggregated record, also where lines would do."""
    data = bundle([b"", *messages])  # an empty line is none
    assert unpack_record(data).messages == [b"", *messages]
    return data


def invoke(world: World, *data: bytes, looks: int, first: int = 1) -> IngestOutcome:
    """An invocation that may look at its clock so often."""
    clock = Ticking()
    end_ms = clock.now_ms() + looks
    records = [
        delivered(one, sequence=n, arrived_s=NOW_MS / 1_000)
        for n, one in enumerate(data, start=first)
    ]
    deadline = Deadline(clock, end_ms, end_ms)
    return world.ingest.apply(records, stream="arn:stream", shard="shard-1", deadline=deadline)


def invocations(world: World, *data: bytes, looks: int) -> list[IngestOutcome]:
    """Invocations until the batch is done, each with what the one before it left."""
    outcomes: list[IngestOutcome] = []
    records = list(data)
    first = 1
    while records and len(outcomes) < 200:
        outcome = invoke(world, *records, looks=looks, first=first)
        outcomes.append(outcome)
        done = len(records) if outcome.retry_from is None else outcome.retry_from
        records, first = records[done:], first + done
    return outcomes


@given(
    kinds=st.lists(st.sampled_from(["id", "key", "bad"]), min_size=1, max_size=40),
    looks=st.integers(14, 40),
)
def test_a_record_of_any_messages_is_done_after_some_invocations(
    kinds: list[str], looks: int
) -> None:
    """Each message counts once, and is told once: recorded, or in one item of the quarantine."""
    world = World(piece=PIECE)
    make = {
        "id": lambda n: encode(entry(n)),
        "key": lambda n: keyed(n, f"k-{n}"),
        "bad": lambda n: f"bad {n}".encode(),
    }
    messages = [make[kind](n) for n, kind in enumerate(kinds, start=1)]

    outcomes = invocations(world, one_record(*messages), looks=looks)

    wanted = [n for n, kind in enumerate(kinds, start=1) if kind != "bad"]
    assert outcomes[-1].retry_from is None
    assert all(map(law_holds, outcomes))
    assert sorted(world.deltas()) == wanted
    assert sum(one.accepted + one.duplicates for one in outcomes) == len(wanted)
    assert sum(one.payloads for one in outcomes) == len(messages) + 1
    (bad,) = world.quarantine.rejected()
    assert bad["kind"] == "malformed"
    assert bad.get("messages", 1) == 1 + kinds.count("bad")


def test_a_long_record_costs_a_read_unit_and_a_write_unit_a_piece() -> None:
    """One that is short costs nothing more.

    Each invocation of this test reads its namespace.
    """
    world = World(piece=PIECE)
    world.apply(packed(1_000))

    def calls_of(*deltas: int) -> Counter[str]:
        world.dynamo.calls.clear()
        world.reads.calls.clear()
        world.apply(packed(*deltas))
        return Counter(world.dynamo.calls + world.reads.calls)

    assert calls_of(*range(1, PIECE + 1)) == {"put_batch": 1, "get": 1}
    assert calls_of(*range(11, 11 + 3 * PIECE)) == {"put_batch": 3, "get": 1 + 1, "put": 2}


def test_without_its_progress_a_long_record_is_begun_again_and_counts_once() -> None:
    world = World(piece=PIECE)
    data = packed(*range(1, 21))
    first = invoke(world, data, looks=5)
    (kept,) = world.dynamo.items("counters")
    world.dynamo.delete(Delete("counters", {name: kept[name] for name in ("counter", "part")}))

    again = invoke(world, data, looks=1_000)

    assert (first.retry_from, again.retry_from) == (0, None)
    assert sorted(world.deltas()) == [*range(1, 21)]


@pytest.mark.parametrize("error", [Throttled("slow"), AccessDenied("no")])
def test_a_progress_that_cannot_be_stored_stops_nothing(error: Exception) -> None:
    class NoProgress(MemoryClient):
        def get(self, table: str, *more: Any, **options: Any) -> Any:  # noqa: ANN401 - handed on
            if table == "counters":
                raise error
            return super().get(table, *more, **options)

        def put(self, put: Any) -> None:  # noqa: ANN401 - handed on
            if put.table == "counters":
                raise error
            super().put(put)

    world = World(piece=PIECE, reads=NoProgress())

    outcome = world.apply(packed(*range(1, 21)))

    assert (outcome.retry_from, outcome.accepted) == (None, 20)
    assert outcome.errors == [str(error)]


def test_what_one_record_has_that_cannot_be_read_is_one_item_with_its_count() -> None:
    """Of 170,000 empty messages two requests would be sent for each."""
    world = World()
    copies = IngestQuarantine(QuarantineStore(connection_on(world.dynamo)), world.quarantine)
    data = bundle([b""] * 20_000)

    outcome = Ingest(world.ingest.connection, copies).apply(
        [delivered(data, sequence=1, arrived_s=NOW_MS / 1_000)], stream="arn", shard="s"
    )

    assert outcome.quarantined == {RejectionKind.MALFORMED: 20_000}
    assert (outcome.payloads, outcome.retry_from) == (20_000, None)
    assert Counter(world.dynamo.calls) == {"put": 1, "update": 1}
    (kept,) = world.dynamo.items("counters")
    assert (kept["messages"], kept["record_part"]) == (20_000, 0)
    assert kept["reason"].startswith("20000 of the 20000 messages of the record: message 0: ")
    (letter,) = world.quarantine.letters
    (told,) = json.loads(letter.body)["rejected"]
    assert told["messages"] == 20_000


def test_the_malformed_messages_of_a_record_can_be_read_and_sent_again() -> None:
    world = World()

    world.apply(one_record(b"not json", encode(entry(7)), b'{"v": 2}'))

    (letter,) = world.quarantine.letters
    (one,) = letter.rejected
    assert unpack_record(one.payload).messages == [b"", b"not json", b'{"v": 2}']
    assert quarantined_of(one, "arn", "s", now_ms=9).messages == 3
    assert world.deltas() == [7]
    (told,) = json.loads(letter.body)["rejected"]
    assert (
        unpack_record(base64.b64decode(told["base64"])).messages
        == unpack_record(one.payload).messages
    )
    assert "message 1: " in told["reason"]


def test_records_after_one_that_fails_are_not_begun_and_those_before_it_are_done() -> None:
    """A batch whose last records alone need all of the time never comes further otherwise."""
    world = World(piece=PIECE)
    first, second = packed(*range(1, 5)), one_record(*(keyed(n, f"k{n}") for n in range(10, 40)))

    outcome = invoke(world, first, second, looks=12)
    later = invoke(world, second, looks=1_000, first=2)

    assert outcome.retry_from == 1
    assert set(world.deltas()) >= {1, 2, 3, 4}
    assert later.retry_from is None
    assert sorted(world.deltas()) == [*range(1, 5), *range(10, 40)]


def test_a_piece_is_a_fraction_of_what_an_invocation_writes() -> None:
    """At twenty entries a second, five minutes suffice for it."""
    assert INGEST_PIECE <= 20 * 210
