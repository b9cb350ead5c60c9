"""QuarantineStore of what is in quarantine: once each, published, and handled by a person."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from countledger.ledger.attributes import encode
from countledger.ledger.connection import Connection
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    CorruptItem,
    NotQuarantined,
    RequestRejected,
    ServiceFailed,
    Throttled,
    Unclear,
)
from countledger.ledger.keys import quarantine_place
from countledger.ledger.limits import ITEM_MAX_BYTES, QUARANTINE_HANDLED_LIFE_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import Put
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    HandledHow,
    QuarantinedRecord,
    QuarantineHandling,
    QuarantineNotices,
    QuarantineService,
    QuarantineSource,
    QuarantineStore,
    RedriveAnswer,
    decode_quarantined,
    encode_quarantined,
    quarantine_ids_in,
)
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient

COUNTERS = "counters"
ANNS = QuarantineHandling(HandledHow.DISCARDED, "ann", NOW_MS)


def record_at(
    at_ms: int = NOW_MS, source: QuarantineSource = QuarantineSource.LEDGER
) -> QuarantinedRecord:
    """A record of a record of that time."""
    return QuarantinedRecord(
        source=source,
        place=quarantine_place(at_ms, "1"),
        where="label/shard",
        reason="no delta",
        kind="malformed",
        content=b"{}",
        counter="a:b",
        sequence="1",
        at_ms=at_ms,
        kept_at_ms=NOW_MS,
    )


@dataclass(frozen=True, slots=True)
class MemoryNotices(QuarantineNotices):
    """Queues that are lists."""

    queues: tuple[MessageQueue, ...] = ()
    bodies: list[str] = field(default_factory=list)

    def delete_handled(self, is_handled: Callable[[str], bool]) -> int:
        left = [body for body in self.bodies if not all(map(is_handled, quarantine_ids_in(body)))]
        gone = len(self.bodies) - len(left)
        self.bodies[:] = left
        return gone


@dataclass(slots=True)
class World:
    """A service over memory, whose redrive gives a planned answer."""

    dynamo: MemoryClient = field(default_factory=MemoryClient)
    clock: ManualClock = field(default_factory=ManualClock)
    notices: MemoryNotices = field(default_factory=MemoryNotices)
    answer: RedriveAnswer | Exception = field(
        default_factory=lambda: RedriveAnswer(resolved=True, detail="done")
    )
    redriven: list[str] = field(default_factory=list)

    @property
    def connection(self) -> Connection:
        return connection_on(self.dynamo, self.clock)

    @property
    def store(self) -> QuarantineStore:
        return QuarantineStore(self.connection)

    @property
    def service(self) -> QuarantineService:
        redrives = dict.fromkeys(QuarantineSource, self.redrive)
        notices = cast("QuarantineNotices", self.notices)
        return QuarantineService(self.connection, redrives, lambda _: notices)

    def redrive(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:
        self.redriven.append(f"{record.id} {even_if_counted}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def keep(self, *made: QuarantinedRecord) -> list[str]:
        """Keep store, each with a message; their names."""
        for record in made:
            assert self.store.keep(record)
            self.notices.bodies.append(f'{{"quarantine_id": "{record.id}"}}')
            self.store.mark_published(record)
        return [record.id for record in made]


@pytest.fixture
def world() -> World:
    return World()


def test_a_copy_comes_back_as_it_was_kept() -> None:
    record = replace(
        record_at(), content=b"\xff" * CONTENT_MAX_BYTES, cut_from_bytes=400_000, reason="é" * 9_000
    )

    item = encode_quarantined(record)

    assert decode_quarantined(item) == replace(record, reason="é" * 2_000)
    assert len(str(encode(item)["reason"])) + len(item["content"]) < ITEM_MAX_BYTES - 50_000


@pytest.mark.parametrize("published", [True, False])
def test_a_record_delivered_again_meets_its_own_copy(world: World, *, published: bool) -> None:
    record = record_at()

    assert world.store.keep(record)
    assert world.store.keep(record)  # a crash before its message was sent
    if published:
        world.store.mark_published(record)
        assert not world.store.keep(replace(record, kept_at_ms=NOW_MS + 5))
    world.store.handle(record, ANNS)
    assert not world.store.keep(record)

    (item,) = world.dynamo.items(COUNTERS)
    assert item["kept_at"] == NOW_MS


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("error", [Throttled("t"), Unclear("u")])
def test_what_is_not_surely_kept_is_delivered_again(
    world: World,
    error: ServiceFailed,
    *,
    applied: bool,
) -> None:
    record = record_at()
    world.dynamo.faults.append(Fault(error, applied=applied))

    with pytest.raises(ServiceFailed):
        world.store.keep(record)

    assert world.store.keep(record)
    assert len(world.dynamo.items(COUNTERS)) == 1


@pytest.mark.parametrize("error", [RequestRejected("r"), AccessDenied("a")])
def test_what_the_table_refuses_for_good_is_published_all_the_same(
    world: World, error: Exception
) -> None:
    """Its stream goes on; the queue alone has it."""
    world.dynamo.faults.append(Fault(error))

    assert world.store.keep(record_at())
    world.store.mark_published(record_at())
    assert world.dynamo.items(COUNTERS) == []


def test_what_waits_is_listed_newest_first_over_all_sources(world: World) -> None:
    """Without what a person has handled, unless that is wanted too; and nothing is scanned."""
    made = [
        record_at(NOW_MS + number, source)
        for number, source in enumerate([*QuarantineSource, *QuarantineSource, *QuarantineSource])
    ]
    world.keep(*made)
    world.store.handle(made[4], ANNS)
    world.dynamo.calls.clear()

    listed = [record.at_ms - NOW_MS for record in world.service.list()]

    assert listed == [8, 7, 6, 5, 3, 2, 1, 0]
    assert set(world.dynamo.calls) == {"query"}
    assert [c.at_ms - NOW_MS for c in world.service.list(handled=True, limit=5)] == [8, 7, 6, 5, 4]
    assert [c.at_ms - NOW_MS for c in world.service.list("kinesis")] == [8, 5, 2]


def test_what_is_resolved_is_handled_and_its_message_goes(world: World) -> None:
    """Who did it and when stays for ninety days; the others keep their alarm."""
    first, second = world.keep(record_at(), record_at(NOW_MS + 1))

    (outcome,) = world.service.resend([first], by="ann")

    assert (outcome.resolved, outcome.detail) == (True, "done")
    assert outcome.record.handled == QuarantineHandling(
        HandledHow.RESENT, "ann", world.clock.now_ms()
    )
    assert [quarantine_ids_in(body) for body in world.notices.bodies] == [[second]]
    (item, other) = world.dynamo.items(COUNTERS)
    assert item["expires_at"] == (world.clock.now_ms() + QUARANTINE_HANDLED_LIFE_MS) // 1_000
    assert "expires_at" not in other


@pytest.mark.parametrize("source", list(QuarantineSource))
def test_foreign_records_are_discarded_and_never_applied(
    world: World, source: QuarantineSource
) -> None:
    """Also those that the function of another source got: no total lacks anything of them."""
    foreign = replace(record_at(source=source), kind="foreign", where="aws:sqs", counter=None)
    ids = world.keep(foreign)

    (outcome,) = world.service.resend(ids, by="ann", even_if_counted=True)

    assert not outcome.resolved
    assert "of no stream of this stack (aws:sqs)" in outcome.detail
    assert "then discard it" in outcome.detail
    assert world.redriven == []
    (outcome,) = world.service.discard(ids, by="ann")
    assert outcome.resolved
    assert world.notices.bodies == []


@pytest.mark.parametrize(
    "answer", [RedriveAnswer(resolved=False, detail="no"), Throttled("no"), RequestRejected("no")]
)
def test_what_is_not_resolved_stays(world: World, answer: RedriveAnswer | Exception) -> None:
    """With the reason; the next one is tried as well."""
    ids = world.keep(record_at(), record_at(NOW_MS + 1))
    world.answer = answer

    outcome = list(world.service.resend(ids, by="ann", even_if_counted=True))

    assert [(one.resolved, one.detail) for one in outcome] == [(False, "no")] * 2
    assert world.redriven == [f"{quarantine_id} True" for quarantine_id in ids]
    assert len(world.notices.bodies) == 2
    assert len(list(world.service.list())) == 2


def test_what_concerns_every_copy_ends_the_run(world: World) -> None:
    """No permission: no other one would go better."""
    ids = world.keep(record_at())
    world.answer = AccessDenied("no")

    with pytest.raises(AccessDenied):
        list(world.service.resend(ids, by="ann"))


@pytest.mark.parametrize("applied", [False, True])
def test_a_crash_before_it_is_noted_lets_it_be_done_again(
    world: World,
    *,
    applied: bool,
) -> None:
    """Whether or not the note was written; the second one ends its alarm."""
    ids = world.keep(record_at())
    world.dynamo.faults.append(Fault(Unclear("u"), applied=applied))

    with pytest.raises(Unclear):
        list(world.service.resend(ids, by="ann"))
    (outcome,) = world.service.resend(ids, by="bob")

    assert outcome.resolved
    assert outcome.record.handled is not None
    assert outcome.record.handled.by == ("ann" if applied else "bob")
    assert len(world.redriven) == (1 if applied else 2)
    assert world.notices.bodies == []


def test_of_two_who_handle_one_the_first_is_kept(world: World) -> None:
    record = record_at()
    world.keep(record)
    anns = QuarantineHandling(HandledHow.RESENT, "ann", NOW_MS)
    world.store.handle(record, anns)

    late = world.store.handle(record, QuarantineHandling(HandledHow.DISCARDED, "bob", NOW_MS + 1))

    assert late.handled == anns
    assert world.store.find(record.id) == late
    (outcome,) = world.service.discard([record.id], by="bob")
    assert outcome.detail == "resent by ann"


@pytest.mark.parametrize(
    "quarantine_id", ["", "x", "ledger-1-a", "other-1700000000000-0123456789abcdef", 5]
)
def test_what_no_copy_is_called_is_refused(world: World, quarantine_id: object) -> None:
    with pytest.raises(NotQuarantined, match="quarantine list"):
        world.service.show(cast("str", quarantine_id))
    assert world.dynamo.calls == []


def test_a_copy_that_is_gone_is_not_marked(world: World) -> None:
    """A mark must not make an item of its own."""
    with pytest.raises(NotQuarantined):
        world.service.show(record_at().id)
    with pytest.raises(NotQuarantined):
        world.store.handle(record_at(), ANNS)
    assert world.dynamo.items(COUNTERS) == []


@pytest.mark.parametrize("by", ["", "x" * 257, "a\nb"])
def test_nobody_handles_anything_without_a_name(world: World, by: str) -> None:
    with pytest.raises(BadSetting):
        world.service.discard(world.keep(record_at()), by=by)


def test_bad_choices_are_refused(world: World) -> None:
    with pytest.raises(BadSetting, match="ledger, counters, kinesis"):
        world.service.list("elsewhere")
    with pytest.raises(BadSetting, match="limit 0"):
        world.service.list(limit=0)


def test_an_item_corrupt_by_hand_is_named(world: World) -> None:
    world.dynamo.put(Put(COUNTERS, {**encode_quarantined(record_at()), "content": "text"}))

    with pytest.raises(CorruptItem, match="content"):
        list(world.service.list())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('{"quarantine_id": "a"}', ["a"]),
        ('{"rejected": [{"quarantine_id": "a"}, {"quarantine_id": "b"}]}', ["a", "b"]),
        ('{"rejected": [{"quarantine_id": "a"}, {}]}', []),
        ('{"reason": "no copy"}', []),
        ('{"quarantine_id": 5}', []),
        ("[]", []),
        ("5", []),
        ("no JSON", []),
    ],
)
def test_a_message_that_names_no_copy_for_a_part_is_skipped(body: str, named: list[str]) -> None:
    assert quarantine_ids_in(body) == named
