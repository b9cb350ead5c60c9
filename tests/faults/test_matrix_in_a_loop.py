"""A tenth of the matrix of faults in an event loop: the operations, suspended at each request.

It is another tenth than that in threads. Left out are the operations of functions, and those that
an asynchronous client does in threads.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Final, cast

import pytest

from countledger import CountLedger, Event
from tests.engines.looping import LoopingStore, looping_store
from tests.engines.store import Store
from tests.faults.matrix import Trouble
from tests.faults.operations import OPERATIONS
from tests.faults.play import EMBEDDED, Operation, World
from tests.faults.test_matrix import OF_ALL, play_cell, tenth_of

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
    for operation, trouble in tenth_of(OPERATIONS, OF_ALL, first=5)
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
def world(stores: Callable[[str], Store]) -> Iterator[LoopingWorld]:
    """One connection for all cells."""
    with looping_store(stores(EMBEDDED)) as looping:
        made = LoopingWorld(looping)
        made.recorder().record(Event("fl:first", 1))
        with made.stack:
            yield made


@pytest.mark.parametrize(("operation", "trouble"), _CELLS, ids=str)
def test_p1_an_event_loop_says_what_a_thread_says(
    world: LoopingWorld, operation: Operation, trouble: Trouble
) -> None:
    """Each cell of the table holds for the same code in a call that is suspended."""
    store = cast("LoopingStore", world.store)
    store.run(partial(play_cell, world, operation, trouble), in_thread=False)
