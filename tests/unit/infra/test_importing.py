"""An import that is stopped anywhere continues, and repeats no line that was done."""

import json
from io import BytesIO
from pathlib import Path

import pytest

from countledger import errors
from countledger.infra.portability.file_lines import FileLines
from countledger.infra.portability.importing import ChunkImporter, Importer
from countledger.infra.portability.place_file import open_place
from countledger.infra.portability.sending import FileSender, SentChunk
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
        sender = FileSender(store, "import", send, stack.ledger.connection.clock, chunk_lines=4)
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
