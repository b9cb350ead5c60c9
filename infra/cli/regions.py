"""`countledger region`: the regions that count, how late each is, and partitions between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.engine import engine_is_installed, require_engine
from countledger.infra.cli.output import FINDINGS, facts, notice, show, show_json
from countledger.infra.cli.region_changes import add, remove
from countledger.infra.cli.region_home import promote
from countledger.infra.cli.region_salvage import salvage
from countledger.infra.status.regions import views_of
from countledger.ledger.clock import SystemClock, show_duration, to_datetime
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.infra.local.replication import Way
    from countledger.infra.status.regions import RegionView


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
    document: dict[str, object] = {"regions": [_document(view, now_ms) for view in views]}
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
