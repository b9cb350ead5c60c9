"""Connections of the fast transport, made by a boto3 client's own pool.

So TLS settings, CA bundles, proxies, time-outs and the size of the pool are what boto3 makes of the
same configuration. A connection carries one request at a time. It is kept for another one only if
its answer was read to the last byte; after any error it is closed.
"""

from __future__ import annotations

import hmac
import re
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.client import HTTPException, HTTPResponse, IncompleteRead
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from weakref import finalize

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from urllib3.util.connection import is_connection_dropped

from countledger.ledger.departure import leave, never_sent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.credentials import ReadOnlyCredentials
    from urllib3.connectionpool import HTTPConnectionPool


# Answers of HTTP, from bytes: no input and no output, so a thread or an event loop may use it.
#
# The service answers with a length and nothing unusual; such an answer is parsed here, strictly.
# An answer in another form (in chunks, or until the connection ends) is a proxy's or an engine's;
# the standard library parses it, and its connection is not used again.


_END_OF_HEAD: Final = b"\r\n\r\n"
_VERSION: Final = b"HTTP/1."
_HEAD_MAX_BYTES: Final = 65_536
_LENGTH: Final = "content-length"
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] ([0-9]{3})(?: .*)?", re.DOTALL)
_LENGTH_MAX_DIGITS: Final = 12
_INTERIM: Final = range(100, 200)


class MalformedAnswer(Exception): ...


class TruncatedAnswer(MalformedAnswer): ...


class Answer(NamedTuple):
    """One answer; `reusable`: its connection may carry another request, nothing is left to read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool


class AnswerParser:
    """Parses one answer from what is received, part by part."""

    __slots__ = ("_answer", "_begin", "_end", "_received")

    def __init__(self) -> None:
        self._received = b""
        self._answer: tuple[int, dict[str, str], bool] | None = None
        self._begin = 0
        # Where the body ends; None as long as that is unknown.
        self._end: int | None = None

    def feed(self, part: bytes) -> Answer | None:
        """Take the next bytes (none: the connection has ended); None if more must come."""
        self._received = self._received + part if self._received else part
        if self._answer is None and not self._take_head():
            if not part:
                raise TruncatedAnswer(f"it ended after {len(self._received)} bytes of its head")
            return None
        if self._end is None:
            return self._unusual(ended=not part)
        if len(self._received) < self._end:
            if not part:
                raise TruncatedAnswer(f"it ended {self._end - len(self._received)} bytes too early")
            return None
        status, headers, keeps = self._answer or (0, {}, False)
        reusable = keeps and len(self._received) == self._end
        return Answer(status, headers, self._received[self._begin : self._end], reusable)

    def _take_head(self) -> bool:
        """Parse the head if it is complete; interim answers (100 to 199) are skipped."""
        while True:
            received = self._received
            if not received.startswith(_VERSION[: len(received)]):
                raise MalformedAnswer(f"it begins with {received[:20]!r}")
            end = received.find(_END_OF_HEAD)
            if end < 0:
                if len(received) > _HEAD_MAX_BYTES:
                    raise MalformedAnswer(f"its head is longer than {_HEAD_MAX_BYTES} bytes")
                return False
            lines = received[:end].decode("latin-1").split("\r\n")
            status = _status_of(lines[0])
            if status not in _INTERIM:
                break
            self._received = received[end + len(_END_OF_HEAD) :]
        self._begin = end + len(_END_OF_HEAD)
        headers: dict[str, str] = {}
        twice = False
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise MalformedAnswer(f"it has the header {line[:60]!r}")
            name = name.lower()
            twice = twice or (name == _LENGTH and name in headers)
            headers[name] = value.strip(" \t")
        length = headers.get(_LENGTH)
        if twice or (length is not None and not _is_number(length, _LENGTH_MAX_DIGITS)):
            raise MalformedAnswer("its length is not one number")
        if length is not None and "transfer-encoding" not in headers:
            self._end = self._begin + int(length)
        closes = "close" in headers.get("connection", "").lower()
        keeps = lines[0].startswith("HTTP/1.1") and not closes
        self._answer = status, headers, keeps
        return True

    def _unusual(self, *, ended: bool) -> Answer | None:
        """An answer in chunks, or one that the end of the connection ends."""
        response = HTTPResponse(_Received(self._received), method="POST")  # type: ignore[arg-type]
        try:
            response.begin()
            # The last line of chunks is a 0; without its end it may be the beginning of another
            # number.
            cut = response.chunked and not self._received.endswith(b"\r\n")
            has_an_end = response.chunked or response.length is not None
            body = response.read()
        except IncompleteRead as error:
            if ended:
                raise TruncatedAnswer("it ended too early") from error
            return None
        except (HTTPException, ValueError) as error:
            raise MalformedAnswer(f"{type(error).__name__}: {error}") from error
        if cut and ended:
            raise TruncatedAnswer("it ended too early")
        if cut or not (has_an_end or ended):
            return None
        status, headers, _ = self._answer or (0, {}, False)
        return Answer(status, headers, body, reusable=False)


def _status_of(line: str) -> int:
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise MalformedAnswer(f"it begins with {line[:60]!r}")
    return int(found[1])


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


class _Received:
    """What was received, as the standard library reads it from a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, *_: Any) -> BytesIO:  # noqa: ANN401 - as a socket's
        return BytesIO(self._received)


