"""What an app meets instead of an answer.

The next requests may be lost, before or after they are applied, be late, or be throttled; another
call may run before one of them. What a stack in memory does not have is refused by name; the guide
for users lists each name.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from countledger.ledger.errors import (
    BadSetting,
    CountledgerError,
    RequestRejected,
    SetupError,
    Throttled,
    Unclear,
)
from countledger.ledger.limits import SIGNED_REQUEST_LIFE_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
GUIDE: Final = "docs/testing-your-app.md"


class LostAnswer(Enum):
    """What becomes of a write whose caller gets no answer."""

    BEFORE = "lost before it is applied"
    APPLIED = "applied at once"
    LATE = "under way, until it lands"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """What one request meets instead of an answer."""

    error: CountledgerError
    of: LostAnswer = LostAnswer.BEFORE
    reads: bool = False


@dataclass(slots=True)
class PlannedCall:
    """Another call, which runs just before a request leaves, or `skip` requests later."""

    call: Callable[[], object]
    skip: int = 0


@dataclass(frozen=True, slots=True)
class LateRequest:
    """A write that has left and has not arrived."""

    request: Callable[[], object]
    sent_ms: int


@dataclass
class FaultPlan:
    """What the coming requests meet, in order; a request without a plan is answered."""

    now_ms: Callable[[], int]
    _planned: deque[PlannedFault | PlannedCall] = field(default_factory=deque)
    _late: list[LateRequest] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def lose_next_answer(self) -> None:
        """Apply the next write, and lose its answer."""
        error = Unclear("the answer was lost: `lose_next_answer` of the stack in memory")
        self._add(PlannedFault(error, LostAnswer.APPLIED))

    def delay_next(self) -> None:
        """Let the next write be under way until `land`; its caller gets no answer."""
        error = Unclear("no answer in time: `delay_next` of the stack in memory")
        self._add(PlannedFault(error, LostAnswer.LATE))

    def fail_next(self, error: CountledgerError | None = None) -> None:
        """Lose the next write before it is applied; the client raises `error` or `Unclear`."""
        error = error or Unclear("the request was lost: `fail_next` of the stack in memory")
        if not isinstance(error, CountledgerError):
            raise BadSetting(f"give an instance of countledger.errors, not {error!r}")
        self._add(PlannedFault(error))

    def throttle(self, requests: int = 1) -> None:
        """Throttle the next requests, reads and writes."""
        if requests < 1:
            raise BadSetting(f"throttle {requests!r} requests: give at least 1")
        error = Throttled("throttled: `throttle` of the stack in memory")
        for _ in range(requests):
            self._add(PlannedFault(error, reads=True))

    def before_next_request(self, call: Callable[[], object], *, skip: int = 0) -> None:
        """Run another call just before the next request leaves."""
        if skip < 0:
            raise BadSetting(f"skip {skip!r} requests: give at least 0")
        self._add(PlannedCall(call, skip))

    @property
    def pending(self) -> int:
        """How many plans no request has met yet, and how many writes have not landed."""
        return len(self._planned) + len(self._late)

    def announce(self) -> None:
        """Run the calls that are planned before the request which is about to leave."""
        while (call := self._due_call()) is not None:
            with self._lock:
                later, self._planned = self._planned, deque()
            try:
                call()
            finally:
                with self._lock:
                    self._planned.extend(later)

    def meet(self, request: Callable[[], _T], *, writes: bool) -> _T:
        """Carry out a request, or let it meet the next fault."""
        with self._lock:
            first = self._planned[0] if self._planned else None
            fault = first if isinstance(first, PlannedFault) else None
            if fault is None or not (writes or fault.reads):
                fault = None
            else:
                self._planned.popleft()
        if fault is None:
            return request()
        match fault.of:
            case LostAnswer.APPLIED:
                request()
            case LostAnswer.LATE:
                self._late.append(LateRequest(request, self.now_ms()))
        raise fault.error

    def land(self) -> list[CountledgerError | None]:
        """Let the late writes arrive, in their order; what each was refused with, or None."""
        landing, self._late = self._late, []
        return [self._landed(one) for one in landing]

    def _landed(self, late: LateRequest) -> CountledgerError | None:
        age_ms = self.now_ms() - late.sent_ms
        if age_ms > SIGNED_REQUEST_LIFE_MS:
            return RequestRejected(
                f"the signature of the request is {age_ms} ms old: the service refuses it after "
                f"{SIGNED_REQUEST_LIFE_MS} ms"
            )
        try:
            with translated("a late request"):
                late.request()
        except CountledgerError as error:
            return error
        return None

    def _due_call(self) -> Callable[[], object] | None:
        with self._lock:
            first = self._planned[0] if self._planned else None
            if not isinstance(first, PlannedCall):
                return None
            if first.skip:
                first.skip -= 1
                return None
            self._planned.popleft()
            return first.call

    def _add(self, planned: PlannedFault | PlannedCall) -> None:
        with self._lock:
            self._planned.append(planned)


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
    raise NotInMemory(refusal(missing, detail), missing)


def refusal(missing: Missing, detail: str = "") -> str:
    what, _, instead = missing.value.partition(": ")
    named = f" ({detail})" if detail else ""
    use = f": use {instead}" if instead else ""
    return f"a stack in memory does not have {what}{named}{use}; see {GUIDE}"


class RefusingClient:
    """In place of a client or session of boto3, from which a request would leave."""

    def __init__(self, missing: Missing, region: str) -> None:
        self._missing = missing
        self.region_name = region

    def get_partition_for_region(self, _region: str) -> str:
        return "aws"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never anything
        if name.startswith("_"):
            raise AttributeError(name)
        return refuse(self._missing, name)
