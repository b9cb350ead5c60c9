"""A process of ours in a region: its clock, and its calls, at each of which anything may happen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from countledger.ledger.departure import leave
from countledger.ledger.errors import CountledgerError, Throttled, Unclear
from tests.simulation.faults import Fault
from tests.simulation.schedule import Killed
from tests.simulation.table import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World

_T = TypeVar("_T")

# As botocore's standard mode: so many attempts, and the longest first wait.
SDK_ATTEMPTS: Final = 4
_BACK_OFF_MS: Final = 100


@dataclass(eq=False)
class Process:
    """A process.

    Attributes:
        world: where it runs.
        region: which region it is in.
        name: for messages.
        operation: what it does at the moment, for the table of faults and operations.
        mortal: whether it may die at a call.
        error_ms: how far its clock is off.
    """

    world: World
    region: str
    name: str
    operation: str = "idle"
    mortal: bool = True
    error_ms: int = 0

    def now_ms(self) -> int:
        """The time as this process believes it to be."""
        return int(self.world.schedule.now_ms) + self.error_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Others go on in the meantime."""
        self.world.schedule.pause(duration_ms)

    def read(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:
        """A call that changes nothing."""
        return self._retried(what, request, attempts, writes=False)

    def write(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:
        """A call that changes something, at one moment."""
        return self._retried(what, request, attempts, writes=True)

    def _retried(self, what: str, request: Callable[[], _T], attempts: int, *, writes: bool) -> _T:
        """The SDK's own retries: of throttles and of answers that never came, not of conflicts."""
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(what, request, writes=writes)
            except Conflict:
                raise
            except (Throttled, Unclear):
                if attempt == attempts:
                    raise
                self._stand(self.world.random.random() * _BACK_OFF_MS * 2**attempt)
        raise AssertionError("unreachable: the last attempt answers or raises")

    def _attempt(self, what: str, request: Callable[[], _T], *, writes: bool) -> _T:
        world = self.world
        fault = world.faults.of_call(self.operation, writes=writes, mortal=self.mortal)
        self._stand(world.latency_ms())
        if fault is Fault.FROZEN:
            self._stand(world.freeze_ms())
        if fault is Fault.CRASH_BEFORE:
            raise Killed
        leave()
        if fault is Fault.THROTTLE:
            raise Throttled(f"{what}: throttled")
        if fault is Fault.BEFORE:
            self._stand(world.latency_ms())
            raise Unclear(f"{what}: no answer")
        if fault in {Fault.LATE, Fault.CRASH_LATE}:
            world.land_late(request)
            if fault is Fault.CRASH_LATE:
                raise Killed
            self._stand(world.latency_ms())
            raise Unclear(f"{what}: no answer")
        if writes:
            # Never for longer than its signature is good: then the service refuses it.
            on_its_way_ms = min(world.latency_ms(), world.shape.life_ms)
            if fault is Fault.HELD:
                on_its_way_ms = world.random.random() * world.shape.life_ms
            self._stand(on_its_way_ms)
        return self._answered(what, request, fault)

    def _answered(self, what: str, request: Callable[[], _T], fault: Fault | None) -> _T:
        """What the service answers, if the answer comes."""
        if fault not in {Fault.AFTER, Fault.CRASH_AFTER}:
            return request()
        with suppress(CountledgerError):
            request()
        if fault is Fault.CRASH_AFTER:
            raise Killed
        self._stand(self.world.latency_ms())
        raise Unclear(f"{what}: no answer")

    def _stand(self, duration_ms: float) -> None:
        self.world.schedule.pause(duration_ms)
