"""Clients go from request to request: one that waits keeps nothing that the others need."""

import asyncio
import threading
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive

from countledger.infra.calls.access import EVERYTHING
from countledger.infra.http.api import http_app
from countledger.infra.http.calls import Clients
from countledger.ledger.errors import Throttled
from tests.http.world import Api

_MANY = 56


def _scope(path: str, method: str = "GET") -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"idempotency-key", b"k")]
        if method == "POST"
        else [],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }


async def _status(app: ASGIApp, scope: dict[str, Any], receive: Receive) -> int:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def test_more_requests_than_threads_are_all_answered(api: Api) -> None:
    """Those that wait for a client occupy no thread that the running ones need."""

    async def ask() -> list[int]:
        app = http_app(api.app.state.clients.make, lambda _: EVERYTHING)
        asked = [_status(app, _scope("/v1/counters/likes:a"), _nothing) for _ in range(_MANY)]
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == [200] * _MANY


def test_a_body_that_does_not_come_keeps_no_client(api: Api) -> None:
    async def ask() -> int:
        app = http_app(api.app.state.clients.make, lambda _: EVERYTHING, clients=1)
        slow = asyncio.Event()

        async def never() -> dict[str, Any]:
            slow.set()
            await asyncio.Event().wait()
            raise AssertionError

        post = _scope("/v1/counters/likes:a/entries", "POST")
        waiting = asyncio.create_task(_status(app, post, never))
        await slow.wait()
        status = await _status(app, _scope("/v1/counters/likes:a"), _nothing)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return status

    assert asyncio.run(ask()) == 200


def test_a_client_goes_to_who_waits_longest_and_is_never_lost() -> None:
    clients = Clients(object, most=1)  # type: ignore[arg-type]  # any will do

    async def take() -> None:
        first = await clients.take()
        left, right = (asyncio.create_task(clients.take()) for _ in range(2))
        await asyncio.sleep(0)
        giver = threading.Thread(target=clients.give_back, args=[first])
        giver.start()
        giver.join()
        assert await left is first
        clients.give_back(first)
        right.cancel()  # at the moment at which it is handed over
        await asyncio.gather(right, return_exceptions=True)
        assert await clients.take() is first
        clients.patience_s = 0.0
        with pytest.raises(Throttled, match="under way"):
            await clients.take()

    asyncio.run(take())


@pytest.mark.parametrize("begun", [0, 1])
def test_a_client_whose_request_is_cancelled_while_it_is_opened_goes_to_another(
    begun: int,
) -> None:
    """Else each such request would leave one client fewer, until all others are refused."""
    opens, may_open = threading.Event(), threading.Event()

    def make() -> Any:  # noqa: ANN401 - any will do
        opens.set()
        may_open.wait(20)
        return object()

    async def take() -> None:
        clients = Clients(make, most=1, patience_s=20)
        taking = asyncio.create_task(clients.take())
        await asyncio.sleep(0)
        while begun and not opens.is_set():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.001)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        assert taking.cancelled()
        other = asyncio.create_task(clients.take())
        await asyncio.sleep(0)
        may_open.set()
        await other

    asyncio.run(take())


def test_a_client_that_cannot_be_opened_leaves_its_place_to_another() -> None:
    errors = [OSError("no more files")]

    def make() -> Any:  # noqa: ANN401 - any will do
        if errors:
            raise errors.pop()
        return object()

    async def take() -> None:
        clients = Clients(make, most=1, patience_s=0)
        with pytest.raises(OSError, match="no more files"):
            await clients.take()
        await clients.take()

    asyncio.run(take())
