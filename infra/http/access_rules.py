"""Who may use the local server: a pure decision on the head of a request.

The server listens on loopback, so the risks are other users of the machine and pages in the user's
own browser. A token, which only the user has, excludes both; it is sent in the header
`Authorization` alone. A browser sends cookies to every port of a host, so one would bring the token
to servers of other users. Pages of other sites are excluded by the name of the host (a foreign name
that resolves to loopback is DNS rebinding) and by the origin as well. The files of the dashboard
are no secret.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from countledger.infra.local.front import LOOPBACK, address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_READING: Final = frozenset({"GET", "HEAD"})
# What a browser says of a request that its user, or our own page, made.
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_PAGE: Final = "/"
API: Final = "/v1"


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request.

    Attributes:
        method: in capital letters.
        path: decoded, beginning with a slash.
        query: the part of the address after the question mark.
        headers: by their names in small letters; of several with one name the last.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused.

    Attributes:
        status: of the answer.
        slug: names the reason in the `type` of the answer, and never changes.
        says: what is wrong, and what to do.
    """

    status: HTTPStatus
    slug: str
    says: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request may be handled."""


_WRONG_HOST: Final = Refusal(
    HTTPStatus.MISDIRECTED_REQUEST,
    "wrong-host",
    "the Host header does not name this server: use the address that the command printed",
)
_WRONG_ORIGIN: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "wrong-origin",
    "the request comes from a page of another site: name its origin with --cors-origin, if it may "
    "use this server",
)
_NO_TOKEN: Final = Refusal(
    HTTPStatus.UNAUTHORIZED,
    "no-token",
    "the token is missing or wrong: open the whole address that the command printed, or send "
    "the header `Authorization: Bearer TOKEN`",
)
_READ_ONLY: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "read-only",
    "this server only reads: start one that may write with `countledger serve --allow-writes`, or "
    "a local stack with `countledger up --allow-writes`",
)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of one server.

    Attributes:
        port: that it listens on.
        token: that a request must bring.
        allow_writes: whether requests may change anything.
        origins: whose pages may send requests, beside the dashboard's.
    """

    port: int
    token: str
    allow_writes: bool = False
    origins: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        """The address that signs a browser in: the page keeps the token for its origin."""
        return address_of(self.port, self.token)

    def decide(self, head: RequestHead) -> Accepted | Refusal:
        """Whether a request may be handled."""
        hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}
        if head.headers.get("host", "").lower() not in hosts:
            return _WRONG_HOST
        if not self._of_our_page(head, hosts):
            return _WRONG_ORIGIN
        if not is_api(head.path):
            return Accepted()
        if not self._is_token(_bearer(head)):
            return _NO_TOKEN
        if head.method not in _READING and not self.allow_writes:
            return _READ_ONLY
        return Accepted()

    def _of_our_page(self, head: RequestHead, hosts: set[str]) -> bool:
        """No page of another site sent the request, but that of a named origin.

        A program names no site, and needs no check. A link on another site may lead to the page,
        which changes nothing.
        """
        origin = head.headers.get("origin")
        if origin in self.origins:
            return True
        if origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}:
            return False
        return head.path == _PAGE or head.headers.get("sec-fetch-site", "none") in _OWN_SITES

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())


def is_api(path: str) -> bool:
    """Whether a path is one of the API; the others are files of the dashboard."""
    return path == API or path.startswith(f"{API}/")


def _bearer(head: RequestHead) -> str:
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
