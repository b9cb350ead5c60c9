"""aiobotocore without redirects, and without waiting for the end of a connection.

aiohttp follows redirects, and botocore does not. If a write were redirected to another host, that
host would acknowledge it, and an error there would look like an error of the first request.

aiohttp ends a connection of TLS in order: for half a minute it waits until the peer agrees. After
a call that was cancelled because the peer is silent, the event loop could not be closed for so
long. urllib3 does not wait, and neither do these connections.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from botocore.config import Config


class _EndedAtOnce(ResponseHandler):
    """A connection that does not wait for its peer when it is closed."""

    def close(self) -> None:
        """End it."""
        self.abort()


class _Direct:
    """A session of aiohttp that returns a redirect as the answer."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - aiohttp's
        self._session = session
        connector = session.connector
        if connector._factory.func is not _EndedAtOnce:  # noqa: SLF001 - no public way
            connector._factory = partial(_EndedAtOnce, **connector._factory.keywords)  # noqa: SLF001

    async def request(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - aiohttp's
        return await self._session.request(*arguments, allow_redirects=False, **options)


class DirectSession(AIOHTTPSession):
    """The HTTP session of a client, without redirects."""

    # Named here, so that an aiobotocore without this method fails at import instead of redirecting.
    _session_to: Any = AIOHTTPSession._get_session  # type: ignore[attr-defined]  # noqa: SLF001 - no public way

    async def _get_session(self, proxy_url: str | None) -> _Direct:
        return _Direct(await self._session_to(proxy_url))


def direct(config: Config) -> AioConfig:
    """The same settings for aiobotocore, without redirects."""
    merged: Any = AioConfig(http_session_cls=DirectSession)
    settings: AioConfig = merged.merge(config)  # `merge` accepts a botocore config too
    return settings
