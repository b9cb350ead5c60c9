"""A TLS server that stores what it is sent and then misbehaves.

Each request meets the next behaviour of the plan, or an honest answer. What was stored is read from
the service behind the server, by a way of its own.
"""

import json
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from time import sleep
from typing import Final

from tests.transport.service import answer_of

_RESET: Final = struct.pack("ii", 1, 0)  # close sends a reset instead of an orderly end
_PAGE: Final = b"<html><body>Please sign in to the network</body></html>"
_JSON: Final = "application/x-amz-json-1.0"
_INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Behaviour(Enum):
    """What a request meets."""

    HONEST = "an honest answer"
    STORED_RESET = "stored, then reset"
    STORED_CLOSED = "stored, then closed in order"
    STORED_STALL = "stored, then silence"
    STORED_TRUNCATED = "stored, the answer ends in the middle"
    STORED_CUT = "stored, the JSON of the answer is cut short"
    STORED_PLAINTEXT = "stored, then plain text on the TLS connection"
    STORED_500 = "stored, then status 500"
    STORED_504_PAGE = "stored, then the 504 page of a gateway"
    STORED_408_PAGE = "stored, then the 408 page of a gateway"
    RESET = "reset before it is stored"
    PAGE = "status 200 with a page of a proxy"
    EMPTY = "status 200 with an empty object"
    LIST = "status 200 with a list"
    FORBIDDEN_PAGE = "the 403 page of a proxy"
    REDIRECT = "a redirect to an honest server"
    REDIRECT_303 = "a redirect to a page"
    THROTTLED = "throttled"
    HONEST_CLOSED = "an honest answer on a connection that is then closed"
    CHUNKED = "an honest answer in chunks"
    CONTINUED = "an honest answer after an interim one"


_BEFORE_STORED: Final = {
    Behaviour.RESET,
    Behaviour.PAGE,
    Behaviour.EMPTY,
    Behaviour.LIST,
    Behaviour.FORBIDDEN_PAGE,
    Behaviour.REDIRECT,
    Behaviour.REDIRECT_303,
    Behaviour.THROTTLED,
}
# Status, type and body of the answers that are not the service's.
_FOREIGN: Final = {
    Behaviour.PAGE: (200, "text/html", _PAGE),
    Behaviour.EMPTY: (200, _JSON, b"{}"),
    Behaviour.LIST: (200, _JSON, b"[]"),
    Behaviour.FORBIDDEN_PAGE: (403, "text/html", _PAGE),
    Behaviour.STORED_504_PAGE: (504, "text/html", _PAGE),
    Behaviour.STORED_408_PAGE: (408, "text/html", _PAGE),
    Behaviour.REDIRECT: (307, "text/html", b""),
    Behaviour.REDIRECT_303: (303, "text/html", b""),
    Behaviour.THROTTLED: (400, _JSON, b'{"__type": "x#ThrottlingException", "message": "slow"}'),
    Behaviour.STORED_500: (500, _JSON, b'{"__type": "x#InternalServerError", "message": "?"}'),
}
_ENDS: Final = {Behaviour.STORED_CLOSED, Behaviour.STORED_TRUNCATED, Behaviour.HONEST_CLOSED}


