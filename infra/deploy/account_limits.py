"""Quotas of the account that a stack needs: read from the account, and compared by pure rules.

An account that does not say, or forbids the question, stops nothing: what is unknown is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.template import load_template
from countledger.ledger.errors import BadInput, CountledgerError
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.ledger.connection import Connection


# Lambda leaves so much of an account's concurrency unreserved.
UNRESERVED_MIN: Final = 100
_RESERVING: Final = ("MaterializerConcurrency", "HttpConcurrency")
# Functions besides the compactors: two readers of four shards each, ingest, dispatcher, audit.
_OTHERS: Final = 12
# The parameters of warm throughput, each with the output that names its table.
WARM: Final = {
    "LedgerWarmWriteUnits": "LedgerTableName",
    "CountersWarmWriteUnits": "CountersTableName",
}
# What of Service Quotas is shown: the service, a part of the quota's name, and our name for it.
_LISTED: Final = (
    ("lambda", "event source mapping", "event source mappings"),
    ("scheduler", "number of schedules", "schedules"),
)
# Tables and indexes whose least capacity is each the least of the parameter.
_PROVISIONED: Final = {
    "LedgerWriteUnits": ("write", 2),
    "CountersWriteUnits": ("write", 5),
    "LedgerReadUnits": ("read", 2),
    "CountersReadUnits": ("read", 5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQuotas:
    """What an account allows in a region; None: it did not say.

    Attributes:
        concurrency: invocations of all functions at the same time.
        unreserved: how many of them no function has reserved.
        account_units: units a second of all provisioned tables: of writes, and of reads.
        table_write_units: write units a second of one table.
    """

    concurrency: int | None = None
    unreserved: int | None = None
    account_units: Mapping[str, int] | None = None
    table_write_units: int | None = None
    listed: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def read_quotas(connection: Connection) -> ServiceQuotas:
    """Read them: four calls and more, none of them of an item."""
    unread: dict[str, str] = {}

    def see(what: str, look: Callable[[], Any]) -> Any:  # noqa: ANN401 - as the service answers
        try:
            with translated(what):
                return look()
        except CountledgerError as error:
            unread[what] = str(error)
            return None

    account = see("GetAccountSettings", connection.functions().get_account_settings)
    limits = see("DescribeLimits", connection.dynamo("standard").client.describe_limits)
    listed: dict[str, int] = {}
    client = connection.administration("service-quotas")
    for service, part, ours in _LISTED:
        found = see(f"ListServiceQuotas of {service}", partial(_listed, client, service)) or {}
        listed.update((ours, value) for name, value in found.items() if part in name.lower())
    limit = (account or {}).get("AccountLimit", {})
    return ServiceQuotas(
        concurrency=limit.get("ConcurrentExecutions"),
        unreserved=limit.get("UnreservedConcurrentExecutions"),
        account_units=None
        if limits is None
        else {
            "write": limits["AccountMaxWriteCapacityUnits"],
            "read": limits["AccountMaxReadCapacityUnits"],
        },
        table_write_units=(limits or {}).get("TableMaxWriteCapacityUnits"),
        listed=listed,
        unread=unread,
    )


def _listed(client: Any, service: str) -> dict[str, int]:  # noqa: ANN401 - no types are installed
    pages = client.get_paginator("list_service_quotas").paginate(ServiceCode=service)
    return {one["QuotaName"]: int(one["Value"]) for page in pages for one in page["Quotas"]}


def refuse_beyond(quotas: ServiceQuotas, wanted: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse parameters that the account cannot serve, beyond what the stack has now."""
    reserved, before = _reserved(wanted), _reserved(now)
    if reserved and quotas.unreserved is not None:
        most = max(0, quotas.unreserved + before - UNRESERVED_MIN)
        if reserved > most:
            raise BadInput(
                f"{' and '.join(_RESERVING)} reserve {reserved}, more than the account can: of its "
                f"concurrency of {quotas.concurrency}, Lambda keeps {UNRESERVED_MIN} unreserved; "
                f"give {most} or less, or have the quota `Concurrent executions` of Lambda raised"
            )
    if wanted.get("CapacityMode") == "provisioned" and quotas.account_units is not None:
        for kind, most in quotas.account_units.items():
            least = sum(
                times * int(_parameter(wanted, name).split(",")[0])
                for name, (what, times) in _PROVISIONED.items()
                if what == kind
            )
            if least > most:
                raise BadInput(
                    f"the least {kind} capacity of all tables and indexes is {least} units, and "
                    f"the account has {most}: lower the first numbers of its parameters, or have "
                    "the quota of DynamoDB raised"
                )
    for name in WARM:
        warm = int(wanted.get(name, "0"))
        if quotas.table_write_units is not None and warm > quotas.table_write_units:
            raise BadInput(
                f"{name}={warm} is more than a table of this account can have "
                f"({quotas.table_write_units}): give less, or have the quota of DynamoDB raised"
            )


def refuse_lowered(
    wanted: Mapping[str, str], now: Mapping[str, str], units_of: Callable[[str], int]
) -> None:
    """Refuse a warm throughput below the one that a table has: DynamoDB lowers none.

    `units_of` reads the write units of the table that an output names. They rise with traffic, so
    they may be above the stack's parameter. It is called only for a parameter that changes.
    """
    for name, output in WARM.items():
        before, after = int(now.get(name, "0")), int(wanted.get(name, "0"))
        # The ledger of another region's stack has no settings here.
        if after == before or not now or (now.get("LedgerStreamArn") and name.startswith("Ledger")):
            continue
        least = max(before, units_of(output)) if after else before
        if after < least:
            raise BadInput(
                f"{name}={after} is less than the {least} write units a second that the table has, "
                f"and DynamoDB lowers no warm throughput: nothing was changed; give {least} or "
                f"more, or leave {name} at {before}"
            )


def warnings(quotas: ServiceQuotas, parameters: Mapping[str, str]) -> Iterator[str]:
    """What deploys, but may be too little under load."""
    needed = int(_parameter(parameters, "MaxCompactors")) + _OTHERS
    if quotas.concurrency is not None and quotas.concurrency < needed:
        yield (
            f"the account's concurrency of Lambda is {quotas.concurrency}, and the functions of "
            f"the stack can use {needed}: have the quota `Concurrent executions` raised, or lower "
            "MaxCompactors"
        )


def _reserved(parameters: Mapping[str, str]) -> int:
    """How many invocations the functions of a stack reserve; one that is not made reserves none."""
    http = parameters.get("HttpApi", "none") != "none"
    made = (name for name in _RESERVING if http or not name.startswith("Http"))
    return sum(int(parameters.get(name, "0")) for name in made)


def _parameter(given: Mapping[str, str], name: str) -> str:
    return given.get(name) or str(load_template()["Parameters"][name]["Default"])
