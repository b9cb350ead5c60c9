"""What to do next, decided without doing it: the steps of sending, and who carries them out.

A course is a generator. It yields a step, is sent the items that the service left, or is thrown
what went wrong, and ends with its outcome. So the rules of sending are written once, for threads
and for event loops.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from countledger.ledger.errors import CountledgerError
from countledger.ledger.expressions import Absent
from countledger.ledger.operations import Put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from countledger.ledger.attributes import Item


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send these entries now.

    Attributes:
        items: as they are stored.
        look: is asked once more as the request leaves; raises where it must not.
        batch: without condition, and some may be left; else it is one, if it is not there yet.
    """

    items: Sequence[Item]
    look: Callable[[], None]
    batch: bool = False

    def put(self, table: str) -> Put:
        """The write of a single one."""
        (item,) = self.items
        return Put(table, item, Absent("entry"))


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next attempt."""

    wait_ms: float


_T = TypeVar("_T")
Step: TypeAlias = Attempt | Pause
Course: TypeAlias = Generator[Step, "Sequence[Item]", _T]


def carry_out(course: Course[_T], do: Callable[[Step], Sequence[Item]]) -> _T:
    """Do one step after the other; what the course comes to, or raises."""
    try:
        step = next(course)
        while True:
            try:
                left = do(step)
            except CountledgerError as error:
                step = course.throw(error)
            else:
                step = course.send(left)
    except StopIteration as end:
        outcome: _T = end.value
        return outcome


async def carry_out_soon(course: Course[_T], do: Callable[[Step], Awaitable[Sequence[Item]]]) -> _T:
    """As `carry_out`, awaited."""
    try:
        step = next(course)
        while True:
            try:
                left = await do(step)
            except CountledgerError as error:
                step = course.throw(error)
            else:
                step = course.send(left)
    except StopIteration as end:
        outcome: _T = end.value
        return outcome
