"""Each kind of value has one grammar, and what comes out of it is a plain value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from countledger import Claim, Event, IdempotencyKey, RangeKey
from countledger.ledger.amount import check_exact
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import BadDelta, BadInput, BadKey, BadTime
from countledger.ledger.ids import counter_name, id_of_key
from countledger.ledger.keys import check_counter, check_namespace
from countledger.ledger.texts import check_text
from countledger.ledger.values import parse_amount, parse_time
from countledger.testing import MemoryStack

if TYPE_CHECKING:
    from collections.abc import Callable


class Scope(str, Enum):  # noqa: UP042 - what apps have
    """Texts of an app, which format as `Scope.EMAIL`."""

    EMAIL = "user-email"


class Points(int, Enum):
    """Numbers of an app."""

    ONE = 1


class OddTime(datetime):
    """A datetime that does not subtract as `datetime` does, as those of some libraries."""

    def __sub__(self, other: Any) -> Any:  # noqa: ANN401 - as `datetime`
        return "an interval"

    def astimezone(self, tz: Any = None) -> Any:  # noqa: ANN401 - as `datetime`
        return super().astimezone(tz)


class NoTime(datetime):
    """A datetime that is none, as `pandas.NaT`."""

    def utcoffset(self) -> timedelta | None:
        raise ValueError("NaTType does not support utcoffset")


_AT = datetime(2026, 3, 4, 5, 6, 7, 891_234, UTC)


def test_a_text_of_an_apps_own_class_is_its_plain_text() -> None:
    claim = Claim(Scope.EMAIL, Scope.EMAIL, Scope.EMAIL, Scope.EMAIL)
    same = Claim("user-email", "user-email", "user-email", "user-email")
    assert claim == same
    assert claim.key == same.key
    assert (
        Claim(Scope.EMAIL, (Scope.EMAIL, "b"), "o").key
        == Claim("user-email", ("user-email", "b"), "o").key
    )
    assert RangeKey(Scope.EMAIL, 1, Points.ONE) == RangeKey("user-email", 1, 1)
    assert RangeKey(Scope.EMAIL, 1, 1).idempotency_key() == "user-email#1-1"
    assert id_of_key(IdempotencyKey(Scope.EMAIL, _AT)) == id_of_key(
        IdempotencyKey("user-email", _AT)
    )
    event = Event(
        Scope.EMAIL, Points.ONE, Scope.EMAIL, note={Scope.EMAIL: Scope.EMAIL}, events=Points.ONE
    )
    assert event == Event("user-email", 1, "user-email", note={"user-email": "user-email"})
    for value in (
        event.counter,
        event.delta,
        event.key,
        event.events,
        *(event.note or {}).values(),
    ):
        assert type(value) in {str, int}


def test_a_number_of_an_apps_own_class_is_its_plain_number() -> None:
    assert type(check_exact("delta", Points.ONE, BadDelta)) is int


def test_a_time_of_another_library_is_its_moment() -> None:
    odd = OddTime(2026, 3, 4, 5, 6, 7, 891_234, UTC)
    assert to_ms(odd) == to_ms(_AT) == 1_772_600_767_891
    key = IdempotencyKey("k", odd)
    assert type(key.at) is datetime
    assert key == IdempotencyKey("k", _AT.replace(microsecond=891_000))
    assert type(Event("a", 1, occurred_at=odd).occurred_at) is datetime


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BadTime, match="no point in time"):
        to_ms(NoTime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        " a",
        "a ",
        "a\u00a0",
        "a\u2800",
        "a\u200bb",
        "a\u202eb",
        "\ufeffa",
        "a\u00adb",
        "e\u0301",
        "\u212b",
        "a\u200db",
        "a\nb",
        "\ud800",
    ],
)
@pytest.mark.parametrize(
    "border",
    [
        check_counter,
        check_namespace,
        lambda text: Event("a", 1, text),
        lambda text: IdempotencyKey(text, _AT),
        lambda text: RangeKey(text, 1, 2),
        lambda text: Claim(text, "v", "o"),
        lambda text: Claim("s", text, "o"),
        lambda text: Claim("s", ("v", text), "o"),
        lambda text: Claim("s", "v", text),
        lambda text: check_counter(f"{text}:b"),
        lambda text: check_counter(f"a:{text}"),
    ],
)
def test_texts_that_look_alike_are_not_two(border: Callable[[str], object], text: str) -> None:
    with pytest.raises(BadInput):
        border(text)


def test_a_refusal_names_the_code_point() -> None:
    for text, named in (
        ("a\u200bb", "U\\+200B ZERO WIDTH SPACE"),
        ("e\u0301", "U\\+0301 COMBINING ACUTE ACCENT"),
        ("\u00a0a", "U\\+00A0 NO-BREAK SPACE"),
    ):
        with pytest.raises(BadKey, match=named):
            check_text("key", text, 100, BadKey)


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "\u00e9",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\U0001f44d\U0001f3fd",
        "\u4e2d\u6587",
    ],
)
def test_what_can_be_seen_is_allowed(text: str) -> None:
    assert check_counter(f"likes:{text}") == f"likes:{text}"
    assert Event("a", 1, text).key == text


@pytest.mark.parametrize(
    "name",
    [
        " a",
        "a ",
        "e\u0301",
        "a\u200bb",
        "\ufeff",
        "\U0001f468\u200d\U0001f469",
        " ",
        "x" * 600 + "\u200d",
    ],
)
def test_each_name_from_outside_has_a_counter_name(name: str) -> None:
    counter = counter_name("files", name)
    assert check_counter(counter) == counter
    assert counter_name("files", name.encode()) == counter


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("+5", 5), ("-12.50", Decimal("-12.5")), ("007", 7), ("1.0", 1), ("-0", 0)],
)
def test_an_amount_is_read_exactly(text: str, value: object) -> None:
    assert parse_amount("delta", text, BadDelta) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5",
        "5 ",
        "1_000",
        "\uff15",
        "\u0665",
        "1e3",
        "1.23457E+12",
        ".5",
        "5.",
        "--5",
        "1,5",
        "inf",
        "NaN",
        "0x5",
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(BadDelta):
        parse_amount("delta", text, BadDelta)


def test_a_refused_exponent_says_that_a_spreadsheet_may_have_rounded_it() -> None:
    with pytest.raises(BadDelta, match="a spreadsheet may have rounded"):
        parse_amount("delta", "1.23457E+12", BadDelta)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-04T05:06:07.891234567Z",
        "2026-03-04t05:06:07.891z",
        "2026-03-04 07:06:07.8919+02:00",
        "2026-03-04T05:06:07,891+00",
        "2026-03-04T07:06:07.891+0200",
        "1772600767891",
    ],
)
def test_a_time_is_read_in_whole_milliseconds(text: str) -> None:
    assert parse_time(text) == _AT.replace(microsecond=891_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-04",
        "2026-03-04T05:06:07",
        " 2026-03-04T05:06:07Z",
        "2026-W10-3T05:06:07Z",
        "2026-03-04x05:06:07Z",
        "2026-03-04T05:06:07.1234567890Z",
        "\u0662026-03-04T05:06:07Z",
        "2016-12-31T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "1772600767",
    ],
)
def test_what_is_no_time_of_iso_8601_is_refused(text: str) -> None:
    with pytest.raises(BadTime):
        parse_time(text)


class Ns(str, Enum):  # noqa: UP042 - what apps have
    """Namespaces of an app."""

    LIKES = "likes"


def test_a_namespace_of_a_class_of_its_own_names_the_board_of_a_day() -> None:
    with MemoryStack(at=_AT).installed() as stack:
        ledger = stack.ledger
        ledger.namespaces.create("likes")
        ledger.window_settings.enable(Ns.LIKES, by="day", ranked=4)
        stack.advance(minutes=5)
        ledger.record("likes:a", 3)

        assert [one.counter for one in ledger.rankings.top(Ns.LIKES, day="today")] == ["likes:a"]


def test_errors_name_the_text_of_a_name_whatever_class_it_is_of() -> None:
    ledger = MemoryStack(at=_AT).ledger

    for call in (
        lambda: ledger.namespaces.get(Ns.LIKES),
        lambda: ledger.namespaces.describe(Ns.LIKES, "x"),
        lambda: ledger.window_settings.enable(Ns.LIKES, by="day"),
        lambda: ledger.window_settings.disable(Ns.LIKES),
        lambda: ledger.rankings.top(Ns.LIKES),
        lambda: ledger.rankings.top(Ns.LIKES, day="today"),
        lambda: ledger.alerts.get(Ns.LIKES),
        lambda: ledger.alerts.set(Ns.LIKES, threshold=4),
    ):
        with pytest.raises(BadInput, match="'likes'") as caught:
            call()
        assert "Ns" not in str(caught.value)
