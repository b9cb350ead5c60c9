"""`countledger sequence`: numbers that are given out once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger import Collection
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.claims import parse_item, parse_key_part
from countledger.infra.cli.output import facts, show, show_facts

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.producers.sequences.sequence import Sequence

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
@shared
def sequence(_options: Options) -> None:
    """Numbers that are given out once: of orders, invoices, tickets.

    A sequence is created by its first draw; create it yourself if it must not begin at 1.
    docs/sequences.md says what can leave gaps, and in which order numbers come.
    """


@app.command()
@shared
def create(
    options: Options,
    sequence: Annotated[str, typer.Argument(help="namespace:rest; its kind is sequence.")],
    *,
    first: Annotated[int, typer.Option(help="The first number to give out.")] = 1,
) -> None:
    """Create a sequence that begins with a number of your choice.

    Examples:
      countledger sequence create shop:orders --first 70001     [dim]go on after 70000[/dim]
    """
    _show_one(options, options.client().sequences.create(sequence, first=first))


@app.command()
@shared
def draw(
    options: Options,
    sequence: Annotated[str, typer.Argument(help="The sequence to draw from.")],
    *,
    count: Annotated[int, typer.Option(help="How many numbers to draw with one write.")] = 1,
    expected: Annotated[
        bool,
        typer.Option(
            "--expected", help="Draw only if no other draw came between, else retry: fewer gaps."
        ),
    ] = False,
    known: Annotated[
        int | None,
        typer.Option(metavar="LAST", help="The last number, as far as known (with --expected)."),
    ] = None,
) -> None:
    """Draw the next number, or a block of them; none is ever given out twice.

    After a lost answer it draws again, and what the lost request drew is a gap. With --expected it
    finds out what became of it, for a read unit more.

    Examples:
      countledger sequence draw shop:orders
      countledger sequence draw shop:orders --count 1000 --json
      countledger sequence draw shop:invoices --expected
    """
    if (known is not None and not expected) or (expected and count != 1):
        raise BadUsage("--known goes with --expected, which draws one number and takes no --count")
    sequences = options.client().sequences
    if expected:
        number = sequences.draw_expected(sequence, known=known)
        numbers = range(number, number + 1)
    else:
        numbers = sequences.draw_block(sequence, count)
    drawn: Row = {
        "sequence": sequence,
        "first": numbers[0],
        "last": numbers[-1],
        "count": len(numbers),
    }
    show_facts(options, drawn)


@app.command("show")
@shared
def show_one(
    options: Options, sequence: Annotated[str, typer.Argument(help="The sequence to show.")]
) -> None:
    """Show the last number that was given out."""
    _show_one(options, options.client().sequences.show(sequence))


@app.command()
@shared
def append(
    options: Options,
    table: Annotated[str, typer.Argument(help="A table of your own.")],
    item: Annotated[str, typer.Argument(help="The item without its keys, as a JSON object.")],
    *,
    partition: Annotated[
        str, typer.Option(metavar="NAME=VALUE", help="Its partition key (NAME:=VALUE: an integer).")
    ],
    sort: Annotated[str, typer.Option(metavar="NAME", help="The name of its sort key.")],
    prefix: Annotated[
        str | None,
        typer.Option(help="A text before the number; without it the sort key is a number."),
    ] = None,
    digits: Annotated[int, typer.Option(help="Number of digits after the prefix.")] = 10,
) -> None:
    """Put an item of your own into its collection under the next number, without gaps.

    The number is one more than the highest in the collection. Exit code 3 with "may be there": look
    for your item before you append it again (the API can resume it).

    Examples:
      countledger sequence append posts '{"text": "first!"}' --partition post=p-1 --sort place
      countledger sequence append posts '{"text": "x"}' --partition pk=p-1 --sort sk --prefix 'c#'
    """
    collection = Collection(
        table, parse_key_part("--partition", partition), sort, prefix=prefix, digits=digits
    )
    own = parse_item("item", item)
    put = options.client().sequences.append(collection, own)
    show(
        options,
        [{"number": put.number, "table": table}],
        {"number": put.number, "table": table, "item": put.item},
    )


def _show_one(options: Options, shown: Sequence) -> None:
    show_facts(options, facts(shown, "sequence last version updated_at"))
