"""The local server as a process: of `countledger serve`, and behind the front of a local stack.

A front hands it the socket, and a pipe with the token. When the pipe ends, the server ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from countledger import CountLedger
from countledger.infra.http.access import EVERYTHING, READ_EVERYTHING
from countledger.infra.http.access_rules import AccessRules
from countledger.infra.http.api import NamedOrigins, http_app, named_origins
from countledger.infra.http.listening import Listener, serve
from countledger.infra.http.server import Gate, page_files
from countledger.infra.local.front import ALLOW_WRITES

# No gateway waits for an answer, and the state of a stack may take a while on a busy machine.
ANSWER_TIMEOUT_S: Final = 60.0

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from countledger.infra.http.server import Asgi


def run(
    listener: Listener,
    rules: AccessRules,
    open_client: Callable[[], CountLedger],
    ends_with: IO[bytes] | None = None,
) -> None:
    """Serve the dashboard and the API until SIGINT or SIGTERM.

    Args:
        listener: takes the connections; it is closed in the end.
        rules: who may use the server, and whether to write.
        open_client: opens a client of the stack.
        ends_with: a pipe at whose end the server ends, too.
    """
    # The gate has accepted a request before the API asks what it may do.
    scopes = EVERYTHING if rules.allow_writes else READ_EVERYTHING
    api = http_app(
        open_client, authorize=lambda _request: scopes, answer_timeout_s=ANSWER_TIMEOUT_S
    )
    app = NamedOrigins(Gate(rules, page_files(), api), rules.origins)
    asyncio.run(_until_stopped(app, listener, ends_with))


async def _until_stopped(app: Asgi, listener: Listener, ends_with: IO[bytes] | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if ends_with is not None:
        threading.Thread(target=_stop_at_end_of, args=(ends_with, loop, stop), daemon=True).start()
    await serve(app, listener, stop.wait)


def _stop_at_end_of(pipe: IO[bytes], loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    pipe.read()
    loop.call_soon_threadsafe(stop.set)


def main() -> None:
    """Serve on an inherited socket.

    Arguments: its descriptor, that of the pipe, and what requests may do.
    """
    socket_fd, pipe_fd = map(int, sys.argv[1:3])
    allow_writes = sys.argv[3] == ALLOW_WRITES
    # Without a buffer, whose lock the thread that reads it would hold while this one closes it.
    with os.fdopen(pipe_fd, "rb", buffering=0) as pipe:
        token = pipe.readline().decode().strip()
        listener = Listener(socket_fd)
        rules = AccessRules(listener.port, token, allow_writes, origins=named_origins())
        run(listener, rules, CountLedger, pipe)


if __name__ == "__main__":
    main()
