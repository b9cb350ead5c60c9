"""A negative number on the command line is a value."""

from __future__ import annotations

import pytest

from countledger.infra.cli.options import negative_last


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
    """What an option takes stays with it, and all else keeps its order."""
    assert parsed.split() == negative_last(typed.split(), {"--key", "--file"})
