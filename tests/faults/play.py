"""The operations of the matrix: each set up, called, called again, and its effect counted."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import uuid4

import pytest

from countledger import CountLedger
from countledger.consumers.alerts.evaluator import EvaluationOutcome
from countledger.consumers.materializer import BatchOutcome
from countledger.ledger.clock import Clock
from countledger.ledger.connection import Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import new_id, unique_id
from countledger.ledger.namespace import KnownNamespaces, Namespaces
from countledger.producers.buffer.settings import NotRecorded
from countledger.producers.event import Event, Receipt
from countledger.producers.ingest.ingest import IngestOutcome
from countledger.producers.recorder import Recorder
from countledger.producers.sender import OutcomeList
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.injection import Crash
from tests.faults.matrix import Words
from tests.unit.connections import UnitConnection, connection_on, through

# The stores of these tests: `ON_THE_ENGINE` of what only the embedded engine can show.
MEMORY: Final = "memory"
EMBEDDED: Final = "ministack"
ON_THE_ENGINE: Final = pytest.mark.parametrize("store", [EMBEDDED], indirect=True)


@dataclass
class World:
    """A store, and one connection that all operations of the matrix share.

    Attributes:
        store: the tables.
        stack: what is taken down at the end.
    """

    store: Store
    stack: ExitStack = field(default_factory=ExitStack)
    _shared: dict[object, Any] = field(default_factory=dict)
    _known: KnownNamespaces = field(default_factory=KnownNamespaces)

    @classmethod
    def begun(cls, store: Store) -> "World":
        """A world that knows the namespace of its ledger counters."""
        made = cls(store)
        made.recorder().record(Event("fl:first", 1))
        return made

    def shared(self, made: "Callable[[World], AbstractContextManager[Any]]") -> Any:  # noqa: ANN401
        """What is made once for all operations."""
        if made not in self._shared:
            self._shared[made] = self.stack.enter_context(made(self))
        return self._shared[made]

    @cached_property
    def none(self) -> DynamoClient:
        """A client whose SDK does not retry."""
        return self.store.connection.dynamo("none")

    @cached_property
    def standard(self) -> DynamoClient:
        """A client whose SDK retries."""
        return self.store.connection.dynamo("standard")

    @cached_property
    def reads(self) -> DynamoClient:
        """Another one, for the reads of a call."""
        return self.store.connection.dynamo("standard")

    def connection(
        self,
        clock: Clock | None = None,
        *,
        clients: Mapping[str, Any] | None = None,
        **settings: Any,  # noqa: ANN401 - as of `Settings`
    ) -> UnitConnection:
        """The connection of a process, whose clients meet the faults."""
        made = connection_on(
            self.none,
            clock or HandClock(),
            region=self.store.region,
            retrying=self.standard,
            new_id=new_id,
            unique_id=unique_id,
            clients=clients,
            ledger_table=self.store.ledger,
            counters_table=self.store.counters,
            home_region=self.store.region,
            **settings,
        )
        made._shared[KnownNamespaces] = self._known
        return made

    @cached_property
    def ledger(self) -> CountLedger:
        """The client as an app has it."""
        return self.store.app()

    @cached_property
    def namespaces(self) -> Namespaces:
        """The namespaces, known after their first use."""
        return Namespaces(self.connection())

    def process(self, retries: Retries, clock: HandClock | None = None) -> UnitConnection:
        """A new process, whose waits take no time, and which knows the namespaces."""
        made = through(
            self.store.connection,
            self.none if retries == "none" else self.standard,
            self.reads,
            clock or HandClock(),
        )
        made._shared[KnownNamespaces] = self._known
        return made

    def recorder(self, retries: Retries = "none", clock: HandClock | None = None) -> Recorder:
        """A recorder of a new process that knows its namespaces."""
        return Recorder(self.process(retries, clock))


@dataclass
class Play:
    """One call that is ready.

    Attributes:
        act: the call.
        effect: how often its effect is stored.
        clients: those that its requests go through.
        again: the same call again, from what the first one was told; None: there is none.
    """

    act: Callable[[], object]
    effect: Callable[[], int]
    clients: Sequence[Any]
    again: Callable[[object], Callable[[], object] | None] = field(default=lambda _told: None)

    @classmethod
    def repeatable(
        cls, act: Callable[[], object], effect: Callable[[], int], *clients: DynamoClient
    ) -> "Play":
        """A call that may simply be made again."""
        return cls(act, effect, [one.client for one in clients], lambda _told: act)


Begin = Callable[[World, str, Retries], Play]


@dataclass(frozen=True)
class Operation:
    """A row of the matrix.

    Attributes:
        name: as people say it.
        at: the request that meets the fault, as `PutItem`.
        begin: sets a call up; its text is nobody else's.
        words: what it says.
        hides: whether its SDK may be let retry, to see what that hides.
        after: how many requests of that kind go before the one that meets the fault.
        several: it takes several requests, and may die between any two of them.
    """

    name: str
    at: str
    begin: Begin
    words: Words
    hides: bool = False
    after: int = 0
    several: bool = False

    def __str__(self) -> str:
        """For the ids of tests."""
        return self.name


def fresh() -> str:
    """A text that nobody has used."""
    return uuid4().hex[:16]


def done(call: Callable[[], object]) -> Callable[[], str]:
    """A call of which it is told only that it came to its end."""

    def act() -> str:
        call()
        return "done"

    return act


def handled(outcome: BatchOutcome | EvaluationOutcome | IngestOutcome) -> str:
    """What became of a batch of a stream."""
    return "handled" if outcome.retry_from is None else "delivered again"


def told_by(call: Callable[[], object]) -> object:
    """What a call returns or raises."""
    try:
        return call()
    except (CountledgerError, NotRecorded, Crash) as error:
        return error


def said(told: object) -> str:
    """An outcome in a word."""
    if isinstance(told, bool):
        return "done" if told else "done before"
    if isinstance(told, int | range):
        return "number"
    if isinstance(told, str):
        return str(told)
    if isinstance(told, Receipt):
        return str(told.status)
    if isinstance(told, list | OutcomeList):
        return ", ".join(sorted({said(one) for one in told}))
    return type(told).__name__
