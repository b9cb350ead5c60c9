"""What came too late: told apart by the ledger, and sent again as another entry, once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.entry import encode_entry
from countledger.ledger.errors import BadPayload, Unacknowledged, Unclear
from countledger.ledger.head import NO_HEAD, Head, encode_head
from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Put
from countledger.producers.event import Status
from countledger.producers.ingest.late import LateResender, LateStatus, late_status
from countledger.producers.ingest.redrive import entries_in
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.ingest.world import World
from tests.unit.producers.kinesis.entries import entry
from tests.unit.producers.senders import REGION, TABLE, sender_on

if TYPE_CHECKING:
    from countledger.ledger.entry import Entry

MADE_MS = NOW_MS - HORIZON_DEFAULT_MS - HOUR_MS
LATE = entry(7, at_ms=MADE_MS)
BARE = replace(LATE, key="order-1", id=id_of_key("order-1"))


def head(from_at_ms: int, to_at_ms: int) -> Head:
    """A head of entries of that period."""
    return Head(generation=3, sum=5, events=9, entries=9, from_at_ms=from_at_ms, to_at_ms=to_at_ms)


def override_on(world: World) -> LateResender:
    """An override that reads and writes the world's ledger."""
    reads = MemoryClient(tables=world.dynamo.tables)
    return LateResender(sender_on(world.dynamo, world.clock), reads, world.clock)


@pytest.mark.parametrize(
    ("late", "merged", "standing"),
    [
        (LATE, NO_HEAD, LateStatus.UNCOUNTED),
        (LATE, head(MADE_MS - 9, MADE_MS - 1), LateStatus.UNCOUNTED),
        (LATE, head(MADE_MS + 1, MADE_MS + 9), LateStatus.UNKNOWN),
        (LATE, head(MADE_MS, MADE_MS + 9), LateStatus.UNKNOWN),
        (LATE, head(MADE_MS - 9, MADE_MS), LateStatus.UNKNOWN),
        (BARE, NO_HEAD, LateStatus.UNCOUNTED),
        (BARE, head(MADE_MS + 1, MADE_MS + 9), LateStatus.UNKNOWN),
    ],
)
def test_a_head_tells_where_it_can(late: Entry, merged: Head, standing: LateStatus) -> None:
    """What was merged is not younger than its head; a bare key may have come at any time."""
    assert late_status(late, None, merged) is standing


def test_what_is_there_was_counted_or_is_another_change() -> None:
    """Whatever else was merged."""
    there = {"counter": LATE.counter, "entry": "e#", "delta": 7}

    assert late_status(LATE, there, NO_HEAD) is LateStatus.COUNTED
    assert late_status(LATE, {**there, "delta": 8}, NO_HEAD) is LateStatus.REFUSED


def test_what_was_never_counted_is_sent_once_however_often_it_is_sent() -> None:
    """As an entry made now, whose business time is when it was made."""
    world = World()
    override = override_on(world)

    first = override.resolve(LATE, send=True)
    world.clock.at_ms += 1_000
    again = override.resolve(LATE, send=True)

    assert (first.sent, again.sent) == (Status.RECORDED, Status.DUPLICATE)
    assert first.resolved
    (item,) = [i for i in world.dynamo.items(TABLE) if i["entry"].startswith("e#")]
    assert (item["delta"], item["at"], item["occurred_at"]) == (7, NOW_MS, MADE_MS)
    assert item["key"] == f"override:{LATE.id}"


def test_what_may_have_been_counted_is_sent_only_if_a_person_says_so() -> None:
    """Else it stays."""
    world = World()
    world.dynamo.put(Put(TABLE, encode_head(LATE.counter, head(0, NOW_MS))))
    override = override_on(world)

    kept = override.resolve(LATE, send=True)
    forced = override.resolve(LATE, send=True, even_if_counted=True)

    assert (kept.status, kept.sent, kept.resolved) == (LateStatus.UNKNOWN, None, False)
    assert (forced.sent, forced.resolved) == (Status.RECORDED, True)
    assert world.deltas() == [7]


def test_what_was_counted_is_never_sent_also_by_force() -> None:
    """An earlier sending was ingested in time."""
    world = World()
    world.dynamo.put(Put(TABLE, encode_entry(LATE, 1)))

    late = override_on(world).resolve(LATE, send=True, even_if_counted=True)

    assert (late.status, late.sent, late.resolved) == (LateStatus.COUNTED, None, True)
    assert world.deltas() == [7]


@pytest.mark.parametrize(
    ("behind_ms", "standing"),
    [(30 * MINUTE_MS, LateStatus.UNKNOWN), (32 * MINUTE_MS, LateStatus.UNCOUNTED)],
)
def test_what_expired_a_moment_ago_may_still_be_written(
    behind_ms: int, standing: LateStatus
) -> None:
    """To another clock it has not expired, and a request may be on its way."""
    late = replace(LATE, at_ms=NOW_MS - HORIZON_DEFAULT_MS - behind_ms)

    assert override_on(World()).status_of(late) is standing


def test_a_look_changes_nothing() -> None:
    """Listing sends none."""
    world = World()

    late = override_on(world).resolve(LATE, send=False)

    assert (late.status, late.resolved) == (LateStatus.UNCOUNTED, False)
    assert world.deltas() == []


def test_what_could_not_be_sent_stays() -> None:
    """Its error is its own, and the next run knows it again."""
    world = World()
    override = override_on(world)
    world.dynamo.faults.extend(
        [*[Fault(Unclear("lost"))] * 7, Fault(Unclear("lost"), applied=True)]
    )

    late = override.resolve(LATE, send=True)

    assert isinstance(late.sent, Unacknowledged)
    assert not late.resolved
    assert override.resolve(LATE, send=True).sent is Status.DUPLICATE
    assert world.deltas() == [7]


def test_a_letter_gives_back_the_entries_that_it_tells_of() -> None:
    """As they came, a bare key with the time of its arrival."""
    world = World()
    data = json.dumps({"v": 1, "counter": "a", "delta": 3, "key": "é"}).encode()
    world.apply(data, arrived_ms=MADE_MS)
    (letter,) = world.quarantine.expired

    (late,) = entries_in(letter.body, REGION)

    assert (late.key, late.delta, late.at_ms) == ("é", 3, MADE_MS)


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "{}", '{"format":2}', '{"format":1,"rejected":[{}]}']
)
def test_a_message_of_somebody_else_is_refused(body: str) -> None:
    """With the reason, and nothing is deleted."""
    with pytest.raises(BadPayload):
        entries_in(body, REGION)
