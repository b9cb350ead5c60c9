"""Lines of a pipe are sent as they arrive, and lines of a file a chunk at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Timer
from typing import BinaryIO, Final

import pytest

from countledger.infra.portability.sending import (
    ChunkEmitter,
    FileLines,
    FileSender,
    NoPlace,
    StreamedLines,
)
from countledger.producers.payload import parse_event_line
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.senders import entries_in, recorder_on

_LINE: Final = b'{"counter": "a", "delta": 1}\n'
_PAUSE_S: Final = 0.01
# What waits for a line that never comes gets the end of the stream instead, and its test fails.
_PATIENCE_S: Final = 10.0


@contextmanager
def _pipe() -> Iterator[tuple[int, BinaryIO]]:
    """The descriptor of its reading end, and the writing end."""
    descriptor, other = os.pipe()
    with os.fdopen(other, "wb", buffering=0) as writing:
        patience = Timer(_PATIENCE_S, writing.close)
        patience.start()
        try:
            yield descriptor, writing
        finally:
            patience.cancel()
            os.close(descriptor)


def test_the_lines_that_have_arrived_are_sent_before_the_next_one_comes() -> None:
    """Also behind a blank line, and while the next line is half typed."""
    dynamo, clock = MemoryClient(), ManualClock()
    with _pipe() as (read, write):
        lines = FileLines(StreamedLines(read, _PAUSE_S), 99)
        send = ChunkEmitter(recorder_on(dynamo, clock), parse_event_line)
        sender = FileSender(NoPlace(), "an emit", send, connection_on(dynamo, clock))
        chunks = sender.chunks(lines, sender.begin())

        write.write(_LINE * 3 + b"\n" + _LINE[:9])
        first = next(chunks)
        assert (first.place.through, len(entries_in(dynamo)), first.failures) == (4, 3, [])

        write.write(_LINE[9:] + b"oops\n")
        second = next(chunks)
        assert (second.place.through, [n for n, _ in second.failures]) == (6, [6])

        write.write(_LINE.strip())
        write.close()
        third = next(chunks)
        assert (third.place.through, third.place.counts["recorded"]) == (7, 5)
        assert list(chunks) == []


@pytest.mark.parametrize("size", [1, 5, 28, 29, 100])
def test_a_stream_is_read_as_a_file_is(size: int) -> None:
    """Each line, at most so much of it, and the end."""
    text = _LINE + b"\n" + b"x" * 70 + b"\n" + _LINE + b"no end of line"
    file = BytesIO(text)
    with _pipe() as (read, write):
        stream = StreamedLines(read, _PAUSE_S)
        write.write(text)
        write.close()
        parts = []
        while part := file.readline(size):
            assert stream.has_next(size)
            parts.append(stream.readline(size))
            assert parts[-1] == part
        assert stream.readline(size) == b""
        assert stream.has_next(size)

    assert b"".join(parts) == text


def test_a_line_that_is_too_long_is_cut_and_the_digest_has_all_of_it() -> None:
    text = b"x" * 50 + b"\n" + _LINE
    with _pipe() as (read, write):
        write.write(text)
        write.close()
        streamed = FileLines(StreamedLines(read, _PAUSE_S), 30)
        plain = FileLines(BytesIO(text), 30)

        assert [*streamed] == [*plain] == [b"x" * 31, _LINE]
        assert (streamed.digest, streamed.number) == (plain.digest, 2)
