"""What became of a change of a strict counter: in words, for programs, as an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.infra.cli.output import notice, show_json, show_rows
from countledger.ledger.amount import to_text
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    SetFull,
    Unknown,
    Withdrawn,
)

if TYPE_CHECKING:
    from countledger.infra.cli.options import Options
    from countledger.infra.cli.output import Row
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.outcome import StrictOutcome

DONE: Final = 0
COUNTED: Final = 1
BAD_INPUT: Final = 2
TRY_AGAIN: Final = 3
REFUSED: Final = 4


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """What a command says and comes to.

    Attributes:
        code: the exit code.
        facts: for programs, and for people where nothing is wrong.
        complaint: one line on stderr; None where nothing is wrong.
    """

    code: int
    facts: Row
    complaint: str | None = None

    def print(self, options: Options) -> int:
        """Say it; the exit code."""
        if options.json:
            show_json(self.facts)
        elif self.complaint is None:
            show_rows([self.facts])
        if self.complaint is not None:
            notice(f"countledger: {self.complaint}")
        return self.code


def answer_to_change(outcome: StrictOutcome, delta: Amount) -> ChangeAnswer:
    """What `strict change` says of an outcome."""
    asked: Row = {"counter": outcome.counter, "delta": delta}
    match outcome:
        case Applied(value=value):
            return ChangeAnswer(DONE, {"status": "applied", **asked, "value": value})
        case Duplicate(value=value):
            return ChangeAnswer(DONE, {"status": "duplicate", **asked, "value": value})
        case BoundReached(counter, value, side, bound):
            return ChangeAnswer(
                REFUSED,
                {"status": "bound_reached", **asked, "value": value, "side": side, "bound": bound},
                f"bound reached: counter {counter!r} is at {to_text(value)}, its {side} bound is "
                f"{to_text(bound)}, and {_signed(delta)} was asked for",
            )
        case SetFull(counter, value, max_tokens):
            return ChangeAnswer(
                REFUSED,
                {"status": "set_full", **asked, "value": value, "max_tokens": max_tokens},
                f"set full: counter {counter!r} is at {to_text(value)} and holds {max_tokens} "
                f"keys, as many as it may, and {_signed(delta)} was asked for: it takes no new "
                "change",
            )
        case Withdrawn(counter, change_id):
            return ChangeAnswer(
                BAD_INPUT,
                {"status": "withdrawn", **asked, "id": change_id},
                f"not counted: this key of counter {counter!r} was given up for good; a new change "
                "needs a new key",
            )
        case Contended() | Unknown():
            return _not_told(outcome, asked)


def answer_to_withdrawal(outcome: StrictOutcome, key: str) -> ChangeAnswer:
    """What `strict withdraw` says of an outcome."""
    asked: Row = {"counter": outcome.counter, "key": key}
    match outcome:
        case Withdrawn(id=change_id):
            return ChangeAnswer(DONE, {"status": "withdrawn", **asked, "id": change_id})
        case Applied(counter) | Duplicate(counter):
            return ChangeAnswer(
                COUNTED,
                {"status": "counted", **asked},
                f"too late: the change under key {key!r} of counter {counter!r} is in, and stays",
            )
        case Contended() | Unknown():
            return _not_told(outcome, asked)
        case BoundReached() | SetFull():
            raise AssertionError("giving up asks for no room")


def _not_told(outcome: Contended | Unknown, asked: Row) -> ChangeAnswer:
    """What is said where another try may tell more."""
    match outcome:
        case Contended(counter, attempts, reason):
            return ChangeAnswer(
                TRY_AGAIN,
                {"status": "contended", **asked, "attempts": attempts, "reason": reason},
                f"nothing done: counter {counter!r} let none of {attempts} attempts through "
                f"({reason}): try again later",
            )
        case Unknown(counter, advice):
            return ChangeAnswer(
                TRY_AGAIN,
                {"status": "unknown", **asked, "advice": advice},
                f"unknown whether counter {counter!r} took it: {advice}",
            )


def _signed(amount: Amount) -> str:
    return f"+{to_text(amount)}" if amount > 0 else to_text(amount)
