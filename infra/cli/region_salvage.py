"""`countledger region salvage`: what a lost region had not replicated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from countledger.compaction.plan import limits_by
from countledger.compaction.salvage import LedgerCopy, Salvage, SalvagePlaces
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, notice, open_progress, show_facts
from countledger.infra.cli.region_home import promotion_of
from countledger.ledger.assembly import namespaces_of
from countledger.ledger.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.salvage import SalvagePlace, SalvageReport
    from countledger.ledger.attributes import Key
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
    restart: Annotated[
        bool, typer.Option("--restart", help="Compare all again, also after an interruption.")
    ] = False,
) -> int:
    """Bring in the entries that a lost region had not replicated, under their own ids.

    Run it with the home region as `--region`. The other regions are compared with the home first,
    since an entry may have reached one of them only. An entry that was merged is never written
    again; what cannot be decided is listed and not written. It can be repeated at any time: what is
    in is not written twice. After an interruption run it again: it continues.

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

    pairs = [pair for one in others for pair in ((one, home), (home, one))]
    copies = [_Copies(source, target, None, in_service=True) for source, target in pairs]
    if not give_up:
        copies.append(_Copies(name, home, table, in_service=False))
    places = SalvagePlaces(
        connection.dynamo("standard"),
        connection.setting("counters_table"),
        name,
        connection.ids.unique_id,
    )
    work = (epoch.id if epoch else "", *map(str, copies))
    report = _compare(connection, copies, places, places.begin(work, again=restart), still)
    if held:
        promotion.settle(name)
    places.end()
    _show_salvage(options, report)
    return FINDINGS if report.undecided else 0


class _Copies(NamedTuple):
    """Two copies of the ledger that are compared."""

    source: str
    target: str
    table: str | None
    in_service: bool

    def __str__(self) -> str:
        return f"{self.source} {self.target} {self.table or ''}"


def _compare(
    connection: Connection,
    copies: list[_Copies],
    places: SalvagePlaces,
    place: SalvagePlace,
    still: Callable[[], bool],
) -> SalvageReport:
    """Compare the copies from a place on; after each page the place is stored."""
    report = place.report
    if place.after or place.number:
        notice(
            f"continues after {report.fates.total()} entries that were compared before; entries "
            "that were listed then are not listed again: --restart compares all again"
        )
    listed = len(report.listed)
    with open_progress() as bars:
        bar = bars.add("entries")

        def store(found: SalvageReport, after: Key | None) -> None:
            nonlocal place, listed
            bar.set(found.fates.total())
            for entry in found.listed[listed:]:
                bars.say(f"{entry.counter}: {entry.entry} ({entry.delta}): {entry.fate}")
            listed = len(found.listed)
            number = place.number + (after is None)
            place = places.write(replace(place, number=number, after=after, report=found))

        for one in copies[place.number :]:
            _salvage(connection, one, held=still).run(report, after=place.after, on_page=store)
    return report


def _show_salvage(options: Options, report: SalvageReport) -> None:
    row = {str(fate): count for fate, count in sorted(report.fates.items())}
    listed = [one._asdict() for one in report.listed]
    show_facts(
        options,
        {"counters": report.counters, **row, "heads": report.heads}
        | ({"listed": listed} if options.json else {}),
    )
    if report.undecided:
        notice("the listed entries were not written: a person decides about them")


def _salvage(connection: Connection, copies: _Copies, *, held: Callable[[], bool]) -> Salvage:
    def copy(region: str, name: str | None) -> LedgerCopy:
        dynamo = connection.dynamo("standard", region=region)
        return LedgerCopy(dynamo=dynamo, table=name or connection.setting("ledger_table"))

    return Salvage(
        source=copy(copies.source, copies.table),
        target=copy(copies.target, None),
        held=held,
        in_service=copies.in_service,
        limit=limits_by(connection.settings),
        namespace_of=namespaces_of(connection).get,
        clock=SystemClock(),
        new_id=connection.ids.unique_id,
    )
