"""The address of the dashboard, and the process behind it, which the first request starts.

The socket listens from the beginning: a request that comes before the process runs waits in the
queue of the system. So a stack starts as fast as without a dashboard, and a server that has ended
is started again by the next request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final, Self

from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK: Final = "127.0.0.1"
# The name of the token in the query of an address.
TOKEN_FIELD: Final = "token"  # noqa: S105 - a name
BACKLOG: Final = 128
# An argument of the server's process, and of what starts it.
ALLOW_WRITES: Final = "--allow-writes"
READ_ONLY: Final = "--read-only"
_TOKEN_BYTES: Final = 32
_STOP_TIMEOUT_S: Final = 5.0
# Before a server that has ended is started again.
_PAUSE_S: Final = 2.0
_LOOK_S: Final = 0.2
_SERVER: Final = "countledger.infra.http.server"
_LOG: Final = logging.getLogger(__name__)


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def address_of(port: int, token: str) -> str:
    """The address that opens the dashboard and signs the browser in."""
    return f"http://{LOOPBACK}:{port}/?{TOKEN_FIELD}={token}"


def listening_socket(port: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise BadSetting(
            f"port {port} of {LOOPBACK} cannot be used ({error.strerror}): give another one with "
            "--port, or leave it out for any that is free"
        ) from error
    return made


class Front:
    """The address of a stack's dashboard, for a `with` block."""

    def __init__(self, environment: Mapping[str, str], *, allow_writes: bool = False) -> None:
        """Listen; nothing is started."""
        self._socket = listening_socket()
        self._token = new_token()
        self._environment = dict(environment)
        self._may = ALLOW_WRITES if allow_writes else READ_ONLY
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = address_of(self._socket.getsockname()[1], self._token)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        self._thread.join(2 * _STOP_TIMEOUT_S)
        self._socket.close()

    def _run(self) -> None:
        """Start the server whenever a client connects while none runs, until the end."""
        ending, listening = self._ending, self._socket.fileno()
        while ending not in select.select([listening, ending], [], [])[0]:
            self._serve_once()
            if self._has_ended(_PAUSE_S):
                break
        os.close(self._ending)

    def _serve_once(self) -> None:
        """Run a server until it ends, or until the end has come."""
        theirs, ours = os.pipe()
        # The server ends when this pipe does, also when this process is killed.
        with os.fdopen(ours, "wb", buffering=0) as to_server:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    *(sys.executable, "-m", _SERVER),
                    *(str(self._socket.fileno()), str(theirs), self._may),
                ],
                env=os.environ | self._environment,
                pass_fds=(self._socket.fileno(), theirs),
                stdin=subprocess.DEVNULL,
            )
            os.close(theirs)
            with contextlib.suppress(BrokenPipeError):
                to_server.write(f"{self._token}\n".encode())
            while process.poll() is None and not self._has_ended(_LOOK_S):
                pass
        try:
            code = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if not self._has_ended(0):
            _LOG.warning("the server of the dashboard has ended with code %d", code)

    def _has_ended(self, within_s: float) -> bool:
        return bool(select.select([self._ending], [], [], within_s)[0])
