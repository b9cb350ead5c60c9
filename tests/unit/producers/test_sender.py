"""Sending one entry or a batch: until it is in, or nobody may send it any more."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from countledger.ledger.asynchronous.calls import suspended
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    AccessDenied,
    ClockSkew,
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    NoCredentials,
    RequestRejected,
    ServiceFailed,
    Throttled,
    Unacknowledged,
    Unclear,
    Unreachable,
)
from countledger.ledger.exact import Covered, Head, encode_head
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.ledger.keys import ENTRY_PREFIX, entry_key
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Put
from countledger.ledger.suspension import CallNotes, Interrupted
from countledger.producers.event import Event, Receipt, Status, make_entry
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, Get, MemoryClient, at, refuses
from tests.unit.producers.senders import REGION, TABLE, entries_in, sender_on, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry

_LOST, _APPLIED = Fault(Unclear("lost")), Fault(Unclear("lost"), applied=True)
_SLOW, _NOBODY = Fault(Throttled("slow")), Fault(Unreachable("nobody"))
_DENIED, _EXPIRED = Fault(AccessDenied("no")), Fault(NoCredentials("expired"))
_NOTHING = Fault(ConditionFailed(None))
_INVALID, _FAILED = Fault(RequestRejected("too large")), Fault(ServiceFailed("?"))


def _entry(delta: int = 5, key: str | IdempotencyKey | None = None) -> Entry:
    return make_entry(Event("a:b", delta, key), now_ms=NOW_MS, origin=REGION, new_id=new_id)


@dataclass(frozen=True)
class Case:
    """What the attempts at one entry meet, how it ends, and how many attempts were made."""

    faults: list[Fault]
    ends: type[object]
    calls: int
    stored: bool = True


ONE = {
    "one put, without a read": Case([], Receipt, 1),
    "a lost request is repeated": Case([_LOST], Receipt, 2),
    "a lost answer is repeated": Case([_APPLIED], Receipt, 2),
    "a refusal is raised at once": Case([_DENIED], AccessDenied, 1, stored=False),
    "so are missing credentials": Case([_EXPIRED], NoCredentials, 1, stored=False),
    "so is an invalid request": Case([_INVALID], RequestRejected, 1, stored=False),
    "nothing reachable": Case([_NOBODY] * 8, Unreachable, 8, stored=False),
    "a condition that fails over nothing": Case([_NOTHING], ConditionFailed, 1, stored=False),
    "no answer in eight attempts": Case([_LOST] * 8, Unacknowledged, 8, stored=False),
    "throttled eight times": Case([_SLOW] * 8, Unacknowledged, 8, stored=False),
    # The lost attempt may have been applied, so "nothing was written" would be untrue.
    "denied after a lost answer": Case([_APPLIED, _DENIED], Unacknowledged, 2),
    "expired after a lost answer": Case([_APPLIED, _EXPIRED], Unacknowledged, 2),
    "failed after a lost answer": Case([_APPLIED, _FAILED], Unacknowledged, 2),
    "nothing reachable after a lost answer": Case([_APPLIED, *[_NOBODY] * 7], Unacknowledged, 8),
}


@pytest.mark.parametrize("case", ONE.values(), ids=list(ONE))
def test_an_entry_is_recorded_refused_or_handed_back(case: Case) -> None:
    dynamo, clock, entry = MemoryClient(faults=[*case.faults]), ManualClock(), _entry()
    sender = sender_on(dynamo, clock)
    outcome: object
    try:
        outcome = sender.send(entry)
    except CountledgerError as error:
        outcome = error

    assert type(outcome) is case.ends
    assert entries_in(dynamo) == ([5] if case.stored else [])
    assert dynamo.calls == ["put"] * case.calls
    assert len(clock.slept_ms) == case.calls - 1
    if isinstance(outcome, Receipt):
        assert outcome.status is Status.RECORDED
    if isinstance(outcome, Unacknowledged):
        assert outcome.entry == entry
        assert "resend exactly this entry" in str(outcome)
        sender.send(outcome.entry)
        assert entries_in(dynamo) == [5]


# What the calls of a batch of three meet, and its outcomes. An invalid batch is sent one by one,
# because the service names no culprit.
_BATCHES: dict[str, tuple[list[Fault | None], list[type[object]]]] = {
    "a lost request": ([_LOST], [Receipt] * 3),
    "a lost answer": ([_APPLIED], [Receipt] * 3),
    "one invalid entry": ([_INVALID, None, _INVALID, None], [Receipt, RequestRejected, Receipt]),
    "denied": ([_DENIED], [AccessDenied] * 3),
    "expired credentials": ([_EXPIRED], [NoCredentials] * 3),
    "a failed service": ([_FAILED], [ServiceFailed] * 3),
    "expired after a lost answer": ([_APPLIED, _EXPIRED], [Unacknowledged] * 3),
    "invalid after a lost answer, then denied": (
        [_APPLIED, _INVALID, *[_DENIED] * 3],
        [Unacknowledged] * 3,
    ),
}


@pytest.mark.parametrize(("faults", "ends"), _BATCHES.values(), ids=list(_BATCHES))
def test_each_entry_of_a_batch_has_its_own_outcome(
    faults: list[Fault | None], ends: list[type[object]]
) -> None:
    dynamo, entries = MemoryClient(faults=[*faults]), [_entry(delta) for delta in (1, 2, 3)]

    outcomes = sent(sender_on(dynamo, ManualClock()), entries)

    assert [type(outcome) for outcome in outcomes] == ends
    recorded = [e.delta for e, end in zip(entries, ends, strict=True) if end is Receipt]
    if faults[0] is not _APPLIED:
        assert sorted(map(str, entries_in(dynamo))) == sorted(map(str, recorded))
    else:
        assert len(entries_in(dynamo)) == 3
    for entry, outcome in zip(entries, outcomes, strict=True):
        assert not isinstance(outcome, Unacknowledged) or outcome.entry == entry


def test_what_a_batch_has_written_is_recorded_whatever_becomes_of_the_rest() -> None:
    def leaves(_kind: str, items: list[Item], _request: Callable[[], Any]) -> list[Item]:
        MemoryClient(tables=dynamo.tables).put(Put(TABLE, items[0]))
        return list(items[1:])

    dynamo = MemoryClient(plans=[at(leaves, "put_batch")])
    sender = replace(sender_on(dynamo, ManualClock()), backoff=Backoff(2))

    outcomes = sent(sender, [_entry(delta) for delta in (1, 2, 3)])

    assert [type(outcome) for outcome in outcomes] == [Receipt, Receipt, Unacknowledged]
    assert set(entries_in(dynamo)) == {1, 2}


@pytest.mark.parametrize(("fault", "maybe_applied"), [(_SLOW, False), (_LOST, True)])
def test_a_call_that_is_cancelled_between_attempts_names_only_what_may_be_in(
    fault: Fault, *, maybe_applied: bool
) -> None:
    def cancel(_now_ms: int) -> None:
        raise Interrupted(CancelledError())

    sender, notes = (
        sender_on(MemoryClient(faults=[fault]), ManualClock(on_sleep=cancel)),
        CallNotes(),
    )
    entry = _entry()

    with pytest.raises(CancelledError):
        asyncio.run(suspended(partial(sender.send, entry), notes))

    assert notes.entries == [entry] * maybe_applied


@pytest.mark.parametrize(("ago_ms", "error"), [(DAY_MS + 1, KeyExpired), (-HOUR_MS, ClockSkew)])
def test_an_entry_that_may_not_be_written_makes_no_namespace(
    ago_ms: int, error: type[CountledgerError]
) -> None:
    """Its kind could never be changed again."""
    dynamo = MemoryClient()
    entry = replace(_entry(key="k"), at_ms=NOW_MS - ago_ms)

    with pytest.raises(error):
        sender_on(dynamo, ManualClock()).send(entry)

    assert dynamo.items(TABLE) == []


@pytest.mark.parametrize(
    ("faults", "ends", "status"),
    [
        ([_APPLIED], Receipt, Status.RECORDED),
        ([_LOST], Unacknowledged, None),
    ],
)
def test_an_entry_that_expires_between_two_attempts_is_looked_for(
    faults: list[Fault], ends: type[object], status: Status | None
) -> None:
    """It was applied, or nobody knows: that it is absent does not say that it never comes."""
    dynamo = MemoryClient(faults=[*faults])
    entry = replace(_entry(key="k"), at_ms=NOW_MS - DAY_MS)

    outcome = sender_on(dynamo, ManualClock()).outcome_of(entry)

    assert type(outcome) is ends
    assert getattr(outcome, "status", None) is status
    assert dynamo.calls[:2] == ["put", "get"]
    if isinstance(outcome, Unacknowledged):
        assert outcome.entry == entry


@pytest.mark.parametrize(
    ("delta", "at_ms", "recorded"),
    [(5, NOW_MS - DAY_MS, True), (6, NOW_MS - DAY_MS, False), (5, NOW_MS, False)],
)
def test_an_entry_that_was_merged_since_is_looked_for_in_its_head(
    delta: int, at_ms: int, *, recorded: bool
) -> None:
    """Only the same entry is: a bare key may have been used before."""
    dynamo = MemoryClient()
    entry = replace(_entry(5, key="k"), at_ms=NOW_MS - DAY_MS)
    covered = {entry_key(entry.id, 1): Covered(delta, at_ms)}
    head = Head(generation=1, run="r", incarnation="r", covers=covered)
    dynamo.put(Put(TABLE, encode_head(entry.counter, head)))
    dynamo.faults[:] = [_LOST]

    outcome = sender_on(dynamo, ManualClock()).outcome_of(entry)

    assert isinstance(outcome, Receipt if recorded else Unacknowledged)


@pytest.mark.parametrize("error", [AccessDenied("no GetItem"), Throttled("busy")])
def test_an_entry_that_cannot_be_looked_for_is_unacknowledged(error: CountledgerError) -> None:
    """As with the policy of an app that may only write."""
    dynamo = MemoryClient(faults=[_LOST])
    dynamo.plans.append(refuses(error, "get", times=100, where=_is_of_the_entry))
    entry = replace(_entry(key="k"), at_ms=NOW_MS - DAY_MS)

    assert isinstance(sender_on(dynamo, ManualClock()).outcome_of(entry), Unacknowledged)


def _is_of_the_entry(what: Get) -> bool:
    return str(what.key["entry"]).startswith(ENTRY_PREFIX)


def test_an_entry_that_expires_before_it_is_sent_is_not_looked_for() -> None:
    dynamo = MemoryClient(faults=[_SLOW])
    entry = replace(_entry(key="k"), at_ms=NOW_MS - DAY_MS)

    assert isinstance(sender_on(dynamo, ManualClock()).outcome_of(entry), KeyExpired)
    assert dynamo.calls == ["put"]


@pytest.mark.parametrize(("fault", "ends"), [(_APPLIED, Unacknowledged), (_SLOW, KeyExpired)])
def test_a_batch_that_expires_after_a_lost_answer_is_unacknowledged(
    fault: Fault, ends: type[object]
) -> None:
    dynamo = MemoryClient(faults=[fault])
    entries = [replace(_entry(delta), at_ms=NOW_MS - DAY_MS) for delta in (1, 2)]

    outcomes = sent(sender_on(dynamo, ManualClock()), entries)

    assert [type(one) for one in outcomes] == [ends] * 2
