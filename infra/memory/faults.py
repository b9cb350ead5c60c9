"""What happens to the next requests of an app: lost before or after they are applied, throttled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from countledger.ledger.errors import BadSetting, CountledgerError, Throttled, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """What one request meets instead of an answer.

    Attributes:
        error: what the client raises.
        applied: whether the request is carried out first.
        reads: whether a read may meet it as well.
    """

    error: CountledgerError
    applied: bool = False
    reads: bool = False


@dataclass
class FaultPlan:
    """The faults of the coming requests, in order; a request without a fault is answered."""

    _planned: deque[PlannedFault] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def lose_next_answer(self) -> None:
        """Apply the next write, and lose its answer."""
        error = Unclear("the answer was lost: `lose_next_answer` of the stack in memory")
        self._add(PlannedFault(error, applied=True))

    def fail_next(self, error: CountledgerError | None = None) -> None:
        """Lose the next write before it is applied.

        Args:
            error: what the client raises; None: `Unclear`, as for a request without an answer.

        Raises:
            BadSetting: `error` is not an error of countledger: no client raises anything else.
        """
        error = error or Unclear("the request was lost: `fail_next` of the stack in memory")
        if not isinstance(error, CountledgerError):
            raise BadSetting(f"give an instance of countledger.errors, not {error!r}")
        self._add(PlannedFault(error))

    def throttle(self, requests: int = 1) -> None:
        """Throttle the next requests, reads and writes.

        Raises:
            BadSetting: the number is not at least 1.
        """
        if requests < 1:
            raise BadSetting(f"throttle {requests!r} requests: give at least 1")
        error = Throttled("throttled: `throttle` of the stack in memory")
        for _ in range(requests):
            self._add(PlannedFault(error, reads=True))

    @property
    def pending(self) -> int:
        """How many faults no request has met yet."""
        return len(self._planned)

    def meet(self, request: Callable[[], _T], *, writes: bool) -> _T:
        """Carry out a request, or let it meet the next fault."""
        with self._lock:
            due = bool(self._planned) and (writes or self._planned[0].reads)
            fault = self._planned.popleft() if due else None
        if fault is None:
            return request()
        if fault.applied:
            request()
        raise fault.error

    def _add(self, fault: PlannedFault) -> None:
        with self._lock:
            self._planned.append(fault)
