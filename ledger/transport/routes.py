"""Where a request goes and what signs it, as botocore resolves it for the same call.

Region, FIPS, dual-stack, the endpoint of an account and custom endpoints are botocore's rules. They
depend on the operation, its tables and the account only, so each answer is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from countledger.ledger.transport.connections import Connections, is_direct
from countledger.ledger.transport.signing import Signer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Route:
    """How the requests of one operation travel.

    Attributes:
        url: the endpoint.
        target: the operation, as its header names it.
        signer: makes the requests.
        connections: carries them.
    """

    url: str
    target: str
    signer: Signer
    connections: Connections


class Routes:
    """The routes of a boto3 client."""

    __slots__ = ("_client", "_connections", "_known", "_resolve")

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a boto3 client
        """The routes of a client.

        Args:
            client: the boto3 client.

        Raises:
            AttributeError: this version of botocore lacks a part that has no public name.
        """
        # Both use parts of botocore that may be missing: it shows here, not at the first call.
        self._resolve = client._resolve_endpoint_ruleset  # noqa: SLF001 - no public way
        Connections(client, client.meta.endpoint_url)
        self._client = client
        # All operations share the connections to an endpoint.
        self._connections: dict[str, Connections] = {}
        self._known: dict[tuple[str, tuple[str, ...], str | None], Route | None] = {}

    def of(
        self, operation: str, arguments: Mapping[str, Any], account_id: str | None
    ) -> Route | None:
        """The route of a request; None: only boto3 knows how to send it.

        Args:
            operation: as in `PutItem`.
            arguments: of the call; they name its tables.
            account_id: of the credentials.
        """
        known = operation, _tables(arguments), account_id
        try:
            return self._known[known]
        except KeyError:
            route = self._known[known] = self._resolved(operation, arguments)
            return route

    def close(self) -> None:
        """Close the connections that are idle."""
        for connections in [*self._connections.values()]:
            connections.close()

    def _resolved(self, operation: str, arguments: Mapping[str, Any]) -> Route | None:
        client, service = self._client, self._client.meta.service_model
        config = client.meta.config
        context: dict[str, Any] = {"client_region": config.region_name, "client_config": config}
        url, headers, _ = self._resolve(service.operation_model(operation), arguments, context)
        auth = context.get("auth_type") or config.signature_version
        usual = auth == "v4" and not config.auth_scheme_preference and not headers
        if not usual or not is_direct(client, url):
            return None
        signing = context.get("signing", {})
        signer = Signer(
            host_of(url),
            signing.get("region", config.region_name),
            signing.get("signing_name", service.signing_name),
            f"application/x-amz-json-{service.metadata['jsonVersion']}",
            config.user_agent or "",
        )
        target = f"{service.metadata['targetPrefix']}.{operation}"
        if url not in self._connections:
            # One step: of two threads that make the first call, both get what came first.
            self._connections.setdefault(url, Connections(client, url))
        return Route(url.rstrip("/") + "/", target, signer, self._connections[url])


def host_of(url: str) -> str:
    """A URL's host as the header `Host` has it: with its port, unless it is the scheme's own."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port in {None, _PORTS.get(parts.scheme)} else f"{host}:{parts.port}"


def _tables(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The tables that a call names, each once."""
    if "TableName" in arguments:
        return (arguments["TableName"],)
    if "RequestItems" in arguments:
        return tuple(arguments["RequestItems"])
    return tuple(dict.fromkeys(_of_actions(arguments["TransactItems"])))


def _of_actions(actions: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for action in actions:
        for write in action.values():
            yield write["TableName"]
