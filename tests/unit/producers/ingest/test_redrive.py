"""What the ingest quarantined: kept once each, and taken in again under its own identity."""

import json
from dataclasses import dataclass, field, replace

import pytest

from countledger.ledger.errors import RequestRejected
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.ids import new_id
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS
from countledger.ledger.operations import Delete, Put
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
    QuarantineStore,
)
from countledger.producers.ingest.entries import RejectionKind
from countledger.producers.ingest.ingest import Ingest, IngestQuarantine
from countledger.producers.ingest.redrive import IngestRedrive
from countledger.producers.kinesis import DIGEST_SIZE, MAGIC, bundle, encode, pack, unpack_record
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.ingest.world import World
from tests.unit.producers.kinesis.entries import entry
from tests.unit.producers.kinesis.test_aggregate import sealed
from tests.unit.producers.senders import TABLE, process_on

COUNTERS = "counters"
_IDS = {delta: new_id(NOW_MS) for delta in (5, 6)}
LATE_MS = NOW_MS - HORIZON_DEFAULT_MS - HOUR_MS


def keyed(delta: int, key: str = "order-1") -> bytes:
    return json.dumps({"v": 1, "counter": "a:b", "delta": delta, "key": key}).encode()


def packed(*deltas: int) -> bytes:
    """An aggregated record of such entries, the same each time."""
    made = [replace(entry(delta), id=_IDS[delta]) for delta in deltas]
    (record,) = pack(made)
    return record.data


@dataclass(slots=True)
class Keeping(World):
    """The ingest, whose quarantine keeps copies."""

    table: MemoryClient = field(default_factory=MemoryClient)

    @property
    def ingest(self) -> Ingest:
        kept = IngestQuarantine(self.copies, self.quarantine)
        return Ingest(process_on(self.dynamo, self.clock), kept)

    @property
    def copies(self) -> QuarantineStore:
        return QuarantineStore(connection_on(self.table, self.clock))

    @property
    def again(self) -> IngestRedrive:
        return IngestRedrive(process_on(self.dynamo, self.clock))

    def kept(self) -> list[QuarantinedRecord]:
        return list(self.copies.newest(QuarantineSource.KINESIS))

    def redrive(
        self, record: QuarantinedRecord, *, even_if_counted: bool = False
    ) -> tuple[bool, str]:
        answer = self.again(record, even_if_counted=even_if_counted)
        return answer.resolved, answer.detail


@pytest.fixture
def world() -> Keeping:
    return Keeping()


def test_each_quarantined_record_has_one_copy_however_often_it_comes(world: Keeping) -> None:
    """Also cut otherwise; and one message is about it."""
    data = [b"nonsense", keyed(5), keyed(6), b"\xff"]
    for _ in range(3):
        world.apply(*data)

    assert sorted(record.kind for record in world.kept()) == ["malformed", "malformed", "refused"]
    told = [one["quarantine_id"] for one in world.quarantine.rejected()]
    assert sorted(told) == sorted(record.id for record in world.kept())
    assert {record.content for record in world.kept()} == {data[0], data[2], data[3]}


def test_what_was_refused_for_a_reason_that_is_gone_is_taken_in_once(world: Keeping) -> None:
    world.apply(keyed(5), keyed(6))
    (record,) = world.kept()
    resolved, detail = world.redrive(record)
    assert not resolved
    assert "was used for a delta of 5, and now comes with 6" in detail
    (there,) = (item for item in world.dynamo.items(TABLE) if item["entry"].startswith("e#"))
    world.dynamo.delete(Delete(TABLE, {name: there[name] for name in ("counter", "entry")}))

    assert [world.redrive(record) for _ in range(2)] == [(True, "recorded"), (True, "duplicate")]
    assert world.deltas() == [6]


def test_what_is_broken_stays_broken(world: Keeping) -> None:
    """With the reason; nothing is written."""
    world.apply(b"nonsense", packed(5)[:-1])

    for record in world.kept():
        settled, said = world.redrive(record)
        assert (settled, said.startswith(f"{record.reason}; ")) == (False, True)
        assert "then discard it" in said
    assert world.deltas() == []


