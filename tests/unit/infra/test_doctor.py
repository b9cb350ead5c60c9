"""What `countledger doctor` concludes about the clock of a machine."""

import pytest

from countledger.infra.doctor import CheckResult, clock_offset, judge_clock
from countledger.ledger.limits import MINUTE_MS

AT_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("ahead_ms", "result"),
    [
        (0, CheckResult.OK),
        (MINUTE_MS, CheckResult.OK),
        (-MINUTE_MS, CheckResult.OK),
        # The date has whole seconds, and the call took 200 ms: nearer to the limit nobody knows.
        (MINUTE_MS + 900, CheckResult.OK),
        (-MINUTE_MS - 100, CheckResult.OK),
        (MINUTE_MS + 1_001, CheckResult.PROBLEM),
        (-MINUTE_MS - 201, CheckResult.PROBLEM),
        (24 * 60 * MINUTE_MS, CheckResult.PROBLEM),
    ],
)
def test_a_clock_is_a_problem_if_it_is_surely_beyond_the_limit(
    ahead_ms: int, result: CheckResult
) -> None:
    offset = clock_offset(AT_MS + ahead_ms, AT_MS + ahead_ms + 200, AT_MS)

    assert judge_clock(offset, MINUTE_MS).result is result


@pytest.mark.parametrize(("ahead_ms", "word"), [(3_600_000, "ahead"), (-3_600_000, "behind")])
def test_it_says_in_which_direction(ahead_ms: int, word: str) -> None:
    check = judge_clock(clock_offset(AT_MS + ahead_ms, AT_MS + ahead_ms, AT_MS), MINUTE_MS)

    assert f"{word}" in check.says
    assert "set the clock" in check.do
