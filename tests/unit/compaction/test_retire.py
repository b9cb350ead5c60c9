"""Deleting merged entries: what is tried again, what stops, and for how long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import Barrier
from typing import Any

import pytest

from countledger.compaction.retire import Retire, Retirer, Tampered
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
from countledger.ledger.retry import Backoff
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryDoor

TIMED, BARE = "e#0", "e#k"
HEAD = Head(generation=3, run="r", covers={TIMED: Covered(5), BARE: Covered(6, at_ms=100)})
ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class RefusingDoor(MemoryDoor):
    """The first calls meet these errors; what went through is kept."""

    errors: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """A transaction."""
        self.tokens.append(token)
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.extend(w.key["entry"] for w in writes if isinstance(w, Delete))
        return True

    def delete(self, write: Delete) -> None:
        """A single delete."""
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(write.key["entry"])


def _retirer(door: RefusingDoor, how: Retire, clock: ManualClock) -> Retirer:
    return Retirer(
        door=door,
        table="t",
        counter="c",
        head=HEAD,
        how=how,
        run="run",
        clock=clock,
        random=Random(1),  # noqa: S311 - jitter
        backoff=Backoff(attempts=ATTEMPTS),
        workers=1,
        look=lambda: None,
    )


def test_several_workers_delete_at_once() -> None:
    """Each waits until the other one deletes as well."""
    meeting = Barrier(2)

    class MeetingDoor(RefusingDoor):
        def delete(self, write: Delete) -> None:
            meeting.wait(5)
            RefusingDoor.delete(self, write)

    door = MeetingDoor()
    retirer = replace(_retirer(door, Retire.DELETE, ManualClock()), workers=2)

    assert retirer.retire([TIMED, BARE], lambda: False)
    assert sorted(door.deleted) == [TIMED, BARE]


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
    door, clock = RefusingDoor(errors=[error(), error()]), ManualClock()

    assert _retirer(door, Retire.TRANSACTION, clock).retire(list(HEAD.covers), lambda: False)

    assert door.deleted == [TIMED, BARE]
    assert len(clock.slept_ms) == 2
    assert len(set(door.tokens)) == 1


@pytest.mark.parametrize("how", Retire)
def test_tries_are_bounded(how: Retire) -> None:
    """A conflict that stays is reported; the next run goes on."""
    door, clock = RefusingDoor(errors=[Throttled("later") for _ in range(99)]), ManualClock()

    with pytest.raises(ServiceFailed, match="after 4 attempts"):
        _retirer(door, how, clock).retire([TIMED], lambda: False)

    assert len(clock.slept_ms) == ATTEMPTS - 1
    assert door.deleted == []


def test_a_reason_that_stays_is_not_tried_again() -> None:
    """The service calls the request invalid."""
    door, clock = RefusingDoor(errors=[_cancelled(Reason("ValidationError"), NONE)]), ManualClock()

    with pytest.raises(ServiceFailed, match="ValidationError"):
        _retirer(door, Retire.TRANSACTION, clock).retire(list(HEAD.covers), lambda: False)

    assert clock.slept_ms == []


def test_a_changed_entry_stops_the_transaction() -> None:
    """Also beside a conflict."""
    changed = Reason("ConditionalCheckFailed", _item(TIMED, 7, 1))
    door = RefusingDoor(errors=[_cancelled(changed, CONFLICT)])

    with pytest.raises(Tampered, match=r"delta 5 and carries 7"):
        _retirer(door, Retire.TRANSACTION, ManualClock()).retire(list(HEAD.covers), lambda: False)

    assert door.deleted == []


def test_an_entry_made_anew_is_left_out() -> None:
    """The others go without it, under a token of their own."""
    renewed = Reason("ConditionalCheckFailed", _item(BARE, 6, 900))
    door = RefusingDoor(errors=[_cancelled(NONE, renewed)])

    assert _retirer(door, Retire.TRANSACTION, ManualClock()).retire(
        list(HEAD.covers), lambda: False
    )

    assert door.deleted == [TIMED]
    assert len(set(door.tokens)) == 2


def test_single_deletes_judge_alike() -> None:
    """Made anew: left alone. Changed: stops."""
    anew = RefusingDoor(errors=[ConditionFailed(_item(BARE, 6, 900))])
    assert _retirer(anew, Retire.DELETE, ManualClock()).retire([BARE], lambda: False)
    assert anew.deleted == []

    changed = RefusingDoor(errors=[ConditionFailed(_item(BARE, 7, 100))])
    with pytest.raises(Tampered):
        _retirer(changed, Retire.DELETE, ManualClock()).retire([BARE], lambda: False)


def test_nothing_is_deleted_past_the_deadline() -> None:
    """It says that something is left."""
    door = RefusingDoor()

    assert not _retirer(door, Retire.DELETE, ManualClock()).retire([TIMED, BARE], lambda: True)

    assert door.deleted == []
