"""Until when an invocation of a function may write.

A function ends before its time is over instead of being stopped in the middle. Then it can report
from which record on its batch must be delivered again, and its earlier writes count. The rules of
watermarks also depend on when the last write can leave: none leaves after this moment.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from countledger.ledger.before_send import guarded
from countledger.ledger.errors import OutOfTime
from countledger.ledger.limits import INVOCATION_MARGIN_MS, INVOCATION_TIME_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.clock import Clock


class LambdaContext(Protocol):
    """What is asked of the context of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """How long the function may still run, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which no write of an invocation begins, and no request of one leaves.

    Attributes:
        clock: gives the time.
        at_ms: that moment, in milliseconds since the epoch.
        end_ms: the same for what concludes the batch, once all other writes are done.
    """

    clock: Clock
    at_ms: int
    end_ms: int

    @classmethod
    def within(
        cls,
        clock: Clock,
        context: LambdaContext | None = None,
        longest_ms: int = INVOCATION_TIME_MS,
        margin_ms: int = INVOCATION_MARGIN_MS,
    ) -> Deadline:
        """The deadline of an invocation that begins now.

        Args:
            clock: gives the time.
            context: of the invocation: Lambda says how long it may still run.
            longest_ms: for how long it writes at the most, with its margin, whatever Lambda says.
            margin_ms: what is left for requests under way at the deadline, and for the answer.
        """
        left_ms = longest_ms
        if context is not None:
            left_ms = min(context.get_remaining_time_in_millis(), longest_ms)
        now_ms = clock.now_ms()
        return cls(clock, now_ms + left_ms - margin_ms, now_ms + left_ms - margin_ms // 2)

    def concluding(self) -> Deadline:
        """The deadline of what concludes the batch: its progress."""
        return Deadline(self.clock, self.end_ms, self.end_ms)

    def check(self) -> None:
        """Go on only before the deadline.

        Raises:
            OutOfTime: it is over.
        """
        if self.clock.now_ms() >= self.at_ms:
            raise OutOfTime(
                "the time of the function's invocation is over: its records are delivered again"
            )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Begin only before the deadline, and let no request of this thread leave after it.

        Each request is checked when it is signed already, each attempt of the SDK again.

        Raises:
            OutOfTime: the deadline is over.
        """
        self.check()
        with guarded(self.check):
            yield
