"""Sending one entry: until it is in, or nobody may send it any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.attempts import Backoff
from countledger.ledger.errors import (
    AccessDenied,
    CountledgerError,
    IdempotencyKeyReused,
    KeyExpired,
    NoCredentials,
    RequestRejected,
    ServiceFailed,
    Throttled,
    Unacknowledged,
    Unclear,
    Unreachable,
)
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.producers.event import Event, Receipt, Status, make_entry
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.senders import REGION, TABLE, entries_in, sender_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry

_FINAL = [AccessDenied("no"), NoCredentials("expired"), ServiceFailed("?")]
_AT = datetime.fromtimestamp(NOW_MS / 1000, UTC)


def _entry(delta: int = 5, key: str | IdempotencyKey | None = None) -> Entry:
    return make_entry(Event("a:b", delta, key), now_ms=NOW_MS, origin=REGION, new_id=new_id)


def test_an_entry_that_is_absent_is_recorded_by_one_put() -> None:
    """One round trip, no read."""
    dynamo = MemoryClient()

    receipt = sender_on(dynamo, ManualClock()).send(_entry())

    assert receipt.status is Status.RECORDED
    assert dynamo.calls == ["put"]


def test_the_same_key_and_delta_is_a_duplicate() -> None:
    """Success, and it counts once."""
    dynamo = MemoryClient()
    sender = sender_on(dynamo, ManualClock())

    statuses = [sender.send(_entry(5, "order-1")).status for _ in range(3)]

    assert statuses == [Status.RECORDED, Status.DUPLICATE, Status.DUPLICATE]
    assert entries_in(dynamo) == [5]


def test_the_same_key_with_another_delta_is_refused() -> None:
    """The message tells both deltas."""
    dynamo = MemoryClient()
    sender = sender_on(dynamo, ManualClock())
    sender.send(_entry(5, "order-1"))

    with pytest.raises(IdempotencyKeyReused, match=r"'order-1'.*delta of 5.*with 7"):
        sender.send(_entry(7, "order-1"))

    assert entries_in(dynamo) == [5]


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_is_asked_again_and_counts_once(*, applied: bool) -> None:
    """Whether or not the lost attempt was applied, the receipt says recorded."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"), applied)])

    receipt = sender_on(dynamo, ManualClock()).send(_entry())

    assert receipt.status is Status.RECORDED
    assert entries_in(dynamo) == [5]
    assert dynamo.calls == ["put", "put"]


@pytest.mark.parametrize("error", [Throttled("slow"), Unreachable("nobody")])
def test_a_retry_of_an_earlier_call_is_a_duplicate_also_behind_a_throttle(
    error: CountledgerError,
) -> None:
    """An attempt that certainly wrote nothing cannot have written the item that is found."""
    dynamo = MemoryClient()
    sender = sender_on(dynamo, ManualClock())
    entry = _entry(5, IdempotencyKey("order-1", _AT))
    sender.send(entry)
    dynamo.faults.append(Fault(error))

    assert sender.send(entry).status is Status.DUPLICATE


