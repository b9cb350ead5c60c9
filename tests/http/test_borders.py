"""A text has the same value, or the same refusal, at every border of the product.

Borders: the library, lines of JSON, CSV, the command line, HTTP, the stream of Kinesis; and the
spool, which keeps what one of them accepted.
"""

import csv
import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from io import StringIO
from typing import Final
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from countledger import Event, IdempotencyKey
from countledger.infra.http.calls import parse_key
from countledger.infra.http.counters import EventInput
from countledger.infra.portability.sending import parse_event_row, parse_header
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import BadInput
from countledger.ledger.ids import BARE_KEY_PREFIX, new_id
from countledger.ledger.values import parse_delta_text, parse_time
from countledger.producers.buffer.spool import decode_row, encode_row
from countledger.producers.event import make_entry
from countledger.producers.kinesis import decode
from countledger.producers.payload import keyed, parse_event_line

_NOW_MS: Final = 1_772_600_767_891
_AT: Final = "2026-03-04T05:06:07.891Z"
_ID: Final = "019c1234-5678-7abc-8def-0123456789ab"
_HTTP: Final = TypeAdapter(EventInput)
# Of a refusal only that it is one.
_REFUSED: Final = "refused"
# What an event has besides, for the borders that need it.
_PLAIN: Final = {"counter": "likes:a", "delta": "5"}


def _facts(event: Event | None) -> object:
    assert event is not None
    key = event.key
    time = key.at if isinstance(key, IdempotencyKey) else None
    text = key.key if isinstance(key, IdempotencyKey) else key
    return event.counter, event.delta, text, time, event.occurred_at


def _entry_facts(entry: Entry) -> object:
    """As `_facts`: the entry of a bare key has no time of its own, and neither has one without."""
    has_time = entry.key is not None and not entry.id.startswith(BARE_KEY_PREFIX)
    time = to_datetime(entry.at_ms) if has_time else None
    occurred = None if entry.occurred_at_ms is None else to_datetime(entry.occurred_at_ms)
    return entry.counter, entry.delta, entry.key, time, occurred


def _library(given: dict[str, str]) -> object:
    """As the command line does with its arguments, too."""
    at, occurred = given.get("at"), given.get("occurred_at")
    return _facts(
        Event(
            given["counter"],
            parse_delta_text(given["delta"]),
            keyed(given.get("key"), None if at is None else parse_time(at)),
            None if occurred is None else parse_time(occurred),
        )
    )


def _json(given: dict[str, str]) -> object:
    return _facts(parse_event_line(json.dumps(given)))


def _csv(given: dict[str, str]) -> object:
    row = StringIO()
    csv.writer(row, lineterminator="\n").writerow(given.values())
    parse = partial(parse_event_row, parse_header(",".join(given).encode()))
    return _facts(parse(row.getvalue().encode()))


def _http(given: dict[str, str]) -> object:
    at = {"key_at": given["at"]} if "at" in given else {}
    plain = {name: text for name, text in given.items() if name != "at"}
    body = _HTTP.validate_json(json.dumps(plain | at))
    occurred: datetime | None = body.occurred_at
    return _facts(Event(body.counter, body.delta, keyed(body.key, body.key_at), occurred))


def _header(given: dict[str, str]) -> object:
    """The key of a request in its header, its text encoded."""
    if "key" not in given:
        return _http(given)
    at = f'; at="{given["at"]}"' if "at" in given else ""
    text = quote(given["key"].encode(), safe=" ").replace("~", "%7e")
    encoded = "".join(part.lower() if part.startswith("%") else part for part in _parts(text))
    key = parse_key(f'%"{encoded}"{at}')
    rest = {name: text for name, text in given.items() if name not in {"key", "at"}}
    body = _HTTP.validate_json(json.dumps(rest))
    return _facts(Event(body.counter, body.delta, key, body.occurred_at))


