"""The scenarios of `make endurance`: each emits, disturbs, waits and checks every number."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Final

from countledger import Buffering
from countledger.infra.local.running import kill_all
from tools.endurance.world import SAY_EVERY_S, STALLED_S, World, deltas, sent_by

_THREADS: Final = 256
# How many events of the busy counter become one entry.
_WINDOW: Final = 25
_SPOOL_COUNTERS: Final = 50
_KILL_COUNTERS: Final = 200
# How long a process of the materializer may live, and the seed of that draw. A fixed time could
# fall into step with the mapping's pauses and kill each attempt alike: nothing would be delivered.
_LIFE_S: Final = (2.0, 8.0)
_FIRST_S: Final = 0.1
_KILLS: Final = 7
# How long the second process may take, in seconds, before this tool gives up.
_CHILD_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a scenario.

    Attributes:
        scenario: its name.
        events: how many were sent.
        counters: to how many counters.
        seconds: until the last one was acknowledged.
        lag_s: from then until every total was right.
        kills: how many processes were killed.
        problems: what is wrong at the end; empty if every number is right.
    """

    scenario: str
    events: int
    counters: int
    seconds: float
    lag_s: float
    kills: int
    problems: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Events acknowledged in a second."""
        return self.events / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, its size at full scale, and what emits that many events and returns the kills."""

    name: str
    events: int
    counters: int
    emit: Callable[[World, int, int], int]
    kills_materializer: bool = False

    def run(self, world: World, scale: float = 1.0, stalled_s: float = STALLED_S) -> Row:
        """Run it with so many times the events and counters, and check the result."""
        events, counters = max(1, round(self.events * scale)), max(1, round(self.counters * scale))
        world.say(f"{self.name}: {events:,} events, {counters:,} counters")
        names = world.counters(counters)
        sent = sent_by(names, deltas(events, counters))
        with _killing(world, self.kills_materializer) as killed:
            began_s = monotonic()
            kills = self.emit(world, events, counters)
            acknowledged_s = monotonic()
            world.say(f"  all acknowledged after {acknowledged_s - began_s:.1f} s")
            behind = world.wait_for_totals(sent, stalled_s)
            right_s = monotonic()
        problems = [f"{len(behind)} totals never became right"] if behind else []
        problems += world.problems(sent)
        return Row(
            self.name,
            events,
            counters,
            acknowledged_s - began_s,
            right_s - acknowledged_s,
            kills + killed(),
            tuple(problems),
        )


@contextmanager
def _killing(world: World, wanted: bool) -> Iterator[Callable[[], int]]:  # noqa: FBT001 - private
    """Kill the materializer's processes every few seconds during the block; how many were."""
    over, victims, random = Flag(), 0, Random(_KILLS)  # noqa: S311 - not for secrets

    def kill() -> None:
        nonlocal victims
        # The first as soon as it is there, so that a short run has one as well.
        while not over.wait(random.uniform(*_LIFE_S) if victims else _FIRST_S):
            found = world.materializers()
            kill_all(found)
            victims += len(found)
            if not found:
                continue
            world.say(f"  killed {len(found)} process(es) of the materializer")

    thread = Thread(target=kill, name="killer", daemon=True)
    if wanted:
        thread.start()
    try:
        yield lambda: victims
    finally:
        over.set()
        if wanted:
            thread.join()


def _coalesced(world: World, events: int, counters: int) -> int:
    """As `_by_threads`, with some events to an entry, as an application does for a busy counter.

    The local engine looks at every entry of a counter for each page that it returns: to read half a
    million entries takes it half an hour.
    """
    return _by_threads(world, events, counters, Buffering(coalesce=True, window_events=_WINDOW))


def _by_threads(
    world: World, events: int, counters: int, buffering: Buffering | None = None
) -> int:
    """256 threads of one process add one event after the other to one producer."""
    names = world.counters(counters)
    with world.ledger.buffered(buffering) as producer:

        def add(first: int) -> None:
            for number in range(first, events, _THREADS):
                producer.add(names[number % counters], 1 + number % 7)

        threads = [Thread(target=add, args=(first,)) for first in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(SAY_EVERY_S)
                if thread.is_alive():
                    done = producer.statistics
                    world.say(
                        f"  {done.events:,} events added, {done.recorded:,} entries acknowledged"
                    )
        producer.flush()
    return 0


def _by_killed_process(world: World, events: int, counters: int) -> int:
    """A process spools everything and is killed; the next one sends what is left."""
    with tempfile.TemporaryDirectory() as directory:
        spool = str(Path(directory) / "spool")
        arguments = ("tools.endurance.spooling", world.namespace, spool)
        with world.child(*arguments, str(events), str(counters)) as first:
            assert first.stdout is not None
            spooled, known = False, 0
            for line in first.stdout:
                spooled = spooled or line == "all\n"
                known = int(line) if line != "all\n" else known
                if spooled and known >= events // 20:
                    break
            first.send_signal(signal.SIGKILL)
        assert first.returncode == -signal.SIGKILL, "it had sent everything before it was killed"
        world.say(f"  killed with {known:,} of {events:,} entries acknowledged")
        with world.child(*arguments, "0", str(counters)) as second:
            second.communicate(timeout=_CHILD_TIMEOUT_S)
        assert second.returncode == 0, "the process that sends what is left in the spool failed"
    return 1


SCENARIOS: Final = (
    Scenario("one-counter", 525_000, 1, _coalesced),
    Scenario("many-counters", 100_000, 20_000, _by_threads),
    Scenario("killed-producer", 50_000, _SPOOL_COUNTERS, _by_killed_process),
    Scenario("killed-materializer", 100_000, _KILL_COUNTERS, _by_threads, kills_materializer=True),
)
