"""`countledger claim`: values that at most one owner has."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from countledger import Claim, ItemChange, ItemDeletion, NewItem
from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import show
from countledger.ledger.errors import BadItem, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.infra.cli.output import Row


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
Scope = Annotated[str, typer.Argument(help="Within which it is unique, as user-email.")]
Value = Annotated[list[str], typer.Argument(help="The value; several are one combination.")]
Owner = Annotated[str, typer.Option(help="Who has it, as the id of a user.")]
Id = Annotated[
    str | None,
    typer.Option("--claim-id", help="The id of the claim, as `show` prints it: that claim alone."),
]
Table = Annotated[
    str | None, typer.Option(help="A table of your own, written in the same transaction.")
]
Key = Annotated[
    str | None, typer.Option(metavar="JSON", help="The key of its item, as a JSON object.")
]


@app.callback()
@shared
def claim(_options: Options) -> None:
    """Values that at most one owner has: e-mail addresses, user names, seats.

    An index cannot make a value unique, a claim can: docs/claims.md explains why, and how to write
    your own items in the same transaction. Exit code 4: another owner has it; the line names it.
    """


@app.command()
@shared
def take(
    options: Options,
    scope: Scope,
    value: Value,
    *,
    owner: Owner,
    claim_id: Annotated[
        str | None, typer.Option(help="A unique id for the claim. Default: a new one")
    ] = None,
    table: Table = None,
    item: Annotated[
        str | None, typer.Option(metavar="JSON", help="A new item for that table.")
    ] = None,
    key_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The table's key attributes: once or twice."),
    ] = None,
) -> None:
    """Take a value, alone or together with a new item of your own: both or neither.

    Examples:
      countledger claim take user-email ann@example.org --owner u-1
      countledger claim take seat hall-1 row-3 seat-7 --owner order-12     [dim]a combination[/dim]
      countledger claim take user-email bob@example.org --owner u-2 --table users --key-name id \
--item '{"id": "u-2", "email": "bob@example.org"}'
    """
    wanted = Claim(scope, _joined(value), owner, claim_id)
    own: list[NewItem] = []
    if _all_or_none(table=table, item=item, key_name=key_name):
        own = [NewItem(table or "", parse_item("--item", item or ""), tuple(key_name or ()))]
    done = options.client().claims.take(wanted, own=own)
    _answer(options, "taken" if done else "duplicate", wanted)


@app.command()
@shared
def change(
    options: Options,
    scope: Scope,
    *,
    old: Annotated[list[str], typer.Option("--from", help="What its owner has.")],
    new: Annotated[list[str], typer.Option("--to", help="What it is to have instead.")],
    owner: Owner,
    claim_id: Id = None,
    table: Table = None,
    key: Key = None,
    values: Annotated[
        str | None, typer.Option("--set", metavar="JSON", help="Attributes to set in that item.")
    ] = None,
    expected: Annotated[
        str | None, typer.Option("--expect", metavar="JSON", help="Attributes that it must have.")
    ] = None,
) -> None:
    """Let an owner have another value instead, and change an item of your own with it.

    A combination repeats --from and --to.

    Examples:
      countledger claim change user-email --from ann@example.org --to ann@example.net --owner u-1
      countledger claim change user-email --from bob@example.org --to bob@example.net --owner u-2 \
--table users --key '{"id": "u-2"}' --set '{"email": "bob@example.net"}'
    """
    held = Claim(scope, _joined(old), owner, claim_id)
    own: list[ItemChange] = []
    if _all_or_none(table=table, key=key, set=values):
        own = [
            ItemChange(
                table or "",
                parse_item("--key", key or ""),
                parse_item("--set", values or ""),
                parse_item("--expect", expected or "{}"),
            )
        ]
    elif expected is not None:
        raise BadUsage("--expect is about an item: give --table, --key and --set as well")
    done = options.client().claims.change(held, _joined(new), own=own)
    _answer(options, "changed" if done else "duplicate", Claim(scope, _joined(new), owner))


@app.command()
@shared
def release(
    options: Options,
    scope: Scope,
    value: Value,
    *,
    owner: Owner,
    claim_id: Id = None,
    table: Table = None,
    key: Key = None,
) -> None:
    """Free a value, if that owner has it, and remove an item of your own with it.

    With --claim-id it frees that claim alone, also if it is repeated: a claim that the same owner
    has taken since is left as it is.

    Examples:
      countledger claim release user-email ann@example.net --owner u-1
    """
    held = Claim(scope, _joined(value), owner, claim_id)
    own: list[ItemDeletion] = []
    if _all_or_none(table=table, key=key):
        own = [ItemDeletion(table or "", parse_item("--key", key or ""))]
    done = options.client().claims.release(held, own=own)
    _answer(options, "released" if done else "duplicate", held)


@app.command("show")
@shared
def show_one(options: Options, scope: Scope, value: Value) -> int:
    """Show who has a value, and the id of the claim.

    Exit codes: 0 it has an owner. 1 it is free.

    Examples:
      countledger claim show user-email ann@example.org
    """
    found = options.client().claims.find(scope, _joined(value))
    row: Row = {
        "scope": scope,
        "value": " ".join(value),
        "owner": found.owner if found else None,
        "claim_id": found.claim_id if found else None,
    }
    show(options, [row], {**row, "value": value})
    return 0 if found is not None else 1


def _joined(value: Sequence[str]) -> str | tuple[str, ...]:
    return value[0] if len(value) == 1 else tuple(value)


def _all_or_none(**options: object) -> bool:
    """Whether options that need each other are given; some alone are refused."""
    given = [name for name, value in options.items() if value is not None and value != []]
    if given and len(given) < len(options):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise BadUsage(f"{names}: give all of them, or none")
    return bool(given)


def _answer(options: Options, status: str, claimed: Claim) -> None:
    row: Row = {
        "status": status,
        "scope": claimed.scope,
        "value": " ".join(claimed.parts),
        "owner": claimed.owner,
    }
    show(options, [row], {**row, "value": list(claimed.parts)})


def parse_item(what: str, text: str) -> dict[str, Any]:
    """An object of JSON; its numbers stay exact."""
    try:
        item = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadItem(f"{what} {shown(text)} is no JSON object: {error}") from None
    if not isinstance(item, dict):
        raise BadItem(f"{what} {shown(text)} is no JSON object: give it as {{...}}")
    return item


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


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
