"""An emit of a file that is killed anywhere continues, and no line counts twice or is lost."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import BytesIO
from math import inf
from pathlib import Path
from random import Random

import pytest

from countledger.infra.portability.sending import (
    CHUNK_LINES,
    ChunkEmitter,
    FileLines,
    FileSender,
    NoPlace,
    PlaceFile,
    SentChunk,
    entries_of,
    open_place,
    parse_event_row,
    parse_header,
)
from countledger.ledger.amount import total_of
from countledger.ledger.errors import BadInput, BadPayload, BadSetting, RequestRejected, Throttled
from countledger.producers.event import Event
from countledger.producers.payload import parse_event_line
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, at, refuses
from tests.unit.producers.senders import TABLE, entries_in, recorder_on

LINES = 40
_CLOCK = ManualClock()


class Killed(BaseException):
    """The process ends here."""


def _text(lines: int = LINES) -> bytes:
    """Lines with and without a key, a blank one and a bad one."""
    events = [{"counter": f"a:{n % 3}", "delta": n + 1} for n in range(lines)]
    for n in range(0, lines, 5):
        events[n]["key"] = f"k{n}"
    texts = [json.dumps(one) for one in events]
    return "\n".join([*texts[:7], "", *texts[7:9], "{", *texts[9:]]).encode() + b"\n"


def _sender(
    dynamo: MemoryClient,
    store: PlaceFile | NoPlace,
    *,
    coalesce: bool = False,
    purpose: str = "an emit to ledger",
    chunk_lines: int = CHUNK_LINES,
    parse: Callable[[bytes], Event | None] = parse_event_line,
) -> FileSender:
    send = ChunkEmitter(recorder_on(dynamo, _CLOCK), parse, coalesce)
    return FileSender(store, purpose, send, connection_on(dynamo, _CLOCK), chunk_lines)


def _emit(
    dynamo: MemoryClient, path: Path, text: bytes, *, coalesce: bool = False, remove: bool = False
) -> SentChunk:
    """One try to emit a file whose chunks have four lines, later than the one before."""
    _CLOCK.sleep_ms(1_000)
    with open_place(path) as store:
        sender = _sender(dynamo, store, coalesce=coalesce, chunk_lines=4)
        *_, last = sender.chunks(FileLines(BytesIO(text), 16_384), sender.begin())
        if remove:
            store.remove()
    return last


def _sent(last: SentChunk) -> int:
    return last.place.counts["recorded"] + last.place.counts["duplicates"]


def _sums(dynamo: MemoryClient) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in dynamo.items(TABLE):
        if item["entry"].startswith("e#"):
            found[item["counter"]] += item["delta"]
    return found


def _wanted(lines: int = LINES) -> Counter[str]:
    wanted: Counter[str] = Counter()
    for n in range(lines):
        wanted[f"a:{n % 3}"] += n + 1
    return wanted


@pytest.mark.parametrize("coalesce", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_an_emit_that_is_killed_anywhere_and_continued_counts_each_line_once(
    tmp_path: Path, seed: int, *, coalesce: bool
) -> None:
    random = Random(seed)  # noqa: S311 - a schedule
    dynamo, path, text, kills = MemoryClient(), tmp_path / "place", _text(), 0
    while True:
        calls = random.randrange(6)

        def dying(_kind: str, _what: object, request: Callable[[], object]) -> object:
            nonlocal calls
            calls -= 1
            if calls >= 0:
                return request()
            if random.random() < 0.5:
                request()
            raise Killed

        if kills < 8:
            dynamo.plans[:] = [at(dying)]
        try:
            last = _emit(dynamo, path, text, coalesce=coalesce)
            break
        except Killed:
            kills += 1
            dynamo.plans.clear()

    assert kills
    assert _sums(dynamo) == _wanted()
    assert (_sent(last), last.place.counts["bad"]) == (LINES, 1)
    assert not last.stopped


def test_what_may_have_been_sent_is_sent_with_the_same_ids_and_nothing_else(tmp_path: Path) -> None:
    """The place is on the disk before the first request of a chunk leaves."""
    dynamo, text = MemoryClient(faults=[Fault(Killed(), applied=True)]), _text()
    with pytest.raises(Killed):
        _emit(dynamo, tmp_path / "place", text)
    before = {item["entry"] for item in dynamo.items(TABLE) if item["entry"].startswith("e#")}

    _emit(dynamo, tmp_path / "place", text)

    assert before
    assert len(entries_in(dynamo)) == LINES
    assert before <= {item["entry"] for item in dynamo.items(TABLE)}


def test_a_file_that_was_sent_whole_is_not_sent_again_and_one_that_grew_is_continued(
    tmp_path: Path,
) -> None:
    dynamo, path = MemoryClient(), tmp_path / "place"
    _emit(dynamo, path, _text())
    with open_place(path) as store:
        place = store.load()
    assert place is not None
    sent = len(dynamo.calls)

    with open_place(path) as store:
        sender = _sender(dynamo, store)
        lines = FileLines(BytesIO(_text()), 16_384)
        assert list(sender.chunks(lines, sender.begin())) == []
    assert len(dynamo.calls) == sent

    last = _emit(dynamo, path, _text() + b'{"counter": "a:0", "delta": 1000}\n')
    assert (_sent(last), last.place.through) == (LINES + 1, place.last + 1)
    assert _sums(dynamo) == _wanted() + Counter({"a:0": 1000})


@pytest.mark.parametrize(
    "changed",
    [_text().replace(b'"delta": 2}', b'"delta": 9}'), _text()[:200], b"\n" + _text()],
    ids=["another delta", "shorter", "a line more"],
)
def test_a_file_that_was_changed_where_it_was_sent_is_refused(
    tmp_path: Path, changed: bytes
) -> None:
    dynamo, path = MemoryClient(), tmp_path / "place"
    _emit(dynamo, path, _text())
    sent = len(dynamo.calls)

    with pytest.raises(BadSetting, match="the file was changed up to line 42"):
        _emit(dynamo, path, changed)

    assert len(dynamo.calls) == sent


def test_where_aws_fails_the_emit_stops_and_continues_with_the_same_lines(tmp_path: Path) -> None:
    dynamo, path = MemoryClient(plans=[refuses(Throttled("slower"), times=inf)]), tmp_path / "place"

    stopped = _emit(dynamo, path, _text())

    assert (stopped.stopped, stopped.place.through) == (True, 0)
    assert {number for number, _ in stopped.failures} == {1, 2, 3, 4}
    dynamo.plans.clear()
    assert not _emit(dynamo, path, _text()).stopped
    assert _sums(dynamo) == _wanted()


def test_a_line_that_can_never_be_recorded_stops_no_other(tmp_path: Path) -> None:
    rejected = RequestRejected("the item is too large")
    refused = refuses(rejected, times=inf, where=lambda what: "a:0" in str(what))
    dynamo = MemoryClient(plans=[refused])

    last = _emit(dynamo, tmp_path / "place", _text())

    assert not last.stopped
    assert (last.place.worst, last.place.through) == (rejected.exit_code, LINES + 2)
    assert set(_sums(dynamo)) == {"a:1", "a:2"}


def test_one_emit_at_a_time_uses_a_place(tmp_path: Path) -> None:
    with (
        open_place(tmp_path / "place"),
        pytest.raises(BadSetting, match="another emit"),
        open_place(tmp_path / "place"),
    ):
        pass


def test_a_place_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(BadSetting, match="another program"), open_place(other):
        pass
    with pytest.raises(BadSetting, match="that can be written"), open_place(tmp_path / "no" / "p"):
        pass

    _emit(MemoryClient(), tmp_path / "place", _text())
    with open_place(tmp_path / "place") as store:
        with pytest.raises(BadSetting, match="of an emit to ledger, and this is an emit to here"):
            _sender(MemoryClient(), store, purpose="an emit to here").begin()
        store.connection.execute("UPDATE place SET body = '{}'")
        with pytest.raises(BadSetting, match="is not valid"):
            store.load()


def test_coalesced_lines_of_a_chunk_are_one_entry_and_keep_their_number() -> None:
    events = [
        *enumerate([Event("a:b", 2), Event("a:b", -2), Event("a:b", 5, "k"), Event("c", 1)], 1)
    ]
    events.append((5, Event("a:b", 7, note={"x": "y"})))

    made = entries_of("e", events, 1_000, "eu-west-1", coalesce=True)

    shown = {(one.counter, one.delta, one.events, tuple(numbers)) for one, numbers in made}
    assert shown == {
        ("a:b", 0, 2, (1, 2)),
        ("a:b", 5, 1, (3,)),
        ("a:b", 7, 1, (5,)),
        ("c", 1, 1, (4,)),
    }
    assert made == entries_of("e", events, 1_000, "eu-west-1", coalesce=True)
    plain = entries_of("e", events, 1_000, "eu-west-1", coalesce=False)
    assert len({entry.id for entry, _ in plain}) == len(events)
    assert total_of(entry.delta for entry, _ in plain) == total_of(one.delta for _, one in events)


def test_no_place_is_no_promise() -> None:
    dynamo, store = MemoryClient(), NoPlace()
    sender = _sender(dynamo, store)
    for _ in range(2):
        list(sender.chunks(FileLines(BytesIO(b'{"counter":"a","delta":1}'), 99), sender.begin()))

    assert entries_in(dynamo) == [1, 1]


# ---- CSV ----

_HEADER = b"\xef\xbb\xbfcounter,delta, key,at,occurred_at,events,note.page\r\n"


def test_a_row_is_an_event() -> None:
    parse = partial(parse_event_row, parse_header(_HEADER))

    assert parse(b"a:b,12.50,,,,,\r\n") == parse_event_line('{"counter": "a:b", "delta": "12.50"}')
    full = {"counter": "a:b", "delta": -3, "key": "k,1", "at": "2030-01-31T12:00:00Z"}
    full |= {"occurred_at": 1_900_000_000_000, "events": 3, "note": {"page": "/x"}}
    row = b'a:b,-3,"k,1",2030-01-31T12:00:00Z,1900000000000,3,/x\n'
    assert parse(row) == parse_event_line(json.dumps(full))


def test_cells_are_trimmed() -> None:
    """Else a retry with the key of another border would count twice."""
    parse = partial(parse_event_row, parse_header(b"counter, delta, key, note.page\r\n"))

    event = parse(b" likes:a, 1, order-7, /x \r\n")

    assert event == Event("likes:a", 1, "order-7", note={"page": "/x"})
    assert parse(b'"likes:a ","1"," order-7",/x\n') == event


@pytest.mark.parametrize("row", [b",,,,,,\r\n", b" , ,\t,,,,\n", b'"","",,,,,\n', b",\n"])
def test_a_row_of_empty_cells_is_a_blank_row(row: bytes) -> None:
    parse = partial(parse_event_row, parse_header(_HEADER))
    dynamo, store = MemoryClient(), NoPlace()
    text = b"a:b,1,,,,,\n" + row + b"a:b,1,,,,,\n"

    assert parse(row) is None
    sender = _sender(dynamo, store, parse=parse)
    (sent,) = sender.chunks(FileLines(BytesIO(text), 99), sender.begin())
    assert entries_in(dynamo) == [1, 1]
    assert (sent.failures, sent.place.counts["recorded"]) == ([], 2)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b"a:b,1\n", "2 cells, and the header 7"),
        (b"a:b,one,,,,,\n", "one"),
        (b",1,,,,,\n", "counter: Field required"),
        (b"a:b,1,,,,x,\n", "events: 'x' is no whole number"),
        (b"a:b,1,,,,0,\n", "events"),
        (b'a:b,1,"k\n', "a row is one line"),
        (b"a:b,1,\xff,,,,\n", "not UTF-8"),
        (b"a:b,1," + b"k" * 20_000, "longer than"),
        (b"a:b,1,,2030-01-31,,,\n", "offset|no key"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(row: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_event_row(parse_header(_HEADER), row)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"counter\n", "no column 'delta'"),
        (b"counter,delta,colour\n", "'colour' is unknown"),
        (b"counter,delta,note.\n", "unknown"),
        (b"counter,delta,delta\n", "named twice"),
        (b"", "no column|unknown"),
    ],
)
def test_a_header_that_is_not_understood_is_refused(header: bytes, says: str) -> None:
    with pytest.raises(BadPayload, match=says):
        parse_header(header)
