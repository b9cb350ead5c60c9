"""`countledger region promote` and `salvage`: another home region, and what a lost one had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from countledger.compaction.lease import LeaseTerms
from countledger.compaction.plan import limits_by
from countledger.compaction.promotion import Promotion
from countledger.compaction.regions import Regions
from countledger.compaction.salvage import SalvageReport
from countledger.compaction.salvager import LedgerCopy, Salvage
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, notice, show_facts
from countledger.infra.cli.progress import open_progress
from countledger.ledger.assembly import namespaces_of
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.lease import Epoch
    from countledger.ledger.connection import Connection

_POLLS: Final = 30
_POLL_MS: Final = 2 * SECOND_MS
_STAYING: Final = frozenset({Kind.STRICT, Kind.SEQUENCE})


@shared
def promote(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="REGION", help="The region.")],
    *,
    lost: Annotated[
        str | None,
        typer.Option(
            metavar="REGION",
            help="The home region was lost, and is no replica of the ledger any more.",
        ),
    ] = None,
    leave_strict: Annotated[
        bool,
        typer.Option(
            "--leave-strict",
            help="Although strict counters, sequences or claims stay in the table of the home "
            "before: they are not moved.",
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show who is home and what would follow, and stop.")
    ] = False,
) -> int:
    """Make another region the home region, which merges old entries.

    The command writes who is home, waits until every region shows it, and ends. Nothing is merged
    until the right of the home before has ended in any case, up to 21 minutes later. Recording,
    totals and exact sums go on. It can be stopped and called again at any point.

    What has to follow, by hand: `countledger deploy --parameter HomeRegion=REGION` for the stack of
    either region, with the schedules created again in the new one (`countledger schedule`).

    After a loss: `--lost`; nothing is merged before `countledger region salvage`.

    A region that goes on alone, after all others have left the table, is promoted by its own name.

    Examples:
      countledger region promote eu-west-1 --plan
      countledger region promote eu-west-1
      countledger region promote eu-west-1 --lost us-east-1 --region eu-west-1

    Exit code 1: a region does not show it yet; call again.
    """
    target = options.connection().in_region(name)
    promotion = _promotion(target)
    current = promotion.epoch(lost or "")
    if current.home != name and not leave_strict:
        _refuse_staying(target, current)
    if plan:
        _show(options, promotion, current, [])
        return 0
    epoch = promotion.begin(lost or "")
    missing = _awaited(promotion, epoch)
    _show(options, promotion, epoch, missing)
    _say_what_follows(target, epoch, missing)
    return FINDINGS if missing else 0


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
    promotion = _promotion(connection)
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


def _awaited(promotion: Promotion, epoch: Epoch) -> list[str]:
    """The regions that do not show the epoch after a minute."""
    missing = promotion.missing(epoch)
    for _ in range(_POLLS):
        if missing:
            promotion.regions.clock.sleep_ms(_POLL_MS)
            missing = promotion.missing(epoch)
    return missing


def _say_what_follows(target: Connection, epoch: Epoch, missing: list[str]) -> None:
    if missing:
        notice(f"not everywhere yet ({', '.join(missing)}): call again; until then nobody merges")
        return
    if epoch.lost:
        notice(f"next: `countledger region salvage {epoch.lost} --region {epoch.home}`")
    if target.setting("home_region") != epoch.home:
        notice(
            "next, for the stack of each region: `countledger deploy --parameter "
            f"HomeRegion={epoch.home}`, and create the schedules again in {epoch.home}"
        )


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


def _promotion(target: Connection) -> Promotion:
    settings, region = target.settings, target.region
    regions = Regions(
        target.dynamo("standard"),
        target.setting("ledger_table"),
        region,
        region,
        lambda other: target.dynamo("standard", region=other),
        SystemClock(),
        LeaseTerms(clock_skew_ms=settings.clock_skew_ms),
    )
    return Promotion(regions, target.setting("home_region"), settings.replication_bound_ms)


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


def _refuse_staying(target: Connection, current: Epoch) -> None:
    """Allow a promotion that leaves strict counters behind only if that is said.

    Raises:
        BadUsage: there are such namespaces.
    """
    staying = [one.name for one in namespaces_of(target).list() if one.kind in _STAYING]
    if staying:
        raise BadUsage(
            f"strict counters, sequences and claims are in the table of {current.home} alone and "
            f"are not moved (namespaces: {', '.join(staying[:5])}): export them there and import "
            "them here, then promote with --leave-strict"
        )


def _show(options: Options, promotion: Promotion, epoch: Epoch, missing: list[str]) -> None:
    show_facts(
        options,
        {
            "home": epoch.home,
            "epoch": epoch.number,
            "begins": to_datetime(epoch.begins_ms) if epoch.begins_ms else None,
            "lost": epoch.lost or None,
            "regions": [promotion.regions.region, *promotion.regions.survey().others],
            "missing": missing,
        },
    )
