"""`countledger region salvage`: what a lost region had not replicated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from countledger.compaction.plan import limits_by
from countledger.compaction.salvage import SalvageReport
from countledger.compaction.salvager import LedgerCopy, Salvage
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, notice, show_facts
from countledger.infra.cli.progress import open_progress
from countledger.infra.cli.region_home import promotion_of
from countledger.ledger.assembly import namespaces_of
from countledger.ledger.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.connection import Connection


@shared
def salvage(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="REGION", help="The region that was lost.")],
    *,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|ARN", help="Its ledger there, if it has another name than the stack's."
        ),
    ] = None,
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="Its table is gone: merge on without what it had."),
    ] = False,
) -> int:
    """Bring in the entries that a lost region had not replicated, under their own ids.

    Run it with the home region as `--region`. The other regions are compared with the home first,
    since an entry may have reached one of them only. An entry that was merged is never written
    again; what cannot be decided is listed and not written. It can be repeated at any time: what is
    in is not written twice.

    Costs half a read unit for each 4 KB of the lost table, a read unit for each entry of it, and
    two write units for each entry that is brought in.

    Examples:
      countledger region salvage us-east-1 --region eu-west-1
      countledger region salvage us-east-1 --region eu-west-1 --json

    Exit code 1: entries were listed for a person to decide about.
    """
    connection = options.connection()
    home = connection.region
    promotion = promotion_of(connection)
    epoch = promotion.regions.shown(home).epoch
    held = epoch is not None and epoch.lost == name and epoch.home == home
    others = promotion.regions.survey().others
    if name in others or name == home:
        raise BadUsage(f"{name} is a replica of the ledger: it replicates what it has by itself")
    if held and epoch is not None:
        promotion.refuse_early(epoch)

    def still() -> bool:
        return held and promotion.regions.shown(home).epoch == epoch

    report = SalvageReport()
    with open_progress() as progress:
        bar = progress.add("entries")
        pairs = [pair for one in others for pair in ((one, home), (home, one))]
        for source, target in pairs:
            _salvage(connection, source, target, None, held=still, in_service=True).run(
                report, on_page=lambda found, _: bar.set(found.fates.total())
            )
        if not give_up:
            _salvage(connection, name, home, table, held=still).run(
                report, on_page=lambda found, _: bar.set(found.fates.total())
            )
    if held:
        promotion.settle(name)
    _show_salvage(options, report)
    return FINDINGS if report.undecided else 0


def _show_salvage(options: Options, report: SalvageReport) -> None:
    row = {str(fate): count for fate, count in sorted(report.fates.items())}
    listed = [one._asdict() for one in report.listed]
    show_facts(
        options,
        {"counters": report.counters, **row, "heads": report.heads}
        | ({"listed": listed} if options.json else {}),
    )
    for one in report.listed[:20]:
        notice(f"{one.counter}: {one.entry} ({one.delta}): {one.fate}, not written")


def _salvage(
    connection: Connection,
    source: str,
    target: str,
    table: str | None,
    *,
    held: Callable[[], bool],
    in_service: bool = False,
) -> Salvage:
    def copy(region: str, name: str | None) -> LedgerCopy:
        dynamo = connection.dynamo("standard", region=region)
        return LedgerCopy(dynamo=dynamo, table=name or connection.setting("ledger_table"))

    return Salvage(
        source=copy(source, table),
        target=copy(target, None),
        held=held,
        in_service=in_service,
        limit=limits_by(connection.settings),
        namespace_of=namespaces_of(connection).get,
        clock=SystemClock(),
        new_id=lambda: uuid4().hex,
    )
