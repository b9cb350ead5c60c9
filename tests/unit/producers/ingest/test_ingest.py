"""What comes through the stream is in the ledger once, or in the quarantine with the reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.departure import Deadline
from countledger.ledger.errors import (
    AccessDenied,
    BadPayload,
    Throttled,
    Unclear,
)
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.ledger.namespace import Kind as NamespaceKind
from countledger.ledger.namespace import Namespaces
from countledger.ledger.values import parse_time
from countledger.producers.event import Event, Status, make_entry
from countledger.producers.ingest.entries import EntryWriter, RejectionKind
from countledger.producers.kinesis import encode, pack, unpack_record
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, MemoryClient, refuses
from tests.unit.producers.ingest.world import World, law_holds
from tests.unit.producers.kinesis.entries import ORIGIN, entry
from tests.unit.producers.kinesis.streams import delivered
from tests.unit.producers.senders import process_on


def packed(*deltas: int, at_ms: int = NOW_MS) -> bytes:
    """An aggregated record of plain entries."""
    (record,) = pack([entry(delta, at_ms=at_ms) for delta in deltas])
    return record.data


def keyed(delta: int, key: str, at_ms: int | None = None) -> bytes:
    """A plain record of an entry with a key."""
    whole = key if at_ms is None else IdempotencyKey(key, parse_time(at_ms))
    event = Event("likes:post-1", delta, whole)
    return encode(make_entry(event, now_ms=NOW_MS, origin=ORIGIN, new_id=new_id))


def test_aggregated_and_plain_records_go_into_the_ledger() -> None:
    world = World()

    outcome = world.apply(packed(*range(1, 51)), encode(entry(100)), keyed(200, "k"))

    assert sorted(world.deltas()) == [*range(1, 51), 100, 200]
    assert (outcome.payloads, outcome.accepted, outcome.retry_from) == (52, 52, None)
    assert world.dynamo.calls.count("put_batch") == 3
    assert world.quarantine.rejected() == []
    assert law_holds(outcome)


def test_a_key_used_with_another_delta_is_refused_and_reported() -> None:
    world = World()

    outcome = world.apply(keyed(1, "k"), keyed(2, "k"), keyed(1, "k"))

    assert world.deltas() == [1]
    assert (outcome.accepted, outcome.duplicates, outcome.quarantined) == (
        1,
        1,
        {RejectionKind.REFUSED: 1},
    )
    (one,) = world.quarantine.rejected()
    assert (one["kind"], one["sequence"], one["part"]) == ("refused", f"{2:056d}", 0)
    assert json.loads(one["text"])["delta"] == 2
    assert "'k'" in one["reason"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"not json", RejectionKind.MALFORMED),
        (b"", RejectionKind.MALFORMED),
        (b"\xff\x00", RejectionKind.MALFORMED),
        (b'{"v": 2}', RejectionKind.MALFORMED),
        (b'{"v":1,"counter":"a","delta":1}', RejectionKind.MALFORMED),
        (packed(1, 2)[:-3], RejectionKind.UNREADABLE),
        (packed(1, 2)[:10], RejectionKind.UNREADABLE),
        (packed(1, at_ms=NOW_MS - HORIZON_DEFAULT_MS - 1), RejectionKind.EXPIRED),
        (packed(1, at_ms=NOW_MS + 3_600_000), RejectionKind.REFUSED),
    ],
)
def test_what_cannot_be_counted_does_not_stop_the_stream(data: bytes, kind: RejectionKind) -> None:
    world = World()

    outcome = world.apply(packed(5), data, packed(7))

    assert sorted(world.deltas()) == [5, 7]
    assert outcome.quarantined == {kind: 1}
    assert outcome.retry_from is None
    (one,) = world.quarantine.rejected()
    assert one["reason"]
    assert one["sequence"] == f"{2:056d}"
    assert len(world.quarantine.expired) == (kind is RejectionKind.EXPIRED)
    assert law_holds(outcome)


def test_a_counter_of_another_kind_is_refused() -> None:
    world = World()
    Namespaces(connection_on(world.dynamo)).create("tickets", kind=NamespaceKind.STRICT)
    strict = [encode(entry(1, "tickets:hall")) for _ in range(3)]

    outcome = world.apply(*strict, packed(9))

    assert world.deltas() == [9]
    assert outcome.quarantined == {RejectionKind.REFUSED: 3}


def test_a_namespace_that_cannot_be_read_stops_its_own_entries_only() -> None:
    dynamo = MemoryClient()
    slow = refuses(
        Throttled("slow"), "get", times=99, where=lambda get: get.key["counter"] == "namespace#shut"
    )
    reads = MemoryClient(tables=dynamo.tables, plans=[slow])
    writer = EntryWriter(process_on(dynamo, reads=reads))

    first, second, third = writer.write([entry(1, "shut:x"), entry(2), entry(3, "shut:y")])

    assert second is Status.RECORDED
    assert isinstance(first, Throttled)
    assert isinstance(third, Throttled)


@pytest.mark.parametrize("error", [Throttled("slow"), Unclear("lost"), AccessDenied("no")])
def test_what_fails_for_now_is_delivered_again_from_its_record_on(error: Exception) -> None:
    """What is before it is counted; what is behind it is counted when it comes again."""
    world = World()
    many = [packed(*range(25 * n + 1, 25 * n + 26)) for n in range(3)]
    world.apply(packed(1_000))  # makes the namespace
    world.dynamo.faults.extend([None, *[Fault(error)] * 24])

    outcome = world.apply(many[0], b"broken", many[1], b"corrupt", many[2])
    counted = outcome.payloads

    assert outcome.retry_from is not None
    assert outcome.errors
    assert law_holds(outcome)
    assert counted == outcome.accepted + len(world.quarantine.rejected())
    world.dynamo.faults.clear()
    rest = world.apply(*[many[0], b"broken", many[1], b"corrupt", many[2]][outcome.retry_from :])
    assert counted + rest.payloads == 77
    assert sorted(world.deltas()) == [*range(1, 76), 1_000]
    assert {one["text"] for one in world.quarantine.rejected()} == {"broken", "corrupt"}


@pytest.mark.parametrize("fault", [Throttled("slow"), Unclear("lost"), AccessDenied("no")])
def test_a_record_is_done_with_only_once_its_letter_is_kept(fault: Exception) -> None:
    world = World()
    world.quarantine.faults.append(fault)

    last = packed(2)

    outcome = world.apply(packed(1), b"broken", last)
    again = world.apply(b"broken", last)

    assert (outcome.retry_from, outcome.payloads) == (1, 1)
    assert again.quarantined == {RejectionKind.MALFORMED: 1}
    assert sorted(world.deltas()) == [1, 2]


def test_a_record_that_is_none_of_kinesis_fails_the_batch() -> None:
    """The mapping is wrong, not the record: nothing may be skipped."""
    records: list[Any] = [{"dynamodb": {}}, {}, {"kinesis": {"data": "%", "sequenceNumber": "1"}}]
    for record in records:
        with pytest.raises(BadPayload, match="not one of Kinesis"):
            World().ingest.apply([record], stream="", shard="")


@pytest.mark.parametrize("arrived_s", [1e300, float("inf"), float("nan"), -1e300, 10**20])
def test_p8_a_time_of_arrival_that_cannot_be_does_not_block_the_shard(arrived_s: float) -> None:
    """Its record is quarantined; those beside it are written."""
    world = World()
    good = delivered(packed(2), sequence=2, arrived_s=NOW_MS / 1_000)
    wrong = delivered(packed(1), sequence=1, arrived_s=arrived_s)

    outcome = world.ingest.apply([wrong, good], stream="s", shard="shard")

    assert (outcome.quarantined, outcome.accepted) == ({RejectionKind.UNREADABLE: 1}, 1)
    assert outcome.retry_from is None


def test_nothing_is_begun_after_the_deadline() -> None:
    """The batch comes again from its first record; then it is written."""
    world = World()
    now_ms = world.clock.now_ms()
    records = [
        delivered(data, sequence=number, arrived_s=NOW_MS / 1_000)
        for number, data in enumerate([packed(1, 2), keyed(3, "k")], start=1)
    ]

    outcome = world.ingest.apply(
        records, stream="s", shard="x", deadline=Deadline(world.clock, now_ms, now_ms)
    )

    assert (outcome.retry_from, outcome.payloads, world.deltas()) == (0, 0, [])
    later = Deadline(world.clock, now_ms + 1, now_ms + 1)
    outcome = world.ingest.apply(records, stream="s", shard="x", deadline=later)
    assert (outcome.retry_from, outcome.accepted) == (None, 3)


@st.composite
def corrupt(draw: st.DrawFn) -> bytes:
    """A record that may have been flipped, cut, doubled or lengthened on its way."""
    data = bytearray(packed(*draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))))
    for kind in draw(st.lists(st.sampled_from(["flip", "cut", "head", "tail"]), max_size=2)):
        if kind == "flip" and data:
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[draw(st.integers(0, len(data))) :]
        elif kind == "head":
            del data[: draw(st.integers(0, 8))]
        elif kind == "tail":
            data += draw(st.binary(max_size=8))
    return bytes(data)


@given(st.lists(corrupt(), max_size=5), st.data())
def test_whatever_happens_to_records_every_payload_is_counted_in_or_out(
    records: list[bytes], data: st.DataObject
) -> None:
    world = World()
    twice = data.draw(st.lists(st.sampled_from(records), max_size=2)) if records else []

    outcome = world.apply(*records, *twice)

    whole = [one for one in dict.fromkeys(records) if is_whole(one)]
    sound = [payload for one in whole for payload in unpack_record(one).messages]
    assert law_holds(outcome)
    assert sorted(world.deltas()) == sorted(json.loads(one)["delta"] for one in sound)
    assert outcome.accepted == len(sound)
    assert len(world.quarantine.rejected()) == sum(outcome.quarantined.values())
    # Whatever is broken is one; whatever is whole is as many as it carries.
    assert outcome.payloads == sum(
        len(unpack_record(one).messages) if is_whole(one) else 1 for one in [*records, *twice]
    )


def is_whole(data: bytes) -> bool:
    """Whether a record is as it was packed: nothing else has the checksum, or is such an object."""
    try:
        return all(json.loads(payload)["delta"] for payload in unpack_record(data).messages)
    except Exception:  # noqa: BLE001 - whatever it is, it is not whole
        return False
