"""A local server in a thread, with a small API behind the gate that says what it was given."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from countledger.infra.http.api import NamedOrigins
from countledger.infra.http.server import AccessRules, Gate, Listener, listen, page_files, serve

TOKEN = "t" * 43


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:  # noqa: ANN401 - any JSON
        """The body as JSON."""
        return json.loads(self.body)


class Server:
    """A server that runs.

    Attributes:
        port: that it listens on.
        gate: its app.
    """

    def __init__(self, listener: Listener, gate: Gate) -> None:
        self.port = listener.port
        self.gate = gate

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        """Send a request with the token; headers by their names with underscores."""
        given = {"Authorization": f"Bearer {TOKEN}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())
        finally:
            connection.close()

    def open(self) -> socket.socket:
        """A connection that has sent nothing yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)


async def _api(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
    message = await receive()
    if scope["path"] == "/v1/large":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(512):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    if scope["path"] == "/v1/stuck":
        await asyncio.sleep(60)
    if scope["path"] == "/v1/slow":
        await asyncio.sleep(1)
    document = {"path": scope["path"], "bytes": len(message["body"])}
    headers = [(b"content-type", b"application/json"), (b"x-frame-options", b"ALLOWALL")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(document).encode()})


@contextmanager
def running(
    *,
    allow_writes: bool = False,
    headers_timeout_s: float = 5,
    unread_timeout_s: float = 30,
    connections_max: int = 512,
    api: Any = None,  # noqa: ANN401 - ASGI's
    origins: frozenset[str] = frozenset(),
    **bounds: Any,  # noqa: ANN401 - of the gate
) -> Iterator[Server]:
    """A server with these bounds, and by default the small API, for a `with` block."""
    plain = listen()
    listener = Listener(plain.detach(), most=connections_max, unread_timeout_s=unread_timeout_s)
    rules = AccessRules(listener.port, TOKEN, allow_writes, origins)
    gate = Gate(rules, page_files(), api or _api, **bounds)
    app: Any = NamedOrigins(gate, origins)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    work = serve(app, listener, stop.wait, headers_timeout_s=headers_timeout_s)
    thread = threading.Thread(target=loop.run_until_complete, args=(work,))
    thread.start()
    try:
        yield Server(listener, gate)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
        assert not thread.is_alive()