def _parts(text: str) -> list[str]:
    head, *others = text.split("%")
    return [head, *(part for one in others for part in (f"%{one[:2]}", one[2:]))]


def _kinesis(given: dict[str, str]) -> object:
    """An event without a key has an id there."""
    identity = {} if "key" in given else {"id": _ID}
    message = json.dumps({"v": 1, **given, **identity})
    return _entry_facts(decode(message.encode(), arrived_ms=_NOW_MS, origin="eu"))


def _spool(given: dict[str, str]) -> object:
    event = parse_event_line(json.dumps(given))
    entry = make_entry(event, now_ms=_NOW_MS, origin="eu", new_id=new_id)
    kept = decode_row(1, encode_row(entry.counter, entry.delta, entry)).entry
    assert kept == entry
    return _facts(event)


_BORDERS: Final[dict[str, Callable[[dict[str, str]], object]]] = {
    "lines of JSON": _json,
    "CSV": _csv,
    "HTTP": _http,
    "the header of HTTP": _header,
    "Kinesis": _kinesis,
    "the spool": _spool,
}


def _answers(**given: str) -> None:
    """All borders answer as the library does."""
    event = {**_PLAIN, **given}
    expected = _answer(_library, event)
    for name, border in _BORDERS.items():
        if name == "CSV" and any(text != text.strip() or not text for text in event.values()):
            continue  # its cells are trimmed, and an empty one is none
        assert _answer(border, event) == expected, name


def _answer(border: Callable[[dict[str, str]], object], event: dict[str, str]) -> object:
    try:
        return border(event)
    except (BadInput, ValidationError):
        return _REFUSED


# Letters that are more than one code point, blanks, and what cannot be seen.
_ODD: Final = st.sampled_from(
    [
        *("\u00e9", "e\u0301", "\u200b", "\u200d", "\u202e", "\ufeff", "\u00a0", "\u2800"),
        *("\U0001f468\u200d\U0001f469", "\u2764\ufe0f", "\x7f", "\u2028", "\uff15", "\u3000"),
        *'#:"\\,%~a5 \t',
    ]
)
_TEXTS: Final = st.lists(_ODD | st.characters(exclude_categories=["Cs"]), max_size=6).map("".join)
_NUMBERS: Final = st.lists(
    st.sampled_from([*"0123456789+-.eE_, ", "\uff15", "\u0665", "inf", "NaN", "0x", "00"]),
    max_size=12,
).map("".join) | st.decimals(allow_nan=True).map(str)
_TIMES: Final = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["2026-03-04", "2026-3-4", "2026-02-30", "20260304", "0000-01-01", ""]),
    st.sampled_from([*"Tt x", ""]),
    st.sampled_from(["05:06:07", "05:06", "5:06:07", "24:00:00", "23:59:60", "050607"]),
    st.sampled_from(["", ".5", ",5", ".891", ".891234567", ".1234567890", "."]),
    st.sampled_from(["Z", "z", "+02:00", "-0200", "+02", "+25:00", "+02:99", "", " Z"]),
) | st.integers(-(10**16), 10**16).map(str)


@given(_TEXTS)
@example("a\u0301b")
@example("likes:a ")
def test_a_name_is_the_same_or_refused_at_every_border(text: str) -> None:
    _answers(counter=text)


@given(_TEXTS)
@example("order-7")
def test_a_key_is_the_same_or_refused_at_every_border(text: str) -> None:
    _answers(key=text)
    _answers(key=text, at=_AT)


@given(_NUMBERS)
@example("1.23457E+12")
@example("1_000")
@example("\uff15")
@example("+05.50")
def test_an_amount_is_the_same_or_refused_at_every_border(text: str) -> None:
    _answers(delta=text)


@given(_TIMES)
@example("2026-03-04t05:06:07.891234567z")
@example("1772600767891")
def test_a_time_is_the_same_or_refused_at_every_border(text: str) -> None:
    _answers(occurred_at=text)
    _answers(key="k", at=text)
