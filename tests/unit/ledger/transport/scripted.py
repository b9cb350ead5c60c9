"""A server of plain HTTP that answers each request with the bytes that a test gives."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final
from zlib import crc32

from countledger.ledger.connection import Connection, Retries
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.operations import Absent, Put
from countledger.ledger.settings import Settings
from tests.engines.running import local_session

CONSUMED: Final = {"TableName": "t", "CapacityUnits": 1.0}
PUT: Final = Put("t", {"counter": "c", "entry": "e"}, Absent("entry"))


def http(body: bytes, status: int = 200, *headers: str) -> bytes:
    """An answer with a length."""
    lines = (
        f"HTTP/1.1 {status} X",
        "Content-Type: application/x-amz-json-1.0",
        f"Content-Length: {len(body)}",
        "x-amzn-RequestId: REQUEST1",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answered(content: object, status: int = 200, *, checksum: bool = True) -> bytes:
    """An answer of the service."""
    body = json.dumps(content).encode()
    return http(body, status, *([f"x-amz-crc32: {crc32(body)}"] if checksum else []))


def refused(code: str, status: int = 400, **more: object) -> bytes:
    """An answer in the service's words for an error."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return answered({"__type": kind, "message": "the reason", **more}, status)


WRITTEN: Final = answered({"ConsumedCapacity": CONSUMED})


@dataclass
class Seen:
    """One request that arrived.

    Attributes:
        connection: the number of its connection.
        headers: by name, in lower case.
        body: its JSON.
    """

    connection: int
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedServer:
    """Answers requests in turn, and then with a function.

    Attributes:
        url: the endpoint.
        script: the next answers; None closes the connection, and so does an empty one after a
            silence.
        otherwise: what is answered when the script is over.
        seen: what arrived.
        connections: how many were made.
    """

    url: str
    script: list[bytes | None] = field(default_factory=list)
    otherwise: Callable[[Seen], bytes] = lambda _: WRITTEN
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            Thread(target=self._talk, args=(taken, self.connections), daemon=True).start()

    def _talk(self, taken: socket.socket, connection: int) -> None:
        with suppress(OSError), taken, taken.makefile("rb") as received:
            while received.readline():
                headers: dict[str, str] = {}
                while (line := received.readline()) not in {b"\r\n", b""}:
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = json.loads(received.read(int(headers["content-length"])))
                request = Seen(connection, headers, body)
                self.seen.append(request)
                answer = self.script.pop(0) if self.script else self.otherwise(request)
                if answer is None:
                    return
                taken.sendall(answer)


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """A server for as long as the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ScriptedServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def connection_to(url: str | None, transport: str = "fast") -> Connection:
    """A connection that leaves the check of parameters to the service."""
    settings = Settings(transport=transport)
    return Connection(settings, local_session(validate_parameters=False), url)


def dynamo_of(
    server: ScriptedServer, transport: str = "fast", retries: Retries = "none"
) -> DynamoClient:
    """A client of the server."""
    return connection_to(server.url, transport).dynamo(retries)
