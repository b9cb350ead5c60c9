"""The local server on loopback: its bounds, its headers, and clients that are slow or hostile."""

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from countledger.infra.http.api import BODY_MAX_BYTES
from countledger.infra.http.server import HEADERS_MAX_BYTES, SECURITY_HEADERS, listen
from countledger.ledger.errors import BadSetting
from tests.unit.local_server.server import TOKEN, Server, running

_SHORT_S = 0.4
_HEAD = f"Host: 127.0.0.1:PORT\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may write, with short times."""
    with running(allow_writes=True, headers_timeout_s=_SHORT_S, body_timeout_s=_SHORT_S) as started:
        yield started


def _raw(server: Server, request: str | bytes) -> bytes:
    """Send bytes as they are, and read until the server closes or pauses."""
    if isinstance(request, str):
        request = request.replace("PORT", str(server.port)).encode("latin-1")
    with server.open() as client:
        # The server may refuse and close before it has read all of it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        return _rest(client)


def _rest(client: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    parts: list[bytes] = []
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)


def test_the_api_is_served_with_the_token_only_and_no_answer_sets_a_cookie(server: Server) -> None:
    assert server.ask("/").headers["content-type"] == "text/html; charset=utf-8"
    assert server.ask("/v1/x").document == {"path": "/v1/x", "bytes": 0}
    for path in ("/v1", "/v1/x", f"/v1/x?token={TOKEN}"):
        refused = server.ask(path, Authorization="")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.document["type"] == "urn:countledger:problem:no-token"
    for path in ("/", f"/?token={TOKEN}", "/app.js"):
        page = server.ask(path, Authorization="")
        assert (page.status, "set-cookie" in page.headers) == (200, False)


def test_every_answer_has_the_headers_of_security_and_ours_win(server: Server) -> None:
    for answer in (
        server.ask("/"),
        server.ask("/v1/x"),  # it says that any page may frame it
        server.ask("/nothing"),
        server.ask("/v1", Authorization=""),
        server.ask("/", Host="evil.example"),
    ):
        assert answer.headers.items() >= SECURITY_HEADERS.items()
        assert "server" not in answer.headers


def test_a_person_is_told_in_words(server: Server) -> None:
    refused = server.ask("/v1", Authorization="", Accept="text/html")

    assert refused.headers["content-type"].startswith("text/plain")
    assert b"open the whole address that the command printed" in refused.body


def test_a_file_that_the_browser_has_is_not_sent_again(server: Server) -> None:
    first = server.ask("/app.js")
    again = server.ask("/app.js", If_None_Match=first.headers["etag"])

    assert (first.status, again.status, again.body) == (200, 304, b"")
    assert server.ask("/app.js", "HEAD").headers["content-length"] == str(len(first.body))
    assert server.ask("/app.js", "POST", b"").status == 405


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "/app.js/", "//"]
)
def test_no_path_leads_out_of_the_page(server: Server, path: str) -> None:
    assert server.ask(path).status == 404


def test_without_leave_nothing_is_written() -> None:
    with running() as reading:
        refused = reading.ask("/v1/x", "POST", b"{}")

    assert refused.status == 403
    assert "countledger serve --allow-writes" in refused.document["detail"]


def test_a_body_is_bounded_in_size(server: Server) -> None:
    assert server.ask("/v1/x", "POST", b"a" * BODY_MAX_BYTES).document["bytes"] == BODY_MAX_BYTES
    head = f"POST /v1/x HTTP/1.1\r\n{_HEAD}Content-Length: {BODY_MAX_BYTES + 1}\r\n\r\n"
    answer = _raw(server, head + "a" * (BODY_MAX_BYTES + 1))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_is_bounded_in_time_however_it_drips(server: Server) -> None:
    head = f"POST /v1/x HTTP/1.1\r\n{_HEAD}Content-Length: 100\r\n\r\n"
    with server.open() as client:
        client.sendall(head.replace("PORT", str(server.port)).encode())
        for _ in range(20):
            try:
                client.sendall(b"a")
            except OSError:
                break
            time.sleep(_SHORT_S / 10)
        assert _rest(client).startswith(b"HTTP/1.1 408 ")


def test_headers_are_bounded_in_time_however_they_drip(server: Server) -> None:
    with server.open() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        begin_s = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begin_s + 4:
                client.sendall(b"a: b\r\n")
                time.sleep(_SHORT_S / 10)

        assert time.monotonic() < begin_s + 3


