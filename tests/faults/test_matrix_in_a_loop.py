"""The matrix of faults in an event loop: the same operations, suspended at each request.

Left out are the operations of functions, and those that an asynchronous client does in threads.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Final, cast

import pytest

from countledger import CountLedger
from tests.engines.looping import LoopingStore, looping_store
from tests.engines.store import Store
from tests.faults.matrix import Trouble
from tests.faults.play import Operation, World
from tests.faults.test_matrix import CELLS, play_cell

_LEFT_OUT: Final = (
    "buffer*",
    "send to Kinesis",
    "ingest*",
    "apply records",
    "quarantine a record",
    "redrive a record",
    "mark it as handled",
    "* no more",
    "rank a *",
    "delete a group",
    "note an alert",
    "alert the bus",
    "alert a topic",
    "publish a head",
    "retire by *",
    "archive",
    "mark for deletion",
    "empty a counter",
    "forget a counter",
)
_CELLS: Final = [
    (operation, trouble)
    for operation, trouble in CELLS
    if not any(fnmatchcase(str(operation), one) for one in _LEFT_OUT)
]


class LoopingWorld(World):
    """A world whose requests are those of an event loop."""

    @cached_property
    def ledger(self) -> CountLedger:
        """The client as an asynchronous one runs it."""
        made = self.store.app()
        made.connection = self.store.connection
        return made


@pytest.fixture(scope="module")
def world(store: Store) -> Iterator[LoopingWorld]:
    """One connection for all cells."""
    with looping_store(store) as looping:
        made = LoopingWorld(looping)
        with made.stack:
            yield made


@pytest.mark.parametrize(("operation", "trouble"), _CELLS, ids=str)
def test_p1_an_event_loop_says_what_a_thread_says(
    world: LoopingWorld, operation: Operation, trouble: Trouble
) -> None:
    """Each cell of the table holds for the same code in a call that is suspended."""
    store = cast("LoopingStore", world.store)
    store.run(partial(play_cell, world, operation, trouble), in_thread=False)
