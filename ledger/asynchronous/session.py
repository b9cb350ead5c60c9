"""Clients of an event loop: aiobotocore's, with the credentials of the caller's own session.

The session of boto3 finds and refreshes the credentials, whatever their source: a profile, a role,
single sign-on, a function of the caller. Where that may take a request, a thread does it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.batch_body import spell
from countledger.ledger.before_send import watch
from countledger.ledger.credentials import credentials_of
from countledger.ledger.errors import SetupError
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from countledger.ledger.connection import Connection, Retries


# What the SDK reads from its own files, as `botocore` calls it.
_OF_EVERY_SERVICE: Final = ("endpoints", "partitions", "sdk-default-configuration")
_OF_A_SERVICE: Final = ("service-2", "endpoint-rule-set-1")


class LoopCredentials:
    """The credentials of a session of boto3, for signers that await them."""

    def __init__(self, found: Any) -> None:  # noqa: ANN401 - botocore's, of several classes
        """Use what the session has found.

        Args:
            found: the credentials; None: there are none, and the signer says so.
        """
        self.method = getattr(found, "method", None)
        self._found = found

    async def get_frozen_credentials(self) -> Any:  # noqa: ANN401 - botocore's
        """The credentials for one request; None: there are none."""
        if self._found is None:
            return None
        needs_refresh = getattr(self._found, "refresh_needed", None)
        if needs_refresh is not None and needs_refresh():
            return await asyncio.to_thread(self._found.get_frozen_credentials)
        return self._found.get_frozen_credentials()

    def get_deferred_property(self, name: str) -> Callable[[], Any]:
        """What gives one of their attributes at the time when it is needed."""
        return lambda: getattr(self._found, name, None)

    async def get_account_id(self) -> Any:  # noqa: ANN401 - a text or None
        """The account, if it is known."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)


async def open_session(connection: Connection) -> Any:  # noqa: ANN401 - aiobotocore publishes no types
    """A session of aiobotocore that makes the clients of an event loop.

    Raises:
        SetupError: the extra `async` is not installed.
    """
    # Importing and reading files takes up to seconds, in which no other task could run.
    session = await asyncio.to_thread(_session, connection.session.profile_name)
    with translated("the credentials"):
        found = await asyncio.to_thread(credentials_of, connection.session)
    session._credentials = LoopCredentials(found)  # noqa: SLF001 - it takes keys only
    return session


def _session(profile: str) -> Any:  # noqa: ANN401 - as above
    try:
        from aiobotocore.session import AioSession  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    # boto3 reports "default" if no profile is named; if we named it, it would have to exist.
    session: Any = AioSession(profile=None if profile == "default" else profile)
    for name in _OF_EVERY_SERVICE:
        session.get_component("data_loader").load_data(name)
    return session


def _load_service(session: Any, service: str) -> None:  # noqa: ANN401 - as above
    """Read what describes a service; the session's loader keeps it for the client."""
    for kind in _OF_A_SERVICE:
        session.get_component("data_loader").load_service_model(service, kind)


@asynccontextmanager
async def open_client(
    connection: Connection,
    session: Any,  # noqa: ANN401 - aiobotocore publishes no types
    service: str,
    retries: Retries,
    region: str,
) -> AsyncIterator[Any]:
    """A client of a service for this event loop, whose requests are checked as they leave.

    Args:
        connection: how the client is set up.
        session: of aiobotocore.
        service: its name in the SDK.
        retries: of the SDK.
        region: its region.

    Raises:
        CountledgerError: the client cannot be made.
    """
    from countledger.ledger.asynchronous.direct import direct  # noqa: PLC0415 - needs the extra

    with translated(f"the {service} client"):
        await asyncio.to_thread(_load_service, session, service)
        made = session.create_client(
            service,
            endpoint_url=connection.endpoint_url,
            region_name=region,
            config=direct(connection.config(service, retries, region)),
        )
        client = await made.__aenter__()
    try:
        watch(client, connection.settings.call_timeout_ms)
        if service == "dynamodb":
            spell(client)
        yield client
    finally:
        await made.__aexit__(None, None, None)


def _not_installed(error: ModuleNotFoundError) -> SetupError:
    return SetupError(f"{error.name} is not installed: pip install 'countledger[async]'")
