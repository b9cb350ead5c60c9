"""An import that is stopped anywhere continues, and repeats no line that was done."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger import errors
from countledger.infra.cli import portability
from countledger.infra.cli.app import run
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import ChunkImporter, Importer, ImportResult, MadeOnce
from countledger.infra.portability.lines import (
    CounterLine,
    ExportLine,
    NamespaceLine,
    encode_line,
    importable,
)
from countledger.infra.portability.sending import (
    FileLines,
    FilePlace,
    FileSender,
    SentChunk,
    open_place,
)
from countledger.ledger.amount import negated
from countledger.ledger.limits import SEQUENCE_LAST
from countledger.ledger.namespace import Kind
from countledger.testing import MemoryStack

_LINES = 10


def _text(lines: int = _LINES) -> bytes:
    """Balances of ledgers, a strict counter, and a line that is not valid."""
    balances = [{"counter": f"a:{n}", "value": n + 1} for n in range(lines)]
    strict = {"counter": "s:b", "kind": "strict", "method": "marker", "value": 7, "lower": 0}
    namespace = {"namespace": "s", "kind": "strict", "horizon_ms": 86_400_000}
    texts = [json.dumps(one) for one in (namespace, strict, *balances)]
    return "\n".join([*texts[:5], "{", *texts[5:]]).encode() + b"\n"


def _import(stack: MemoryStack, path: Path, text: bytes, *, fails_after: int = -1) -> SentChunk:
    """One try to import a file in chunks of four lines; a write fails after so many chunks."""
    with open_place(path) as store:
        send = ChunkImporter(Importer.begin(stack.ledger, "opening"))
        sender = FileSender(store, "import", send, stack.ledger.connection, chunk_lines=4)
        chunks = sender.chunks(FileLines(BytesIO(text), 16_384), sender.begin())
        sent: list[SentChunk] = []
        for chunk in chunks:
            sent.append(chunk)
            if len(sent) == fails_after:
                stack.fail_next(errors.AccessDenied("no permission"))
    return sent[-1]


@pytest.mark.parametrize("fails_after", [1, 2, 3])
def test_an_import_that_was_stopped_goes_on_after_the_lines_that_were_done(
    tmp_path: Path, fails_after: int
) -> None:
    """Nothing that was made before is met again: then it would be counted as existing."""
    stack = MemoryStack()
    with pytest.raises(errors.AccessDenied):
        _import(stack, tmp_path / "place", _text(), fails_after=fails_after)

    last = _import(stack, tmp_path / "place", _text())

    counts = last.place.counts
    assert (counts["made"], counts["exists"], counts["bad"]) == (2, 0, 1)
    assert counts["recorded"] + counts["duplicate"] == _LINES
    assert counts["duplicate"] <= 3
    assert last.place.through == _LINES + 3
    assert [stack.ledger.exact(f"a:{n}").value for n in range(_LINES)] == [*range(1, _LINES + 1)]
    assert stack.ledger.strict.show("s:b").value == 7


def test_an_import_that_grew_continues_with_its_new_lines_alone(tmp_path: Path) -> None:
    stack, path = MemoryStack(), tmp_path / "place"
    first = _import(stack, path, _text())

    last = _import(stack, path, _text() + b'{"counter": "a:new", "value": 5}\n')

    assert last.place.counts == {
        **first.place.counts,
        "recorded": first.place.counts["recorded"] + 1,
    }
    assert stack.ledger.exact("a:new").value == 5


_STRICT = CounterLine(counter="s:b", kind=Kind.STRICT, method="atomic", value=7, lower=0)
_SEQUENCE = CounterLine(counter="q:b", kind=Kind.SEQUENCE, value=40)
_DELETE: dict[str, Callable[[MemoryStack], None]] = {
    "s:b": lambda stack: stack.ledger.strict.delete("s:b"),
    "q:b": lambda stack: stack.ledger.sequences.delete("q:b"),
}


def _outcome(stack: MemoryStack, line: CounterLine, name: str = "opening") -> object:
    (outcome,) = Importer.begin(stack.ledger, name).outcomes([line])
    return outcome


@pytest.mark.parametrize("line", [_STRICT, _SEQUENCE], ids=str)
def test_a_counter_that_was_deleted_since_its_import_is_not_made_again(line: CounterLine) -> None:
    """Its value may be in other counters by now, and its numbers are given out."""
    stack = MemoryStack()
    assert _outcome(stack, line) is ImportResult.MADE
    assert _outcome(stack, line) is ImportResult.EXISTS
    _DELETE[line.counter](stack)

    assert _outcome(stack, line) is ImportResult.DUPLICATE

    assert not list(stack.ledger.names(line.counter))
    assert _outcome(stack, line, "another import") is ImportResult.MADE


@pytest.mark.parametrize("line", [_STRICT, _SEQUENCE], ids=str)
@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("fault", ["not applied", "answer lost"])
def test_an_import_with_a_failed_write_makes_a_counter_once_or_says_that_it_is_unknown(
    line: CounterLine, write: int, fault: str
) -> None:
    stack = MemoryStack()
    importer = Importer.begin(stack.ledger, "opening")
    stack.ledger.namespaces.create(line.counter[0], kind=line.kind)
    plan = _nth(stack, write, applied=fault == "answer lost")
    with plan, suppress(errors.CountledgerError):
        list(importer.outcomes([line]))

    there = list(stack.ledger.names(line.counter))
    again = _outcome(stack, line)

    if there:
        assert again is ImportResult.EXISTS
        _DELETE[line.counter](stack)
        last = _outcome(stack, line)
        assert last is ImportResult.DUPLICATE or isinstance(last, errors.BadPayload)
        assert not list(stack.ledger.names(line.counter))
    else:
        assert again is ImportResult.MADE or isinstance(again, errors.BadPayload)


@pytest.mark.parametrize("line", [_STRICT, _SEQUENCE], ids=str)
def test_a_late_note_of_a_refused_creation_does_not_stop_the_next_try(line: CounterLine) -> None:
    """A counter of that name was in the way; the note lands after it was taken back."""
    stack = MemoryStack()
    stack.ledger.namespaces.create(line.counter[0], kind=line.kind)
    notes = MadeOnce(stack.ledger.connection, "opening")

    def refused() -> None:
        raise errors.BadBounds("of another counter")

    stack.delay_next()
    with pytest.raises(errors.BadBounds):
        notes.make(line.counter, refused, lambda: False)
    stack.advance(minutes=5)
    assert [type(one) for one in stack.land()] == [errors.ConditionFailed]

    assert _outcome(stack, line) is ImportResult.MADE


@contextmanager
def _nth(stack: MemoryStack, number: int, *, applied: bool) -> Iterator[None]:
    """The n-th write of the app from now on, and all after it, get no answer: it is killed."""
    faults = stack._memory.faults
    meet, made = faults.meet, iter(range(1_000))

    def met(request: Callable[[], object], *, writes: bool) -> object:
        place = next(made) if writes else -1
        if place == number and applied:
            meet(request, writes=writes)
        if place >= number:
            raise errors.Unclear("killed")
        return meet(request, writes=writes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "meet", met)
        yield


def test_two_imports_of_one_name_at_once_make_a_counter_once() -> None:
    """The second one meets the note of the first, and finds no counter yet."""
    stack = MemoryStack()
    importer = Importer.begin(stack.ledger, "opening")
    others: list[object] = []

    def create() -> None:
        others.append(_outcome(stack, _SEQUENCE))
        stack.ledger.sequences.create("q:b", first=41)

    notes = MadeOnce(stack.ledger.connection, "opening")
    stack.ledger.namespaces.create("q", kind=Kind.SEQUENCE)
    assert notes.make("q:b", create, lambda: False)

    (other,) = others
    assert isinstance(other, errors.BadPayload)
    assert [*importer.outcomes([_SEQUENCE])] == [ImportResult.EXISTS]


def test_nothing_is_tried_behind_a_namespace_that_failed(tmp_path: Path) -> None:
    """Its counters would make it with the defaults, for ever, and each later try would conflict."""
    stack, path = MemoryStack(), tmp_path / "place"
    lines = [
        {"counter": "b:first", "value": 1},
        {"namespace": "a", "kind": "ledger", "spread": 16, "horizon_ms": 86_400_000},
        {"counter": "a:x", "value": 5},
        {"counter": "b:x", "value": 7},
    ]
    text = "\n".join(map(json.dumps, lines)).encode() + b"\n"
    stack.ledger.namespaces.create("a")

    first = _import(stack, path, text)

    assert first.stopped
    assert [(number, type(error).__name__) for number, error in first.failures] == [
        (2, "NamespaceConflict"),
        (3, "BadPayload"),
    ]
    assert stack.ledger.exact("a:x").value == 0
    assert stack.ledger.exact("b:first").value == 1


@pytest.mark.parametrize(
    "namespace",
    [
        {"namespace": "a", "kind": "ledger", "spread": 16},
        {"namespace": "a", "kind": "ledger", "spread": "many", "horizon_ms": 86_400_000},
        {"unreadable": "namespace#a", "reason": "its item has no kind"},
    ],
    ids=["incomplete", "malformed", "unreadable"],
)
def test_a_try_after_a_namespace_that_cannot_be_imported_begins_with_it(
    tmp_path: Path, namespace: dict[str, object]
) -> None:
    """A later try knows nothing of an earlier one, and its counters would create the namespace."""
    stack, path = MemoryStack(), tmp_path / "place"
    lines = [namespace, *({"counter": f"a:{n}", "value": 1} for n in range(9))]
    text = "\n".join(map(json.dumps, lines)).encode() + b"\n"

    for _ in range(3):
        tried = _import(stack, path, text)
        assert tried.stopped
        assert tried.place.through == 0

    assert [one.name for one in stack.ledger.namespaces.list()] == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"namespace": "a", "kind": "ledger", "spread": 16, "horizon_ms": 86400000},',
        b'{"namespace": "a", "kind": "ledger", "description": "%b"}' % (b"x" * 20_000),
        b'{"namespace": ["a"], "kind": "ledger"}',
        b'{"namespace": "b", "namespace": "a"}',
        b"{'namespace': 'a', 'kind': 'ledger'}",
        b'{"unreadable": "namespace#a", "reason": "its item has no kind"},',
    ],
    ids=["comma", "long", "no text", "twice", "quotes", "unreadable"],
)
def test_no_line_is_sent_after_one_that_may_be_of_a_namespace(tmp_path: Path, line: bytes) -> None:
    """Which namespace that is, nobody knows: its counters would create it with the defaults."""
    stack, path = MemoryStack(), tmp_path / "place"
    before, after = b'{"counter": "b:first", "value": 1}\n', b'\n{"counter": "a:x", "value": 5}\n'

    for _ in range(2):
        tried = _import(stack, path, before + line + after * 9)
        assert tried.stopped
        assert [(number, type(error)) for number, error in tried.failures] == [
            (2, errors.BadPayload)
        ]

    assert stack.ledger.exact("b:first").value == 1
    assert [one.name for one in stack.ledger.namespaces.list()] == ["b"]


def test_a_namespace_that_was_throttled_keeps_its_settings() -> None:
    """The next try makes it as its line says, and then its counters."""
    stack = MemoryStack()
    importer = Importer.begin(stack.ledger, "opening")
    lines: list[ExportLine] = [
        NamespaceLine(namespace="a", kind=Kind.LEDGER, spread=16, horizon_ms=86_400_000),
        CounterLine(counter="a:x", value=5),
    ]
    stack.throttle(4)

    throttled, untried = importer.outcomes(lines)

    assert isinstance(throttled, errors.Throttled)
    assert isinstance(untried, errors.BadPayload)
    assert [*importer.outcomes(lines)] == [ImportResult.MADE, ImportResult.RECORDED]
    assert stack.ledger.namespaces.get("a").spread == 16


def test_a_strict_counter_that_exists_is_refused_with_its_value() -> None:
    """Nothing is added to it, so the line is no success."""
    stack = MemoryStack()
    stack.ledger.strict.create("s:b", method="atomic", lower=0, opening=3)

    refused = _outcome(stack, _STRICT)

    assert isinstance(refused, errors.CounterExists)
    assert "with the value 3: an import adds nothing" in str(refused)
    assert stack.ledger.strict.show("s:b").value == 3


_SUMS: Final = st.integers(-(10**38) + 1, 10**38 - 1) | st.decimals(
    -(10**28), 10**28, allow_nan=False, places=9
)
_LEDGER_LINES: Final = st.builds(
    CounterLine,
    counter=st.just("a:b"),
    value=st.sampled_from([0, 10**38 - 1, 1 - 10**38, Decimal("1E-38"), -(10**20)]) | _SUMS,
    events=st.sampled_from([0, 1, 10**9, 10**9 + 1, 10**18 + 1, 10**28]) | st.integers(0, 10**28),
)
_ANY_BOUND: Final = st.integers(10**19, 10**20 - 1) | st.just(Decimal("0.000000001"))


@st.composite
def _strict_lines(draw: st.DrawFn) -> CounterLine:
    """Of any value that changes reach, between bounds or without."""
    method = draw(st.sampled_from(["atomic", "occ", "history", "request_token", "marker", "set"]))
    upper, lower = draw(st.none() | _ANY_BOUND), draw(st.none() | _ANY_BOUND.map(negated))
    extremes = st.sampled_from([value for value in (0, upper, lower) if value is not None])
    value = draw(extremes | (_SUMS if upper is None and lower is None else extremes))
    return CounterLine(
        counter="s:b",
        kind=Kind.STRICT,
        value=value,
        method=method,
        lower=lower,
        upper=upper,
        bins=draw(st.integers(1, 7)) if method in {"atomic", "request_token", "marker"} else 1,
        history=draw(st.integers(2, 100)) if method == "history" else None,
        max_tokens=draw(st.integers(1, 500)) if method == "set" else None,
        window_ms=draw(st.integers(60_000, 10**9)) if method == "marker" else None,
    )


_SEQUENCE_LINES: Final = st.builds(
    CounterLine,
    counter=st.just("q:b"),
    kind=st.just(Kind.SEQUENCE),
    value=st.sampled_from([-1, 0, SEQUENCE_LAST, SEQUENCE_LAST - 1]),
)


@given(line=_LEDGER_LINES | _strict_lines() | _SEQUENCE_LINES)
def test_what_is_exported_can_be_imported(line: CounterLine) -> None:
    """Whatever the sum, the bounds and the number of events, twice over, in every reading."""
    for _ in range(2):
        stack = MemoryStack()
        stack.ledger.namespaces.create(line.counter[0], kind=line.kind)
        read = importable(encode_line(line).encode(), drop_holds=False)

        outcome = _outcome(stack, cast("CounterLine", read))

        empty = line.kind is Kind.LEDGER and not line.value and not line.events
        assert outcome in {
            ImportResult.NOTHING if empty else ImportResult.RECORDED,
            ImportResult.MADE,
        }
        (again,) = [*Exporter(stack.ledger).walk()] or [Exporter(stack.ledger).line(line.counter)]
        assert again == line
        if line.kind is Kind.LEDGER:
            total = stack.ledger.total(line.counter)
            assert (total.value, total.events) == (line.value, line.events)
        line = cast("CounterLine", again)


_EQUAL = (
    b'{"counter": "a:x", "value": 5}\n{"counter": "a:y", "value": 1}\n'
    b'{"counter": "a:z", "value": 2}\n{"counter": "a:x", "value": 5}\n'
)


@pytest.mark.parametrize("second", [b"5", b"6"])
def test_no_line_of_a_counter_with_several_is_imported(tmp_path: Path, second: bytes) -> None:
    """Nobody knows whether one was written twice, or the sum is meant."""
    stack = MemoryStack()
    text = _EQUAL.removesuffix(b"5}\n") + second + b"}\n"

    sent = _import(stack, tmp_path / "place", text)

    assert [number for number, _ in sent.failures] == [1, 4]
    assert all("has 2 lines (1, 4)" in str(error) for _, error in sent.failures)
    assert sent.place.counts["recorded"] == 2
    assert stack.ledger.exact("a:x").value == 0


def test_the_repeated_line_of_a_stream_is_refused_once_the_first_was_imported(
    tmp_path: Path,
) -> None:
    stack = MemoryStack()
    between = b"".join(b'{"counter": "b:%d", "value": 1}\n' % n for n in range(4))

    sent = _import(stack, tmp_path / "place", _EQUAL[:31] + between + _EQUAL[:31])

    assert [number for number, _ in sent.failures] == [6]
    assert stack.ledger.exact("a:x").value == 5


def _command(stack: MemoryStack, *arguments: str) -> int:
    """A command of the command line, in this process."""
    with stack.installed():
        return run(["import", *arguments])


def test_a_file_is_read_before_its_first_line_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the first of two lines far apart is refused too, and a dry run says the same."""
    stack, file = MemoryStack(), tmp_path / "opening.jsonl"
    between = b"".join(b'{"counter": "b:%d", "value": 1}\n' % n for n in range(1_200))
    file.write_bytes(_EQUAL[:31] + between + _EQUAL[:31])

    for dry in (["--dry-run"], []):
        assert _command(stack, str(file), *dry) == 1
        told = capsys.readouterr().err
        assert "line 1: 'a:x' has 2 lines (1, 1202)" in told
        assert "line 1202: 'a:x' has 2 lines (1, 1202)" in told
    assert stack.ledger.exact("a:x").value == 0
    assert stack.ledger.exact("b:1199").value == 1


