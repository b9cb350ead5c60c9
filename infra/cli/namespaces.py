"""`countledger namespace`: settings of namespaces, and their counters by total."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn

import typer

from countledger import Kind, Namespace
from countledger.infra.calls.groups import NAMESPACES
from countledger.infra.cli.app import AtMost, Options, shared
from countledger.infra.cli.calls import command_of
from countledger.infra.cli.output import (
    Unread,
    facts,
    notice,
    open_progress,
    show,
    show_all,
    show_facts,
)
from countledger.infra.cli.totals import total_document, total_row
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, NamespaceConflict
from countledger.ledger.limits import HORIZON_DEFAULT_MS, SECOND_MS
from countledger.ledger.values import parse_duration_ms

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row


DEFAULT_HORIZON: Final = show_duration(HORIZON_DEFAULT_MS).replace(" ", "")
_WHY_FIXED: Final = {
    "kind": "its counters are already kept that way",
    "spread": "it is part of every entry's key, so a retry under another one would count twice",
    "horizon": "compaction may already have taken what the old one let go",
}
app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
@shared
def namespace(_options: Options) -> None:
    """Settings shared by all counters of one namespace, the name before the colon.

    A namespace is made with defaults when its first event is emitted, or before that by `create`.
    Kind, spread and horizon are fixed when it is made.
    """


@app.command()
@shared
def create(
    options: Options,
    name: Annotated[str, typer.Argument(help="What its counters' names begin with.")],
    *,
    kind: Annotated[
        Literal["ledger", "strict", "strict-regions", "sequence"],
        typer.Option(help="What its counters are."),
    ] = "ledger",
    spread: Annotated[
        int, typer.Option(help="Key prefixes for one counter: 1, 16 or 256 (for hot counters).")
    ] = 1,
    horizon: Annotated[
        str, typer.Option(help="For how long a retry is safe, as in 90m, 24h or 7d.")
    ] = DEFAULT_HORIZON,
    description: Annotated[str | None, typer.Option(help="A sentence for people.")] = None,
) -> None:
    """Create a namespace with other settings than the defaults.

    A second call with the same settings is no error; with other settings it is refused.

    Examples:
      countledger namespace create likes --description "hearts on posts"
      countledger namespace create clicks --spread 16 --horizon 7d
    """
    horizon_ms = parse_duration_ms(horizon)
    made = options.client().namespaces.create(
        name, kind=Kind(kind), spread=spread, horizon_ms=horizon_ms, description=description
    )
    _show_one(options, made)


@app.command("list")
@shared
def list_all(options: Options) -> int:
    """List the namespaces of the stack, by name.

    One whose settings cannot be read is named, and the exit code is 1.
    """
    unread = Unread()
    found = options.client().namespaces.list(on_corrupt=unread.note)
    return show_all(options, found, _row, _document, unread)


@app.command("show")
@shared
def show_one(
    options: Options, name: Annotated[str, typer.Argument(help="The namespace to show.")]
) -> None:
    """Show the settings of one namespace."""
    _show_one(options, options.client().namespaces.get(name))


@app.command("set")
@shared
def set_description(
    options: Options,
    name: Annotated[str, typer.Argument(help="The namespace to change.")],
    *,
    description: Annotated[str | None, typer.Option(help="The new sentence for people.")] = None,
    kind: Annotated[str | None, typer.Option(hidden=True)] = None,
    spread: Annotated[str | None, typer.Option(hidden=True)] = None,
    horizon: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Change the description of a namespace: the one setting that may change.

    Kind, spread and horizon are fixed when a namespace is made; for others, take another name.

    Examples:
      countledger namespace set likes --description "hearts on posts and comments"
    """
    for setting, value in (("kind", kind), ("spread", spread), ("horizon", horizon)):
        if value is not None:
            _refuse_fixed(name, setting)
    if description is None:
        raise BadSetting(f"nothing to change of namespace {name!r}: give --description")
    _show_one(options, options.client().namespaces.describe(name, description))


def _refuse_fixed(name: str, setting: str) -> NoReturn:
    raise NamespaceConflict(
        f"the {setting} of namespace {name!r} is fixed: {_WHY_FIXED[setting]}; "
        "make a namespace of another name"
    )


def _show_one(options: Options, shown: Namespace) -> None:
    show(options, [_row(shown)], _document(shown))


def _row(shown: Namespace) -> Row:
    horizon = show_duration(shown.horizon_ms)
    return facts(shown, "name kind spread", horizon=horizon, description=shown.description)


def _document(shown: Namespace) -> Row:
    return facts(shown, "name kind spread horizon_ms description")


Name = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="The part of the name before the colon.")
]


@shared
def counters(
    options: Options,
    name: Name,
    *,
    limit: AtMost = None,
) -> int:
    """List the counters of a namespace that were ever changed, with their totals.

    Strict counters are listed by name. All others are found by a scan of the whole table, in no
    order; this requires the policy OperatePolicyArn. A total that cannot be read is named, and the
    exit code is 1.

    Examples:
      countledger namespace counters likes --limit 20
    """
    unread = Unread()
    found = islice(options.client().counters(name, on_corrupt=unread.note), limit)
    return show_all(options, found, total_row, total_document, unread)


@shared
def rank(
    options: Options,
    name: Name,
    *,
    wait: Annotated[
        bool, typer.Option(help="Wait until every materializer knows of it (3 minutes).")
    ] = True,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Partitions of the index; each takes about 500 changed totals a second. They can "
            "only become more; strict counters are moved. [dim]Else 4, or as many as it has[/dim]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Keep the totals of a namespace in order from now on.

    Whatever moves one of them then costs two write units more; other namespaces cost what they did.
    Existing totals are ranked by a scan of the whole table. Without waiting, a counter that is new
    in those minutes is ranked with its next entry. Repeating the command is no error.

    Examples:
      countledger namespace rank score
      countledger namespace rank score --no-wait
      countledger namespace rank score --partitions 16
    """
    rankings = options.client().rankings
    with open_progress() as progress:
        bar = progress.add("seconds waited")

        def on_wait(over_ms: int, wait_ms: int) -> None:
            if not over_ms:
                notice(
                    f"waiting {show_duration(wait_ms)} until every materializer knows that "
                    f"{name} is ranked; --no-wait does not wait: then a counter that is new in "
                    "that time is ranked with its next entry"
                )
            bar.set(over_ms // SECOND_MS, wait_ms // SECOND_MS)

        placed = rankings.switch_on(name, wait=wait, partitions=partitions, on_wait=on_wait)
    show_facts(options, {"namespace": name, "ranked": True, "totals": placed})


@shared
def unrank(options: Options, name: Name) -> None:
    """Keep the totals of a namespace in order no more; they cost again what they did before."""
    removed = options.client().rankings.switch_off(name)
    show_facts(options, {"namespace": name, "ranked": False, "totals": removed})


(_top,) = NAMESPACES.ops
top = command_of(_top)
app.command("counters")(counters)
app.command("top")(top)
app.command("rank")(rank)
app.command("unrank")(unrank)