def test_a_record_with_unread_bytes_stays_until_a_person_discards_it(world: Keeping) -> None:
    """Its messages are counted; its other bytes may be events, and are not counted."""
    known = packed(5, 6)[len(MAGIC) : -DIGEST_SIZE]
    world.apply(sealed(known + b"\x7a\x02{}"))
    (record,) = world.kept()

    resolved, detail = world.redrive(record)

    assert sorted(world.deltas()) == [5, 6]
    assert not resolved
    assert "; 4 bytes of the aggregated record are in fields that " in detail


def test_the_malformed_messages_of_a_record_are_kept_to_the_last_byte(world: Keeping) -> None:
    """In as many items as their bytes need, the same ones at each delivery."""
    bad = [b'{"v": 2, "n": %d, "text": "%s"}' % (n, b"x" * 180) for n in range(4_000)]
    for _ in range(2):
        outcome = world.apply(b"\n".join(bad))

    kept = sorted(world.kept(), key=lambda record: record.part or 0)
    assert outcome.quarantined == {RejectionKind.MALFORMED: 4_000}
    assert [one.cut_from_bytes for one in kept] == [None] * 3
    assert [one for record in kept for one in unpack_record(record.content).messages] == bad
    assert sum(record.messages for record in kept) == 4_000
    assert [record.part for record in kept] == [0, kept[0].messages, 4_000 - kept[2].messages]
    assert all(f"message {record.part}: " in record.reason for record in kept)


def test_malformed_messages_that_are_equal_are_kept_once(world: Keeping) -> None:
    """They would be one entry. A record has room for 174,000 empty ones."""
    outcome = world.apply(bundle([b""] * 60_000))
    (kept,) = world.kept()

    assert outcome.quarantined == {RejectionKind.MALFORMED: 60_000}
    assert (kept.messages, kept.cut_from_bytes, kept.part) == (60_000, None, 0)
    assert unpack_record(kept.content).messages == [b""]
    assert world.redrive(kept)[0] is False


def test_what_may_have_been_counted_waits_for_a_persons_word(world: Keeping) -> None:
    late = entry(7, at_ms=LATE_MS)
    head = Head(generation=3, sum=5, events=9, entries=9, from_at_ms=0, to_at_ms=NOW_MS)
    world.dynamo.put(Put(TABLE, encode_head(late.counter, head)))
    world.apply(encode(late))
    (record,) = world.kept()

    assert world.redrive(record)[0] is False
    assert world.deltas() == []
    assert world.redrive(record, even_if_counted=True)[0] is True
    assert world.deltas() == [7]


def test_what_waited_here_beyond_its_horizon_is_evaluated_like_what_expired(world: Keeping) -> None:
    """It was refused in time; now its own identity may not be written any more."""
    world.apply(keyed(5), keyed(6))
    (record,) = world.kept()
    world.clock.at_ms += HORIZON_DEFAULT_MS * 3

    assert world.redrive(record) == (False, "its key was used by an entry with another delta")


def test_a_record_of_which_the_end_is_missing_is_not_guessed(world: Keeping) -> None:
    world.apply(b"x" * (CONTENT_MAX_BYTES + 1))
    (record,) = world.kept()

    assert len(record.content) == CONTENT_MAX_BYTES
    settled, said = world.redrive(record)
    assert not settled
    assert str(CONTENT_MAX_BYTES + 1) in said


def test_a_new_entry_that_is_refused_says_why(world: Keeping) -> None:
    world.apply(encode(entry(7, at_ms=LATE_MS)))
    (copy,) = world.kept()
    world.dynamo.faults.append(Fault(RequestRejected("the table refuses it")))

    assert world.redrive(copy) == (False, "the table refuses it")
    assert world.redrive(copy) == (True, "recorded, as a new entry")
    assert world.deltas() == [7]
