"""What `verify` says of what a strict counter holds."""

from dataclasses import replace

import pytest

from countledger.consumers.verify import Judgement
from countledger.infra.cli.audit import verdict_on_holds
from countledger.producers.strict.release import HeldComparison

GOOD = HeldComparison("tickets:hall", 5, 5, 2, 0, (), proven=True)
DRIFT = replace(GOOD, reserved=3, differing=("tickets:hall#00", "tickets:hall#02"))


@pytest.mark.parametrize(
    ("found", "verdict", "drift", "says"),
    [
        (GOOD, Judgement.EXACT, 0, "2 open holds"),
        (replace(GOOD, overdue=1), Judgement.EXACT, 0, "1 of them expired and not released"),
        (DRIFT, Judgement.DRIFT, 2, "not what is held in tickets:hall#00, tickets:hall#02"),
        (replace(DRIFT, proven=False), Judgement.BUSY, 2, "try again"),
    ],
)
def test_the_open_holds_decide(
    found: HeldComparison, verdict: Judgement, drift: int, says: str
) -> None:
    answer = verdict_on_holds(found)

    assert (answer.verdict, answer.total, answer.exact) == (verdict, found.held, found.reserved)
    assert answer.drift == drift
    assert says in answer.proof
