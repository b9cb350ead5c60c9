"""The tables and the stream of the simulation, as one more engine of the contract suite.

The product's client and stream reader run on them as on the other engines. What is not simulated
has a name, and a test that meets it is left out under that name.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import boto3
import pytest

from countledger.ledger.attributes import decode, encode
from countledger.ledger.clock import SystemClock
from countledger.ledger.connection import Connection
from countledger.ledger.settings import Settings
from tests.engines.differences import Engine
from tests.engines.store import Store
from tests.simulation.auditor import Auditor
from tests.simulation.calm import Scripted
from tests.simulation.dynamo import SimulatedClient
from tests.simulation.process import Process
from tests.simulation.queue import Queue, Scheduler
from tests.simulation.schedule import Schedule
from tests.simulation.shape import COUNTERS, LEDGER, REGIONS, drawn
from tests.simulation.stream import SimulatedStreamsClient
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.infra.memory.table import Table
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Page, Put, Query, Scan

T = TypeVar("T")
NAME: Final = "simulated"
_TURN: Final = RLock()


class Missing(StrEnum):
    """What the simulation does not have."""

    CLIENT = "a client: what it replaces begins at the client, and with it the SDK and its errors"
    UNITS = "consumed units"
    INDEX = "an index but that of what is due"
    SET_UP = "tables that are not there, or that nobody may use"
    CLOCK = "the machine's own clock: its time passes by itself"


class NotSimulated(Exception):
    """A test asks for what the simulation does not have."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(f"the simulation does not have {missing}")


# Whatever else a test of costs does, units are what it is about.
_COSTS: Final = re.compile(r"_p9_|_costs?_|_units?(_|$)")
LEFT_OUT: Final = {
    "test_a_table_that_is_not_there_is_named": Missing.SET_UP,
    "test_freshness_is_the_progress_of_the_stream": Missing.CLOCK,
}


def missing_of(test: str) -> Missing | None:
    """What a test needs that the simulation does not have, as its name tells; None: nothing."""
    return Missing.UNITS if _COSTS.search(test) else LEFT_OUT.get(test)


class NoClient:
    """There is none: what the simulation replaces begins at the client."""

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - never anything
        """Refuse."""
        raise NotSimulated(Missing.CLIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractClient(SimulatedClient):
    """A client whose values pass through their stored form, as those of a client do.

    What an eventual read shows is up to date here, as on every engine.
    """

    def seen(self, table: Table, key: tuple[str, str], *, consistent: bool) -> Item | None:  # noqa: ARG002
        return SimulatedClient.seen(self, table, key, consistent=True)

    def put(self, write: Put) -> None:
        """Write one item."""
        SimulatedClient.put(self, replace(write, item=decode(encode(write.item))))

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several."""
        stored = [decode(encode(item)) for item in items]
        return SimulatedClient.put_batch(self, table, stored)

    def page(self, read: Query | Scan) -> Page:
        """A page; of the one index that there is."""
        try:
            return SimulatedClient.page(self, read)
        except TypeError as error:
            raise NotSimulated(Missing.INDEX) from error


class OneAtATime(Process):
    """A process whose threads, and those of a test, call one after the other."""

    def read(self, what: str, request: Callable[[], T], *, attempts: int = 1) -> T:
        """A call."""
        with _TURN:
            return super().read(what, request, attempts=attempts)

    def write(self, what: str, request: Callable[[], T], *, attempts: int = 1) -> T:
        """A call."""
        with _TURN:
            return super().write(what, request, attempts=attempts)

    def sleep_ms(self, duration_ms: float) -> None:
        """Virtual time passes."""
        with _TURN:
            super().sleep_ms(duration_ms)


class SimulatedSession(boto3.Session):
    """A session whose connections lead into a world."""

    def __init__(self, world: World) -> None:
        """Credentials of nobody."""
        super().__init__("000000000000", "local", region_name=world.home)
        self.world = world

    def client(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - never any
        """Refuse."""
        raise NotSimulated(Missing.CLIENT)


def _world() -> World:
    """One region without faults or delays, at the machine's own time."""
    random = Random(1)  # noqa: S311 - a test's
    schedule = Schedule(random)
    shape = replace(
        drawn(random, {}),
        regions=1,
        skew_ms=0,
        latency_ms=0.0,
        stream_lag_ms=0.0,
        page_items=100,
        names_all=True,
    )
    auditor = Auditor(shape, schedule, REGIONS[0], by_hand=True)
    world = World(random, schedule, shape, Scripted(random, {}), auditor, Queue(), Scheduler())
    schedule.now_ms = float(SystemClock().now_ms())
    return world


@contextmanager
def simulated_store() -> Iterator[Store]:
    """Both tables in a world of their own; connections by its session lead there."""
    world = _world()
    session = SimulatedSession(world)
    settings = Settings(ledger_table=LEDGER, counters_table=COUNTERS, home_region=world.home)
    door_of, streams_of = Connection.dynamo, Connection.streams

    def dynamo(connection: Connection, retries: Any, *, region: str | None = None) -> DynamoClient:  # noqa: ANN401 - handed on
        if not isinstance(connection.session, SimulatedSession):
            return door_of(connection, retries, region=region)
        there = connection.session.world
        nobody: Any = NoClient()
        process = OneAtATime(there, there.home, "contract")
        return ContractClient(
            client=nobody, meter=connection.meter, process=process, region=region or there.home
        )

    def streams(connection: Connection) -> Any:  # noqa: ANN401 - a client
        if not isinstance(connection.session, SimulatedSession):
            return streams_of(connection)
        there = connection.session.world
        return SimulatedStreamsClient(there.streams[there.home], process=there.service)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "dynamo", dynamo)
        patch.setattr(Connection, "streams", streams)
        connection = Connection.open(settings, session=session)
        engine = Engine(NAME, session, None, frozenset())
        yield Store(engine, connection, world.streams[world.home].arn)