# Signed requests: Signature Version 4 with a key that is derived once a day, not once a call.
#
# Every request of the fast transport is a POST to `/` without a query, so its canonical form is a
# few lines. The signature is the one that botocore makes for the same headers (a test compares
# them).


_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_TOO: Final = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of one day (as `20261122`), region, service and set of credentials.

    The credentials are kept as they were when it was derived. A copy of `signing` takes half the
    time of a new one. `access_key` and `token` (empty without a session) are in one line.
    """

    credentials: ReadOnlyCredentials = field(repr=False)
    day: str
    scope: str
    signing: hmac.HMAC = field(repr=False)
    access_key: str
    token: str = field(repr=False)


class Signer:
    """Makes whole requests to one host. Safe to share between threads.

    `host` is as in the header of that name (with its port, unless that is the scheme's own); `kind`
    is the content type of every request.
    """

    __slots__ = ("_fixed", "_host", "_key", "_kind", "_moment", "_region", "_service")

    def __init__(self, host: str, region: str, service: str, kind: str, user_agent: str) -> None:
        self._host, self._region, self._service, self._kind = host, region, service, kind
        self._fixed = (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: {_one_line(user_agent)}\r\nContent-Type: {kind}\r\n"
        )
        self._key: _Key | None = None
        self._moment = 0, ""

    def request(
        self,
        credentials: ReadOnlyCredentials,
        target: str,
        body: bytes,
        extra: str = "",
    ) -> bytes:
        """A request, signed as of now; the service accepts it for a quarter of an hour.

        The credentials are of one moment, as `get_frozen_credentials` returns them; `target` is as
        in `DynamoDB_20120810.PutItem`. `extra` header lines are not signed; each ends with a line
        break.
        """
        date = self._date()
        key = self._key_of(credentials, date[:8])
        if key.token:
            signed = _SIGNED_TOO
            token_canonical = f"x-amz-security-token:{key.token}\n"
            token_header = f"X-Amz-Security-Token: {key.token}\r\n"
        else:
            signed, token_canonical, token_header = _SIGNED, "", ""
        canonical = (
            f"POST\n/\n\ncontent-type:{self._kind}\nhost:{self._host}\nx-amz-date:{date}\n"
            f"{token_canonical}x-amz-target:{target}\n\n{signed}\n{sha256(body).hexdigest()}"
        )
        digest = sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{date}\n{key.scope}\n{digest}"
        signing = key.signing.copy()
        signing.update(text.encode())
        signature = signing.hexdigest()
        head = (
            f"{self._fixed}X-Amz-Target: {target}\r\nX-Amz-Date: {date}\r\n{token_header}{extra}"
            f"Authorization: {_ALGORITHM} Credential={key.access_key}/{key.scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _date(self) -> str:
        second = int(time.time())
        known, date = self._moment
        if known != second:
            date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._moment = second, date
        return date

    def _key_of(self, credentials: ReadOnlyCredentials, day: str) -> _Key:
        """The key for today, derived again where the day or the credentials are others."""
        key = self._key
        if key is None or key.day != day or key.credentials != credentials:
            derived = f"AWS4{credentials.secret_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                derived = hmac.digest(derived, part.encode(), "sha256")
            key = self._key = _Key(
                credentials,
                day,
                f"{day}/{self._region}/{self._service}/aws4_request",
                hmac.new(derived, digestmod="sha256"),
                _one_line(credentials.access_key or ""),
                _one_line(credentials.token or ""),
            )
        return key


def _one_line(text: str) -> str:
    """A value of a header, as a signature sees it; a line break cannot begin another header."""
    return " ".join(text.split())


# A whole record of TLS, and most answers. If less were taken, the rest of a record would not show
# on the socket while its connection is idle.
_RECEIVED_AT_ONCE: Final = 16_384


class Connections:
    """The connections of a client to one endpoint. Safe to share between threads.

    AttributeError: this version of botocore or urllib3 keeps its pool in another way.
    """

    __slots__ = (
        "__weakref__",
        "_connect_timeout_s",
        "_idle",
        "_idle_max",
        "_new",
        "_pool",
        "_read_timeout_s",
        "_tunnels",
        "_url",
    )

    def __init__(self, client: Any, url: str) -> None:  # noqa: ANN401 - a boto3 client
        session = vars(client)["_endpoint"].http_session
        proxy_url = session._proxy_config.proxy_url_for(url)  # noqa: SLF001 - no public way
        manager = session._get_connection_manager(url, proxy_url)  # noqa: SLF001
        pool: HTTPConnectionPool = manager.connection_from_url(url)
        session._setup_ssl_cert(pool, url, session._verify)  # noqa: SLF001
        self._pool, self._url = pool, url
        self._new = pool._new_conn  # noqa: SLF001 - no public way
        self._tunnels = proxy_url is not None
        config = client.meta.config
        self._connect_timeout_s = config.connect_timeout
        self._read_timeout_s = config.read_timeout
        # The last used one is at the end. A pool's own queue takes several locks for each request.
        self._idle: list[Any] = []
        self._idle_max = config.max_pool_connections
        finalize(self, _close_all, self._idle)

    def exchange(self, request: bytes) -> Answer:
        """Send one request and return its answer; nothing was sent before a ConnectionError.

        HTTPClientError: the connection failed afterwards. ResponseParserError: what came is no
        answer of HTTP. The check of the request, as it leaves, may refuse it.
        """
        connection = self._taken()
        reusable = False
        try:
            if connection.is_closed:
                self._connect(connection)
                leave()  # to connect may have taken seconds
            answer = self._talk(connection.sock, request)
            reusable = answer.reusable
        finally:
            if reusable and len(self._idle) < self._idle_max:
                self._idle.append(connection)
            else:
                connection.close()
        return answer

    def close(self) -> None:
        """Close those that are idle."""
        _close_all(self._idle)

    def _taken(self) -> Any:  # noqa: ANN401 - of urllib3
        """An idle connection on which nothing came since its last answer, or a new one."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._new()
        if is_connection_dropped(connection):
            connection.close()
        return connection

    def _connect(self, connection: Any) -> None:  # noqa: ANN401 - of urllib3
        """Make a connection, through the proxy if there is one."""
        connection.timeout = self._connect_timeout_s
        pool: Any = self._pool
        try:
            if self._tunnels:
                pool._prepare_proxy(connection)  # noqa: SLF001
            elif connection.is_closed:
                connection.connect()
        except Exception as error:
            if not never_sent(error):
                raise
            raise self._unconnected(error) from error
        connection.sock.settimeout(self._read_timeout_s)

    def _talk(self, sock: Any, request: bytes) -> Answer:  # noqa: ANN401 - plain or TLS
        parser = AnswerParser()
        try:
            sock.sendall(request)
            while (answer := parser.feed(sock.recv(_RECEIVED_AT_ONCE))) is None:
                pass
        except TimeoutError as error:
            raise sdk.ReadTimeoutError(endpoint_url=self._url, error=error) from error
        except (OSError, TruncatedAnswer) as error:
            raise sdk.ConnectionClosedError(endpoint_url=self._url, error=error) from error
        except MalformedAnswer as error:
            raise ResponseParserError(f"not an answer of HTTP: {error}") from error
        return answer

    def _unconnected(self, error: Exception) -> sdk.BotoCoreError:
        if isinstance(error, TimeoutError):
            return sdk.ConnectTimeoutError(endpoint_url=self._url, error=error)
        if isinstance(error, ssl.SSLError):
            return sdk.SSLError(endpoint_url=self._url, error=error)
        if self._tunnels:
            proxy = self._pool.proxy
            place = f"{proxy.scheme}://{proxy.netloc}" if proxy else self._url
            return sdk.ProxyConnectionError(proxy_url=place, error=error)
        return sdk.EndpointConnectionError(endpoint_url=self._url, error=error)


def _close_all(idle: list[Any]) -> None:
    while idle:
        with suppress(IndexError):  # another thread took the last one
            idle.pop().close()


def is_direct(client: Any, url: str) -> bool:  # noqa: ANN401 - a boto3 client
    """Whether requests reach an endpoint as they are: directly, or through a tunnel.

    A proxy that forwards plain HTTP is sent other requests, and one that speaks TLS itself another
    kind of connection.
    """
    parts = urlsplit(url)
    session = vars(client)["_endpoint"].http_session
    proxy_url = session._proxy_config.proxy_url_for(url)  # noqa: SLF001
    if parts.path not in {"", "/"} or parts.query or parts.username:
        return False
    if parts.scheme == "http":
        return proxy_url is None
    return parts.scheme == "https" and (proxy_url is None or proxy_url.startswith("http:"))
