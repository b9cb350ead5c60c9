"""Schedule expressions: what EventBridge Scheduler documents, and nothing else."""

import pytest

from countledger.compaction.schedule import check_expression, cron, rate
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS


@pytest.mark.parametrize(
    ("every_ms", "expression"),
    [
        (MINUTE_MS, "rate(1 minute)"),
        (15 * MINUTE_MS, "rate(15 minutes)"),
        (90 * MINUTE_MS, "rate(90 minutes)"),
        (HOUR_MS, "rate(1 hour)"),
        (36 * HOUR_MS, "rate(36 hours)"),
        (DAY_MS, "rate(1 day)"),
        (7 * DAY_MS, "rate(7 days)"),
    ],
)
def test_an_interval_is_spelled_in_its_largest_unit(every_ms: int, expression: str) -> None:
    assert rate(every_ms) == expression
    assert check_expression(expression) == expression


@pytest.mark.parametrize("every_ms", [0, 1, MINUTE_MS - 1, 90_500, 367 * DAY_MS])
def test_an_interval_is_whole_minutes_of_at_most_a_year(every_ms: int) -> None:
    with pytest.raises(BadSetting, match="whole minutes"):
        rate(every_ms)


@pytest.mark.parametrize(
    "fields",
    [
        "0 3 * * ? *",
        "0/15 * * * ? *",
        "*/15 * * * ? *",
        "0,30 8-17 ? * MON-FRI *",
        "0 10 L * ? *",
        "0 10 3W * ? *",
        "0 8 1 JAN,jul ? 2027-2030",
        "5 8 ? * 6L *",
        "5 8 ? * fri#2 *",
        "0 8 ? * L *",
        "1-30/5 0 1/2 */3 ? *",
    ],
)
def test_what_the_service_documents_passes(fields: str) -> None:
    assert cron(fields) == f"cron({fields})"
    assert cron(f" cron({fields}) ") == f"cron({fields})"
    assert cron(fields.replace(" ", "  ")) == f"cron({fields})"
    assert check_expression(f"cron({fields})") == f"cron({fields})"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("", "0 fields"),
        ("0 3 * * ?", "5 fields"),
        ("0 3 * * *", "5 fields"),
        ("0 3 * * ? * *", "7 fields"),
        ("0 3 * * * *", "exactly one"),
        ("0 3 ? * ? *", "exactly one"),
        ("0 3 1 * MON *", "exactly one"),
        ("60 3 * * ? *", "'60' is no minutes"),
        ("-1 3 * * ? *", "'-1' is no minutes"),
        ("? 3 * * ? *", "'?' is no minutes"),
        ("0 24 * * ? *", "'24' is no hours"),
        ("0 22-5 * * ? *", "'22-5' is no hours"),
        ("0 3 0 * ? *", "'0' is no day of month"),
        ("0 3 32W * ? *", "'32W' is no day of month"),
        ("0 3 * 13 ? *", "'13' is no month"),
        ("0 3 * FOO ? *", "'FOO' is no month"),
        ("0 3 ? * 0 *", "'0' is no day of week"),
        ("0 3 ? * MON/2 *", "'MON/2' is no day of week"),
        ("0 3 ? * MON#6 *", "'MON#6' is no day of week"),
        ("0 3 ? * MON#1,FRI#2 *", "must be the only one"),
        ("0 3 * * ? 1969", "'1969' is no year"),
        ("*/0 3 * * ? *", "'*/0' is no minutes"),
        ("*/x 3 * * ? *", "'*/x' is no minutes"),
        ("1, 3 * * ? *", "'' is no minutes"),
        ("٣ 3 * * ? *", "is no minutes"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(fields: str, reason: str) -> None:
    with pytest.raises(BadSetting) as refused:
        cron(fields)

    assert reason in str(refused.value)
    assert fields in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "bogus", "rate(1 second)", "rate(0 minutes)", "rate(15)", "rate(1.5 hours)", "at(2027)"],
)
def test_any_other_expression_is_refused(text: str) -> None:
    """The local engine would take it and never run."""
    with pytest.raises(BadSetting):
        check_expression(text)


def test_a_rate_has_one_spelling() -> None:
    assert check_expression("rate(60 minutes)") == "rate(1 hour)"
    assert check_expression("rate(1 days)") == "rate(1 day)"
