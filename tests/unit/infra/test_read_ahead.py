"""Reading a shard ahead: nothing is skipped or read twice, and `nothing` is never an old answer."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from countledger.infra.local.shards import ReadAhead, StreamRecord

PAGE = 3


class Shard:
    """A shard to which records are added, and which is read by pages."""

    def __init__(self) -> None:
        self.records = 0
        self.closed = False
        self.fails_at = 0  # of its reads
        self._reads = self._read = 0

    @property
    def ended(self) -> bool:
        return self.closed and self._read == self.records

    def read(self) -> tuple[int, list[StreamRecord]]:
        self._reads += 1
        if self._reads == self.fails_at:
            raise ConnectionError
        count = min(PAGE, self.records - self._read)
        numbers = range(self._read, self._read + count)
        self._read += count
        return count, [StreamRecord(str(number), 0.0, "{}") for number in numbers]


class AtOnce:
    """Carries a job out before it returns: what is read ahead is as old as it can be."""

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except ConnectionError as error:
            future.set_exception(error)
        return future


def _read_ahead(shard: Shard) -> ReadAhead:
    return ReadAhead(shard, cast("Executor", AtOnce()))


def _sequences(reader: ReadAhead) -> list[int]:
    return [int(record.sequence) for record in reader.read()[1]]


def test_every_record_is_read_once_and_in_order() -> None:
    shard = Shard()
    shard.records, shard.closed = 8, True
    reader = _read_ahead(shard)
    seen: list[int] = []

    while not reader.ended:
        seen += _sequences(reader)

    assert seen == [*range(8)]


def test_an_empty_answer_that_was_read_ahead_is_asked_for_again() -> None:
    """The function may have written more since."""
    shard = Shard()
    shard.records = 2
    reader = _read_ahead(shard)

    assert _sequences(reader) == [0, 1]
    shard.records = 4
    assert _sequences(reader) == [2, 3]
    assert _sequences(reader) == []


def test_a_shard_has_not_ended_before_its_last_page_was_taken() -> None:
    shard = Shard()
    shard.records, shard.closed = PAGE + 1, True
    reader = _read_ahead(shard)

    reader.read()

    assert shard.ended
    assert not reader.ended
    assert _sequences(reader) == [PAGE]
    assert reader.ended


def test_a_read_that_failed_ahead_is_made_again() -> None:
    shard = Shard()
    shard.records = 3 * PAGE
    reader = _read_ahead(shard)
    shard.fails_at = 2

    assert _sequences(reader) == [0, 1, 2]
    with pytest.raises(ConnectionError):
        reader.read()
    assert _sequences(reader) == [3, 4, 5]
