"""An actor: the product's own client, in a greenlet that stops at each request and each pause.

The product is unchanged and nothing of it is replaced: the connection hands in clients, time, ids,
jitter (none) and workers (one after the other). So an actor is a function of the answers that it
gets and of the time at which it gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from countledger.client import CountLedger
from countledger.infra.memory.tables import MemoryTables
from countledger.ledger.departure import leave
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import Ids
from countledger.ledger.operations import Page
from tests.exploring.client import ActorConnection, Sending
from tests.exploring.world import Answer

if TYPE_CHECKING:
    from countledger.ledger.suspension import Workers
    from tests.exploring.world import World

_T = TypeVar("_T")


class Left(NamedTuple):
    """The request has passed the checks that are made as it leaves, and is under way."""


class Pausing(NamedTuple):
    """The actor waits.

    Attributes:
        duration_ms: for how long.
    """

    duration_ms: float


class Beginning(NamedTuple):
    """The actor is about to begin a call.

    Attributes:
        call: its name.
    """

    call: str


class Ended(NamedTuple):
    """The actor has nothing left to do."""


Stop: TypeAlias = Sending | Left | Pausing | Beginning | Ended


class Told(NamedTuple):
    """The answer of a call of an actor's script.

    Attributes:
        call: its name.
        answer: what it returned, or the error that it raised.
        at_ms: when.
    """

    call: str
    answer: object
    at_ms: int


class Part(NamedTuple):
    """What an actor does.

    Attributes:
        name: of the actor, in schedules.
        calls: one after the other: the name of each, and what it does.
        prepare: done before everything else, while nobody is in the way: what a process knows
            when it begins. It only reads.
        offset_ms: how far its clock is ahead.
    """

    name: str
    calls: tuple[tuple[str, Callable[[CountLedger], object]], ...]
    prepare: Callable[[CountLedger], object] = lambda _: None
    offset_ms: int = 0

    def is_like(self, other: Part) -> bool:
        """Whether two actors do the same."""
        return self[1:] == other[1:]


class _Least(Random):
    """Draws the least of everything: no wait, the first place."""

    def random(self) -> float:
        """The least number."""
        return 0.0


class _Ready(NamedTuple):
    value: Any

    def result(self) -> Any:  # noqa: ANN401 - the function's
        return self.value


class _OneByOne:
    """Workers that are the caller itself."""

    def submit(self, function: Callable[..., _T], /, *arguments: Any) -> Any:  # noqa: ANN401 - the function's
        """Run a function now."""
        return _Ready(function(*arguments))

    def map(self, function: Callable[[Any], _T], values: Iterable[Any], /) -> Iterator[_T]:
        """Run a function for each value, now."""
        return iter([function(value) for value in values])


@contextmanager
def one_by_one(number: int, name: str) -> Iterator[Workers]:  # noqa: ARG001 - of `MakeWorkers`
    """No thread: a function runs when it is submitted."""
    yield _OneByOne()


@dataclass(eq=False)
class Actor:
    """One run of a part, in a greenlet.

    Attributes:
        part: what it does.
        number: which of the actors it is; in its ids.
        world: what it sends requests to.
        at_ms: the time at which it was resumed.
        told: the answers of its calls so far.
        looked_at_time: whether what it did since then depends on the time.
    """

    part: Part
    number: int
    world: World
    at_ms: int
    told: tuple[Told, ...] = ()
    looked_at_time: bool = False
    _ids: int = 0
    _gone: bool = False
    _greenlet: greenlet = field(init=False)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self._greenlet = greenlet(self._run)

    def resume(self, answer: Answer | None, now_ms: int) -> Stop:
        """Go on with an answer, at a time, to where the actor stops next."""
        self.at_ms, self.looked_at_time = now_ms, False
        self._greenlet.parent = getcurrent()
        stop: Stop = self._greenlet.switch(answer)
        return Ended() if self._greenlet.dead else stop

    @property
    def over(self) -> bool:
        """Whether it has nothing left to do."""
        return self._greenlet.dead

    def _run(self, _: Answer | None) -> None:
        ledger = self._ledger()
        self.part.prepare(ledger)
        for name, call in self.part.calls:
            self._stop(Beginning(name))
            answer: object
            try:
                answer = call(ledger)
            except CountledgerError as error:
                answer = error
            self.looked_at_time = True
            self.told += (Told(name, answer, self.at_ms),)

    def _ledger(self) -> CountLedger:
        plain = cast("ActorConnection", ActorConnection.to(MemoryTables()))
        ids = Ids(
            self.new_id, lambda at, count: [self.new_id(at) for _ in range(count)], self.any_id
        )
        ledger = CountLedger(plain.settings, session=plain.session)
        ledger.connection = replace(
            plain,
            actor=self,
            clock=self,
            ids=ids,
            random=_Least(),
            workers=one_by_one,
            meter=Meter(),
        )
        return ledger

    def _stop(self, stop: Stop) -> Answer:
        if self._gone or self._greenlet.parent is None:
            raise GreenletExit
        try:
            answer: Answer | None = self._greenlet.parent.switch(stop)
        except GreenletExit:
            # Nobody needs this history any more: what it does while it ends must not go on.
            self._gone = True
            raise
        if answer is None:
            return Answer()
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return answer

    # ---- what its client asks of it ----

    def send(self, sending: Sending) -> Any:  # noqa: ANN401 - of the request
        """Send a request, when it is its turn; its answer."""
        self._stop(sending)
        leave()
        return fresh(self._stop(Left()).value)

    def now_ms(self) -> int:
        """The time of its clock."""
        self.looked_at_time = True
        return self.at_ms + self.part.offset_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait; a wait of nothing is none."""
        if duration_ms > 0:
            self._stop(Pausing(duration_ms))

    def new_id(self, at_ms: int) -> str:
        """An id of a millisecond, which is the same in each run of the same history."""
        self._ids += 1
        time = f"{at_ms:012x}"
        return f"{time[:8]}-{time[8:]}-7{self.number:03x}-8{self._ids:03x}-{0:012x}"

    def new_ids(self, at_ms: int, count: int) -> list[str]:
        """So many of them."""
        return [self.new_id(at_ms) for _ in range(count)]

    def any_id(self) -> str:
        """An id that says nothing of the time."""
        self._ids += 1
        return f"{self.number:016x}{self._ids:016x}"


def fresh(value: Any) -> Any:  # noqa: ANN401 - of any answer
    """An answer whose items the caller may change."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list):
        return [*map(fresh, value)]
    if isinstance(value, Page):
        return Page(fresh(value.items), value.after, value.items_read)
    return value
