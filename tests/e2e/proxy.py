"""A proxy before the engine: a test decides what becomes of each request."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias
from urllib.parse import urlsplit

# Its status, its media type and its body.
ProxyAnswer: TypeAlias = tuple[int, str, bytes]


@dataclass(frozen=True)
class PassingRequest:
    """A request on its way to the engine."""

    engine: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def forward(self) -> ProxyAnswer:
        """What the engine answers."""
        connection = HTTPConnection(self.engine)
        connection.request("POST", self.path, self.body, dict(self.headers))
        answer = connection.getresponse()
        found = answer.status, answer.headers["Content-Type"], answer.read()
        connection.close()
        return found


@contextmanager
def proxy_before(
    upstream: str, answer: Callable[[PassingRequest], ProxyAnswer | None]
) -> Iterator[str]:
    """Serve on loopback while the block lasts.

    Args:
        upstream: the engine's URL.
        answer: what a request is answered with; None: its connection ends without an answer.

    Yields:
        The proxy's URL.
    """
    engine = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            given = answer(PassingRequest(engine, self.path, dict(self.headers), body))
            if given is not None:
                status, kind, content = given
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
