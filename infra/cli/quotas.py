"""`countledger quota`: limits for each counter and window of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import At, Options, Yes, confirm, shared
from countledger.infra.cli.output import facts, show, show_facts
from countledger.ledger.errors import BadQuota, QuotaDenied
from countledger.ledger.values import parse_amount as read_amount
from countledger.ledger.values import parse_time
from countledger.producers.payload import keyed
from countledger.producers.quotas.quota import Denied, check_amount
from countledger.producers.strict.applying import Prefer  # noqa: TC001 - Typer reads it

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.ledger.amount import Amount
    from countledger.producers.quotas.quota import Quota


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
Prefix = Annotated[
    str, typer.Argument(help="The beginning of the names: a namespace and its colon, as llm:.")
]
Counter = Annotated[str, typer.Argument(help="The counter, as llm:team-1.")]
_OWN = "none"


@app.callback()
@shared
def quota(_options: Options) -> None:
    """Limits for each window of time: budgets a day, calls an hour.

    A quota is for every counter whose name begins with its prefix; each may use the limit once in
    every window. Costs that are known only afterwards are reserved and committed by the API:
    docs/quotas.md.
    """


@app.command()
@shared
def create(
    options: Options,
    prefix: Prefix,
    *,
    limit: Annotated[str, typer.Option(help="What each counter may use in one window.")],
    per: Annotated[str, typer.Option(help="The kind of window: minute, hour, day or month.")],
    time_zone: Annotated[
        str, typer.Option(help="Whose hours, days and months: an IANA name, as Europe/Berlin.")
    ] = "UTC",
    method: Annotated[
        str,
        typer.Option(help="How keys are remembered: marker (a day) or request_token (10 minutes)."),
    ] = "marker",
) -> None:
    """Create a quota; kind of window, time zone and method stay as they are.

    Examples:
      countledger quota create llm: --limit 30 --per day
      countledger quota create api:free- --limit 100 --per hour --time-zone Europe/Berlin
    """
    amount = _parse_limit(limit)
    made = options.client().quotas.create(
        prefix, limit=amount, per=per, time_zone=time_zone, method=method
    )
    show_facts(options, _row(made))


@app.command("set")
@shared
def set_limit(
    options: Options,
    prefix: Prefix,
    limit: Annotated[str, typer.Argument(help="What each counter may use in one window.")],
) -> None:
    """Change the limit of a quota, also while it is used. Processes see it within five seconds.

    Examples:
      countledger quota set llm: 50
    """
    amount = _parse_limit(limit)
    options.client().quotas.set_limit(prefix, amount)
    show_facts(options, {"prefix": prefix, "limit": amount})


@app.command()
@shared
def override(
    options: Options,
    counter: Counter,
    limit: Annotated[str, typer.Argument(help="Its own limit; none: that of its quota again.")],
) -> None:
    """Give one counter a limit of its own.

    Examples:
      countledger quota override llm:team-1 80
      countledger quota override llm:team-1 none
    """
    removed = limit.strip().lower() == _OWN
    amount = None if removed else _parse_limit(limit)
    options.client().quotas.override(counter, amount)
    show_facts(options, {"counter": counter, "limit": amount})


@app.command()
@shared
def acquire(
    options: Options,
    counter: Counter,
    amount: Annotated[str, typer.Argument(help="How much: an exact number above 0.")] = "1",
    *,
    key: Annotated[
        str | None, typer.Option(help="A retry repeats the key: same key, counted once.")
    ] = None,
    at: At = None,
    prefer: Annotated[
        Prefer | None,
        typer.Option(help="After a lost answer: over = at least once, under = at most once."),
    ] = None,
) -> None:
    """Count an amount in the present window, if the limit allows it.

    The answer names the window in which it is counted, what the window has left, and its end.

    Exit codes: 0 admitted. 4 denied; the line says when to try again. 3 unknown, or refused for
    now. 2 bad input, or no quota is for the counter.

    Examples:
      countledger quota acquire llm:team-1 0.05
      countledger quota acquire llm:team-1 0.05 --key request-9
    """
    wanted = read_amount("amount", amount, BadQuota)
    identity = keyed(key, None if at is None else parse_time(at))
    outcome = options.client().quotas.acquire(
        counter, wanted, key=identity, prefer="over" if prefer == "over" else "under"
    )
    if isinstance(outcome, Denied):
        raise QuotaDenied(outcome.reason, outcome)
    status = "duplicate" if outcome.duplicate else "admitted"
    more = facts(outcome, "counter amount remaining window resets_at")
    show_facts(options, {"status": status, **more})


@app.command("show")
@shared
def show_one(options: Options, counter: Counter) -> None:
    """Show what a counter has used in its present window."""
    shown = options.client().quotas.show(counter)
    names = "counter prefix limit overridden used overrun remaining window resets_at"
    show_facts(options, facts(shown, names))


@app.command("list")
@shared
def list_all(options: Options) -> None:
    """List the quotas, with the limits that single counters have of their own in --json."""
    quotas = options.client().quotas
    found = quotas.list()
    if options.json:
        documents = [{**_row(one), "counters": quotas.overrides(one)} for one in found]
        show(options, [], {"quotas": documents})
    else:
        show(options, [_row(one) for one in found], None)


@app.command()
@shared
def delete(options: Options, prefix: Prefix, *, yes: Yes = False) -> None:
    """Delete a quota, with what its counters have used. At a terminal it asks first.

    Nothing is admitted under it any more, within five seconds. Elsewhere --yes is required.
    """
    if not yes:
        question = f"Delete quota {prefix!r}, and what its counters have used?"
        if not confirm(question, f"quota {prefix!r} would be deleted: give --yes"):
            raise typer.Abort
    options.client().quotas.delete(prefix)
    show_facts(options, {"prefix": prefix, "deleted": True})


def _parse_limit(text: str) -> Amount:
    return check_amount("limit", read_amount("limit", text, BadQuota), zero=True)


def _row(quota: Quota) -> Row:
    return facts(quota, "prefix limit per time_zone method revision updated_at")