@dataclass
class HostileServer:
    """Serves TLS on a port of the loopback.

    Attributes:
        url: the endpoint.
        trusted: the file of the authority that clients must trust.
        plan: what the next requests meet; afterwards every one meets an honest answer.
        seen: the operation of every request that arrived, or the method of what is no request.
        delay_s: how long each answer takes, so that two processes wait at the same time.
        closed: set when the server has ended a connection that it answered by.
    """

    url: str
    trusted: Path
    plan: list[Behaviour] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    delay_s: float = 0.0
    closed: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)
    _ended: Event = field(default_factory=Event)

    @property
    def port(self) -> int:
        """The port of the endpoint."""
        return int(self.url.rpartition(":")[2])

    def end(self) -> None:
        """Let whoever is silent end."""
        self._ended.set()

    def talk(self, context: ssl.SSLContext, plain: socket.socket) -> None:
        """Answer the requests of a connection."""
        # A client that gave up, or whose connection another process corrupt, is gone.
        with suppress(OSError, ValueError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = context.wrap_socket(plain, server_side=True)
            with channel, channel.makefile("rb") as received:
                while (request := _read_request(received)) is not None:
                    if not self._answer(channel, *request):
                        break
                else:
                    return
        self.closed.set()

    def _answer(
        self, channel: ssl.SSLSocket, method: str, headers: dict[str, str], body: bytes
    ) -> bool:
        """Answer one request; whether the connection goes on."""
        with self._lock:
            self.seen.append(headers.get("x-amz-target", method).rpartition(".")[2])
            behaviour = self.plan.pop(0) if self.plan else Behaviour.HONEST
        if method != "POST":
            channel.sendall(_response(200, "text/html", _PAGE))
            return True
        status, told = 0, b""
        if behaviour not in _BEFORE_STORED:
            status, told = answer_of(headers, body)
        sleep(self.delay_s)
        if behaviour in {Behaviour.STORED_RESET, Behaviour.RESET}:
            _reset(channel)
            return False
        if behaviour is Behaviour.STORED_STALL:
            self._ended.wait(30)
            # It comes to another test's time: it is not the end that is waited for there.
            raise ConnectionAbortedError
        if behaviour is Behaviour.STORED_PLAINTEXT:
            with socket.socket(fileno=channel.detach()) as plain:
                plain.sendall(_response(400, "text/plain", b"plain text"))
                plain.shutdown(socket.SHUT_WR)
            return False
        if behaviour in _FOREIGN:
            channel.sendall(_response(*_FOREIGN[behaviour], location=f"{self.url}/elsewhere"))
            return True
        if behaviour is Behaviour.STORED_CUT:
            channel.sendall(_response(status, _JSON, told[: len(told) // 2]))
            return True
        answer = _form(behaviour, status, told)
        if behaviour is Behaviour.STORED_TRUNCATED:
            answer = answer[: len(answer) - len(told) // 2 - 1]
        if behaviour is not Behaviour.STORED_CLOSED:
            channel.sendall(answer)
        return behaviour not in _ENDS


def _read_request(received: object) -> tuple[str, dict[str, str], bytes] | None:
    """Method, headers and body of the next request; None where no other one comes."""
    readline, read = received.readline, received.read  # type: ignore[attr-defined]
    first = readline()
    if not first:
        return None
    headers: dict[str, str] = {}
    while (line := readline()) not in {b"\r\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return first.split()[0].decode(), headers, read(int(headers.get("content-length", 0)))


def _response(status: int, kind: str, body: bytes, *, location: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} Told\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"x-amzn-RequestId: {json.dumps(status)}\r\n"
    )
    if 300 <= status < 400:
        head += f"Location: {location}\r\n"
    return head.encode() + b"\r\n" + body


def _form(behaviour: Behaviour, status: int, body: bytes) -> bytes:
    """An honest answer, as it may come over any way."""
    if behaviour is Behaviour.CHUNKED:
        return _in_chunks(status, body)
    answer = _response(status, _JSON, body)
    return _INTERIM + answer if behaviour is Behaviour.CONTINUED else answer


def _in_chunks(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Told\r\nContent-Type: {_JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts = [body[at : at + 50] for at in range(0, len(body), 50)]
    return head.encode() + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def _reset(channel: ssl.SSLSocket) -> None:
    with socket.socket(fileno=channel.detach()) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


@contextmanager
def listening(treat: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port of the loopback that treats each of its connections like this, on a thread."""

    def one(taken: socket.socket) -> None:
        with suppress(OSError), taken:
            treat(taken)

    def serve() -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            Thread(target=one, args=(taken,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@contextmanager
def hostile_server(trusted: Path, private: Path) -> Iterator[HostileServer]:
    """A server for as long as the block runs.

    Args:
        trusted: the certificate.
        private: its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    server = HostileServer("", trusted)
    with listening(partial(server.talk, context)) as port:
        server.url = f"https://localhost:{port}"
        try:
            yield server
        finally:
            server.end()
