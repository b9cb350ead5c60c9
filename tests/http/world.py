"""The application over tables in memory, and a client of it in this process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from countledger import CountLedger
from countledger.infra.http.access import EVERYTHING, Scopes
from countledger.infra.http.api import http_app
from tests.engines.in_memory import memory_store
from tests.engines.store import KeptRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI, Request
    from httpx2 import Response

    from tests.engines.store import Store


@dataclass
class Api:
    """An API in this process.

    Attributes:
        store: its tables.
        app: the application.
        scopes: what every caller may do from now on.
    """

    store: Store
    app: FastAPI
    http: TestClient
    scopes: Scopes = EVERYTHING

    def post(self, path: str, body: object, key: str | None = None, **headers: str) -> Response:
        """Send a body of JSON, with an idempotency key."""
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.http.post(path, json=body, headers=headers)

    def get(self, path: str, **headers: str) -> Response:
        """Read a resource."""
        return self.http.get(path, headers=headers)

    def materialize(self) -> None:
        """Bring what was recorded into the totals."""
        found = self.store.stream_records(lambda _: True, 0)
        for shard, records in found.items():
            self.store.materializer(quarantine=KeptRecords()).apply(records, shard)


@contextmanager
def memory_api() -> Iterator[Api]:
    """An API over tables of its own."""
    with memory_store() as store:
        connection = store.connection

        def open_client() -> CountLedger:
            return CountLedger(connection.settings, session=connection.session)

        def authorize(_request: Request) -> Scopes:
            return api.scopes

        app = http_app(open_client, authorize)
        api = Api(store, app, TestClient(app, raise_server_exceptions=False))
        yield api


def names_of(problem: Any) -> str:  # noqa: ANN401 - JSON
    """The last part of a problem's type."""
    return str(problem["type"]).rpartition(":")[2]