@pytest.mark.parametrize("size", [HEADERS_MAX_BYTES, 40 * HEADERS_MAX_BYTES])
def test_headers_are_bounded_in_size(server: Server, size: int) -> None:
    """Those that come with one read, and those that fill any buffer."""
    answer = _raw(server, f"GET /v1/x HTTP/1.1\r\n{_HEAD}x: {'y' * size}\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert server.ask("/v1/x").status == 200


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /\xff\xfe HTTP/1.1",
        b"GET /v1/\xc3\x28 HTTP/1.1",
        b"\x00\x01\x02",
        b"GET / HTTP/9.9",
        b"GET",
        b"\xff" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM",
    ],
)
def test_bytes_that_are_no_request_are_refused(server: Server, request_line: bytes) -> None:
    head = _HEAD.replace("PORT", str(server.port)).encode()
    answer = _raw(server, request_line + b"\r\n" + head + b"\r\n")

    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert server.ask("/v1/x").status == 200


@pytest.mark.parametrize("path", ["/v1/%ff%fe", "/v1/x?q=%ff", "/v1/%00", "/v1/%F0%9F%98%80"])
def test_escaped_bytes_of_any_kind_do_not_break_the_server(server: Server, path: str) -> None:
    assert server.ask(path).status == 200


def test_headers_with_bad_utf8_are_refused_like_any_other_wrong_one(server: Server) -> None:
    head = f"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()

    for line in (b"Authorization: Bearer \xff\xfe", b"Cookie: \xc3\x28", b"Cookie: countledger=;;"):
        assert _raw(server, head + line + b"\r\n\r\n").startswith(b"HTTP/1.1 401 ")


def test_there_are_no_websockets_and_no_http2(server: Server) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    answer = _raw(server, f"GET /v1/x HTTP/1.1\r\n{_HEAD}{upgrade}{key}\r\n")

    assert answer.startswith(b"HTTP/1.1 403 ")


# The preface of HTTP/2 with empty settings, and a request that asks for HTTP/2.
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HTTP2 = {
    "at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS,
    "by upgrade": (
        b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
}


@pytest.mark.parametrize("begin", _HTTP2.values(), ids=_HTTP2)
def test_a_connection_of_http2_is_closed_in_its_time(server: Server, begin: bytes) -> None:
    """Else it would stay open for ever, idle, and count against the bound."""
    assert b"HTTP/1.1 200" not in _raw(server, begin)


def test_two_hundred_idle_connections_hinder_nobody(server: Server) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(server.open()) for _ in range(200)]
        assert server.ask("/v1/x").status == 200
        # And they do not stay: the server closes each in its time.
        assert [client.recv(1) for client in clients] == [b""] * 200


def test_connections_are_bounded_and_come_back() -> None:
    with running(connections_max=8) as small:
        with ExitStack() as opened:
            clients = [opened.enter_context(small.open()) for _ in range(8)]
            time.sleep(0.2)  # until the server has taken them
            with small.open() as refused:
                assert _rest(refused) == b""
            request = f"GET / HTTP/1.1\r\n{_HEAD}\r\n".replace("PORT", str(small.port))
            clients[0].sendall(request.encode())
            assert clients[0].recv(12) == b"HTTP/1.1 200"
        time.sleep(0.2)
        assert small.ask("/v1/x").status == 200


def test_a_flood_of_requests_is_refused_above_the_bound_and_then_over() -> None:
    with running(requests_max=4) as busy, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: busy.ask("/v1/slow"), range(32)))

        statuses = {answer.status for answer in answers}
        assert statuses == {200, 503}
        assert {one.headers["retry-after"] for one in answers if one.status == 503} == {"1"}
        time.sleep(0.2)
        # Each gave its place back: more than there are places, one after the other.
        assert [busy.ask("/v1/x").status for _ in range(8)] == [200] * 8


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such bound")
def test_a_client_that_reads_no_answer_is_closed() -> None:
    with running(unread_timeout_s=0.5, requests_max=1) as server, server.open() as client:
        request = f"GET /v1/large HTTP/1.1\r\n{_HEAD}\r\n".replace("PORT", str(server.port))
        client.sendall(request.encode())
        time.sleep(0.3)
        assert server.ask("/v1/x").status == 503
        deadline_s = time.monotonic() + 20
        while server.ask("/v1/x").status == 503 and time.monotonic() < deadline_s:
            time.sleep(0.2)

        assert server.ask("/v1/x").status == 200


def test_the_end_of_the_server_is_quiet_also_with_connections_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ExitStack() as opened:
        with running() as ending:
            idle = [opened.enter_context(ending.open()) for _ in range(3)]
            idle[0].sendall(b"GET / HTTP/1.1\r\n")
            slow = opened.enter_context(ending.open())
            request = f"GET /v1/stuck HTTP/1.1\r\n{_HEAD}\r\n"
            slow.sendall(request.replace("PORT", str(ending.port)).encode())
            time.sleep(0.2)
        assert [one.recv(1) for one in idle] == [b""] * 3

    assert caplog.records == []


def test_a_port_that_is_taken_is_said(server: Server) -> None:
    with pytest.raises(BadSetting, match=f"port {server.port} .* --port"):
        listen(server.port)
