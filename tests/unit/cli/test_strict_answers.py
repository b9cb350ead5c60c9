"""Every outcome has a status, an exit code and one line."""

import json
from decimal import Decimal
from typing import get_args

import pytest

from countledger.infra.cli.app import Options
from countledger.infra.cli.strict import answer
from countledger.infra.cli.strict_answers import answer_to_change, answer_to_withdrawal
from countledger.ledger.amount import Amount
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    SetFull,
    StrictOutcome,
    Unknown,
    Withdrawn,
)

HALL = "tickets:hall"

CHANGES: list[tuple[StrictOutcome, Amount, str, int, str | None]] = [
    (Applied(HALL, 498), -2, "applied", 0, None),
    (Duplicate(HALL, None), -2, "duplicate", 0, None),
    (
        BoundReached(HALL, 498, "lower", 0, -499),
        -499,
        "bound_reached",
        4,
        ("bound reached: counter 'tickets:hall' is at 498, its lower bound is 0: -499 was refused"),
    ),
    (
        BoundReached(HALL, Decimal("0.5"), "upper", 1, Decimal("0.75")),
        Decimal("0.75"),
        "bound_reached",
        4,
        (
            "bound reached: counter 'tickets:hall' is at 0.5, its upper bound is 1: +0.75 was "
            "refused"
        ),
    ),
    (
        SetFull(HALL, 7, 12),
        1,
        "set_full",
        4,
        (
            "set full: counter 'tickets:hall' is at 7 and holds 12 keys, its maximum: +1 was "
            "refused, as is every new change"
        ),
    ),
    (
        Withdrawn(HALL, "k1"),
        1,
        "withdrawn",
        2,
        (
            "not applied: this key of counter 'tickets:hall' was withdrawn; a new change "
            "needs a new key"
        ),
    ),
    (
        Contended(HALL, 14, "others were faster"),
        1,
        "contended",
        3,
        (
            "nothing done: counter 'tickets:hall' let none of 14 attempts through (others were "
            "faster): try again later"
        ),
    ),
    (
        Unknown(HALL, "repeat it"),
        1,
        "unknown",
        3,
        "unknown whether counter 'tickets:hall' took it: repeat it",
    ),
]


@pytest.mark.parametrize(("outcome", "delta", "status", "code", "line"), CHANGES)
def test_a_change_is_answered_by_status_code_and_one_line(
    outcome: StrictOutcome, delta: Amount, status: str, code: int, line: str | None
) -> None:
    found = answer_to_change(outcome, delta)

    assert (found.facts["status"], found.code, found.complaint) == (status, code, line)
    assert found.facts["counter"] == HALL
    assert found.facts["delta"] == delta


def test_every_outcome_has_an_answer() -> None:
    assert {type(outcome) for outcome, *_ in CHANGES} == set(get_args(StrictOutcome))


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Withdrawn(HALL, "k1"), "withdrawn", 0),
        (Duplicate(HALL, None), "counted", 1),
        (Contended(HALL, 8, "busy"), "contended", 3),
        (Unknown(HALL, "ask again"), "unknown", 3),
    ],
)
def test_giving_up_succeeds_only_where_the_change_is_out_for_good(
    outcome: StrictOutcome, status: str, code: int
) -> None:
    """A script that goes on at exit code 0 may sell the ticket again."""
    found = answer_to_withdrawal(outcome, "order-1")

    assert (found.facts["status"], found.code) == (status, code)
    assert found.facts["key"] == "order-1"
    assert (found.complaint is None) == (code == 0)


def test_a_refusal_is_a_document_for_programs_and_a_line_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer_to_change(BoundReached(HALL, 498, "lower", 0, -499), -499)

    assert found.print(Options()) == 4
    plain = capsys.readouterr()
    assert found.print(Options(as_json=True)) == 4
    printed = capsys.readouterr()

    assert plain.out == ""
    assert plain.err == printed.err == f"countledger: {found.complaint}\n"
    assert json.loads(printed.out) == {
        "status": "bound_reached",
        "counter": HALL,
        "delta": "-499",
        "value": "498",
        "side": "lower",
        "bound": 0,
    }


ASKED = {"from": "a", "to": "b", "amount": 3}
BOUND = {"counter": "b", "delta": 3, "value": 9, "side": "upper", "bound": 10}


@pytest.mark.parametrize(
    ("outcome", "code", "facts"),
    [
        (Applied("a, b", None), 0, {"status": "applied"}),
        (Withdrawn("a, b", "k1"), 2, {"status": "withdrawn", "id": "k1"}),
        (BoundReached("b", 9, "upper", 10, 3), 4, {"status": "bound_reached", **BOUND}),
    ],
)
def test_of_several_changes_only_the_counter_that_refused_is_named(
    outcome: StrictOutcome, code: int, facts: dict[str, object]
) -> None:
    found = answer(outcome, ASKED)

    assert found.code == code
    assert found.facts == {**ASKED, **facts}
    assert (found.complaint is None) == (code == 0)
