"""The application over the tables of a store, and a client of it in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI, Request
from httpx2 import Response
from starlette.testclient import TestClient

from countledger import CountLedger
from countledger.infra.calls.access import EVERYTHING, Scopes
from countledger.infra.http.api import http_app
from countledger.infra.http.counters import BUFFERED, LiveBounds
from tests.engines.in_memory import memory_store
from tests.engines.running import moto
from tests.engines.store import KeptRecords, Store, fresh_store


@dataclass
class Api:
    """An API in this process.

    Attributes:
        store: its tables.
        app: the application.
        scopes: what every caller may do from now on.
        clients: of the stack, as the application has opened them.
    """

    store: Store = field(repr=False)
    app: FastAPI = field(repr=False)
    http: TestClient
    scopes: Scopes = EVERYTHING
    clients: list[CountLedger] = field(default_factory=list)

    @property
    def read_units(self) -> float:
        """The read units of all requests so far."""
        return sum(one.read_units for one in self.clients)

    def post(self, path: str, body: object, key: str | None = None, **headers: str) -> Response:
        """Send a body of JSON, with an idempotency key."""
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.http.post(path, json=body, headers=headers)

    def put(self, path: str, body: object, key: str) -> Response:
        """Replace by a body of JSON, with an idempotency key."""
        return self.http.put(path, json=body, headers={"Idempotency-Key": key})

    def get(self, path: str, **headers: str) -> Response:
        """Read a resource."""
        return self.http.get(path, headers=headers)

    def materialize(self) -> None:
        """Bring what was recorded into the totals."""
        found = self.store.stream_records(lambda _: True, 0)
        for shard, records in found.items():
            self.store.materializer(quarantine=KeptRecords()).apply(records, shard)


def api_over(store: Store, live: LiveBounds = BUFFERED) -> Api:
    """An API over the tables of a store; a client in this process waits for the end of a stream."""
    connection = store.connection
    settings = replace(
        connection.settings,
        ledger_stream_arn=connection.settings.ledger_stream_arn or store.stream_arn,
    )

    def open_client() -> CountLedger:
        client = CountLedger(
            settings, session=connection.session, endpoint_url=connection.endpoint_url
        )
        api.clients.append(client)
        return client

    def authorize(_request: Request) -> Scopes:
        return api.scopes

    app = http_app(open_client, authorize, live=live)
    api = Api(store, app, TestClient(app, raise_server_exceptions=False))
    return api


@contextmanager
def memory_api(live: LiveBounds = BUFFERED) -> Iterator[Api]:
    """An API over tables in memory of its own."""
    with memory_store() as store:
        yield api_over(store, live)


@contextmanager
def moto_api() -> Iterator[Api]:
    """An API over moto's tables, with every index and with units."""
    with moto() as engine, fresh_store(engine) as store:
        yield api_over(store)


def names_of(problem: Any) -> str:  # noqa: ANN401 - JSON
    """The last part of a problem's type."""
    return str(problem["type"]).rpartition(":")[2]
