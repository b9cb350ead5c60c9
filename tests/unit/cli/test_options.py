"""Options as people type them: negative numbers, durations."""

import pytest

from countledger.infra.cli.app import Options, negative_last
from countledger.ledger.errors import BadSetting
from countledger.ledger.values import parse_duration_ms


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


def test_the_nearer_option_wins() -> None:
    outer = Options(region="a", profile="p", as_json=True)
    inner = Options(region="b", stack_name="")

    merged = inner.over(outer)

    assert merged == Options(region="b", profile="p", stack_name="", as_json=True)
    assert inner.over(None) is inner
