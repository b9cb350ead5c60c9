"""A connection of a unit test: the tables that the test has made, and names that it gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from random import Random
from typing import Any, ClassVar, Final, cast

import boto3

from countledger.ledger.clock import Clock
from countledger.ledger.connection import Connection, Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.ids import Ids
from countledger.ledger.settings import Settings
from tests.unit.ledger.clocks import ManualClock

REGION: Final = "eu-west-1"
_PROCESSES: Final = count()
_PLAIN: Final = {one.name: one.metadata["default"] for one in fields(Settings)}
_NAMES: Final = {"ledger_table": "ledger", "counters_table": "counters", "home_region": REGION}


@dataclass(frozen=True, kw_only=True)
class UnitConnection(Connection):
    """A connection whose clients a test hands in.

    Attributes:
        client: of DynamoDB, for every region and any number of retries.
        retrying_client: of DynamoDB, where the SDK retries; None: the same.
        clients: of other services, by their names.
        copies: clients of DynamoDB in other regions.
    """

    makes_requests: ClassVar[bool] = False
    client: DynamoClient
    retrying_client: DynamoClient | None = None
    clients: Mapping[str, Any] = field(default_factory=dict)
    copies: Mapping[str, DynamoClient] = field(default_factory=dict)

    @property
    def outputs(self) -> Mapping[str, str]:
        """None: the settings name everything."""
        return {}

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """The client of the test."""
        if region is not None and region in self.copies:
            return self.copies[region]
        return self.client if retries == "none" else self.retrying_client or self.client

    def _client(
        self,
        service: str,
        retries: Retries = "standard",  # noqa: ARG002 - of `Connection`
        region: str | None = None,  # noqa: ARG002 - of `Connection`
    ) -> Any:  # noqa: ANN401 - as of `Connection`
        return self.clients[service]


def connection_on(
    client: DynamoClient,
    clock: Clock | None = None,
    *,
    region: str = REGION,
    new_id: Callable[[int], str] | None = None,
    unique_id: Callable[[], str] | None = None,
    retrying: DynamoClient | None = None,
    clients: Mapping[str, Any] | None = None,
    copies: Mapping[str, DynamoClient] | None = None,
    **settings: Any,  # noqa: ANN401 - as of `Settings`
) -> UnitConnection:
    """A process of its own: its ids are those of no other one.

    Args:
        client: of DynamoDB.
        clock: of the process.
        region: where it is.
        new_id: makes an id for a millisecond; None: numbered ones.
        unique_id: makes an id; None: numbered ones.
        retrying: the client of DynamoDB whose SDK retries; None: the same.
        clients: of other services, by their names.
        copies: clients of DynamoDB in other regions; None: `client` is of every region.
        **settings: other than those of a stack whose tables have their plain names.
    """
    process, numbers = next(_PROCESSES), count()

    def numbered(_at_ms: int = 0) -> str:
        return f"id-{process}-{next(numbers)}"

    make = new_id or numbered
    ids = Ids(make, lambda at_ms, n: [make(at_ms) for _ in range(n)], unique_id or numbered)
    return UnitConnection(
        settings=Settings(**{**_PLAIN, **_NAMES, **settings}),
        session=cast("boto3.Session", None),
        elsewhere=region,
        clock=clock or ManualClock(),
        random=Random(1),  # noqa: S311 - jitter
        ids=ids,
        client=client,
        retrying_client=retrying,
        clients=clients or {},
        copies={} if copies is None else copies,
    )


def through(
    connection: Connection, client: DynamoClient, retrying: DynamoClient, clock: Clock
) -> UnitConnection:
    """A process that knows nothing yet, with clients and a clock of its own.

    Args:
        connection: what it is otherwise.
        client: of DynamoDB.
        retrying: the client of DynamoDB whose SDK retries.
        clock: of the process.
    """
    own = {one.name: getattr(connection, one.name) for one in fields(Connection)}
    return UnitConnection(
        **{**own, "clock": clock, "_shared": {}}, client=client, retrying_client=retrying
    )
