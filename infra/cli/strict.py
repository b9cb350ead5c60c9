"""`countledger strict`: counters that never pass their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli import strict_change, strict_holds
from countledger.infra.cli.app import (
    BadUsage,
    Options,
    SignedCommand,
    Yes,
    confirm,
    parse_duration_ms,
    shared,
)
from countledger.infra.cli.output import Unread, notice, show, show_all, show_facts
from countledger.infra.cli.strict_answers import document, row, warnings
from countledger.infra.cli.strict_change import NO_BOUND, parse_amount, parse_bound
from countledger.ledger.amount import to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import HISTORY_DEFAULT, MARKER_WINDOW_DEFAULT_MS, SET_TOKENS_DEFAULT
from countledger.producers.strict.definition import (
    KEEP,
    Method,  # noqa: TC001 - Typer reads it
)

if TYPE_CHECKING:
    from countledger.producers.strict.reader import StrictCounter

_WINDOW: Final = show_duration(MARKER_WINDOW_DEFAULT_MS).replace(" ", "")

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def _by(default: object) -> str:
    """The help text of a default that holds for one method only."""
    return f"[dim]By default {default}[/dim]"


@app.callback()
@shared
def strict(_options: Options) -> None:
    """Counters that never pass their bounds: tickets, stock, credit.

    One value in the home region (or over regions), read and changed at once. How a change is
    written, what it costs and what is known after a lost answer is the counter's method;
    docs/strict.md says which to take when.
    """


@app.command()
@shared
def create(
    options: Options,
    counter: Annotated[
        str, typer.Argument(help="namespace:rest; the namespace is strict, or strict-regions.")
    ],
    *,
    method: Annotated[Method, typer.Option(help="How changes are written.")],
    lower: Annotated[
        str | None, typer.Option(metavar="N", help="The least that its value may be.")
    ] = None,
    upper: Annotated[
        str | None, typer.Option(metavar="N", help="The most that its value may be.")
    ] = None,
    opening: Annotated[str, typer.Option(metavar="N", help="Its first value.")] = "0",
    bins: Annotated[
        int, typer.Option(help="Items to spread it over (atomic, request_token, marker).")
    ] = 1,
    history: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"Changes to remember (history). {_by(HISTORY_DEFAULT)}"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"Changes to take in all (set). {_by(SET_TOKENS_DEFAULT)}"),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(help=f"For how long to remember a key, as in 7d (marker). {_by(_WINDOW)}"),
    ] = None,
    regions: Annotated[
        bool,
        typer.Option(
            "--regions", help="Usable in several regions (atomic, occ, history, set), for good."
        ),
    ] = False,
) -> None:
    """Make a strict counter. Its method, bins and memory are fixed; its bounds may move.

    Examples:
      countledger strict create tickets:hall --method marker --lower 0 --opening 500
      countledger strict create tickets:stadium --method marker --lower 0 --opening 60000 --bins 20
      countledger strict create seats:free --method atomic --lower 0 --upper 40 --opening 40
      countledger strict create stock:lamps --method occ --lower 0 --opening 90 --regions
    """
    # What can be refused is refused before anything is looked up.
    first = parse_amount("opening value", opening)
    least = None if lower is None else parse_amount("lower bound", lower)
    most = None if upper is None else parse_amount("upper bound", upper)
    window_ms = None if window is None else parse_duration_ms(window)
    made = options.client().strict.create(
        counter,
        method=str(method),
        lower=least,
        upper=most,
        opening=first,
        bins=bins,
        history=history,
        max_tokens=max_tokens,
        window_ms=window_ms,
        regions=regions,
    )
    _show_one(options, made)


app.command("change", cls=SignedCommand)(strict_change.change)
app.command("withdraw")(strict_change.withdraw)
app.command("transfer", cls=SignedCommand)(strict_change.transfer)
app.command("together")(strict_change.together)
app.command("hold")(strict_holds.hold)
app.command("confirm")(strict_holds.confirm)
app.command("cancel")(strict_holds.cancel)
app.command("holds")(strict_holds.holds)


@app.command("show")
@shared
def show_one(
    options: Options, counter: Annotated[str, typer.Argument(help="The counter to show.")]
) -> None:
    """Show a counter as of one moment: value, bounds, method, what a change costs now."""
    shown = options.client().strict.show(counter)
    show(options, [row(shown)], document(shown))


@app.command("set")
@shared
def set_bounds(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter whose bounds to move.")],
    *,
    lower: Annotated[
        str | None, typer.Option(metavar="N|none", help="The new lower bound.")
    ] = None,
    upper: Annotated[
        str | None, typer.Option(metavar="N|none", help="The new upper bound.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Allow bounds that exclude the value.")
    ] = False,
) -> None:
    """Change a counter's bounds while it is in use; "none" removes a bound.

    Bounds that exclude the value are refused. With --force they are set, and changes towards that
    bound are refused until the value is inside again. A counter with bins cannot be forced.

    Examples:
      countledger strict set tickets:hall --lower 20      [dim]keep twenty back[/dim]
      countledger strict set tickets:hall --upper none
    """
    bounds = parse_bound("lower bound", lower), parse_bound("upper bound", upper)
    if bounds == (KEEP, KEEP):
        raise BadUsage(f"nothing to set: give --lower or --upper, with a number or {NO_BOUND!r}")
    moved = options.client().strict.set_bounds(
        counter, lower=bounds[0], upper=bounds[1], force=force
    )
    _show_one(options, moved)


@app.command("list")
@shared
def list_all(
    options: Options,
    namespace: Annotated[str, typer.Argument(help="The part of the name before the colon.")],
) -> int:
    """List the strict counters of a namespace, by name.

    One that cannot be read is named, and the exit code is 1.
    """
    unread = Unread()
    found = options.client().strict.list(namespace, on_corrupt=unread.note)
    return show_all(options, found, row, document, unread)


@app.command()
@shared
def delete(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter to delete.")],
    *,
    yes: Yes = False,
) -> None:
    """Delete a strict counter and its value; this cannot be undone.

    At a terminal it asks first; elsewhere --yes is required.

    Examples:
      countledger strict delete tickets:hall --yes
    """
    client = options.client()
    if not yes:
        value = to_text(client.strict.show(counter).value)
        question = f"Delete {counter!r} and its value {value}? This cannot be undone."
        refusal = f"counter {counter!r} of value {value} would be deleted: give --yes"
        if not confirm(question, refusal):
            raise typer.Abort
    client.strict.delete(counter)
    show_facts(options, {"counter": counter, "deleted": True})


def _show_one(options: Options, shown: StrictCounter) -> None:
    show(options, [row(shown)], document(shown))
    for warning in warnings(shown):
        notice(warning)
