"""Results are exact, and plain where nobody watches."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from countledger.infra.calls.sequences import AppendedView
from countledger.infra.cli.output import (
    Row,
    notice,
    show_items,
    show_json,
    show_rows,
    show_text,
)
from countledger.infra.portability.lines import UnreadLine, encode_line


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (5, "5"),
        (-(2**53) + 1, "-9007199254740991"),
        (2**53, '"9007199254740992"'),
        (-(10**38) + 1, f'"-{"9" * 38}"'),
        (Decimal("0.1"), '"0.1"'),
        (Decimal("1E-20"), '"0.00000000000000000001"'),
        (True, "true"),
        (None, "null"),
        (0.5, "0.5"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), '"2026-01-31T12:00:00.000Z"'),
        ("é", '"é"'),
    ],
)
def test_json_carries_every_amount_exactly(
    capsys: pytest.CaptureFixture[str], value: object, written: str
) -> None:
    show_json({"x": value})

    assert capsys.readouterr().out == f'{{\n  "x": {written}\n}}\n'


def test_a_pipe_gets_headings_and_tab_separated_cells(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(
        [
            {"counter": "a:[red]b", "total": Decimal("1E+30"), "note": {"x": "y"}, "key": None},
            {"counter": "b", "total": -5, "note": {}, "key": "k"},
        ]
    )

    assert capsys.readouterr().out == (
        f"counter\ttotal\tnote\tkey\na:[red]b\t1{'0' * 30}\tx=y\t-\nb\t-5\t-\tk\n"
    )


@pytest.mark.parametrize("items", [[], [{"a": 1}], [{"value": Decimal("0.5")}, {"value": 2}]])
@pytest.mark.parametrize("rest", [{}, {"more": False, "sum": 7}])
def test_a_list_is_one_json_document_however_long(
    capsys: pytest.CaptureFixture[str], items: Sequence[Row], rest: Row
) -> None:
    show_items(iter(items), lambda: rest)

    written = json.loads(capsys.readouterr().out)
    shown = [{**one, "value": str(one["value"])} if "value" in one else one for one in items]
    assert written == {"items": shown, **rest, **({"sum": "7"} if rest else {})}


@pytest.mark.parametrize("name", ["value", "delta", "sum", "upper", "held", "threshold"])
def test_an_amount_is_a_text_of_its_digits_and_a_count_a_number(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    show_json({name: 5, "deep": [{name: -3, "events": 2}], "entries": 4})

    assert json.loads(capsys.readouterr().out) == {
        name: "5",
        "deep": [{name: "-3", "events": 2}],
        "entries": 4,
    }


def test_an_item_of_an_app_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"value": 5, "lines": [{"amount": 2}], "price": Decimal("0.5")}
    show_json(AppendedView(number=1, table="posts", item=item).document())

    shown = json.loads(capsys.readouterr().out)
    assert shown == {"number": 1, "table": "posts", "item": {**item, "price": "0.5"}}


# A note that clears the screen, sets the title, turns the text around, and ends in the C1 form.
_NOTE = "\x1b[2J\x1b]0;title\x07 \u202egnp.exe \x9b31m\x7f\r\u2028 \u00e9"


def test_a_note_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"note": {"x": _NOTE}, "key": _NOTE}])
    cells = capsys.readouterr().out
    show_json({"note": _NOTE})
    whole = capsys.readouterr().out
    show_items([{"note": _NOTE}], lambda: {"more": False})
    listed = capsys.readouterr().out
    show_text(f"two\ncells\t{_NOTE}")
    line = capsys.readouterr().out
    show_text(encode_line(UnreadLine(unreadable="likes:a", reason=_NOTE)))
    exported = capsys.readouterr().out
    notice(f"two\nlines {_NOTE}")
    said = capsys.readouterr().err

    for text in (cells, whole, listed, line, exported, said):
        assert {one for one in text if not one.isprintable()} <= {"\n", "\t"}
        assert "\u00e9" in text
    assert r"\u001b[2J\u001b]0;title\u0007 \u202egnp.exe \u009b31m\u007f\u000d\u2028" in cells
    assert (json.loads(whole), json.loads(listed)) == (
        {"note": _NOTE},
        {"items": [{"note": _NOTE}], "more": False},
    )
    assert said.startswith("two\nlines ")
    assert line.startswith("two\ncells\t")
    assert json.loads(exported)["reason"] == _NOTE
