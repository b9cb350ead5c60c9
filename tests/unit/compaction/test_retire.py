"""Deleting merged entries: what is tried again, what stops, and for how long."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from threading import Barrier
from typing import Any, TypeAlias

import pytest

from countledger.compaction.report import Retire, Retirer, Tampered, delete_of
from countledger.infra.memory.tables import holds
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    ServiceFailed,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.exact import Covered, Head
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

TIMED, BARE = "e#0", "e#k"
HEAD = Head(generation=3, run="r", covers={TIMED: Covered(5), BARE: Covered(6, at_ms=100)})
ATTEMPTS = 4
_JOINT, _SINGLE = Retire.TRANSACTION, Retire.DELETE


@dataclass
class Refusing:
    """The plan of a client whose first calls meet these errors (None: none).

    Attributes:
        errors: what the coming calls meet.
        deleted: what went through.
    """

    errors: list[Exception | None] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def __call__(self, kind: str, write: Any, _: Callable[[], Any]) -> Any:  # noqa: ANN401
        """A delete, or a transaction of deletes."""
        if error := self.errors.pop(0) if self.errors else None:
            raise error
        self.deleted += [one.key["entry"] for one in ([write] if kind == "delete" else write)]
        return True


def _retirer(plan: Any, how: Retire, clock: ManualClock) -> Retirer:  # noqa: ANN401 - a plan
    return Retirer(
        dynamo=MemoryClient(plans=[plan]),
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


def _cancelled(*reasons: Reason) -> TransactionCancelled:
    return TransactionCancelled(reasons)


def _stored(key: str, delta: int, at_ms: int) -> dict[str, Any]:
    return {"counter": "c", "entry": key, "delta": delta, "at": at_ms}


_CHANGED = _stored(TIMED, 7, 1)
_RENEWED = _stored(BARE, 8, 900)
_CHANGED_BARE = _stored(BARE, 7, 100)
_CONFLICT, _NONE = Reason("TransactionConflict"), Reason("None")
_THROTTLED = Reason("ThrottlingError")


_INVALID = Reason("ValidationError")
_changed, _renewed = (Reason("ConditionalCheckFailed", item) for item in (_CHANGED, _RENEWED))
_Case: TypeAlias = tuple[Retire, list[Exception | None], list[str], int, type[Exception] | None]
_BOTH = [TIMED, BARE]
_CASES: dict[str, _Case] = {
    "a conflict is tried again": (_JOINT, [_cancelled(_CONFLICT, _NONE)] * 2, _BOTH, 2, None),
    "so is a throttled delete of it": (_JOINT, [_cancelled(_NONE, _THROTTLED)], _BOTH, 1, None),
    "so is a throttled request": (_JOINT, [Throttled("later")] * 2, _BOTH, 2, None),
    "so is one without an answer": (_JOINT, [Unclear("no answer")] * 2, _BOTH, 2, None),
    "one made again is left out": (_JOINT, [_cancelled(_NONE, _renewed)], [TIMED], 0, None),
    "a changed one stops all": (_JOINT, [_cancelled(_changed, _CONFLICT)], [], 0, Tampered),
    "an invalid request stops": (_JOINT, [_cancelled(_INVALID, _NONE)], [], 0, ServiceFailed),
    "attempts are bounded": (_JOINT, [Throttled("no")] * 99, [], ATTEMPTS - 1, ServiceFailed),
    "a throttled delete is tried again": (_SINGLE, [Throttled("later")], _BOTH, 1, None),
    "one made again stays": (_SINGLE, [None, ConditionFailed(_RENEWED)], [TIMED], 0, None),
    "a changed one stops": (_SINGLE, [None, ConditionFailed(_CHANGED_BARE)], [TIMED], 0, Tampered),
    "deletes are bounded": (_SINGLE, [Throttled("no")] * 99, [], ATTEMPTS - 1, ServiceFailed),
}


@pytest.mark.parametrize(
    ("how", "errors", "deleted", "waits", "raises"), _CASES.values(), ids=_CASES
)
def test_a_refusal_is_tried_again_or_stops(
    how: Retire,
    errors: list[Exception | None],
    deleted: list[str],
    waits: int,
    raises: type[Exception] | None,
) -> None:
    plan, clock = Refusing([*errors]), ManualClock()
    end: AbstractContextManager[object] = pytest.raises(raises) if raises else nullcontext()

    with end:
        assert _retirer(plan, how, clock).retire(list(HEAD.covers), lambda: False)

    assert (plan.deleted, len(clock.slept_ms)) == (deleted, waits)


def test_an_attempt_repeats_its_token_and_other_deletes_have_another() -> None:
    """The service carries it out once."""
    retirer = _retirer(Refusing(), Retire.TRANSACTION, ManualClock())
    both, one = dict(HEAD.covers), {TIMED: HEAD.covers[TIMED]}

    assert retirer._token(both) == retirer._token(both) != retirer._token(one)


@pytest.mark.parametrize(
    ("item", "goes"), [({}, True), ({"delta": 5}, True), ({"delta": 6}, False)]
)
def test_an_entry_goes_as_it_was_merged_and_one_that_is_gone_refuses_nothing(
    item: dict[str, object], *, goes: bool
) -> None:
    """A transaction that another run's deletion refused would have to be sent again."""
    write = delete_of("t", "c", TIMED, HEAD.covers[TIMED])
    assert write.condition is not None

    assert holds(write.condition, {**write.key, **item} if item else {}) is goes


def test_several_workers_delete_at_once() -> None:
    """Each waits until the other one deletes as well."""
    meeting, deleted = Barrier(2), Refusing()

    def meet(*call: Any) -> Any:  # noqa: ANN401
        meeting.wait(5)
        return deleted(*call)

    retirer = replace(_retirer(meet, Retire.DELETE, ManualClock()), workers=2)

    assert retirer.retire([TIMED, BARE], lambda: False)
    assert sorted(deleted.deleted) == [TIMED, BARE]


def test_nothing_is_deleted_past_the_deadline() -> None:
    plan = Refusing()

    assert not _retirer(plan, Retire.DELETE, ManualClock()).retire([TIMED, BARE], lambda: True)
    assert plan.deleted == []
