"""What is said of several changes at once, and how they are typed."""

import pytest

from countledger.infra.cli.options import BadUsage
from countledger.infra.cli.strict_change import answer, parse_change
from countledger.ledger.errors import BadDelta
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    StrictOutcome,
    Unknown,
    Withdrawn,
)

ASKED = {"from": "a", "to": "b", "amount": 3}


@pytest.mark.parametrize(
    ("outcome", "code", "facts"),
    [
        (Applied("a, b", None), 0, {"status": "applied"}),
        (Duplicate("a, b", None), 0, {"status": "duplicate"}),
        (Withdrawn("a, b", "k1"), 2, {"status": "withdrawn", "id": "k1"}),
        (
            Contended("a, b", 8, "busy"),
            3,
            {"status": "contended", "attempts": 8, "reason": "busy"},
        ),
        (Unknown("a, b", "ask again"), 3, {"status": "unknown", "advice": "ask again"}),
        (
            BoundReached("b", 9, "upper", 10, 3),
            4,
            {
                "status": "bound_reached",
                "counter": "b",
                "delta": 3,
                "value": 9,
                "side": "upper",
                "bound": 10,
            },
        ),
    ],
)
def test_what_was_asked_stands_beside_what_became_of_it(
    outcome: StrictOutcome, code: int, facts: dict[str, object]
) -> None:
    """The counter alone that refused is named by itself."""
    told = answer(outcome, ASKED)

    assert told.code == code
    assert told.facts == {**ASKED, **facts}
    assert (told.complaint is None) == (code == 0)


def test_a_change_is_typed_with_its_counter() -> None:
    """The last equals sign counts: a name may hold one."""
    assert parse_change("stock:bolt=-4") == ("stock:bolt", -4)
    assert parse_change("stock:a=b=+1") == ("stock:a=b", 1)
    for bad, error in (("stock:bolt", BadUsage), ("stock:bolt=", BadDelta), ("a=0", BadDelta)):
        with pytest.raises(error):
            parse_change(bad)
