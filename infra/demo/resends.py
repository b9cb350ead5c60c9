"""Which events are sent a second time, and when: as a retry would, later and amid others."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.infra.demo.history import Step

# One event in so many is sent twice.
RESEND_EVERY: Final = 10
# So many other events lie between an event and its second sending, unless the history ends first.
RESEND_DELAY: Final = 250


class Resend(NamedTuple):
    """One sending of an event."""

    step: Step
    again: bool


def with_resends(
    steps: Iterable[Step], *, every: int = RESEND_EVERY, delay: int = RESEND_DELAY
) -> Iterator[Resend]:
    """All events in their order, and every so-many-th once more, later."""
    waiting: deque[tuple[int, Step]] = deque()
    for number, step in enumerate(steps, start=1):
        yield Resend(step, again=False)
        if number % every == 0:
            waiting.append((number + delay, step))
        while waiting and waiting[0][0] <= number:
            yield Resend(waiting.popleft()[1], again=True)
    for _, step in waiting:
        yield Resend(step, again=True)
