"""`countledger strict` and `countledger set`, on a stack in memory: documents and exit codes."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import pytest

from countledger.infra.calls.call import Call
from countledger.infra.calls.holds import ExpiredView, cancel_hold
from countledger.infra.calls.refusals import document_of, refusal_of
from countledger.infra.calls.strict import (
    AppliedView,
    CounterChange,
    DuplicateView,
    changed,
    parse_changes,
)
from countledger.infra.cli.app import Options, run
from countledger.ledger.errors import BadCounterName, BadDelta
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    SetFull,
    StrictOutcome,
    Unknown,
    Withdrawn,
)
from countledger.testing import MemoryStack

HALL = "tickets:hall"
_MARKER = ("strict", "create", HALL, "--method", "marker", "--lower", "0", "--opening", "9")


class Finished(NamedTuple):
    """What a command came to."""

    code: int
    json: Any
    err: str


@pytest.fixture
def stack() -> MemoryStack:
    return MemoryStack()


@pytest.fixture
def command(
    stack: MemoryStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    monkeypatch.setattr(Options, "client", lambda _: stack.ledger)

    def finished(*words: str) -> Finished:
        code = run([*words, "--json"])
        printed = capsys.readouterr()
        return Finished(code, json.loads(printed.out) if printed.out else None, printed.err)

    return finished


_REJECTED: list[tuple[StrictOutcome, str, int, str]] = [
    (
        BoundReached(HALL, 498, "lower", 0, -499),
        "bound_reached",
        4,
        "bound reached: counter 'tickets:hall' is at 498, its lower bound is 0: -499 was refused",
    ),
    (
        SetFull(HALL, 7, 12),
        "set_full",
        4,
        (
            "set full: counter 'tickets:hall' is at 7 and holds 12 keys, its maximum: this change "
            "is refused, as is every new one"
        ),
    ),
    (
        Withdrawn(HALL, "k1"),
        "withdrawn",
        2,
        (
            "not applied: this key of counter 'tickets:hall' was withdrawn; what is new needs a "
            "new key"
        ),
    ),
    (
        Contended(HALL, 14, "others were faster"),
        "contended",
        3,
        (
            "nothing done: counter 'tickets:hall' let none of 14 attempts through (others were "
            "faster): try again later"
        ),
    ),
    (
        Unknown(HALL, "repeat it"),
        "unknown",
        3,
        "unknown whether counter 'tickets:hall' took it: repeat it",
    ),
]


@pytest.mark.parametrize(("outcome", "name", "code", "line"), _REJECTED)
def test_a_change_that_is_not_applied_has_a_name_a_code_and_one_line(
    outcome: StrictOutcome, name: str, code: int, line: str
) -> None:
    meaning = refusal_of(changed(outcome))

    assert (document_of(outcome)["outcome"], meaning.exit_code) == (name, code)
    assert meaning.sentence(outcome) == line


def test_every_other_outcome_of_a_change_is_shown_with_its_value() -> None:
    rejected = {type(outcome) for outcome, *_ in _REJECTED}

    assert {*get_args(StrictOutcome)} == rejected | {Applied, Duplicate}
    assert changed(Applied(HALL, 498)) == AppliedView(counter=HALL, value=498)
    assert changed(Duplicate(HALL, None)) == DuplicateView(counter=HALL, value=None)


def test_a_refusal_is_a_document_for_programs_and_a_line_for_people(
    command: Callable[..., Finished],
) -> None:
    command(*_MARKER)
    refused = command("strict", "change", HALL, "-10")

    assert refused.code == 4
    assert refused.err == (
        "countledger: bound reached: counter 'tickets:hall' is at 9, its lower bound is 0: -10 was "
        "refused\n"
    )
    assert refused.json == {
        "outcome": "bound_reached",
        "counter": HALL,
        "value": "9",
        "side": "lower",
        "bound": "0",
        "asked": "-10",
        "held": "0",
    }


def test_a_withdrawal_succeeds_only_where_the_change_is_never_applied(
    command: Callable[..., Finished],
) -> None:
    command(*_MARKER)
    command("strict", "change", HALL, "-1", "--key", "in")
    command("strict", "together", f"{HALL}=-1", "--key", "both")

    done = command("strict", "withdraw", HALL, "--key", "out")
    late = command("strict", "withdraw", HALL, "--key", "in")
    all_late = command("strict", "withdraw", "--key", "both")

    assert (done.code, done.json["outcome"], done.err) == (0, "withdrawn", "")
    for one in (late, all_late):
        assert (one.code, one.json["outcome"]) == (1, "duplicate")
        assert "too late" in one.err


def test_a_bound_that_is_not_given_stays_and_none_removes_it(
    command: Callable[..., Finished],
) -> None:
    command(*_MARKER)
    moved = command("strict", "set", HALL, "--upper", "20")
    removed = command("strict", "set", HALL, "--lower", "none")
    wrong = command("strict", "set", HALL, "--lower", "keep")
    nothing = command("strict", "set", HALL)

    assert (moved.json["lower"], moved.json["upper"]) == ("0", "20")
    assert (removed.json["lower"], removed.json["upper"]) == (None, "20")
    assert (wrong.code, nothing.code) == (2, 2)
    assert "lower bound 'keep' is not a decimal number" in wrong.err
    assert "give a lower or an upper bound to set" in nothing.err


def test_a_deletion_asks_with_the_value_that_is_lost(command: Callable[..., Finished]) -> None:
    command(*_MARKER)
    refused = command("strict", "delete", HALL)
    deleted = command("strict", "delete", HALL, "--yes")

    assert (refused.code, deleted.code) == (2, 0)
    assert "its value 9, for good: give --yes" in refused.err
    assert deleted.json == {"counter": HALL}


def test_a_key_and_its_time_are_one_identity_and_a_time_alone_is_refused(
    command: Callable[..., Finished], stack: MemoryStack
) -> None:
    command(*_MARKER)
    at = ("--at", str(stack.clock.now_ms()))
    one, again, other = (
        command("strict", "change", HALL, "-1", "--key", "k", *time) for time in ((), (), at)
    )
    alone = command("strict", "change", HALL, "-1", *at)

    assert [it.json["outcome"] for it in (one, again, other)] == ["applied", "duplicate", "applied"]
    assert (alone.code, alone.json) == (2, None)
    assert "there is no key" in alone.err


def test_notes_are_pairs_and_a_name_is_given_once(command: Callable[..., Finished]) -> None:
    command(*_MARKER)
    command("strict", "hold", HALL, "2", "--key", "h", "--note", "seat=7", "--note", "row=b")
    (listed,) = command("strict", "holds", HALL).json["items"]
    twice = command("strict", "change", HALL, "1", "--note", "a=1", "--note", "a=2")

    assert listed["note"] == {"seat": "7", "row": "b"}
    assert (twice.code, "is given twice" in twice.err) == (2, True)


def test_a_hold_lasts_ten_minutes_if_nothing_else_is_said(
    command: Callable[..., Finished], stack: MemoryStack
) -> None:
    command(*_MARKER)
    command("strict", "hold", HALL, "2", "--key", "a")
    command("strict", "hold", HALL, "2", "--key", "b", "--expires-in", "1h")

    first, second = stack.ledger.strict.holds(HALL)
    assert round((second.lapses_at_ms - first.lapses_at_ms) / 60_000) == 50


def test_a_cancelled_hold_cannot_be_confirmed_and_an_expired_one_needs_no_cancellation(
    command: Callable[..., Finished], stack: MemoryStack
) -> None:
    command(*_MARKER)
    first, second = (
        command("strict", "hold", HALL, "2", "--key", key, "--expires-in", "10s").json["id"]
        for key in "ab"
    )
    cancelled = command("strict", "cancel", first)
    refused = command("strict", "confirm", first)
    stack.advance(minutes=10)
    expired = cancel_hold(Call(stack.ledger), second)

    assert (cancelled.code, cancelled.json["outcome"]) == (0, "cancelled")
    assert (refused.code, refused.json["outcome"]) == (4, "hold_cancelled")
    assert isinstance(expired, ExpiredView)
    assert expired.exit_code == 0


def test_both_kinds_of_counters_are_set_by_one_command(command: Callable[..., Finished]) -> None:
    command(*_MARKER)
    strict = command("set", HALL, "5", "--key", "k")
    refused = command("set", HALL, "-5", "--key", "l")
    ledger = command("set", "likes:a", "-5", "--key", "k")
    again = command("set", "likes:a", "-5", "--key", "k")

    assert strict.json == {"outcome": "applied", "counter": HALL, "value": "5"}
    assert (refused.code, refused.json["outcome"]) == (4, "bound_reached")
    recorded = {"counter": "likes:a", "value": "-5", "delta": "-5"}
    assert ledger.json == {"outcome": "recorded", **recorded}
    assert again.json == {"outcome": "duplicate", **recorded}


def test_a_change_is_typed_with_its_counter() -> None:
    typed = parse_changes(["stock:bolt=-4", "stock:a=b=+1"])

    assert typed == [
        CounterChange(counter="stock:bolt", delta="-4"),  # type: ignore[arg-type]
        CounterChange(counter="stock:a=b", delta="1"),  # type: ignore[arg-type]
    ]
    bad = (("stock:bolt", BadDelta), ("stock:bolt=", BadDelta), ("a=0", BadDelta))
    for text, error in (*bad, ("=1", BadCounterName)):
        with pytest.raises(error):
            parse_changes([text])
