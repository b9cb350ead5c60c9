"""Every error of the library as problem details: a type and a status of its own."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from countledger.infra.calls.refusals import REFUSALS
from countledger.infra.calls.shapes import plain
from countledger.infra.http.api import PROBLEMS
from countledger.infra.http.calls import problem_of_outcome
from countledger.infra.http.problems import TYPE_PREFIX, problem_of, type_of
from countledger.ledger import errors
from countledger.ledger.entry import Entry
from countledger.producers.quotas.quota import Denied
from countledger.producers.strict import outcome as outcomes

_ENTRY = Entry(counter="likes:a", id="k0", delta=Decimal("0.5"), at_ms=1, origin="us-east-1")
_DENIED = Denied(
    counter="llm:a",
    prefix="llm:",
    per="day",
    window="2026-01-01",
    amount=3,
    limit=10,
    used=9,
    resets_at=datetime(2026, 1, 2, tzinfo=UTC),
    retry_after=timedelta(milliseconds=1_500),
)
# Of the classes whose constructor takes more than a text.
_MADE = {
    errors.AlreadyClaimed: errors.AlreadyClaimed("text", "user-email", ("ann",), "u1"),
    errors.QuotaDenied: errors.QuotaDenied("text", _DENIED),
    errors.NotPriced: errors.NotPriced("text", {"cost": "?"}),
    errors.Unacknowledged: errors.Unacknowledged("text", _ENTRY),
    errors.Unnumbered: errors.Unnumbered("text", None),
    errors.ConditionFailed: errors.ConditionFailed(None),
    errors.TransactionCancelled: errors.TransactionCancelled((errors.Reason("None"),)),
}
_CLASSES = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.CountledgerError)
]


@pytest.mark.parametrize("kind", _CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_a_problem_that_the_document_lists(
    kind: type[errors.CountledgerError],
) -> None:
    error = _MADE.get(kind) or kind("text")
    response = problem_of(error).response()
    body = json.loads(bytes(response.body))

    assert body["type"] == type_of(kind.__name__)
    assert response.status_code == body["status"]
    assert body["status"] in PROBLEMS
    assert body["detail"] == str(error)
    assert response.headers["content-type"] == "application/problem+json"


def test_no_two_errors_have_one_type() -> None:
    types = [type_of(one.__name__) for one in (*_CLASSES, *REFUSALS)]

    assert len({*types}) == len(types)
    assert type_of("IdempotencyKeyReused") == f"{TYPE_PREFIX}idempotency-key-reused"


@pytest.mark.parametrize(
    ("kind", "status", "retry_after"),
    [
        (errors.BadDelta, 422, None),
        (errors.KeyExpired, 422, None),
        (errors.NoSuchCounter, 404, None),
        (errors.CounterExists, 409, None),
        (errors.OpenHolds, 409, None),
        (errors.AccessDenied, 500, None),
        (errors.Throttled, 503, "1"),
        (errors.Unclear, 504, "1"),
        (errors.RegionRebuilding, 503, "30"),
        (errors.CorruptItem, 500, None),
    ],
)
def test_a_status_says_who_has_to_act(
    kind: type[errors.CountledgerError], status: int, retry_after: str | None
) -> None:
    response = problem_of(kind("text")).response()

    assert (response.status_code, response.headers.get("retry-after")) == (status, retry_after)


def test_a_problem_has_the_fields_of_its_error() -> None:
    claimed = problem_of(_MADE[errors.AlreadyClaimed]).document()
    unacknowledged = problem_of(_MADE[errors.Unacknowledged]).document()

    assert (claimed["scope"], claimed["value"], claimed["owner"]) == ("user-email", ["ann"], "u1")
    assert unacknowledged["entry"]["delta"] == "0.5"
    assert unacknowledged["entry"]["at_ms"] == 1


@pytest.mark.parametrize("kind", outcomes.Refusal.__args__)
def test_every_refusal_of_a_change_is_a_problem(kind: type) -> None:
    assert kind in REFUSALS


def test_what_a_bound_refuses_says_which_and_how_far() -> None:
    outcome = outcomes.BoundReached("stock:a", 3, "lower", 0, -5, Decimal("0.5"))
    problem = problem_of_outcome(outcome)

    assert (problem.status, problem.document()["type"]) == (409, f"{TYPE_PREFIX}bound-reached")
    assert problem.fields == {
        "counter": "stock:a",
        "value": "3",
        "side": "lower",
        "bound": "0",
        "asked": "-5",
        "held": "0.5",
    }


def test_a_denied_quota_says_when_to_try_again() -> None:
    response = problem_of_outcome(_DENIED).response()

    assert (response.status_code, response.headers["retry-after"]) == (429, "2")


def test_no_amount_is_a_number_of_json() -> None:
    assert plain({"value": 3, "count": 3, "at_ms": 3, "flag": True, "of": [Decimal("1.5"), 2]}) == {
        "value": "3",
        "count": 3,
        "at_ms": 3,
        "flag": True,
        "of": ["1.5", "2"],
    }
