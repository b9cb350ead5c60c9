"""How a strict counter, and the answer to a change of it, are shown to people and to programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from countledger.infra.cli.output import facts, notice, show_json, show_rows
from countledger.ledger.amount import to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import TOKEN_BYTES, TOKEN_LIFE_MS
from countledger.producers.strict.definition import Method
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
    from countledger.infra.cli.app import Options
    from countledger.infra.cli.output import Row
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.reader import StrictCounter


DONE: Final = 0
COUNTED: Final = 1
BAD_INPUT: Final = 2
TRY_AGAIN: Final = 3
REFUSED: Final = 4


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """An exit code, facts (for people only where nothing is wrong), and a complaint."""

    code: int
    facts: Row
    complaint: str | None = None

    def print(self, options: Options) -> int:
        if options.json:
            show_json(self.facts)
        elif self.complaint is None:
            show_rows([self.facts])
        if self.complaint is not None:
            notice(f"countledger: {self.complaint}")
        return self.code


def answer_to_change(outcome: StrictOutcome, delta: Amount) -> ChangeAnswer:
    asked: Row = {"counter": outcome.counter, "delta": delta}
    match outcome:
        case Applied(value=value):
            return ChangeAnswer(DONE, {"status": "applied", **asked, "value": value})
        case Duplicate(value=value):
            return ChangeAnswer(DONE, {"status": "duplicate", **asked, "value": value})
        case BoundReached():
            return bound_reached(outcome, asked)
        case SetFull(counter, value, max_tokens):
            return ChangeAnswer(
                REFUSED,
                {"status": "set_full", **asked, "value": value, "max_tokens": max_tokens},
                f"set full: counter {counter!r} is at {to_text(value)} and holds {max_tokens} "
                f"keys, its maximum: {_signed(delta)} was refused, as is every new change",
            )
        case Withdrawn(counter, change_id):
            return ChangeAnswer(
                BAD_INPUT,
                {"status": "withdrawn", **asked, "id": change_id},
                f"not applied: this key of counter {counter!r} was withdrawn; a new change needs a "
                "new key",
            )
        case Contended() | Unknown():
            return undecided(outcome, asked)


def answer_to_withdrawal(outcome: StrictOutcome, key: str) -> ChangeAnswer:
    asked: Row = {"counter": outcome.counter, "key": key}
    match outcome:
        case Withdrawn(id=change_id):
            return ChangeAnswer(DONE, {"status": "withdrawn", **asked, "id": change_id})
        case Applied(counter) | Duplicate(counter):
            return ChangeAnswer(
                COUNTED,
                {"status": "counted", **asked},
                f"too late: the change under key {key!r} of counter {counter!r} was applied and "
                "stays",
            )
        case Contended() | Unknown():
            return undecided(outcome, asked)
        case BoundReached() | SetFull():
            raise AssertionError("a withdrawal changes no value")


def bound_reached(refused: BoundReached, asked: Row) -> ChangeAnswer:
    """The answer if a bound refused it."""
    value, side, bound = refused.value, refused.side, refused.bound
    held: Row = {"held": refused.held} if refused.held else {}
    return ChangeAnswer(
        REFUSED,
        {"status": "bound_reached", **asked, "value": value, "side": side, "bound": bound, **held},
        f"bound reached: counter {refused.counter!r} is at {to_text(value)}{_of_which(refused)}, "
        f"its {side} bound is {to_text(bound)}: {_signed(refused.asked)} was refused",
    )


def undecided(outcome: Contended | Unknown, asked: Row) -> ChangeAnswer:
    """The answer if another attempt may know more."""
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


def _of_which(refused: BoundReached) -> str:
    return f", of which {to_text(refused.held)} are held" if refused.held else ""


def _signed(amount: Amount) -> str:
    return f"+{to_text(amount)}" if amount > 0 else to_text(amount)


_KB: Final = 1_024


def row(shown: StrictCounter) -> Row:
    row = facts(shown, "counter value lower upper method bins", remembers=_memory(shown))
    if shown.method is Method.MARKER:
        row |= {"held": shown.held, "available": shown.available}
    return row | {"write units": shown.write_units, "updated": shown.updated_at}


def document(shown: StrictCounter) -> Row:
    return {**asdict(shown), "available": shown.available, "method": str(shown.method)}


def _memory(shown: StrictCounter) -> str | None:
    """For how long, or how many changes, a key is remembered."""
    match shown.method:
        case Method.ATOMIC:
            return None
        case Method.OCC:
            return "1 change"
        case Method.HISTORY:
            return f"{shown.history} changes"
        case Method.REQUEST_TOKEN:
            return show_duration(TOKEN_LIFE_MS)
        case Method.MARKER:
            return show_duration(shown.window_ms or 0)
        case Method.SET:
            return f"{shown.remembered} of {shown.max_tokens} keys"


def warnings(shown: StrictCounter) -> list[str]:
    """What a person should know of a counter that was just made or changed, one line each."""
    told = []
    if shown.max_tokens is not None and shown.remembered == 0:
        full = shown.write_units + shown.max_tokens * TOKEN_BYTES // _KB
        told.append(
            f"a change writes the whole set: write units now {shown.write_units}, about {full} "
            f"when it holds its {shown.max_tokens} keys"
        )
    for side, bound, passed, way in (
        ("upper", shown.upper, "above", "up"),
        ("lower", shown.lower, "below", "down"),
    ):
        if bound is None:
            continue
        outside = shown.value > bound if side == "upper" else shown.value < bound
        if outside:
            told.append(
                f"the value {to_text(shown.value)} is {passed} the {side} bound "
                f"{to_text(bound)}: changes {way} are refused until it is back inside"
            )
    return told
