"""How strict counters are shown, to people and to programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from countledger.ledger.amount import to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import TOKEN_BYTES, TOKEN_LIFE_MS
from countledger.producers.strict.definition import Method

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.producers.strict.reader import StrictCounter

_KB: Final = 1_024


def row(shown: StrictCounter) -> Row:
    """A counter in a table."""
    return {
        "counter": shown.counter,
        "value": shown.value,
        "lower": shown.lower,
        "upper": shown.upper,
        "method": str(shown.method),
        "bins": shown.bins,
        "remembers": _memory(shown),
        "write units": shown.write_units,
        "updated": shown.updated_at,
    }


def document(shown: StrictCounter) -> Row:
    """A counter for programs."""
    return {**asdict(shown), "method": str(shown.method)}


def _memory(shown: StrictCounter) -> str | None:
    """For how long, or how many changes, a key is remembered."""
    match shown.method:
        case Method.ATOMIC:
            return None
        case Method.OCC:
            return "1 change"
        case Method.HISTORY:
            return f"{shown.history} changes"
        case Method.CRT:
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
                f"the value {to_text(shown.value)} lies {passed} the {side} bound "
                f"{to_text(bound)}: changes {way} are refused until it is back inside"
            )
    return told
