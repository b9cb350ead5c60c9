"""The compaction queue, and the schedules that start things: as the services of AWS, in memory."""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.ledger.errors import ServiceFailed
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from tests.simulation.faults import Fault
from tests.simulation.schedule import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.process import Process
    from tests.simulation.world import World

    Worker = Callable[[Mapping[str, str], Process], list[str]]

_VISIBILITY_MS: Final = 6 * MINUTE_MS
_RECEIVES_MAX: Final = 4
_BATCH: Final = 10
_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNIT_MS: Final = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}


@dataclass(slots=True)
class Message:
    """A message, and how often it was received."""

    id: str
    body: str
    receives: int = 0


@dataclass(eq=False)
class Queue:
    """A queue that delivers at least once, to a function that says what has to come again.

    Attributes:
        world: where it is.
        work: the function: messages by id, and the process; which of them failed.
        dead: messages that failed too often.
    """

    work: Worker | None = None
    world: World | None = None
    waiting: deque[Message] = field(default_factory=deque)
    in_flight: int = 0
    dead: list[Message] = field(default_factory=list)
    made: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing waits, nothing is being worked off."""
        return not self.waiting and not self.in_flight

    def put(self, body: str) -> None:
        """One more message."""
        world = self._world
        self.made += 1
        self._show(Message(f"message {self.made}", body))
        if world.faults.strikes(Fault.DUPLICATE, "compaction worker"):
            self._show(Message(f"message {self.made}", body))

    def _show(self, message: Message) -> None:
        self.waiting.append(message)
        self._world.schedule.at(self._world.random.random() * 1_000, self._receive)

    def _receive(self) -> None:
        """Hand what waits to the function, up to ten at a time."""
        if not self.waiting:
            return
        batch = [self.waiting.popleft() for _ in range(min(_BATCH, len(self.waiting)))]
        self.in_flight += len(batch)
        self._world.schedule.spawn("compaction worker", lambda: self._invoke(batch))

    def _invoke(self, batch: list[Message]) -> None:
        world = self._world
        process = world.process(world.home, "compaction worker", "compaction worker")
        again = {message.id for message in batch}
        if not world.faults.strikes(Fault.FAILED, "compaction worker") and self.work is not None:
            try:
                again = set(self.work({one.id: one.body for one in batch}, process))
            except Killed:
                pass
            except ServiceFailed as error:
                world.tell(f"a worker failed: {error}")
        for message in batch:
            message.receives += 1
            if message.id not in again:
                self.in_flight -= 1
            elif message.receives >= _RECEIVES_MAX:
                self.in_flight -= 1
                self.dead.append(message)
            else:
                world.schedule.at(_VISIBILITY_MS, partial(self._show_again, message))

    def _show_again(self, message: Message) -> None:
        self.in_flight -= 1
        self._show(message)

    @property
    def _world(self) -> World:
        if self.world is None:
            raise AssertionError("the queue is in no world yet")
        return self.world


@dataclass
class QueueClient:
    """SQS, as one process reaches it."""

    queue: Queue
    process: Process

    def send_message_batch(self, Entries: list[dict[str, str]], **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Put messages; some may be refused."""
        faults = self.process.world.faults

        def request() -> dict[str, Any]:
            failed = []
            for one in Entries:
                if faults.strikes(Fault.UNPROCESSED, self.process.acting):
                    failed.append({"Id": one["Id"]})
                else:
                    self.queue.put(one["MessageBody"])
            return {"Failed": failed}

        with_answer: dict[str, Any] = as_client_error(
            lambda: self.process.write("SendMessageBatch", request, attempts=4)
        )
        return with_answer

    def get_queue_attributes(self, **_: object) -> dict[str, Any]:
        """About how many wait."""
        count = str(len(self.queue.waiting))
        answer = {"Attributes": {"ApproximateNumberOfMessages": count}}
        found: dict[str, Any] = as_client_error(
            lambda: self.process.read("GetQueueAttributes", lambda: answer, attempts=4)
        )
        return found


@dataclass(eq=False)
class Scheduler:
    """EventBridge Scheduler: invokes a target at a rate, for as long as a schedule is there.

    Attributes:
        world: where it is.
        target: given the input of the schedule, and the process that runs it.
        known: the schedules by name.
    """

    target: Callable[[dict[str, Any], Process], None] | None = None
    world: World | None = None
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    _revisions: int = 0

    def put(self, name: str, request: dict[str, Any]) -> None:
        """Make or change a schedule; its rate begins anew."""
        self._revisions += 1
        self.known[name] = {**request, "revision": self._revisions}
        self._next(name, self._revisions)

    def delete(self, name: str) -> None:
        """Forget a schedule."""
        del self.known[name]

    def _next(self, name: str, revision: int) -> None:
        if self.world is None:
            raise AssertionError("the scheduler is in no world yet")
        match = _RATE.fullmatch(self.known[name]["ScheduleExpression"])
        if match is None:
            raise TypeError(f"no simulation of {self.known[name]!r}")
        period_ms = int(match[1]) * _UNIT_MS[match[2]]
        self.world.schedule.at(period_ms, lambda: self._tick(name, revision))

    def _tick(self, name: str, revision: int) -> None:
        found = self.known.get(name)
        if found is None or found["revision"] != revision or self.world is None:
            return
        self._next(name, revision)
        event = json.loads(found["Target"]["Input"])
        twice = self.world.faults.strikes(Fault.DUPLICATE, "dispatcher")
        for _ in range(2 if twice else 1):
            self.world.schedule.spawn("dispatcher", lambda: self._invoke(event))

    def _invoke(self, event: dict[str, Any]) -> None:
        world = self.world
        if world is None or self.target is None:
            return
        for _ in range(3):
            process = world.process(world.home, "dispatcher", "dispatcher")
            try:
                self.target(event, process)
            except Killed:
                continue
            except ServiceFailed as error:
                world.tell(f"the dispatcher failed: {error}")
                process.sleep_ms(MINUTE_MS)
                continue
            return


@dataclass
class SchedulerClient:
    """EventBridge Scheduler, as one process reaches it."""

    scheduler: Scheduler
    process: Process

    def create_schedule(self, Name: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401, N803 - theirs
        """Create a schedule, unless it exists."""

        def create() -> dict[str, Any]:
            if Name in self.scheduler.known:
                raise _refused("ConflictException")
            self.scheduler.put(Name, request)
            return {"ScheduleArn": Name}

        return self._write(create)

    def get_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """A schedule."""

        def request() -> dict[str, Any]:
            if Name not in self.scheduler.known:
                raise _refused("ResourceNotFoundException")
            return self.scheduler.known[Name]

        found: dict[str, Any] = as_client_error(
            lambda: self.process.read("GetSchedule", request, attempts=4)
        )
        return found

    def delete_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - theirs
        """Delete a schedule."""

        def request() -> dict[str, Any]:
            if Name not in self.scheduler.known:
                raise _refused("ResourceNotFoundException")
            self.scheduler.delete(Name)
            return {}

        return self._write(request)

    def _write(self, request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        done: dict[str, Any] = as_client_error(
            lambda: self.process.write("PutSchedule", request, attempts=4)
        )
        return done


def _refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "PutSchedule")


def as_client_error(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any call
    """What a process's call meets, as the SDK raises it."""
    try:
        return call()
    except ServiceFailed as error:
        answer: Any = {
            "Error": {"Code": "InternalError", "Message": str(error)},
            "ResponseMetadata": {"HTTPStatusCode": 500},
        }
        raise ClientError(answer, "call") from error
