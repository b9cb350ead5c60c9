"""`countledger strict transfer` and `together`; and `countledger set`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.amounts import parse_amount
from countledger.infra.cli.emit import parse_notes
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import show
from countledger.infra.cli.strict_answers import ChangeAnswer, answer_to_change
from countledger.infra.cli.usage import BadUsage
from countledger.ledger import keys
from countledger.ledger.amount import parse_delta_text
from countledger.ledger.ids import check_key
from countledger.producers.payload import keyed, parse_time
from countledger.producers.strict.outcome import BoundReached

if TYPE_CHECKING:
    from countledger import Amount, IdempotencyKey
    from countledger.infra.cli.output import Row
    from countledger.producers.strict.outcome import StrictOutcome

Key = Annotated[str, typer.Option(help="What a retry repeats: same key, done once.")]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When the key was made; with it part of the identity."),
]
Notes = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Short own text; repeatable."),
]


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
        source, target, moved, key=_identity(key, at), note=parse_notes(note or ())
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
        raise BadUsage("a counter stands there twice: give each once, with what it takes in all")
    done = options.client().strict.transactions.change(
        parsed, key=_identity(key, at), note=parse_notes(note or ())
    )
    return answer(done, {"changes": parsed}).print(options)


@shared
def set_value(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter to set.")],
    value: Annotated[str, typer.Argument(help="What it shall be.")],
    *,
    key: Key,
    at: At = None,
    note: Notes = None,
) -> int:
    """Set a counter to a value; 0 resets it.

    A ledger counter gets one entry that adds what its exact sum lacks. Entries that arrive
    meanwhile are kept and count on top, so it may end up beside the value, but nothing is lost. A
    strict counter is at that value exactly, at one moment, if its bounds allow it.

    Exit codes: as "countledger strict change".

    Examples:
      countledger set stock:bolts 1200 --key stock-taking-2026
      countledger set likes:post-1 0 --key reset-1 --note by=ann
    """
    wanted = parse_amount("value", value)
    identity, notes = _identity(key, at), parse_notes(note or ())
    client = options.client()
    if not client.namespaces.is_of_a_ledger(keys.check_counter(counter)):
        done = client.strict.transactions.set_value(counter, wanted, key=identity, note=notes)
        return answer(done, {"counter": counter, "value": wanted}).print(options)
    corrected = client.set_value(counter, wanted, key=identity, note=notes)
    facts: Row = {
        "status": str(corrected.became),
        "counter": counter,
        "value": wanted,
        "delta": corrected.delta,
    }
    show(options, [facts], facts)
    return 0


def parse_change(text: str) -> tuple[str, Amount]:
    """A counter and what it takes, from text such as `stock:bolt=-4`.

    Raises:
        BadUsage: there is no `=` in it.
        BadDelta: what stands behind it is no number, or 0.
    """
    counter, equals, delta = text.rpartition("=")
    if not equals:
        raise BadUsage(f"{text!r}: give a change as COUNTER=DELTA")
    return counter, parse_delta_text(delta)


def answer(outcome: StrictOutcome, asked: Row) -> ChangeAnswer:
    """What is said of an outcome of all that was asked for together."""
    refused = isinstance(outcome, BoundReached)
    told = answer_to_change(outcome, outcome.asked if isinstance(outcome, BoundReached) else 0)
    dropped = {"counter", "delta", "value"} if not refused else set()
    rest = {name: fact for name, fact in told.facts.items() if name not in dropped}
    return replace(told, facts={"status": rest.pop("status"), **asked, **rest})


def _identity(key: str, at: str | None) -> str | IdempotencyKey:
    check_key(key)
    return keyed(key, None if at is None else parse_time(at)) or key
