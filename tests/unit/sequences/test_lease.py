"""A lease gives each number of its blocks once."""

import threading

import pytest

from countledger.ledger.errors import Throttled
from countledger.producers.sequences import sequences
from countledger.producers.sequences.sequences import Lease
from tests.unit.ledger.processes import printed

FORKED = """
import os, sys
from countledger.producers.sequences.sequences import Lease

blocks = iter([range(1, 100), range(101, 200)])
lease = Lease(lambda: next(blocks))
assert lease.draw() == 1
(held,) = lease._blocks.values()
with held.lock:  # as if another thread drew while this one forks
    child = os.fork()
    if child == 0:
        os._exit(lease.draw())
assert lease.draw() == 2
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_block_is_taken_when_the_last_is_empty() -> None:
    taken = []

    def take() -> range:
        taken.append(1)
        return range(len(taken) * 10, len(taken) * 10 + 2)

    lease = Lease(take)
    assert taken == []
    assert [lease.draw() for _ in range(5)] == [10, 11, 20, 21, 30]
    assert len(taken) == 3


def test_a_block_that_cannot_be_taken_is_requested_again() -> None:
    failures = [Throttled("busy")]

    def take() -> range:
        if failures:
            raise failures.pop()
        return range(7, 8)

    lease = Lease(take)
    with pytest.raises(Throttled):
        lease.draw()
    assert lease.draw() == 7


def test_a_forked_child_takes_a_block_of_its_own() -> None:
    """Two processes with one block would give every number twice."""
    assert printed(FORKED) == ["101"]


def test_threads_that_draw_first_in_a_child_share_one_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def take() -> range:
        taken.append(len(taken))
        return range(len(taken) * 100, len(taken) * 100 + 100)

    lease = Lease(take)
    assert lease.draw() == 100
    slow = threading.Event()
    go_on = threading.Event()

    def this_copy() -> tuple[int, int]:
        if threading.current_thread().name == "slow":
            slow.set()
            go_on.wait(10)
        return 2, 0

    monkeypatch.setattr(sequences, "this_copy", this_copy)
    drawn: list[int] = []
    thread = threading.Thread(target=lambda: drawn.append(lease.draw()), name="slow")
    thread.start()
    assert slow.wait(10)
    drawn.append(lease.draw())
    go_on.set()
    thread.join(10)
    drawn.append(lease.draw())

    assert drawn == [200, 201, 202]
    assert len(taken) == 2


def test_a_lease_takes_another_block_once_the_clock_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of a copy is: what the block had left may be given out by another copy."""
    offset_s = [1_900_000_000.0]
    monkeypatch.setattr(sequences, "clock_offset_s", lambda: offset_s[0])
    blocks = iter([range(1, 100), range(101, 200), range(201, 300)])
    lease = Lease(lambda: next(blocks))

    drawn = [lease.draw(), lease.draw()]
    offset_s[0] += 0.2
    drawn.append(lease.draw())
    offset_s[0] += 3_600
    drawn += [lease.draw(), lease.draw()]
    offset_s[0] -= 5
    drawn.append(lease.draw())

    assert drawn == [1, 2, 3, 101, 102, 201]
