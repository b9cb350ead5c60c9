"""`countledger strict change` and `withdraw`: change a counter, withdraw a change."""

from __future__ import annotations

from typing import Annotated

import typer

from countledger.infra.cli.emit import parse_notes
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.strict_answers import answer_to_change, answer_to_withdrawal
from countledger.ledger.amount import parse_delta_text
from countledger.ledger.ids import check_key
from countledger.producers.payload import keyed, parse_time
from countledger.producers.strict.atomic import Prefer  # noqa: TC001 - Typer reads it


@shared
def change(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter to change.")],
    delta: Annotated[str, typer.Argument(help="What to add: an exact number, not 0.")],
    *,
    key: Annotated[
        str | None,
        typer.Option(help="What makes a retry recognisable: same key, counted once."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the key was made; with it part of the identity."),
    ] = None,
    note: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Short own text (method marker); repeatable."),
    ] = None,
    prefer: Annotated[
        Prefer | None,
        typer.Option(help="Which miscount to risk after a lost answer (method atomic)."),
    ] = None,
) -> int:
    """Change a strict counter, if its bounds allow it.

    The answer is "applied" or "duplicate", with the value (none for a counter with bins). For how
    long a key is remembered is its method's matter: `countledger strict show` tells.

    Exit codes: 0 it is in. 4 a bound or a full set refused it; it is not in. 3 nobody can tell, or
    others were always faster: the line says what to do. 2 bad input, or a key that was given up.

    Examples:
      countledger strict change tickets:hall -2 --key order-4711      [dim]no -- needed[/dim]
      countledger strict change tickets:hall -1 --key o-1 --at $(date -u +%FT%TZ)
      countledger strict change seats:free -1 --prefer over           [dim]method atomic[/dim]
    """
    # What can be refused is refused before anything is looked up.
    amount = parse_delta_text(delta)
    identity = keyed(key, None if at is None else parse_time(at))
    notes = parse_notes(note or ())
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
    is never applied later. Methods marker, set and (for ten minutes) crt can withdraw.

    Exit codes: 0 withdrawn. 1 it was applied and stays. 3 unknown: run the command again.

    Examples:
      countledger strict withdraw tickets:hall --key order-4711
      countledger strict withdraw --key transfer-4711
    """
    check_key(key)
    identity = keyed(key, None if at is None else parse_time(at)) or key
    strict = options.client().strict
    if counter is None:
        outcome = strict.transactions.withdraw(identity)
    else:
        outcome = strict.withdraw(counter, identity)
    return answer_to_withdrawal(outcome, key).print(options)
