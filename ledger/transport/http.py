"""Connections of the fast transport, made by a boto3 client's own pool.

So TLS settings, CA bundles, proxies, time-outs and the size of the pool are what boto3 makes of the
same configuration. A connection carries one request at a time. It is kept for another one only if
its answer was read to the last byte; after any error it is closed.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import finalize

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError
from urllib3.util.connection import is_connection_dropped

from countledger.ledger.departure import leave, never_sent
from countledger.ledger.transport.wire import AnswerParser, MalformedAnswer, TruncatedAnswer

if TYPE_CHECKING:
    from urllib3.connectionpool import HTTPConnectionPool

    from countledger.ledger.transport.wire import Answer


# A whole record of TLS, and most answers. If less were taken, the rest of a record would not show
# on the socket while its connection is idle.
_RECEIVED_AT_ONCE: Final = 16_384


class Connections:
    """The connections to one endpoint. Safe to share between threads."""

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
        """Connections of a client to an endpoint.

        Args:
            client: the boto3 client.
            url: the endpoint.

        Raises:
            AttributeError: this version of botocore or urllib3 keeps its pool in another way.
        """
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
        """Send one request and return its answer.

        Raises:
            botocore.exceptions.ConnectionError: no connection was made; nothing was sent.
            botocore.exceptions.HTTPClientError: the connection failed afterwards.
            ResponseParserError: what came is not an answer of HTTP.
            CountledgerError: the check of the request, as it leaves, refuses it.
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
        """As botocore names it."""
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
