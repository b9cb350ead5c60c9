"""What an app meets instead of an answer.

The next requests may be lost, before or after they are applied, or throttled. What a stack in
memory does not have is refused by name; the guide for users lists each name.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from countledger.ledger.errors import BadSetting, CountledgerError, SetupError, Throttled, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
GUIDE: Final = "docs/testing-your-app.md"


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


class Missing(Enum):
    """What is refused, and after a colon what to use instead."""

    ARCHIVE = "archives in S3: a schedule without `archive`"
    CLIENT = "a client of boto3: `MemoryStack.items` shows what is stored"
    FUNCTIONS = "functions to invoke: `deliver`, `advance` and `compact`, which run the stack's own"
    KINESIS = "emission through Kinesis: `record` or `buffered`"
    METRICS = "metrics: `freshness` and `audit`"
    REGIONS = "other regions, and strict counters over regions: a namespace of kind `strict`"
    SERVICE = "this service of AWS"
    SESSION = "a session of boto3: the clients of the stack need none"
    STACK = "outputs of CloudFormation: the settings of its connection"


class NotInMemory(SetupError):
    """A stack in memory does not have what was used."""

    def __init__(self, message: str, missing: Missing | None = None) -> None:
        super().__init__(message)
        self.missing = missing


def refuse(missing: Missing, detail: str = "") -> NoReturn:
    """Refuse what a stack in memory does not have.

    Args:
        missing: its name.
        detail: what was used.

    Raises:
        NotInMemory: always.
    """
    raise NotInMemory(refusal(missing, detail), missing)


def refusal(missing: Missing, detail: str = "") -> str:
    """What the error says."""
    what, _, instead = missing.value.partition(": ")
    named = f" ({detail})" if detail else ""
    use = f": use {instead}" if instead else ""
    return f"a stack in memory does not have {what}{named}{use}; see {GUIDE}"


class RefusingClient:
    """In place of a client or session of boto3, from which a request would leave.

    Attributes:
        region_name: of the session.
    """

    def __init__(self, missing: Missing, region: str) -> None:
        """Refuse everything by this name."""
        self._missing = missing
        self.region_name = region

    def get_partition_for_region(self, _region: str) -> str:
        """The partition of the region."""
        return "aws"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never anything
        """Refuse everything else."""
        if name.startswith("_"):
            raise AttributeError(name)
        return refuse(self._missing, name)