def test_another_file_of_the_same_name_is_refused_unless_the_import_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its equal lines would be duplicates without a word, as those of a file with corrections."""
    stack, file = MemoryStack(), tmp_path / "opening.jsonl"
    file.write_text('{"counter": "a:x", "value": 5}\n')
    assert _command(stack, str(file)) == 0
    assert _command(stack, str(file)) == 0
    file.write_text('{"counter": "a:x", "value": 5}\n{"counter": "a:y", "value": 1}\n')
    capsys.readouterr()

    assert _command(stack, str(file)) == 2
    assert "--name opening.jsonl" in capsys.readouterr().err
    assert _command(stack, str(file), "--name", "opening.jsonl") == 0
    assert [stack.ledger.exact(name).value for name in ("a:x", "a:y")] == [5, 1]
    assert _command(stack, str(file), "--name", "of December") == 0
    assert [stack.ledger.exact(name).value for name in ("a:x", "a:y")] == [10, 2]


def test_an_import_of_a_given_name_is_continued_by_that_name_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The content of that import is unknown, so no message may say that this file differs."""
    stack, file = MemoryStack(), tmp_path / "opening.jsonl"
    file.write_text('{"counter": "a:x", "value": 5}\n')
    assert _command(stack, str(file), "--name", file.name) == 0
    capsys.readouterr()

    assert _command(stack, str(file)) == 2

    told = capsys.readouterr().err
    assert "an import with --name opening.jsonl began at" in told
    assert "the digest of its file is not stored" in told
    assert "other content" not in told
    assert _command(stack, str(file), "--name", file.name) == 0
    assert stack.ledger.exact("a:x").value == 5


@pytest.mark.parametrize("wrong", ["name", "place", "file"])
def test_what_refuses_an_import_is_found_before_its_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    stack, file = MemoryStack(), tmp_path / "opening.jsonl"
    arguments = [str(file), "--name", "a#b"] if wrong == "name" else [str(file)]
    if wrong != "file":
        file.write_text('{"counter": "a:x", "value": 5}\n')
    if wrong == "place":
        with open_place(tmp_path / "opening.jsonl.place") as store:
            store.save(FilePlace(id="x", purpose="an emit to another ledger"))
    read: list[bytes] = []
    monkeypatch.setattr(portability, "importable", lambda text, **_: read.append(text))

    assert _command(stack, *arguments) == 2

    assert read == []
    assert (tmp_path / "opening.jsonl.place").exists() == (wrong == "place")
