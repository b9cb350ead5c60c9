"""What `countledger strict` refuses before it reaches for AWS: one line, exit 2."""

from __future__ import annotations

import pytest

from countledger.infra.cli.app import run
from countledger.infra.cli.strict_change import parse_amount, parse_bound
from countledger.ledger.errors import BadBounds
from countledger.producers.strict.state import KEEP

COMMANDS = ["create", "change", "withdraw", "show", "set", "list", "delete"]
CREATE = ["strict", "create", "tickets:hall"]
CHANGE = ["strict", "change", "tickets:hall"]
MARKER = [*CREATE, "--method", "marker"]


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No AWS: a call that reaches for it fails."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (CREATE, "Missing option '--method'"),
        ([*CREATE, "--method", "magic"], "'magic' is not one of 'atomic', 'occ', 'history', 'crt'"),
        ([*MARKER, "--lower", "five"], "lower bound 'five' is not a decimal number"),
        ([*MARKER, "--lower", "nan"], "lower bound NaN is not a finite number"),
        ([*MARKER, "--upper", "-inf"], "upper bound -Infinity is not a finite number"),
        ([*MARKER, "--upper", "1" * 21], "1 has more than 20 digits"),
        ([*MARKER, "--opening", "1e-10"], "opening value 1E-10 has more than 20 digits"),
        ([*MARKER, "--opening", ""], "opening value '' is not a decimal number"),
        ([*MARKER, "--bins", "two"], "for '--bins': Input should be a valid integer"),
        ([*MARKER, "--window", "24"], "duration '24' is not a whole number with a unit"),
        ([*CHANGE, "0"], "delta 0 changes nothing"),
        ([*CHANGE, "-0.0"], "delta -0.0 changes nothing|delta 0 changes"),
        ([*CHANGE, "-NaN"], "is not a finite number"),
        ([*CHANGE, "two"], "delta 'two' is not a decimal number"),
        ([*CHANGE, "True"], "delta 'True' is not a decimal number"),
        ([*CHANGE, "1" * 21], "has more than 20 digits"),
        (CHANGE, "Missing argument"),
        ([*CHANGE, "1", "--at", "2026-01-31T12:00:00Z"], "there is no key"),
        ([*CHANGE, "1", "--key", "k", "--at", "2026-01-31T12:00"], "no offset"),
        ([*CHANGE, "1", "--key", "", "--at", "2026-01-31T12:00:00Z"], "idempotency key is empty"),
        ([*CHANGE, "1", "--note", "novalue"], "'novalue' is not NAME=VALUE"),
        ([*CHANGE, "1", "--prefer", "neither"], "'neither' is not one of 'under', 'over'"),
        (["strict", "withdraw", "tickets:hall"], "Missing option '--key'"),
        (["strict", "withdraw", "tickets:hall", "--key", ""], "idempotency key is empty"),
        (["strict", "withdraw", "x", "--key", "k" * 1025], "1025 bytes long; at most 1024"),
        (["strict", "set", "tickets:hall"], "nothing to set: give --lower or --upper"),
        (["strict", "set", "tickets:hall", "--force"], "nothing to set"),
        (["strict", "set", "tickets:hall", "--lower", "no"], "lower bound 'no' is not a decimal"),
        (["strict", "list"], "Missing argument"),
        (["strict", "sell"], "No such command 'sell'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_value_and_the_rule(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    """Exit 2, nothing on stdout, no traceback, nobody called."""
    code = run(arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert any(part in printed.err for part in reason.split("|"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_its_help(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Help has the shared options, and examples where there is something to get wrong."""
    assert run(["strict", command, "--help"]) == 0

    text = capsys.readouterr().out
    assert "--stack-name" in text
    assert ("Examples:" in text) == (command not in {"show", "list"})


@pytest.mark.parametrize(
    ("text", "amount"), [("0", 0), ("-0", 0), (" 5 ", 5), ("-12.50", -12.5), ("1e3", 1000)]
)
def test_an_amount_may_be_zero_negative_or_a_fraction(text: str, amount: float) -> None:
    """Unlike a delta."""
    assert parse_amount("opening value", text) == amount


def test_a_bound_is_a_number_taken_away_or_left() -> None:
    """Three different wishes."""
    assert parse_bound("lower bound", "-5") == -5
    assert parse_bound("lower bound", "None") is None
    assert parse_bound("lower bound", None) is KEEP
    with pytest.raises(BadBounds, match="lower bound 'keep'"):
        parse_bound("lower bound", "keep")
