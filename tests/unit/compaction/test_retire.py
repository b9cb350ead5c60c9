"""Deleting merged entries: what is tried again, what stops, and for how long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import Barrier
from typing import Any

import pytest

from countledger.compaction.retire import Retire, Retirer, Tampered
from countledger.ledger.attempts import Backoff
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    ServiceFailed,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.head import Covered, Head
from countledger.ledger.operations import Delete, Write
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

TIMED, BARE = "e#0", "e#k"
HEAD = Head(generation=3, run="r", covers={TIMED: Covered(5), BARE: Covered(6, at_ms=100)})
ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class RefusingClient(MemoryClient):
    """The first calls meet these errors; what went through is kept."""

    errors: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    sent_tokens: list[str] = field(default_factory=list)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """A transaction."""
        self.sent_tokens.append(token)
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.extend(w.key["entry"] for w in writes if isinstance(w, Delete))
        return True

    def delete(self, write: Delete) -> None:
        """A single delete."""
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(write.key["entry"])


def _retirer(dynamo: RefusingClient, how: Retire, clock: ManualClock) -> Retirer:
    return Retirer(
        dynamo=dynamo,
        table="t",
        counter="c",
        head=HEAD,
        how=how,
        run="run",
        clock=clock,
        random=Random(1),  # noqa: S311 - jitter
        backoff=Backoff(attempts=ATTEMPTS),
        workers=1,
        before_send=lambda: None,
    )


def test_several_workers_delete_at_once() -> None:
    """Each waits until the other one deletes as well."""
    meeting = Barrier(2)

    class MeetingClient(RefusingClient):
        def delete(self, write: Delete) -> None:
            meeting.wait(5)
            RefusingClient.delete(self, write)

    dynamo = MeetingClient()
    retirer = replace(_retirer(dynamo, Retire.DELETE, ManualClock()), workers=2)

    assert retirer.retire([TIMED, BARE], lambda: False)
    assert sorted(dynamo.deleted) == [TIMED, BARE]


def _cancelled(*reasons: Reason) -> TransactionCancelled:
    return TransactionCancelled(reasons)


def _item(key: str, delta: int, at_ms: int) -> dict[str, Any]:
    return {"counter": "c", "entry": key, "delta": delta, "at": at_ms}


CONFLICT = Reason("TransactionConflict")
NONE = Reason("None")
PASSING: list[Callable[[], Exception]] = [
    lambda: _cancelled(CONFLICT, NONE),
    lambda: _cancelled(NONE, Reason("ThrottlingError")),
    lambda: Throttled("later"),
    lambda: Unclear("no answer"),
]


@pytest.mark.parametrize("error", PASSING)
def test_what_may_pass_is_tried_again(error: Callable[[], Exception]) -> None:
    """With jitter, under the same token: the service carries it out once."""
    dynamo, clock = RefusingClient(errors=[error(), error()]), ManualClock()

    assert _retirer(dynamo, Retire.TRANSACTION, clock).retire(list(HEAD.covers), lambda: False)

    assert dynamo.deleted == [TIMED, BARE]
    assert len(clock.slept_ms) == 2
    assert len(set(dynamo.sent_tokens)) == 1


@pytest.mark.parametrize("how", Retire)
def test_tries_are_bounded(how: Retire) -> None:
    """A conflict that stays is reported; the next run goes on."""
    dynamo, clock = RefusingClient(errors=[Throttled("later") for _ in range(99)]), ManualClock()

    with pytest.raises(ServiceFailed, match="after 4 attempts"):
        _retirer(dynamo, how, clock).retire([TIMED], lambda: False)

    assert len(clock.slept_ms) == ATTEMPTS - 1
    assert dynamo.deleted == []


def test_a_reason_that_stays_is_not_tried_again() -> None:
    """The service calls the request invalid."""
    dynamo, clock = (
        RefusingClient(errors=[_cancelled(Reason("ValidationError"), NONE)]),
        ManualClock(),
    )

    with pytest.raises(ServiceFailed, match="ValidationError"):
        _retirer(dynamo, Retire.TRANSACTION, clock).retire(list(HEAD.covers), lambda: False)

    assert clock.slept_ms == []


def test_a_changed_entry_stops_the_transaction() -> None:
    """Also beside a conflict."""
    changed = Reason("ConditionalCheckFailed", _item(TIMED, 7, 1))
    dynamo = RefusingClient(errors=[_cancelled(changed, CONFLICT)])

    with pytest.raises(Tampered, match=r"delta 5 and has 7"):
        _retirer(dynamo, Retire.TRANSACTION, ManualClock()).retire(list(HEAD.covers), lambda: False)

    assert dynamo.deleted == []


def test_an_entry_made_anew_is_left_out() -> None:
    """The others go without it, under a token of their own."""
    renewed = Reason("ConditionalCheckFailed", _item(BARE, 6, 900))
    dynamo = RefusingClient(errors=[_cancelled(NONE, renewed)])

    assert _retirer(dynamo, Retire.TRANSACTION, ManualClock()).retire(
        list(HEAD.covers), lambda: False
    )

    assert dynamo.deleted == [TIMED]
    assert len(set(dynamo.sent_tokens)) == 2


def test_single_deletes_are_evaluated_alike() -> None:
    """Made anew: left alone. Changed: stops."""
    anew = RefusingClient(errors=[ConditionFailed(_item(BARE, 6, 900))])
    assert _retirer(anew, Retire.DELETE, ManualClock()).retire([BARE], lambda: False)
    assert anew.deleted == []

    changed = RefusingClient(errors=[ConditionFailed(_item(BARE, 7, 100))])
    with pytest.raises(Tampered):
        _retirer(changed, Retire.DELETE, ManualClock()).retire([BARE], lambda: False)


def test_nothing_is_deleted_past_the_deadline() -> None:
    """It says that something is left."""
    dynamo = RefusingClient()

    assert not _retirer(dynamo, Retire.DELETE, ManualClock()).retire([TIMED, BARE], lambda: True)

    assert dynamo.deleted == []
