"""`countledger namespace`: the settings that all counters of one name before the colon share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn

import typer

from countledger import Kind, Namespace
from countledger.infra.cli import rankings
from countledger.infra.cli.durations import parse_duration_ms
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import show
from countledger.infra.cli.unread import Unread
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, NamespaceConflict
from countledger.ledger.limits import HORIZON_DEFAULT_MS

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
        Literal["ledger", "strict", "sequence"], typer.Option(help="What its counters are.")
    ] = "ledger",
    spread: Annotated[
        int, typer.Option(help="Key prefixes for one counter: 1, 16 or 256 (for hot counters).")
    ] = 1,
    horizon: Annotated[
        str, typer.Option(help="For how long a retry is safe, as in 90m, 24h or 7d.")
    ] = DEFAULT_HORIZON,
    description: Annotated[
        str | None, typer.Option(help="A sentence for people.", show_default=False)
    ] = None,
) -> None:
    """Make a namespace with other settings than the defaults.

    Making it again with the same settings is no error; with others it is refused.

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
    documents = [*unread.behind(_document(each) for each in found)]
    show(options, [_row(each) for each in found], documents)
    return unread.tell()


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
    description: Annotated[
        str | None, typer.Option(help="The new sentence for people.", show_default=False)
    ] = None,
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


app.command("counters")(rankings.counters)
app.command("top")(rankings.top)
app.command("rank")(rankings.rank)
app.command("unrank")(rankings.unrank)


def _refuse_fixed(name: str, setting: str) -> NoReturn:
    raise NamespaceConflict(
        f"the {setting} of namespace {name!r} is fixed: {_WHY_FIXED[setting]}; "
        "make a namespace of another name"
    )


def _show_one(options: Options, shown: Namespace) -> None:
    show(options, [_row(shown)], _document(shown))


def _row(shown: Namespace) -> Row:
    return {
        "name": shown.name,
        "kind": str(shown.kind),
        "spread": shown.spread,
        "horizon": show_duration(shown.horizon_ms),
        "description": shown.description,
    }


def _document(shown: Namespace) -> Row:
    return {
        "name": shown.name,
        "kind": str(shown.kind),
        "spread": shown.spread,
        "horizon_ms": shown.horizon_ms,
        "description": shown.description,
    }
