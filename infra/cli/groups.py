"""`countledger group`: counters that belong together, their totals and their top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.calls.call import Call
from countledger.infra.calls.groups import GROUPS, group_totals
from countledger.infra.cli.app import AtMost, Options, shared
from countledger.infra.cli.calls import commands_of, in_order
from countledger.infra.cli.output import Unread, notice, show_views
from countledger.ledger.amount import add, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import Amount
    from countledger.infra.calls.shapes import TotalAnswer

app = commands_of(GROUPS)


@app.command("show")
@shared
def show_totals(
    options: Options,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    *,
    limit: AtMost = None,
    after: Annotated[
        str | None, typer.Option(metavar="COUNTER", help="Continue after this counter.")
    ] = None,
) -> int:
    """Show the totals of a group, by name, and their sum.

    A total that cannot be read is named and is not in the sum, and the exit code is 1.

    Examples:
      countledger group show season-2026
      countledger group show season-2026 --limit 100 --after score:bob --json
    """
    total: Amount = 0

    def summed(found: Iterator[TotalAnswer]) -> Iterator[TotalAnswer]:
        nonlocal total
        for place, one in enumerate(found):
            if limit is None or place < limit:  # one more is read to see whether there are others
                total = add(total, one.value)
            yield one

    call = Call(options.client())
    found = summed(group_totals(call, group, after=after))
    unread = Unread(call.unread)
    code = show_views(options, found, limit, unread, lambda: {"sum": to_text(total)})
    if not options.json:
        notice(f"sum: {to_text(total)}")
    return code


in_order(app, "add remove show list top rank unrank delete")
