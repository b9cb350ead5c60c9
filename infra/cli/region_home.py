"""`countledger region promote`: another home region."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.compaction.lease import LeaseTerms
from countledger.compaction.regions import Promotion, Regions
from countledger.consumers.over_regions import Phase
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.deploy import RoleArn  # noqa: TC001 - Typer
from countledger.infra.cli.destroy import deployment_of
from countledger.infra.cli.output import FINDINGS, notice, show_facts
from countledger.infra.deploy.home_change import HomeChange, HomeStep, next_of_home
from countledger.infra.deploy.region_checks import staying_in
from countledger.infra.status.regions import region_fact
from countledger.ledger.clock import SystemClock, to_datetime
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from countledger.compaction.lease import Epoch
    from countledger.ledger.connection import Connection

_POLLS: Final = 30
_POLL_MS: Final = 2 * SECOND_MS

Lost = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        help="The home region was lost, and is no replica of the ledger any more.",
    ),
]
LeaveStrict = Annotated[
    bool,
    typer.Option(
        "--leave-strict",
        help="Although strict counters, sequences, claims or quotas stay in the table of the home "
        "before: they are not moved.",
    ),
]
KeepStacks = Annotated[
    bool,
    typer.Option(
        "--keep-stacks",
        help="Change no stack and no schedule: CDK or Terraform manages the stacks, and sets "
        "HomeRegion.",
    ),
]


@shared
def promote(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="REGION", help="The region.")],
    *,
    lost: Lost = None,
    leave_strict: LeaveStrict = False,
    keep_stacks: KeepStacks = False,
    role_arn: RoleArn = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show who is home and what would follow, and stop.")
    ] = False,
) -> int:
    """Make another region the home region, which merges old entries and has the schedules.

    The command writes who is home and waits until every region shows it. Then the parameter
    HomeRegion of each stack changes: the new home gets the compactor and its queue, then the
    schedules, and the stack of the home before loses them. Recording, totals and exact sums go on.
    Nothing is merged until the right of the home before has ended in any case, up to 21 minutes
    later. After a failure, or an interruption, run it again: it continues.

    Strict counters, sequences, claims and quotas do not move: the command refuses while the home
    has any. Nobody should change schedules while it runs.

    After a loss: `--lost`; nothing is merged before `countledger region salvage`.

    A region that goes on alone, after all others have left the table, is promoted by its own name.

    Examples:
      countledger region promote eu-west-1 --plan
      countledger region promote eu-west-1
      countledger region promote eu-west-1 --lost us-east-1 --region eu-west-1

    Exit code 1: a region does not show it yet, and no stack was changed; call again.
    """
    target = options.connection().in_region(name)
    promotion = promotion_of(target)
    current = promotion.epoch(lost or "")
    if current.home != name and not leave_strict:
        _refuse_staying(target, current, lost)
    _refuse_rebuilding(target)
    if plan:
        _show(options, promotion, current, [])
        _say_steps(_change_of(target, promotion, role_arn), keep_stacks=keep_stacks)
        return 0
    epoch = promotion.begin(lost or "")
    missing = _awaited(promotion, epoch)
    if missing:
        _show(options, promotion, epoch, missing)
        notice(f"not everywhere yet ({', '.join(missing)}): call again; until then nobody merges")
        return FINDINGS
    if not keep_stacks:
        change = _change_of(target, promotion, role_arn)
        change.run(epoch, lambda step: notice(f"{step.name.lower()}: {step}"))
    _show(options, promotion, epoch, [])
    if epoch.lost:
        notice(
            f"schedules, strict counters, sequences, claims and quotas of {epoch.lost} are not "
            "here: create the schedules again, and take the others from a backup"
        )
        notice(f"next: `countledger region salvage {epoch.lost} --region {epoch.home}`")
    return 0


def _change_of(target: Connection, promotion: Promotion, role_arn: str | None) -> HomeChange:
    """What makes stacks and schedules follow the home."""
    regions = (target.region, *promotion.regions.survey().others)
    deployment = partial(deployment_of, role_arn=role_arn)
    return HomeChange(target=target, regions=regions, deployment=deployment, say=notice)


def _say_steps(change: HomeChange, *, keep_stacks: bool) -> None:
    """The steps that are left after the epoch."""
    first = None if keep_stacks else next_of_home(change.observe())
    steps = list(HomeStep)
    for step in steps[steps.index(first) :] if first else []:
        notice(f"  {step.name.lower():<10} {step}")


def _awaited(promotion: Promotion, epoch: Epoch) -> list[str]:
    """The regions that do not show the epoch after a minute."""
    missing = promotion.missing(epoch)
    for _ in range(_POLLS):
        if missing:
            promotion.regions.clock.sleep_ms(_POLL_MS)
            missing = promotion.missing(epoch)
    return missing


def promotion_of(target: Connection) -> Promotion:
    """What makes a connection's region the home, or asks which one is."""
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


def _refuse_rebuilding(target: Connection) -> None:
    """Allow only a region whose totals are complete: those of the home are always read.

    Raises:
        BadUsage: they are being made.
    """
    if region_fact(target).phase is Phase.REBUILDING:
        raise BadUsage(
            f"{target.region} is rebuilding, so its totals are not complete: `countledger region "
            f"add {target.region}` continues that; promote it then"
        )


def _refuse_staying(target: Connection, current: Epoch, lost: str | None) -> None:
    """Allow a promotion that leaves something behind only if that is said.

    Raises:
        BadUsage: the home region has what does not move.
    """
    if lost:
        return  # it cannot be asked; docs/regions.md says what comes from a backup
    staying = staying_in(target.in_region(current.home))
    if staying:
        raise BadUsage(
            f"these are in the table of {current.home} alone and are not moved: "
            f"{'; '.join(staying)}. Export and import strict counters, finish deletions, or "
            "promote with --leave-strict: then their calls go to the table of "
            f"{target.region}, where none of them exists"
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
