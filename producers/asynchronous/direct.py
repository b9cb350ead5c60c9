"""aiobotocore without redirects.

aiohttp follows them, and botocore does not. A write that is sent on to another host would be
acknowledged by that host; and an error on the way there would pass for one of the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession

if TYPE_CHECKING:
    from botocore.config import Config


class _Direct:
    """A session of aiohttp that hands a redirect back as the answer."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - aiohttp's
        self._session = session

    async def request(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - aiohttp's
        return await self._session.request(*arguments, allow_redirects=False, **options)


class DirectSession(AIOHTTPSession):
    """The HTTP of a client, whose requests go where they are sent."""

    # Named here, an aiobotocore that has it no more fails at once, and does not follow redirects.
    _session_to: Any = AIOHTTPSession._get_session  # type: ignore[attr-defined]  # noqa: SLF001 - no public way

    async def _get_session(self, proxy_url: str | None) -> _Direct:
        return _Direct(await self._session_to(proxy_url))


def direct(config: Config) -> AioConfig:
    """The same settings for aiobotocore, without redirects."""
    merged: Any = AioConfig(http_session_cls=DirectSession)
    settings: AioConfig = merged.merge(config)  # it takes those of botocore as well
    return settings
