"""A process of ours in a region: its clock, and its calls, at each of which anything may happen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from countledger.infra.memory.client import sdk_call
from countledger.ledger.departure import leave
from countledger.ledger.errors import CountledgerError, Throttled, Unclear
from tests.simulation.faults import Fault
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.schedule import Actor
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
        dead: whether it has died; then none of its threads goes on.
        parked: those of its threads that wait for each other.
        endings: what the system does as it dies.
        number: what `this_process` says.
        restores: how often a copy of its memory was seen.
    """

    world: World
    region: str
    name: str
    operation: str = "idle"
    mortal: bool = True
    error_ms: int = 0
    dead: bool = False
    parked: dict[Actor, None] = field(default_factory=dict)
    endings: list[Callable[[], object]] = field(default_factory=list)
    number: int = 0
    restores: int = 0

    @property
    def acting(self) -> str:
        """What a call is counted under: the operation, or the thread's own where there are many."""
        actor = self.world.schedule.actor
        return (actor.operation if actor is not None else None) or self.operation

    def die(self) -> None:
        """The whole process ends; whichever of its threads waits wakes up dead."""
        self.dead = True
        for ending in self.endings:
            ending()
        self.endings.clear()
        for actor in self.parked:
            self.world.schedule.wake(actor)

    def now_ms(self) -> int:
        """The time as this process believes it to be."""
        return int(self.world.schedule.now_ms) + self.error_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Others go on in the meantime."""
        self._stand(duration_ms)

    def read(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:
        """A call that changes nothing."""
        return self._retried(what, request, attempts, writes=False)

    def write(self, what: str, request: Callable[[], _T], *, attempts: int = 1) -> _T:
        """A call that changes something, at one moment."""
        return self._retried(what, request, attempts, writes=True)

    def _retried(self, what: str, request: Callable[[], _T], attempts: int, *, writes: bool) -> _T:
        """The SDK's own retries: of throttles and of answers that never came, not of conflicts."""

        def wait(attempt: int) -> None:
            self._stand(self.world.random.random() * _BACK_OFF_MS * 2**attempt)

        return sdk_call(attempts, lambda: self._attempt(what, request, writes=writes), wait)

    def _attempt(self, what: str, request: Callable[[], _T], *, writes: bool) -> _T:
        world = self.world
        fault = world.faults.of_call(self.acting, writes=writes, mortal=self.mortal)
        self._stand(world.latency_ms())
        if fault is Fault.FROZEN:
            self._stand(world.freeze_ms(self.operation))
        if fault is Fault.CRASH_BEFORE:
            self._crash()
        leave()
        if fault is Fault.THROTTLE:
            raise Throttled(f"{what}: throttled")
        if fault is Fault.BEFORE:
            self._stand(world.latency_ms())
            raise Unclear(f"{what}: no answer")
        if fault in {Fault.LATE, Fault.CRASH_LATE}:
            world.land_late(request)
            if fault is Fault.CRASH_LATE:
                self._crash()
            self._stand(world.latency_ms())
            raise Unclear(f"{what}: no answer")
        if writes:
            # Never for longer than its signature is good: then the service refuses it.
            on_its_way_ms = min(world.latency_ms(), world.shape.life_ms)
            if fault is Fault.HELD:
                on_its_way_ms = world.random.random() * world.shape.life_ms
            # It lands, whatever becomes of its process meanwhile.
            world.schedule.pause(on_its_way_ms)
        answer = self._answered(what, request, fault)
        self._refuse_dead()
        return answer

    def _answered(self, what: str, request: Callable[[], _T], fault: Fault | None) -> _T:
        """What the service answers, if the answer comes."""
        if fault not in {Fault.AFTER, Fault.CRASH_AFTER}:
            return request()
        with suppress(CountledgerError):
            request()
        if fault is Fault.CRASH_AFTER:
            self._crash()
        self._stand(self.world.latency_ms())
        raise Unclear(f"{what}: no answer")

    def _stand(self, duration_ms: float) -> None:
        self.world.schedule.pause(duration_ms)
        self._refuse_dead()

    def _refuse_dead(self) -> None:
        if self.region in self.world.gone and not self.dead:
            self.die()
        if self.dead:
            raise Killed

    def _crash(self) -> NoReturn:
        self.die()
        raise Killed
