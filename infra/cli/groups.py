"""`countledger group`: counters that belong together, their totals and their top."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import AtMost, Options, shared
from countledger.infra.cli.namespaces import Limit, show_top
from countledger.infra.cli.output import Unread, notice, open_progress, show, show_all, show_facts
from countledger.infra.cli.totals import total_document, total_row
from countledger.ledger.amount import add as added_up
from countledger.ledger.amount import to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import Amount, Total
    from countledger.infra.cli.output import Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
Members = Annotated[list[str], typer.Argument(metavar="COUNTER...", help="Counters of any kind.")]


@app.callback()
@shared
def group(_options: Options) -> None:
    """Counters that belong together: a group has many, and a counter belongs to many groups.

    The group's totals are read by one query, page by page. A group can be ranked, and then its top
    costs the same however large it is.
    """


@app.command()
@shared
def add(options: Options, name: Name, counters: Members) -> None:
    """Put counters into a group, which is made if it is new.

    A counter need not exist yet. Adding a member again is no error.

    Examples:
      countledger group add season-2026 score:ann score:bob
    """
    new = options.client().groups.add(name, counters)
    _show_changed(options, name, counters, new, "added")


@app.command()
@shared
def remove(options: Options, name: Name, counters: Members) -> None:
    """Take counters out of a group; the counters stay as they are.

    Examples:
      countledger group remove season-2026 score:bob
    """
    gone = options.client().groups.remove(name, counters)
    _show_changed(options, name, counters, gone, "removed")


@app.command("show")
@shared
def show_one(
    options: Options,
    name: Name,
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
    unread = Unread()
    groups = options.client().groups
    found = islice(groups.show(name, after=after, on_corrupt=unread.note), limit)
    sums: list[Amount] = [0]
    code = show_all(options, _summed(found, sums), total_row, total_document, unread)
    if not options.json:
        notice(f"sum: {to_text(sums[0])}")
    return code


@app.command("list")
@shared
def list_all(
    options: Options,
    *,
    of: Annotated[
        str | None, typer.Option(metavar="COUNTER", help="Only those that it belongs to.")
    ] = None,
) -> int:
    """List the groups of the stack, or those of one counter, by name.

    Examples:
      countledger group list
      countledger group list --of score:ann
    """
    unread = Unread()
    groups = options.client().groups
    if of is not None:
        rows: list[Row] = [{"group": name} for name in groups.of(of)]
    else:
        found = groups.list(on_corrupt=unread.note)
        rows = [{"group": one.name, "ranked": one.ranked} for one in found]
    show(options, rows, {"items": rows, "unreadable": unread.documents()})
    return unread.report()


@app.command()
@shared
def top(options: Options, name: Name, *, limit: Limit = 10) -> int:
    """Show the highest totals of a group, equal ones by name.

    Of a group that is not ranked all totals are read for it.

    Examples:
      countledger group top season-2026 --limit 3
    """
    unread = Unread()
    show_top(options, options.client().groups.top(name, limit, on_corrupt=unread.note), unread)
    return unread.report()


@app.command()
@shared
def rank(options: Options, name: Name) -> None:
    """Keep the totals of a group in order from now on.

    Whatever moves a member's total then costs two write units more. A counter can be ranked in one
    group; counters with bins in none.

    Examples:
      countledger group rank season-2026
    """
    members = _switch(options, name, on=True)
    show_facts(options, {"group": name, "ranked": True, "members": members})


@app.command()
@shared
def unrank(options: Options, name: Name) -> None:
    """Keep the totals of a group in order no more; they cost again what they did before."""
    members = _switch(options, name, on=False)
    show_facts(options, {"group": name, "ranked": False, "members": members})


@app.command()
@shared
def delete(options: Options, name: Name) -> None:
    """Delete a group; its counters stay as they are."""
    members = options.client().groups.delete(name)
    show_facts(options, {"group": name, "deleted": True, "members": members})


def _switch(options: Options, name: str, *, on: bool) -> int:
    with open_progress() as progress:
        bar = progress.add("members")
        return options.client().groups.switch_ranking(name, on=on, on_member=bar.set)


def _show_changed(
    options: Options, name: str, counters: list[str], changed: list[str], word: str
) -> None:
    done = set(changed)
    rows = [{"group": name, "counter": one, word: one in done} for one in dict.fromkeys(counters)]
    show(options, rows, rows)


def _summed(found: Iterator[Total], sums: list[Amount]) -> Iterator[Total]:
    for total in found:
        sums[0] = added_up(sums[0], total.value)
        yield total
