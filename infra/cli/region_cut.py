"""`countledger region cut` and `heal`: a partition between the regions of a local stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.engine import engine_is_installed, require_engine
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json

if TYPE_CHECKING:
    from countledger.infra.local.replication import Way


@shared
def cut(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="REGION", help="The region to cut off.")],
    *,
    one_way: Annotated[
        bool,
        typer.Option("--one-way", help="Only what is written there does not arrive elsewhere."),
    ] = False,
) -> None:
    """Stop replication between a region and all others, on a stack of "countledger up".

    What is written from now on, and what is on its way, stays in its region until "countledger
    region heal". Each region goes on counting what it has. Requests from one region to another are
    still answered, as those of the compactor and of `total --regions`; in a partition on AWS they
    may fail as well.

    Examples:
      countledger region cut eu-west-1
      countledger region cut eu-west-1 --one-way
    """
    regions = _regions(options, name)
    from countledger.infra.local.background import change_cut  # noqa: PLC0415 - its imports are an extra
    from countledger.infra.local.replication import ways_of  # noqa: PLC0415 - as above

    ways = change_cut(
        options.settings.stack_name,
        lambda there: there | ways_of(name, regions, one_way=one_way),
    )
    _show(options, ways)
    if not options.json:
        notice("requests from one region to another are still answered: only replication stops")


@shared
def heal(
    options: Options,
    name: Annotated[
        str | None, typer.Argument(metavar="[REGION]", help="Only the ways from and to it.")
    ] = None,
) -> None:
    """Let replication go on, of one region or of all, on a stack of "countledger up".

    What waited arrives now, in any order; of two writes of one item the later one wins.

    Examples:
      countledger region heal
      countledger region heal eu-west-1
    """
    _regions(options, name)
    from countledger.infra.local.background import change_cut  # noqa: PLC0415 - its imports are an extra

    ways = change_cut(
        options.settings.stack_name,
        lambda there: {way for way in there if name is not None and name not in way},
    )
    _show(options, ways)


def cut_ways(options: Options) -> set[Way]:
    """The ways that are cut, of a stack on this machine; of any other none is known."""
    if not (options.connection().stays_here and engine_is_installed()):
        return set()
    from countledger.infra.local.background import ways_cut  # noqa: PLC0415 - its imports are an extra

    return ways_cut(options.settings.stack_name)


def _regions(options: Options, name: str | None) -> list[str]:
    """The regions of the stack on this machine.

    Raises:
        BadUsage: it is a stack on AWS, or the region is none of the stack's.
    """
    connection = options.connection()
    if not connection.stays_here:
        raise BadUsage(
            "only replication on this machine can be cut, and this names a stack in an AWS "
            'account: start one here with `eval "$(countledger up --regions ...)"`'
        )
    require_engine()
    described = connection.dynamo("standard").describe(connection.setting("ledger_table"))
    replicas = described.get("Replicas", [])
    found = [connection.region, *(one["RegionName"] for one in replicas)]
    if name is not None and name not in found:
        raise BadUsage(f"the stack is not in {name!r}, but in {', '.join(sorted(found))}")
    if len(found) == 1:
        raise BadUsage(
            f"the stack is in {found[0]} only, and nothing is replicated: start it with "
            "`countledger up --regions NAME,NAME`"
        )
    return found


def _show(options: Options, ways: set[Way]) -> None:
    if options.json:
        show_json({"cut": [{"from": origin, "to": to} for origin, to in sorted(ways)]})
        return
    for origin, to in sorted(ways):
        notice(f"cut: what is written in {origin} does not arrive in {to}")
    if not ways:
        notice("nothing is cut: every region replicates to every other")
