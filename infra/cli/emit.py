"""`countledger emit`: one event from arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger import Event
from countledger.infra.cli.emit_lines import emit_lines
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import show
from countledger.infra.cli.usage import BadUsage
from countledger.ledger.amount import parse_delta_text
from countledger.ledger.errors import BadNote
from countledger.producers.payload import keyed, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence


@shared
def emit(
    options: Options,
    counter: Annotated[
        str | None,
        typer.Argument(help="namespace:rest, or a plain name.", show_default=False),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Argument(help="What to add: an exact number, not 0.", show_default=False),
    ] = None,
    *,
    key: Annotated[
        str | None,
        typer.Option(help="What makes a retry recognisable: same key, counted once."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the key was made; with it part of the identity."),
    ] = None,
    occurred_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The event's own business time, any time."),
    ] = None,
    note: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Short own text; repeatable.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Emit the JSON lines of a file; - is standard input."),
    ] = None,
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="With --file: one entry for many lines of a counter.")
    ] = False,
) -> int | None:
    """Record an event, or a file of them.

    The answer is "recorded", or "duplicate" where the same key was recorded before. A key that
    comes back with another delta is refused.

    Examples:
      countledger emit likes:post-1 3
      countledger emit likes:post-1 -5                        [dim]no -- needed[/dim]
      countledger emit stock:bolts 12.50 --key delivery-4711
      countledger emit clicks 1 --key c-1 --at $(date -u +%FT%TZ)
      countledger emit clicks 1 --note source=web --note page=/
      countledger emit --file events.jsonl
      zcat old.jsonl.gz | countledger emit --file -
      countledger emit --file clicks.jsonl --coalesce         [dim]fewer write units[/dim]

    A line of a file: {"counter": "likes:post-1", "delta": 3} and, as wanted, "key", "at",
    "occurred_at" and "note". A delta with a fraction is best written as text: "12.50". A bad line
    is reported with its number and reason, the good ones are emitted, and the exit code is 1.

    With --coalesce, lines of one counter become one entry with their sum and their number; those
    with a key, a note or a time of their own stay what they are.

    TIME is ISO 8601 with an offset, or milliseconds since 1970. That of a key may lie no further
    back than the horizon of its namespace, 24 hours unless it was made with another.
    """
    if file is not None:
        if any(value for value in (counter, delta, key, at, occurred_at, note)):
            raise BadUsage("with --file, counter, delta and the rest are in the lines")
        return emit_lines(options, file, coalesce=coalesce)
    if coalesce:
        raise BadUsage("--coalesce sums up the lines of a file: give --file FILE")
    if counter is None or delta is None:
        raise BadUsage("give COUNTER and DELTA, or --file FILE")
    event = Event(
        counter,
        parse_delta_text(delta),
        key=keyed(key, None if at is None else parse_time(at)),
        occurred_at=None if occurred_at is None else parse_time(occurred_at),
        note=parse_notes(note or ()),
    )
    receipt = options.client().record(
        event.counter,
        event.delta,
        key=event.key,
        occurred_at=event.occurred_at,
        note=event.note,
    )
    answer = {
        "status": str(receipt.status),
        "counter": receipt.counter,
        "delta": event.delta,
        "id": receipt.id,
    }
    show(options, [answer], answer)
    return None


def parse_notes(notes: Sequence[str]) -> dict[str, str] | None:
    """The note of `NAME=VALUE` texts; None for none.

    Raises:
        BadNote: a text has no `=` or no name, or a name comes twice.
    """
    made: dict[str, str] = {}
    for text in notes:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadNote(f"note {text!r} is not NAME=VALUE")
        if name in made:
            raise BadNote(f"note {name!r} is given twice")
        made[name] = value
    return made or None
