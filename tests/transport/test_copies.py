"""Two copies of one process's memory: each event counts, and no number is given out twice."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest

from countledger.ledger import processes
from tests.engines.store import Store
from tests.transport.copying import COUNTER, connections
from tests.transport.server import HostileServer
from tests.transport.test_forks import entries_of, ledger_of, stored_ids, told_by

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
_ROUNDS: Final = 3
_CALLS: Final = 3
# Runs an operation; what each process was told.
Run: TypeAlias = Callable[[str], dict[str, list[Any]]]


@pytest.fixture
def copied(store: Store, server: HostileServer) -> Run:
    """Runs an operation before, and in each of two copies; what each was told."""

    def run(operation: str) -> dict[str, list[Any]]:
        answers = told_by(store, server, "tests.transport.copying", operation, str(_ROUNDS))
        assert len(answers["original"]) == len(answers["copy"])
        return answers

    return run


@pytest.mark.parametrize("operation", ["record", "record_many", "buffered"])
def test_every_event_of_each_copy_counts(
    store: Store,
    copied: Run,
    operation: str,
) -> None:
    before = stored_ids(store, COUNTER)
    told = [one for answers in copied(operation).values() for one in answers]

    assert len(told) == 3 * _ROUNDS * _CALLS
    assert sorted(told) == sorted(stored_ids(store, COUNTER) - before)


@pytest.mark.parametrize("operation", ["draw", "draw_block"])
def test_no_number_is_drawn_by_two_copies(copied: Run, operation: str) -> None:
    told = [one for answers in copied(operation).values() for one in answers]

    assert len(set(told)) == len(told) == 3 * _ROUNDS * _CALLS


def test_an_entry_that_was_made_before_the_copy_counts_once(
    store: Store,
    copied: Run,
) -> None:
    before = stored_ids(store, COUNTER)
    answers = copied("sealed")

    assert answers["original"] == answers["copy"]
    assert sorted(answers["copy"]) == sorted(stored_ids(store, COUNTER) - before)


def test_an_event_that_waits_at_the_copy_counts_in_each(
    store: Store,
    copied: Run,
) -> None:
    """With what joins it there: neither copy takes the other's entry for its own."""
    before = stored_ids(store, COUNTER)
    answers = copied("joined")
    told = [*answers["original"], *answers["copy"]]
    new = {str(one["entry"]).removeprefix("e#"): one for one in entries_of(store, COUNTER)}
    deltas = {one: item["delta"] for one, item in new.items() if one not in before}

    assert deltas == dict.fromkeys(told[::2], 2)
    assert len(deltas) == 2 * _ROUNDS
    assert set(told[1::2]) == {2}


def test_no_connection_is_in_a_snapshot(store: Store) -> None:
    """Its copies would wait for answers that never come."""
    ledger = ledger_of(store)
    ledger.record(COUNTER, 1)
    before = len(connections())
    processes._prepare()
    closed = before - len(connections())
    ledger.record(COUNTER, 1)

    assert closed > 0
