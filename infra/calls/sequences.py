"""The calls of sequences: `countledger sequence`, `/v1/sequences`."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from countledger import Collection
from countledger.infra.calls.call import ADMINISTERS, READS, WRITES, Call, Calls, Param
from countledger.infra.calls.shapes import CounterText, ShownTime, View, parse_item
from countledger.ledger.errors import BadItem, BadSequence, NoSuchCounter, shown
from countledger.ledger.limits import BLOCK_MAX

SEQUENCES: Final = Calls(
    "sequence",
    """Numbers that are given out once: of orders, invoices, tickets.

    A sequence is created by its first draw; create it yourself if it must not begin at 1.
    docs/sequences.md says what can leave gaps, and in which order numbers come.
    """,
    tag="sequences",
)

# Up to here a number of JSON is exact for every parser.
_FIRST_MAX: Final = 2**53 - 1
_DIGITS: Final = 10


# ---- parameters ----


def parse_key_part(what: str, text: str) -> tuple[str, str | int]:
    """Name and value of a key attribute: `post=p-1` is text, `post:=17` an integer."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadItem(f"{what} {shown(text)} is not NAME=TEXT or NAME:=INTEGER")
    if not name.endswith(":"):
        return name, value
    try:
        return name.removesuffix(":"), int(value)
    except ValueError:
        raise BadItem(f"{what} {shown(text)}: {shown(value)} is no integer") from None


Name = Annotated[CounterText, Param("The sequence, as shop:orders.")]


# ---- what is shown ----


class SequenceView(View):
    """The state of a sequence: the last number that was given out."""

    sequence: str
    last: int
    version: int
    updated_at: ShownTime | None


class DrawnView(View):
    """The numbers from `first` to `last`, which no other call gets."""

    sequence: str
    first: int
    last: int


class AppendedView(View):
    """An item that is put, and its number."""

    number: int
    table: str
    item: dict[str, Any]

    def row(self) -> Mapping[str, object]:
        return {"number": self.number, "table": self.table}


# ---- the calls ----


@SEQUENCES.op("create", "POST /v1/sequences 201", costs="One write unit, one read unit.")
def create_sequence(
    call: Call,
    sequence: Annotated[CounterText, Param("namespace:rest; its kind is sequence."), ADMINISTERS],
    *,
    first: Annotated[int, Field(ge=0, le=_FIRST_MAX), Param("The first number to give out.")] = 1,
) -> SequenceView:
    """Create a sequence that begins with a number of your choice.

    Examples:
      countledger sequence create shop:orders --first 70001     [dim]go on after 70000[/dim]
    """
    return SequenceView.model_validate(call.ledger.sequences.create(sequence, first=first))


@SEQUENCES.op("draw", "POST /v1/sequences/{sequence}/numbers", costs="One write unit for any size.")
def draw(
    call: Call,
    sequence: Annotated[Name, WRITES],
    *,
    size: Annotated[
        int,
        Field(ge=1, le=BLOCK_MAX),
        Param("How many numbers to draw with one write.", option="--count"),
    ] = 1,
    expected: Annotated[
        bool,
        Param(
            "Draw only if no other draw came between, else retry: fewer gaps, a read unit more.",
            only="command",
        ),
    ] = False,
    known: Annotated[
        int | None,
        Param(
            "The last number, as far as known (with --expected).", metavar="LAST", only="command"
        ),
    ] = None,
) -> DrawnView:
    """Draw the next number, or a block of them; none is ever given out twice.

    After a lost answer it draws again, and what the lost request drew is a gap.

    Examples:
      countledger sequence draw shop:orders
      countledger sequence draw shop:orders --count 1000 --json
      countledger sequence draw shop:invoices --expected     [dim]a lost draw is found[/dim]
    """
    if (known is not None and not expected) or (expected and size != 1):
        raise BadSequence(
            "--known goes with --expected, which draws one number and takes no --count"
        )
    sequences = call.ledger.sequences
    if expected:
        number = sequences.draw_expected(sequence, known=known)
        return DrawnView(sequence=sequence, first=number, last=number)
    numbers = sequences.draw_block(sequence, size)
    return DrawnView(sequence=sequence, first=numbers[0], last=numbers[-1])


@SEQUENCES.op("show", "GET /v1/sequences/{sequence}", costs="One read unit.")
def show_sequence(call: Call, sequence: Annotated[Name, READS]) -> SequenceView:
    """Show the last number that was given out."""
    found = call.ledger.sequences.show(sequence)
    if not found.version:
        raise NoSuchCounter(f"nothing was ever drawn from sequence {sequence!r}")
    return SequenceView.model_validate(found)


@SEQUENCES.op(
    "delete",
    "DELETE /v1/sequences/{sequence} 204",
    costs="A read unit and a write unit.",
    command=False,  # `countledger delete` deletes counters of every kind
)
def delete_sequence(call: Call, sequence: Annotated[Name, ADMINISTERS]) -> None:
    """Delete a sequence: its numbers are given out again."""
    call.ledger.sequences.delete(sequence)


@SEQUENCES.op(
    "append",
    costs="A read unit for each 4 KB of the item with the highest number, and a write unit for "
    "each KB of this one; both again each time that others were faster.",
)
def append(
    call: Call,
    table: Annotated[str, Param("A table of your own.")],
    item: Annotated[
        Mapping[str, Any],
        Param("The item without its keys, as a JSON object.", text=partial(parse_item, "item")),
    ],
    *,
    partition: Annotated[
        tuple[str, str | int],
        Param(
            "Its partition key (NAME:=VALUE: an integer).",
            metavar="NAME=VALUE",
            text=partial(parse_key_part, "--partition"),
        ),
    ],
    sort: Annotated[str, Param("The name of its sort key.", metavar="NAME")],
    prefix: Annotated[
        str | None, Param("A text before the number; without it the sort key is a number.")
    ] = None,
    digits: Annotated[int, Param("Number of digits after the prefix.")] = _DIGITS,
) -> AppendedView:
    """Put an item of your own into its collection under the next number, without gaps.

    The number is one more than the highest in the collection. Exit code 3 with "may be there": look
    for your item before you append it again (the API can resume it).

    Examples:
      countledger sequence append posts '{"text": "first!"}' --partition post=p-1 --sort place
      countledger sequence append posts '{"text": "x"}' --partition pk=p-1 --sort sk --prefix 'c#'
    """
    collection = Collection(table, partition, sort, prefix=prefix, digits=digits)
    put = call.ledger.sequences.append(collection, item)
    return AppendedView(number=put.number, table=table, item=put.item)
