"""A proxy between the client and the service: what it breaks, and when."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Final

import pytest

from countledger.ledger.errors import Unclear, Unreachable
from tests.engines.store import Store
from tests.transport.server import Behaviour, HostileServer, listening
from tests.transport.test_contract import is_stored, outcome_of, place_in
from tests.transport.transports import TRANSPORTS, Transport

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_RESET: Final = struct.pack("ii", 1, 0)


@contextmanager
def proxy(treat: Callable[[socket.socket], None]) -> Iterator[str]:
    """A proxy that treats each of its connections like this; its URL."""
    with listening(treat) as port:
        yield f"http://127.0.0.1:{port}"


def read_head(taken: socket.socket) -> bytes:
    """What a client sends first."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = taken.recv(65_536)
        if not part:
            break
        received += part
    return received


def refuse(taken: socket.socket) -> None:
    """Lets nobody through."""
    read_head(taken)
    taken.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


def reset(taken: socket.socket) -> None:
    """Takes a request as a whole, forwards it (who knows), and resets the connection."""
    head = read_head(taken)
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    left = length - len(head.partition(b"\r\n\r\n")[2])
    while left > 0:
        left -= len(taken.recv(65_536))
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def tunnel_to(port: int, taken: socket.socket) -> None:
    """Lets everybody through."""
    read_head(taken)
    with socket.create_connection(("127.0.0.1", port)) as service:
        taken.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        back = Thread(target=_pour, args=(service, taken), daemon=True)
        back.start()
        _pour(taken, service)
        back.join(5)


def _pour(source: socket.socket, into: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            into.sendall(part)
    # The end is handed on as what it was cannot be told: in order.
    with suppress(OSError):
        into.shutdown(socket.SHUT_WR)


def outcome_by(store: Store, transport: Transport, endpoint_url: str) -> object:
    """What a write comes to through the proxy of the environment."""
    place = place_in(store)
    with transport.calls(replace(store.connection, endpoint_url=endpoint_url)) as call:
        raised = outcome_of(partial(call, "put", place))
    return raised, is_stored(store, "put", place)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_proxy_that_lets_nobody_through_proves_that_nothing_was_sent(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tunnel is a part of the connection."""
    with proxy(refuse) as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        outcome = outcome_by(store, TRANSPORTS[name], "https://dynamodb.test:443")

    assert outcome == (Unreachable, False)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_no_proxy_proves_that_nothing_was_sent(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens there."""
    with proxy(refuse) as url:
        pass
    monkeypatch.setenv("HTTPS_PROXY", url)

    assert outcome_by(store, TRANSPORTS[name], "https://dynamodb.test:443") == (Unreachable, False)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_proxy_that_forwards_and_resets_proves_nothing(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib3 calls it an error of the connection to the proxy, though the request has left."""
    with proxy(reset) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        outcome = outcome_by(store, TRANSPORTS[name], "http://dynamodb.test")

    assert outcome == (Unclear, False)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour.HONEST, (None, True)),
        (Behaviour.STORED_RESET, (Unclear, True)),
        (Behaviour.STORED_CLOSED, (Unclear, True)),
    ],
)
@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_tunnel_changes_no_answer(  # noqa: PLR0917 - fixtures
    store: Store,
    server: HostileServer,
    name: str,
    behaviour: Behaviour,
    expected: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reset behind the tunnel is one of the service."""
    transport = TRANSPORTS[name]
    place = place_in(store)
    with proxy(partial(tunnel_to, server.port)) as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        endpoint = f"https://dynamodb.test:{server.port}"
        with transport.calls(replace(store.connection, endpoint_url=endpoint)) as call:
            server.plan[:] = [behaviour]
            raised = outcome_of(partial(call, "put", place))

    assert (raised, is_stored(store, "put", place)) == expected
