"""`countledger region`: the regions that count, and how late each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import FINDINGS, facts, notice, show
from countledger.infra.cli.region_changes import add, remove
from countledger.infra.cli.region_cut import cut, cut_ways, heal
from countledger.infra.cli.region_home import promote
from countledger.infra.cli.region_salvage import salvage
from countledger.infra.status.regions import views_of
from countledger.ledger.clock import SystemClock, show_duration, to_datetime
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
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
app.command("cut")(cut)
app.command("heal")(heal)


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
