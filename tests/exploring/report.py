"""What a person reads of a violation: the shortest schedule as a script, and how to replay it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import ConditionFailed, TransactionCancelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.exploring.scope import Case
    from tests.exploring.search import Move, Situation, Violation
    from tests.exploring.world import Answer

_NAMES: Final = "ABC"
_WIDTH: Final = 200


def script_of(state: Situation) -> Iterator[str]:
    """The steps that lead to a state, and then the answers of the calls."""
    for number, one in enumerate(state.path()):
        yield f"{number:4}  {_step(one.move)}"
    for actor, place in enumerate(state.places):
        for call, answer, _ in place.told:
            yield f"      {_NAMES[actor]}: {call} = {answer!r}"
        if state.dead[actor]:
            yield f"      {_NAMES[actor]}: {place.call} has no answer: its process died"
    for table, items in state.contents.tables.items():
        for key in sorted(items):
            yield f"      {table}: {_short(repr(items[key]))}"


def replay_of(case: Case, state: Situation) -> str:
    """The line that replays the way to a state."""
    chosen = ",".join(map(str, state.choices()))
    return (
        f"python -m tests.exploring {case.capability.name} --case {str(case)!r} "
        f"--faults {case.bounds.faults} --replay {chosen}"
    )


def report_of(case: Case, violation: Violation) -> str:
    """All of it."""
    lines = [f"{case.capability.name}, {case}: {violation.problem}"]
    lines += [*script_of(violation.found), f"replay: {replay_of(case, violation.found)}"]
    return "\n".join(lines)


def _step(move: Move) -> str:
    who = f"{_NAMES[move.actor]}: " if move.actor >= 0 else ""
    answer = "" if move.answer is None else f" -> {_short(_answered(move.answer))}"
    return f"{who}{_short(move.what)}{answer}"


def _answered(answer: Answer) -> str:
    match answer.error:
        case None:
            return repr(answer.value)
        case ConditionFailed() as error:
            return f"ConditionFailed, there is {error.item!r}"
        case TransactionCancelled() as error:
            return f"cancelled: {[(one.code, one.item) for one in error.reasons]!r}"
        case error:
            return f"{type(error).__name__}: {error}"


def _short(text: str) -> str:
    text = text.replace("memory-counters", "counters").replace("memory-ledger", "ledger")
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
