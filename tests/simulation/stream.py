"""A table's stream: shards that split and roll over, whose records show late.

The product's own readers see it through a client of the streams API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Self

from botocore.exceptions import ClientError

from countledger.infra.memory.stream import Stream, StreamsClient
from countledger.ledger.errors import Throttled
from tests.simulation.process import Process

_FIRST_NUMBER: Final = 10**20


@dataclass
class SimulatedStream(Stream):
    """The stream of one copy of a table.

    Attributes:
        random: decides on numbers and delays.
        lag_ms: how long after a write its record may show, at the most.
        hesitates: how many pages without records come before the first one with some.
    """

    random: Random = None  # type: ignore[assignment]  # always given
    lag_ms: float = 0.0
    hesitates: int = 0

    @classmethod
    def of(
        cls, arn: str, random: Random, now_ms: Callable[[], float], lag_ms: float, *, by_item: bool
    ) -> Self:
        """A stream without shards."""
        return cls(arn, now_ms, by_item, random=random, lag_ms=lag_ms)

    def split(self) -> None:
        """A shard is followed by another one, or by two."""
        log = self.random.choice(self.leaves())
        log.closed = True
        middle = (log.low + log.high) // 2
        if self.random.random() < 0.5 and log.low < middle < log.high:
            self.add_shard(log.id, log.low, middle)
            self.add_shard(log.id, middle, log.high)
        else:
            self.add_shard(log.id, log.low, log.high)
        self.news()

    def _new_shard(self) -> tuple[str, int]:
        name = f"shardId-{len(self.shards):08d}-{self.random.getrandbits(32):08x}"
        # Numbers of different shards tell nothing of each other.
        first = _FIRST_NUMBER * self.random.randint(1, 9) + self.random.getrandbits(40)
        return name, first

    def _delay_ms(self) -> float:
        return self.random.random() * self.lag_ms

    def _step(self) -> int:
        return self.random.randint(1, 1000)


@dataclass
class SimulatedStreamsClient(StreamsClient):
    """The streams API, as one process reaches it."""

    stream: SimulatedStream
    process: Process = None  # type: ignore[assignment]  # always given

    def _hesitates(self) -> int:
        return self.stream.hesitates

    def _call(self, what: str) -> None:
        try:
            self.process.read(what, lambda: None, attempts=4)
        except Throttled:
            answer: Any = {"Error": {"Code": "ThrottlingException", "Message": "too fast"}}
            raise ClientError(answer, what) from None
