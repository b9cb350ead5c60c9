"""The event source mapping: takes the records of a stream to a function, as Lambda documents it.

What goes into a batch and what an answer means are the decisions of `infra/local/shards.py`,
carried out for each shard by `infra/local/shards.py`. This module adds the function's
failures: it fails without an answer, stops half way, is invoked twice, goes on after it was
abandoned; the mapping is recreated and reads the stream from its start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.local.shards import FunctionAnswer, ShardDelivery, StreamSource, readable
from countledger.ledger.errors import CountledgerError
from tests.simulation.faults import Fault
from tests.simulation.schedule import Killed
from tests.simulation.stream import SimulatedStreamsClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Map

    from countledger.infra.local.shards import ShardSource
    from countledger.infra.memory.stream import ShardLog
    from countledger.infra.template import MappingSettings
    from tests.simulation.process import Process
    from tests.simulation.schedule import Actor
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

    Function = Callable[[dict[str, Any], Process], Map[str, Any]]

# For how long a shard without windows and without news is left alone.
_IDLE_S: Final = 3_600
_BATCHING_MS: Final = 1_000
_BACK_OFF_MS: Final = 200
_BACK_OFF_MAX_MS: Final = 20_000
# For how long an invocation that was given up may go on.
_ZOMBIE_MS: Final = 600_000


@dataclass(eq=False)
class _Lane:
    """One shard on its way, and who takes it there."""

    lane: ShardDelivery
    reader: Any
    log: ShardLog
    actor: Actor | None = None
    idle: bool = False


@dataclass(eq=False)
class Mapping:
    """A mapping in one region.

    Attributes:
        world: where it runs.
        region: which region.
        name: of the function.
        stream: what it reads.
        settings: its own.
        passes: its filter.
        function: what it invokes, given an event and the process that runs it.
        enabled: whether it delivers at all.
    """

    world: World
    region: str
    name: str
    stream: SimulatedStream
    settings: MappingSettings
    passes: Callable[[Map[str, Any]], bool]
    function: Function
    enabled: bool = True
    _generation: int = 0
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Begin with the oldest records that the stream keeps; an earlier mapping is gone."""
        self._generation += 1
        self._lanes.clear()
        self._finished.clear()
        self.stream.news = self._wake
        self._open()

    def stop(self) -> None:
        """Delete it."""
        self._generation += 1
        self._lanes.clear()
        self.stream.news = lambda: None

    def switch(self, *, on: bool) -> None:
        """Disable or enable it; its positions stay."""
        self.enabled = on
        if on:
            self._wake()

    @property
    def behind(self) -> bool:
        """Whether a record is left that it has to deliver."""
        return any(
            log.id not in self._finished and not self._caught_up(log)
            for log in self.stream.shards.values()
        )

    def _caught_up(self, log: ShardLog) -> bool:
        one = self._lanes.get(log.id)
        if one is None:
            return not self.stream.kept(log)
        return one.idle and not log.closed and not self._unread(one)

    def _unread(self, one: _Lane) -> bool:
        kept = self.stream.kept(one.log)
        return bool(kept) and kept[-1].sequence > int(one.reader.last_sequence or 0)

    def _open(self) -> None:
        """Take up the shards whose turn it is."""
        source = self._source()
        for shard in readable(source.shards(), self._finished):
            if shard.shard_id not in self._lanes:
                self._take_up(shard.shard_id, source)

    def _source(self) -> ShardSource:
        client: Any = SimulatedStreamsClient(self.stream, process=self.world.service)
        return StreamSource(client, self.stream.arn, self.passes)

    def _take_up(self, shard_id: str, source: ShardSource) -> None:
        reader: Any = source.reader(shard_id, "TRIM_HORIZON", None)
        lane = ShardDelivery(
            shard_id,
            reader,
            self.settings,
            stream_arn=self.stream.arn,
            invoke=self._invoke,
            on_failure=None,
            # Of a batch that was halved either half may come first.
            reorder=self.world.random.shuffle,
        )
        one = _Lane(lane, reader, self.stream.shards[shard_id])
        self._lanes[shard_id] = one
        number = self._generation
        name = f"{self.name} of {shard_id} in {self.region}"
        one.actor = self.world.schedule.spawn(name, lambda: self._deliver(one, number))

    def _deliver(self, one: _Lane, generation: int) -> None:
        schedule = self.world.schedule
        back_off_ms = float(_BACK_OFF_MS)
        while generation == self._generation:
            if not self.enabled:
                self._rest(one, None)
                continue
            one.lane.fill()
            delivery = one.lane.deliver(schedule.now_ms / 1_000)
            if generation != self._generation:
                return
            if one.lane.finished:
                self._finished.add(one.log.id)
                del self._lanes[one.log.id]
                self._open()
                return
            if delivery is None:
                self._rest(one, self.stream.lag_ms if self._unread(one) else None)
            elif delivery.failed:
                schedule.pause(back_off_ms * (0.5 + self.world.random.random()))
                back_off_ms = min(2 * back_off_ms, _BACK_OFF_MAX_MS)
            else:
                back_off_ms = _BACK_OFF_MS

    def _rest(self, one: _Lane, duration_ms: float | None) -> None:
        """Until there is news, or a window ends."""
        one.idle = duration_ms is None
        self.world.schedule.pause(duration_ms or (self.settings.window_s or _IDLE_S) * 1_000 / 3)
        one.idle = False

    def _wake(self) -> None:
        if not self.enabled:
            return
        for one in self._lanes.values():
            if one.idle and one.actor is not None:
                one.idle = False
                delay_ms = self.stream.lag_ms + self.world.random.random() * _BATCHING_MS
                self.world.schedule.wake(one.actor, delay_ms)

    def _invoke(self, event: bytes) -> FunctionAnswer:
        world = self.world
        if world.faults.strikes(Fault.FAILED, self.name):
            return FunctionAnswer(None, "the function failed before it began")
        if world.faults.strikes(Fault.ZOMBIE, self.name):
            delay_ms = world.random.random() * world.random.random() * _ZOMBIE_MS
            self._spawn(event, delay_ms)
            return FunctionAnswer(None, "the function took too long")
        answer = self._run(event)
        if world.faults.strikes(Fault.DUPLICATE, self.name):
            if world.random.random() < 0.5:
                self._run(event)
            else:
                delay_ms = world.random.random() * _BATCHING_MS
                self._spawn(event, delay_ms)
        return answer

    def _spawn(self, event: bytes, delay_ms: float) -> None:
        """An invocation whose answer nobody waits for."""
        self.world.zombies += 1
        self.world.schedule.spawn(f"zombie of {self.name}", lambda: self._ignored(event), delay_ms)

    def _ignored(self, event: bytes) -> None:
        try:
            self._run(event)
        finally:
            self.world.zombies -= 1

    def _run(self, event: bytes) -> FunctionAnswer:
        process = self.world.process(self.region, self.name, operation=self.name)
        try:
            answer = self.function(json.loads(event), process)
        except Killed:
            return FunctionAnswer(None, "the function died")
        except CountledgerError as error:
            return FunctionAnswer(None, str(error))
        return FunctionAnswer(json.loads(json.dumps(answer)))
