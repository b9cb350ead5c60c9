"""`countledger region`: the regions that count, how late each is, and partitions between them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from countledger.compaction.regions import Promotion
from countledger.compaction.salvage import LedgerCopy, Salvage, SalvagePlaces
from countledger.consumers.audit import Auditor
from countledger.consumers.region_state import Phase
from countledger.infra.cli.app import BadUsage, Options, Yes, confirm, parse_pairs, shared
from countledger.infra.cli.deploy import (
    NOBODY,
    Architecture,
    Bucket,
    BundleFile,
    GivenParameters,
    RoleArn,
    content_of,
    place_of,
)
from countledger.infra.cli.destroy import deployment_of, destruction_of, poll_s
from countledger.infra.cli.engine import engine_is_installed, require_engine
from countledger.infra.cli.output import (
    FINDINGS,
    facts,
    notice,
    open_progress,
    show,
    show_facts,
    show_json,
)
from countledger.infra.deploy.deployment import refuse_unknown
from countledger.infra.deploy.home_change import HomeChange, HomeStep, next_of_home
from countledger.infra.deploy.region_change import (
    ADDING,
    REMOVING,
    Code,
    RegionChange,
    Step,
    next_of_adding,
    next_of_dropping,
    next_of_removing,
)
from countledger.infra.deploy.region_checks import staying_in
from countledger.infra.status.gathering import region_fact, views_of
from countledger.infra.template import load_template
from countledger.ledger.clock import SystemClock, show_duration, to_datetime
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.compaction.lease import Epoch
    from countledger.compaction.salvage import SalvagePlace, SalvageReport
    from countledger.infra.cli.output import Row
    from countledger.infra.deploy.region_change import Observed
    from countledger.infra.local.replication import Way
    from countledger.infra.status.gathering import RegionView
    from countledger.ledger.attributes import Key
    from countledger.ledger.connection import Connection


# `countledger region add` and `remove`: a region of the ledger, step by step.


OtherRegion = Annotated[str, typer.Argument(metavar="REGION", help="The region.")]
Plan = Annotated[bool, typer.Option("--plan", help="Show the steps that are left, and stop.")]
EncryptionKey = Annotated[
    str | None,
    typer.Option(
        metavar="ARN", help="A KMS key in that region; needed if the ledger has a key of yours."
    ),
]


@shared
def add(
    options: Options,
    name: OtherRegion,
    *,
    bucket: Bucket = None,
    architecture: Architecture = "arm64",
    bundle: BundleFile = None,
    parameter: GivenParameters = None,
    kms_key_arn: EncryptionKey = None,
    role_arn: RoleArn = None,
    yes: Yes = False,
    plan: Plan = False,
) -> int:
    """Add a region: a replica of the ledger, a stack beside it, and its totals.

    Run it in the region of the stack that owns the ledger. Totals there cannot be read, and alerts
    are not evaluated, until every total is verified. The stack takes the parameters of the owner's,
    except names of things in a region (topics, keys, buckets). After a failure, or an
    interruption, run it again: it continues.

    Examples:
      countledger region add eu-west-1
      countledger region add eu-west-1 --plan                [dim]changes nothing[/dim]
      countledger region add eu-west-1 --parameter AuditSchedule='rate(1 day)' --yes

    Exit code 1: declined; with --plan: there are steps.
    """
    parameters = {
        "Architecture": architecture,
        **parse_pairs("--parameter", "KEY=VALUE", parameter, BadUsage),
    }
    refuse_unknown(parameters, load_template()["Parameters"])

    def code() -> Code:
        connection = options.connection().in_region(name)
        if connection.stays_here and bundle is None:
            from countledger.infra.local.stack import empty_bundle  # noqa: PLC0415 - an extra

            # Functions of this machine run from the installed package, as those of `up` do.
            content = empty_bundle()
        else:
            content = content_of(bundle, architecture)
        return Code(bucket=place_of(connection, bucket), bundle=content)

    change = change_of(
        options, name, code, parameters=parameters, role_arn=role_arn, key_arn=kms_key_arn
    )
    return _run(options, change, next_of_adding, ADDING, yes=yes, plan=plan)


@shared
def remove(
    options: Options,
    name: OtherRegion,
    *,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="It does not answer: take only its replica out of the table. Entries that it had "
            "not replicated are then in its table or backup alone.",
        ),
    ] = False,
    role_arn: RoleArn = None,
    yes: Yes = False,
    plan: Plan = False,
) -> int:
    """Remove a region: its stack and its replica of the ledger; no entry is lost.

    First stop who records there. The command watches the region's stream for the replication bound
    (COUNTLEDGER_REPLICATION_BOUND_MS): if an entry is recorded there meanwhile, nothing is removed.
    Then every entry is in the other regions. The table of the region's totals stays, with alert
    rules and groups of that region. After a failure, or an interruption, run it again.

    With --lost nothing is asked of the region. Then DynamoDB also deletes its table there, as soon
    as it can: `countledger region salvage` brings in from a backup what had not been replicated.

    Examples:
      countledger region remove eu-west-1
      countledger region remove eu-west-1 --plan             [dim]changes nothing[/dim]

    Exit code 1: declined; with --plan: there are steps.
    """

    def no_code() -> Code:
        raise BadUsage("no stack is deployed by a removal")

    change = change_of(options, name, no_code, role_arn=role_arn)
    if lost:
        change.lost = True
        return _run(options, change, next_of_dropping, (Step.DROP,), yes=yes, plan=plan)
    return _run(options, change, next_of_removing, REMOVING, yes=yes, plan=plan)


def change_of(
    options: Options,
    name: str,
    code: Callable[[], Code],
    *,
    parameters: Mapping[str, str] | None = None,
    role_arn: str | None = None,
    key_arn: str | None = None,
) -> RegionChange:
    owner = options.connection()
    there = owner.in_region(name)

    def auditor() -> Auditor:
        # The outputs of the stack that is there now: the region may have left and joined again.
        return Auditor(owner.in_region(name))

    deploy_there = deployment_of(there, role_arn)
    return RegionChange(
        region=name,
        owner=owner,
        deploy_owner=deployment_of(owner, role_arn),
        deploy_there=deploy_there,
        destroy_there=destruction_of(there, deploy_there.stack, role_arn),
        auditor=auditor,
        code=code,
        parameters=parameters or {},
        key_arn=key_arn,
        say=notice,
        poll_s=poll_s(owner),
    )


def _run(
    options: Options,
    change: RegionChange,
    decide: Callable[[Observed], Step | None],
    steps: Sequence[Step],
    *,
    yes: bool,
    plan: bool,
) -> int:
    """Show the steps that are left, ask, and take them."""
    first = decide(change.observe())
    left = [] if first is None else _left(first, steps)
    document = {"region": change.region, "steps": [one.name.lower() for one in left]}
    for one in left:
        notice(f"  {one.name.lower():<10} {one}")
    if not left:
        notice(f"{change.region}: nothing is left to do")
    agreed = bool(left) and not plan and (yes or confirm("Go on?", NOBODY))
    if not agreed:
        show(options, [], document)
        return FINDINGS if left else 0
    change.run(decide, lambda step: notice(f"{step.name.lower()}: {step}"))
    show(options, [], document)
    return 0


def _left(first: Step, steps: Sequence[Step]) -> list[Step]:
    return list(steps[steps.index(first) :]) if first in steps else [first, *steps]


# `countledger region promote`: another home region.


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
        help="Change no stack and no schedule: code of yours gives HomeRegion to the stacks, such "
        "as a construct of the CDK.",
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
    promotion = Promotion(target)
    current = promotion.epoch(lost or "")
    if current.home != name and not leave_strict:
        _refuse_staying(target, current, lost)
    _refuse_rebuilding(target)
    if plan:
        _show_promotion(options, promotion, current, [])
        _say_steps(_change_of(target, promotion, role_arn), keep_stacks=keep_stacks)
        return 0
    epoch = promotion.begin(lost or "")
    missing = _awaited(promotion, epoch)
    if missing:
        _show_promotion(options, promotion, epoch, missing)
        notice(f"not everywhere yet ({', '.join(missing)}): call again; until then nobody merges")
        return FINDINGS
    if not keep_stacks:
        change = _change_of(target, promotion, role_arn)
        change.run(epoch, lambda step: notice(f"{step.name.lower()}: {step}"))
    _show_promotion(options, promotion, epoch, [])
    if epoch.lost:
        notice(
            f"schedules, strict counters, sequences, claims and quotas of {epoch.lost} are not "
            "here: create the schedules again, and take the others from a backup"
        )
        notice(f"next: `countledger region salvage {epoch.lost} --region {epoch.home}`")
    return 0


def _change_of(target: Connection, promotion: Promotion, role_arn: str | None) -> HomeChange:
    regions = (target.region, *promotion.regions.survey().others)
    deployment = partial(deployment_of, role_arn=role_arn)
    return HomeChange(target=target, regions=regions, deployment=deployment, say=notice)


def _say_steps(change: HomeChange, *, keep_stacks: bool) -> None:
    first = None if keep_stacks else next_of_home(change.observe())
    steps = list(HomeStep)
    for step in steps[steps.index(first) :] if first else []:
        notice(f"  {step.name.lower():<10} {step}")


def _awaited(promotion: Promotion, epoch: Epoch) -> list[str]:
    """The regions that do not show the epoch after a minute."""
    missing = promotion.missing(epoch)
    for _ in range(_POLLS):
        if missing:
            promotion.regions.connection.clock.sleep_ms(_POLL_MS)
            missing = promotion.missing(epoch)
    return missing


def _refuse_rebuilding(target: Connection) -> None:
    """Allow only a region whose totals are complete: those of the home are always read."""
    if region_fact(target).phase is Phase.REBUILDING:
        raise BadUsage(
            f"{target.region} is rebuilding, so its totals are not complete: `countledger region "
            f"add {target.region}` continues that; promote it then"
        )


def _refuse_staying(target: Connection, current: Epoch, lost: str | None) -> None:
    """Allow a promotion that leaves something behind only if that is said."""
    if lost:
        return  # it cannot be asked; docs/regions.md says what comes from a backup
    staying = staying_in(target.in_region(current.home))
    if staying:
        raise BadUsage(
            f"these are in the table of {current.home} alone and are not moved: "
            f"{'; '.join(staying)}. Export and import strict counters, or promote with "
            f"--leave-strict: then their calls go to the table of {target.region}, where none of "
            "them exists"
        )


def _show_promotion(
    options: Options, promotion: Promotion, epoch: Epoch, missing: list[str]
) -> None:
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


# `countledger region salvage`: what a lost region had not replicated.


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
    promotion = Promotion(connection)
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
    places = SalvagePlaces(connection, name)
    work = (epoch.id if epoch else "", *map(str, copies))
    report = _compare(connection, copies, places, places.begin(work, again=restart), still)
    if held:
        promotion.settle(name)
    places.end()
    _show_salvage(options, report)
    return FINDINGS if report.undecided else 0


class _Copies(NamedTuple):
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
        connection=connection,
        source=copy(copies.source, copies.table),
        target=copy(copies.target, None),
        held=held,
        in_service=copies.in_service,
    )


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
@shared
def region(_options: Options) -> None:
    """Regions: each has a replica of the ledger, and totals of its own.

    Every region records entries and reads its totals. The home region also compacts, and has the
    schedules.
    """


@app.command("list")
@shared
def list_(
    options: Options,
    *,
    sample: Annotated[
        int, typer.Option(min=0, max=100, help="How many counters of each region to verify.")
    ] = 5,
) -> int:
    """List the regions: replica, state, lag and drift of each.

    State: "ready"; "rebuilding" while the totals of a new region are being made, when they cannot
    be read; "no stack" where only the ledger has a replica. Lag: how old the oldest entry is that
    the region's totals do not include yet; an entry that has not arrived there is not seen. Drift:
    how many of a few counters, chosen at random, have a total that is not the sum of the region's
    own copy of the ledger ("0 of 5"). It is no proof for the others: `countledger verify --all
    --region NAME` is. It reads all entries of these counters; --sample 0 compares none.

    Examples:
      countledger region list
      countledger region list --sample 0 --json

    Exit code 1: a region is not ready, its replica is not active, or a total has drifted.
    """
    connection = options.connection()
    views = list(views_of(connection, sample))
    now_ms = SystemClock().now_ms()
    rows = [_row(view, now_ms) for view in views]
    ways = sorted(cut_ways(options))
    document: dict[str, object] = {"items": [_document(view, now_ms) for view in views]}
    document["cut"] = [{"from": origin, "to": to} for origin, to in ways]
    show(options, rows, document)
    for origin, to in ways:
        notice(f"cut: what is written in {origin} does not arrive in {to}")
    if len(views) == 1:
        notice(
            f"the ledger is in {views[0].name} only: `countledger region add REGION` adds a region"
        )
    for one in views:
        for counter in one.drift.drifted if one.drift else ():
            notice(f"drift: {counter} in {one.name}: `countledger verify {counter}` there says why")
    return 0 if all(map(_is_well, views)) else FINDINGS


app.command("add")(add)
app.command("remove")(remove)
app.command("promote")(promote)
app.command("salvage")(salvage)


def _is_well(view: RegionView) -> bool:
    drifted = view.drift is not None and view.drift.drifted
    return view.state == "ready" and view.replica == "ACTIVE" and not drifted


def _row(view: RegionView, now_ms: int) -> Row:
    lag_ms = _lag_ms(view, now_ms)
    through_ms = None if view.freshness is None else view.freshness.handled_through_ms
    return {
        "region": view.name,
        "home": "home" if view.home else "",
        "replica": view.replica,
        "state": view.state,
        "lag": None if lag_ms is None else show_duration(lag_ms // SECOND_MS * SECOND_MS),
        "drift": _drift(view),
        "last change": None if through_ms is None else to_datetime(through_ms),
    }


def _document(view: RegionView, now_ms: int) -> Row:
    row = _row(view, now_ms)
    return facts(
        view,
        "name home replica state",
        lag_ms=_lag_ms(view, now_ms),
        handled_through=row["last change"],
        drift=None if view.drift is None else view.drift._asdict(),
    )


def _drift(view: RegionView) -> str | None:
    """How many of the compared totals are wrong; None: none was compared."""
    if view.drift is None or not view.drift.compared:
        return None
    return f"{len(view.drift.drifted)} of {view.drift.compared}"


def _lag_ms(view: RegionView, now_ms: int) -> int | None:
    """How old the oldest entry is that the totals lack; 0: none is known; None: unknown."""
    if view.freshness is None:
        return None
    since_ms = view.freshness.waiting_since_ms
    return 0 if since_ms is None else max(0, now_ms - since_ms)


@app.command()
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


@app.command()
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
        show_json({"items": [{"from": origin, "to": to} for origin, to in sorted(ways)]})
        return
    for origin, to in sorted(ways):
        notice(f"cut: what is written in {origin} does not arrive in {to}")
    if not ways:
        notice("nothing is cut: every region replicates to every other")
