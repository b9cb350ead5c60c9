"""What came too late: the ledger says whether it was counted, and it is sent again once."""

import json
from dataclasses import replace
from typing import Any

import pytest

from countledger.ledger.attributes import Item
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadPayload, Unacknowledged
from countledger.ledger.exact import NO_HEAD, Head
from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import HORIZON_DEFAULT_MS, HOUR_MS, MINUTE_MS
from countledger.producers.event import Status
from countledger.producers.ingest.ingest import LateResender, LateStatus, late_status
from countledger.producers.ingest.redrive import entries_in
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import LOST, Fault, MemoryClient
from tests.unit.producers.ingest.world import World
from tests.unit.producers.kinesis.entries import entry
from tests.unit.producers.senders import REGION, process_on

MADE_MS = NOW_MS - HORIZON_DEFAULT_MS - HOUR_MS
LATE = entry(7, at_ms=MADE_MS)
BARE = replace(LATE, key="order-1", id=id_of_key("order-1"))
THERE = encode_entry(LATE, 1)


def head(from_at_ms: int, to_at_ms: int) -> Head:
    """A head of entries of that period."""
    return Head(generation=3, sum=5, events=9, entries=9, from_at_ms=from_at_ms, to_at_ms=to_at_ms)


def resender_on(world: World) -> LateResender:
    return LateResender(process_on(world.dynamo, world.clock))


@pytest.mark.parametrize(
    ("late", "there", "merged", "status"),
    [
        (LATE, None, NO_HEAD, LateStatus.UNCOUNTED),
        (LATE, None, head(MADE_MS - 9, MADE_MS - 1), LateStatus.UNCOUNTED),
        (LATE, None, head(MADE_MS + 1, MADE_MS + 9), LateStatus.UNKNOWN),
        (LATE, None, head(MADE_MS, MADE_MS + 9), LateStatus.UNKNOWN),
        (LATE, None, head(MADE_MS - 9, MADE_MS), LateStatus.UNKNOWN),
        # A bare key may have come at any time.
        (BARE, None, NO_HEAD, LateStatus.UNCOUNTED),
        (BARE, None, head(MADE_MS + 1, MADE_MS + 9), LateStatus.UNKNOWN),
        (LATE, THERE, NO_HEAD, LateStatus.COUNTED),
        (LATE, {**THERE, "delta": 8}, NO_HEAD, LateStatus.REFUSED),
    ],
)
def test_an_entry_and_a_head_say_whether_a_late_one_was_counted(
    late: Entry, there: Item | None, merged: Head, status: LateStatus
) -> None:
    assert late_status(late, there, merged) is status


@pytest.mark.parametrize(
    ("settings", "ago_min", "status"),
    [
        ({}, 30, LateStatus.UNKNOWN),
        ({}, 32, LateStatus.UNCOUNTED),
        ({"clock_skew_ms": 10 * MINUTE_MS}, 39, LateStatus.UNKNOWN),
        ({"clock_skew_ms": 10 * MINUTE_MS}, 41, LateStatus.UNCOUNTED),
        ({"replication_bound_ms": HOUR_MS}, 75, LateStatus.UNKNOWN),
        ({"replication_bound_ms": HOUR_MS}, 77, LateStatus.UNCOUNTED),
    ],
)
def test_what_expired_a_moment_ago_may_still_be_written(
    settings: dict[str, Any], ago_min: int, status: LateStatus
) -> None:
    """To another clock it has not expired, and a request may be on its way."""
    late = replace(LATE, at_ms=NOW_MS - HORIZON_DEFAULT_MS - ago_min * MINUTE_MS)

    assert LateResender(process_on(MemoryClient(), **settings)).status_of(late) is status


def test_what_could_not_be_sent_is_the_same_entry_at_the_next_run() -> None:
    """An entry made now, whose business time is when it was made; so it counts once."""
    world = World()
    resender = resender_on(world)
    world.dynamo.faults.extend([*[Fault(LOST)] * 7, Fault(LOST, applied=True)])

    late = resender.resolve(LATE, send=True)

    assert isinstance(late.sent, Unacknowledged)
    assert not late.resolved
    assert resender.resolve(LATE, send=True).sent is Status.DUPLICATE
    (item,) = world.items()
    assert (item["delta"], item["at"], item["occurred_at"]) == (7, NOW_MS, MADE_MS)
    assert item["key"] == f"override:{LATE.id}"


def test_a_message_gives_back_the_entries_that_it_is_about() -> None:
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
def test_a_message_of_another_sender_is_refused(body: str) -> None:
    with pytest.raises(BadPayload):
        entries_in(body, REGION)
