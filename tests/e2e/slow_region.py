"""A proxy before the engine that never answers the requests of one region."""

from __future__ import annotations

from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unanswered_region(upstream: str, region: str) -> Iterator[str]:
    """Serve on loopback while the block lasts.

    Args:
        upstream: the engine's URL.
        region: whose requests hang.

    Yields:
        The proxy's URL.
    """
    engine, over = urlsplit(upstream).netloc, Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if f"/{region}/" in self.headers.get("Authorization", ""):
                over.wait()
                return
            forward = HTTPConnection(engine)
            forward.request("POST", self.path, body, dict(self.headers))
            answer = forward.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            forward.close()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
