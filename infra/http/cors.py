"""CORS: which pages of other origins may call the API. None, unless they are named.

An origin is named exactly, and never all of them. Their pages send a token, no cookie: the answers
do not allow credentials. The answer to a request of any other origin has no header of CORS, so a
browser hides it from the page.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from countledger.infra.http.calls import READ_UNITS, WRITE_UNITS
from countledger.infra.http.problems import HEADER
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

CORS_VARIABLE: Final = "COUNTLEDGER_CORS_ORIGINS"
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_SENT: Final = ("Authorization", HEADER, "If-None-Match", "Last-Event-ID")
_SHOWN: Final = ("ETag", "Retry-After", "Allow", READ_UNITS, WRITE_UNITS)


def named_origins(origins: Iterable[str] = ()) -> frozenset[str]:
    """These origins, and those in `COUNTLEDGER_CORS_ORIGINS`, where commas are between them.

    Raises:
        BadSetting: one is no origin as a browser sends it.
    """
    named = [*origins, *os.environ.get(CORS_VARIABLE, "").split(",")]
    found = frozenset(one.strip() for one in named if one.strip())
    for one in sorted(found):
        if not _ORIGIN.fullmatch(one):
            raise BadSetting(
                f"{one[:80]!r} is no origin: name each as the browser sends it, such as "
                f"https://app.example or http://localhost:3000, in --cors-origin or {CORS_VARIABLE}"
            )
    return found


class NamedOrigins:
    """An ASGI middleware that answers the requests of CORS, for the pages of named origins."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        """Around an application, for these origins; without any, CORS is off."""
        self.app = app
        self.origins = origins
        self._cors = CORSMiddleware(
            app, origins, _METHODS, _SENT, expose_headers=_SHOWN, allow_private_network=True
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers for a named origin."""
        named = scope["type"] == "http" and Headers(scope=scope).get("origin") in self.origins
        await (self._cors if named else self.app)(scope, receive, send)
