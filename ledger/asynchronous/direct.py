"""aiobotocore without redirects.

aiohttp follows redirects, and botocore does not. If a write were redirected to another host, that
host would acknowledge it, and an error there would look like an error of the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession

if TYPE_CHECKING:
    from botocore.config import Config


class _Direct:
    """A session of aiohttp that returns a redirect as the answer."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - aiohttp's
        self._session = session

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