@pytest.mark.parametrize("later", _FINAL)
def test_an_error_behind_a_lost_answer_still_hands_the_entry_back(later: CountledgerError) -> None:
    """The lost attempt may have been applied, so `nothing was written` would be untrue."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"), applied=True), Fault(later)])
    entry = _entry()

    with pytest.raises(Unacknowledged) as caught:
        sender_on(dynamo, ManualClock()).send(entry)

    assert caught.value.entry == entry
    assert entries_in(dynamo) == [5]


@pytest.mark.parametrize("error", [Unclear("lost"), Throttled("slow")])
def test_an_entry_without_clear_answer_comes_back_to_be_resent(error: CountledgerError) -> None:
    """Eight attempts, then the very entry is handed back; resent, it counts once."""
    clock = ManualClock()
    dynamo = MemoryClient(faults=[Fault(error)] * 8)
    sender = sender_on(dynamo, clock)

    with pytest.raises(Unacknowledged, match="resend exactly this entry") as caught:
        sender.send(_entry())

    assert len(dynamo.calls) == 8
    assert len(clock.slept_ms) == 7
    sender.send(caught.value.entry)
    assert entries_in(dynamo) == [5]


@pytest.mark.parametrize("error", [AccessDenied("no"), NoCredentials("who"), RequestRejected("?")])
def test_what_no_retry_can_mend_is_raised_at_once(error: CountledgerError) -> None:
    """One attempt."""
    dynamo = MemoryClient(faults=[Fault(error)])

    with pytest.raises(type(error)):
        sender_on(dynamo, ManualClock()).send(_entry())

    assert dynamo.calls == ["put"]


def test_nothing_reachable_is_a_matter_of_setup() -> None:
    """No attempt left this machine, so there is nothing to resend."""
    dynamo = MemoryClient(faults=[Fault(Unreachable("nobody"))] * 8)

    with pytest.raises(Unreachable):
        sender_on(dynamo, ManualClock()).send(_entry())


def test_the_horizon_is_asked_before_every_attempt() -> None:
    """A process that was frozen between two attempts must not send again."""
    clock = ManualClock()

    def freeze(_now_ms: int) -> None:
        clock.at_ms += HORIZON_DEFAULT_MS + 1

    clock.on_sleep = freeze
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"))])

    with pytest.raises(KeyExpired):
        sender_on(dynamo, clock).send(_entry())

    assert dynamo.calls == ["put"]
    assert entries_in(dynamo) == []


def test_a_batch_asks_the_horizon_before_every_attempt_too() -> None:
    """The outcome of an entry that grew too old is its own."""
    clock = ManualClock()

    def freeze(_now_ms: int) -> None:
        clock.at_ms += HORIZON_DEFAULT_MS + 1

    clock.on_sleep = freeze
    dynamo = MemoryClient(faults=[Fault(Throttled("slow"))])

    outcomes = sender_on(dynamo, clock).send_batch([_entry(1), _entry(2)])

    assert [type(outcome) for outcome in outcomes] == [KeyExpired, KeyExpired]
    assert entries_in(dynamo) == []


@pytest.mark.parametrize("applied", [True, False])
def test_a_batch_whose_answer_is_lost_is_put_again_and_counts_once(*, applied: bool) -> None:
    """An identical put over itself changes nothing."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"), applied)])

    outcomes = sender_on(dynamo, ManualClock()).send_batch([_entry(n) for n in range(1, 26)])

    assert {o.status for o in outcomes if isinstance(o, Receipt)} == {Status.RECORDED}
    assert len(outcomes) == 25
    assert sorted(map(str, entries_in(dynamo))) == sorted(map(str, range(1, 26)))


def test_a_batch_that_is_called_invalid_is_sent_one_by_one() -> None:
    """The service names no culprit; only it fails."""
    bad = Fault(RequestRejected("too large"))
    dynamo = MemoryClient(faults=[bad, None, bad, None])

    outcomes = sender_on(dynamo, ManualClock()).send_batch([_entry(1), _entry(2), _entry(3)])

    assert [type(outcome) for outcome in outcomes] == [Receipt, RequestRejected, Receipt]
    assert sorted(map(str, entries_in(dynamo))) == ["1", "3"]


@pytest.mark.parametrize("error", _FINAL)
def test_a_batch_that_fails_for_good_says_so_for_each_of_its_entries(
    error: CountledgerError,
) -> None:
    """A failure of one batch takes no other batch's receipts with it."""
    dynamo = MemoryClient(faults=[Fault(error)])

    outcomes = sender_on(dynamo, ManualClock()).send_batch([_entry(1), _entry(2)])

    assert outcomes == [error, error]


def test_a_batch_that_fails_behind_a_lost_answer_hands_its_entries_back() -> None:
    """They may be in; each can be resent."""
    dynamo = MemoryClient(
        faults=[Fault(Unclear("lost"), applied=True), Fault(NoCredentials("expired"))]
    )
    entries = [_entry(1), _entry(2)]

    outcomes = sender_on(dynamo, ManualClock()).send_batch(entries)

    assert [o.entry for o in outcomes if isinstance(o, Unacknowledged)] == entries
    assert TABLE in dynamo.tables


@pytest.mark.parametrize("then", _FINAL)
def test_a_batch_that_was_lost_and_then_refused_may_still_be_in(then: CountledgerError) -> None:
    """Sent one by one, an entry keeps what is known of the batch: an attempt may have stored it."""
    met: list[Fault | None] = [
        Fault(Unclear("lost"), applied=True),
        Fault(RequestRejected("one")),
        Fault(then),
    ]
    dynamo = MemoryClient(faults=met)
    entry = _entry()

    (outcome,) = sender_on(dynamo, ManualClock()).send_batch([entry])

    assert isinstance(outcome, Unacknowledged)
    assert outcome.entry == entry
    assert entries_in(dynamo) == [5]


def test_what_a_batch_has_written_is_recorded_whatever_becomes_of_the_rest() -> None:
    """Also if the last attempt wrote a part of it."""

    class Leaving(MemoryClient):
        def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
            super().put_batch(table, items[:1])
            return list(items[1:])

    dynamo = Leaving()
    sender = replace(sender_on(dynamo, ManualClock()), backoff=Backoff(2))
    entries = [_entry(delta) for delta in (1, 2, 3)]

    outcomes = sender.send_batch(entries)

    assert [type(outcome) for outcome in outcomes] == [Receipt, Receipt, Unacknowledged]
    assert set(entries_in(dynamo)) == {1, 2}
