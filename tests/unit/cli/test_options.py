"""Options as people type them: negative numbers, durations, amounts, bounds, changes."""

import pytest

from countledger.infra.cli.app import BadUsage, Options, negative_last
from countledger.infra.cli.strict import parse_amount, parse_bound, parse_change
from countledger.ledger.errors import BadBounds, BadDelta, BadSetting
from countledger.ledger.values import parse_duration_ms
from countledger.producers.strict.definition import KEEP


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("likes:1 5", "likes:1 5"),
        ("likes:1 -5", "likes:1 -- -5"),
        ("likes:1 -5 --key k", "likes:1 --key k -- -5"),
        ("--key k likes:1 -.5", "--key k likes:1 -- -.5"),
        ("likes:1 -1e3 --json", "likes:1 --json -- -1e3"),
        ("likes:1 5 --key -7", "likes:1 5 --key -7"),
        ("likes:1 --key -7 -5", "likes:1 --key -7 -- -5"),
        ("likes:1 -- -5", "likes:1 -- -5"),
        ("likes:1 -5 -- x", "likes:1 -- -5 x"),
        ("likes:1 -NaN", "likes:1 -- -NaN"),
        ("likes:1 -Infinity", "likes:1 -- -Infinity"),
        ("likes:1 -x", "likes:1 -x"),
        ("--key", "--key"),
        ("--file -", "--file -"),
    ],
)
def test_a_negative_number_goes_behind_the_options(typed: str, parsed: str) -> None:
    assert parsed.split() == negative_last(typed.split(), {"--key", "--file"})


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("24h", 86_400_000), ("90m", 5_400_000), ("7d", 604_800_000), ("30 s", 30_000), ("5ms", 5)],
)
def test_a_duration_is_a_whole_number_with_a_unit(text: str, duration_ms: int) -> None:
    assert duration_ms == parse_duration_ms(text)


@pytest.mark.parametrize("text", ["24", "h", "1.5h", "-1h", "2 hours", "", "1h30m", f"{10**16}h"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="90m, 24h or 7d"):
        parse_duration_ms(text)


@pytest.mark.parametrize(("text", "amount"), [("0", 0), ("-0", 0), ("-12.50", -12.5)])
def test_an_amount_may_be_zero_negative_or_a_fraction(text: str, amount: float) -> None:
    assert parse_amount("opening value", text) == amount


def test_a_bound_is_a_number_taken_away_or_left() -> None:
    assert parse_bound("lower bound", "-5") == -5
    assert parse_bound("lower bound", "None") is None
    assert parse_bound("lower bound", None) is KEEP
    with pytest.raises(BadBounds, match="lower bound 'keep'"):
        parse_bound("lower bound", "keep")


def test_a_change_is_typed_with_its_counter() -> None:
    assert parse_change("stock:bolt=-4") == ("stock:bolt", -4)
    assert parse_change("stock:a=b=+1") == ("stock:a=b", 1)
    for bad, error in (("stock:bolt", BadUsage), ("stock:bolt=", BadDelta), ("a=0", BadDelta)):
        with pytest.raises(error):
            parse_change(bad)


def test_the_nearer_option_wins() -> None:
    outer = Options(region="a", profile="p", as_json=True)
    inner = Options(region="b", stack_name="")

    merged = inner.over(outer)

    assert merged == Options(region="b", profile="p", stack_name="", as_json=True)
    assert inner.over(None) is inner
