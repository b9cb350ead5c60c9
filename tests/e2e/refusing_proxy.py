"""A proxy before the engine that answers one operation with an error and forwards all else."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refusing_proxy(upstream: str, operation: str, status: int, error: str) -> Iterator[str]:
    """Serve on loopback while the block lasts.

    Args:
        upstream: the engine's URL.
        operation: as `UpdateItem`.
        status: what that is answered with.
        error: the name of the error.

    Yields:
        The proxy's URL.
    """
    engine = urlsplit(upstream).netloc
    refusal = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{error}"}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("X-Amz-Target", "").endswith(f".{operation}"):
                self._answer(status, "application/x-amz-json-1.0", refusal)
                return
            forward = HTTPConnection(engine)
            forward.request("POST", self.path, body, dict(self.headers))
            answer = forward.getresponse()
            self._answer(answer.status, answer.headers["Content-Type"], answer.read())
            forward.close()

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
