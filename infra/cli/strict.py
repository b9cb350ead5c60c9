"""`countledger strict`: counters that never pass their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli import holds
from countledger.infra.cli.app import (
    At,
    BadUsage,
    Notes,
    Options,
    SignedCommand,
    Yes,
    confirm,
    shared,
)
from countledger.infra.cli.emit import parse_notes
from countledger.infra.cli.output import Unread, notice, show, show_all, show_facts
from countledger.infra.cli.strict_answers import (
    ChangeAnswer,
    answer_to_change,
    answer_to_withdrawal,
    document,
    row,
    warnings,
)
from countledger.ledger import keys
from countledger.ledger.amount import to_text
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadBounds
from countledger.ledger.ids import check_key
from countledger.ledger.limits import HISTORY_DEFAULT, MARKER_WINDOW_DEFAULT_MS, SET_TOKENS_DEFAULT
from countledger.ledger.values import parse_amount as read_amount
from countledger.ledger.values import parse_delta_text, parse_duration_ms, parse_time
from countledger.producers.payload import keyed
from countledger.producers.strict.applying import Prefer  # noqa: TC001 - Typer reads it
from countledger.producers.strict.definition import (
    KEEP,
    Keep,
    Method,
    check_amount,
)
from countledger.producers.strict.outcome import BoundReached

if TYPE_CHECKING:
    from countledger import IdempotencyKey
    from countledger.infra.cli.output import Row
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.outcome import StrictOutcome
    from countledger.producers.strict.reader import StrictCounter


# `countledger strict change`, `withdraw`, `transfer` and `together`; and `countledger set`.


NO_BOUND: Final = "none"


def parse_amount(what: str, text: str) -> Amount:
    amount = check_amount(what, read_amount(what, text, BadBounds))
    if amount is None:
        raise AssertionError("a number is an amount")
    return amount


def parse_bound(what: str, text: str | None) -> Amount | Keep | None:
    """A bound from text; `none` takes it away, and None (not given) leaves it as it is."""
    if text is None:
        return KEEP
    return None if text.strip().lower() == NO_BOUND else parse_amount(what, text)


@shared
def change(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter to change.")],
    delta: Annotated[str, typer.Argument(help="What to add: an exact number, not 0.")],
    *,
    key: Annotated[
        str | None, typer.Option(help="A retry repeats the key: same key, applied once.")
    ] = None,
    at: At = None,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Short own text (method marker); repeatable."),
    ] = None,
    prefer: Annotated[
        Prefer | None,
        typer.Option(
            help="After a lost answer: over = at least once, under = at most once (atomic)."
        ),
    ] = None,
) -> int:
    """Change a strict counter, if its bounds allow it.

    The answer is "applied" or "duplicate", with the value (none for a counter with bins). The
    counter's method decides how long a key is remembered: see `countledger strict show`.

    Exit codes: 0 applied. 4 refused by a bound or a full set; not applied. 3 unknown, or too many
    conflicts: the line says what to do. 2 bad input, or a key that was withdrawn.

    Examples:
      countledger strict change tickets:hall -2 --key order-4711      [dim]no -- needed[/dim]
      countledger strict change tickets:hall -1 --key o-1 --at $(date -u +%FT%TZ)
      countledger strict change seats:free -1 --prefer over           [dim]method atomic[/dim]
    """
    # What can be refused is refused before anything is looked up.
    amount = parse_delta_text(delta)
    identity = keyed(key, None if at is None else parse_time(at))
    notes = parse_notes(note)
    outcome = options.client().strict.change(
        counter, amount, key=identity, prefer=prefer and str(prefer), note=notes
    )
    return answer_to_change(outcome, amount).print(options)


@shared
def withdraw(
    options: Options,
    counter: Annotated[
        str | None,
        typer.Argument(
            help="The counter of the change. Leave it out for the key of a transfer, of a change "
            "of several counters or of a `countledger set`."
        ),
    ] = None,
    *,
    key: Annotated[str, typer.Option(help="The key of the change to withdraw.")],
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The time that was given with the key, if any."),
    ] = None,
) -> int:
    """Withdraw a change, or report that it was applied.

    Use it for an order whose answer was lost and which nobody wants to repeat. A withdrawn change
    is never applied later. Methods marker, set and (for ten minutes) request_token can withdraw.

    Exit codes: 0 withdrawn. 1 it was applied and stays. 3 unknown: run the command again.

    Examples:
      countledger strict withdraw tickets:hall --key order-4711
      countledger strict withdraw --key transfer-4711
    """
    key = check_key(key)
    identity = keyed(key, None if at is None else parse_time(at)) or key
    strict = options.client().strict
    if counter is None:
        outcome = strict.transactions.withdraw(identity)
    else:
        outcome = strict.withdraw(counter, identity)
    return answer_to_withdrawal(outcome, key).print(options)


Key = Annotated[str, typer.Option(help="A retry repeats the key: same key, done once.")]


@shared
def transfer(
    options: Options,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The counter that gives.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The counter that gets.")],
    amount: Annotated[str, typer.Argument(help="How much, more than 0.")],
    *,
    key: Key,
    at: At = None,
    note: Notes = None,
) -> int:
    """Move an amount from one strict counter to another: all of it, or nothing.

    Both bounds are respected; the one that refuses is named. The key belongs to the transfer as a
    whole and is remembered for a day, whatever the counters' methods are.

    Exit codes: as "countledger strict change".

    Examples:
      countledger strict transfer account:ann account:bob 12.50 --key transfer-4711
    """
    moved = parse_delta_text(amount)
    done = options.client().strict.transactions.transfer(
        source, target, moved, key=_identity(key, at), note=parse_notes(note)
    )
    return answer(done, {"from": source, "to": target, "amount": moved}).print(options)


@shared
def together(
    options: Options,
    changes: Annotated[
        list[str],
        typer.Argument(metavar="COUNTER=DELTA...", help="What to add to which strict counter."),
    ],
    *,
    key: Key,
    at: At = None,
    note: Notes = None,
) -> int:
    """Change up to 99 strict counters in one transaction: all of them, or none.

    Exit codes: as "countledger strict change"; the counter that refuses is named.

    Examples:
      countledger strict together stock:bolt=-4 stock:nut=-4 stock:kit=+1 --key build-12
    """
    parsed = dict(map(parse_change, changes))
    if len(parsed) < len(changes):
        raise BadUsage("a counter is given twice: give each once, with the sum of its changes")
    done = options.client().strict.transactions.change(
        parsed, key=_identity(key, at), note=parse_notes(note)
    )
    return answer(done, {"changes": parsed}).print(options)


@shared
def set_value(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter to set.")],
    value: Annotated[str, typer.Argument(help="The new value.")],
    *,
    key: Key,
    at: At = None,
    note: Notes = None,
) -> int:
    """Set a counter to a value; 0 resets it.

    A ledger counter gets one entry: the difference between the value and its exact sum. Entries
    that arrive meanwhile count in addition, so the result may differ from the value, but nothing is
    lost. A strict counter has exactly that value at one moment, if its bounds allow it.

    Exit codes: as "countledger strict change".

    Examples:
      countledger set stock:bolts 1200 --key stock-taking-2026
      countledger set likes:post-1 0 --key reset-1 --note by=ann
    """
    wanted = parse_amount("value", value)
    identity, notes = _identity(key, at), parse_notes(note)
    client = options.client()
    counter = keys.check_counter(counter)
    if not client.namespaces.is_of_a_ledger(counter):
        done = client.strict.transactions.set_value(counter, wanted, key=identity, note=notes)
        return answer(done, {"counter": counter, "value": wanted}).print(options)
    corrected = client.set_value(counter, wanted, key=identity, note=notes)
    row = {"status": corrected.became, "counter": counter, "value": wanted}
    show_facts(options, {**row, "delta": corrected.delta})
    return 0


def parse_change(text: str) -> tuple[str, Amount]:
    """A counter and what it takes, from text such as `stock:bolt=-4`."""
    counter, equals, delta = text.rpartition("=")
    if not equals:
        raise BadUsage(f"{text!r}: give a change as COUNTER=DELTA")
    return counter, parse_delta_text(delta)


def answer(outcome: StrictOutcome, asked: Row) -> ChangeAnswer:
    """The answer to the outcome of several changes in one transaction."""
    refused = isinstance(outcome, BoundReached)
    found = answer_to_change(outcome, outcome.asked if isinstance(outcome, BoundReached) else 0)
    dropped = {"counter", "delta", "value"} if not refused else set()
    rest = {name: fact for name, fact in found.facts.items() if name not in dropped}
    return replace(found, facts={"status": rest.pop("status"), **asked, **rest})


def _identity(key: str, at: str | None) -> str | IdempotencyKey:
    key = check_key(key)
    return keyed(key, None if at is None else parse_time(at)) or key


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


app.command("change", cls=SignedCommand)(change)
app.command("withdraw")(withdraw)
app.command("transfer", cls=SignedCommand)(transfer)
app.command("together")(together)
app.command("hold")(holds.hold)
app.command("confirm")(holds.confirm)
app.command("cancel")(holds.cancel)
app.command("holds")(holds.holds)


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
