"""`countledger schedule`: when and how the old entries of a namespace's counters are compacted."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads it
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from countledger import Retire, Schedule
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import Unread, notice, show, show_json
from countledger.infra.cli.settings_file import ScheduleText, read_schedules
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import MIN_ENTRIES_DEFAULT

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose counters to compact.")]
Every = Annotated[
    str | None, typer.Option(help="How often it runs, as in 15m, 6h or 1d.", show_default=False)
]
Cron = Annotated[
    str | None,
    typer.Option(
        metavar="'MIN HOUR DAY MONTH WEEKDAY YEAR'",
        help="When it runs, in UTC; give '?' for DAY or for WEEKDAY.",
        show_default=False,
    ),
]
MinEntries = Annotated[
    int | None,
    typer.Option(
        help="The least number of uncompacted entries for which a counter is compacted. "
        f"[dim]By default {MIN_ENTRIES_DEFAULT}[/dim]",
        show_default=False,
    ),
]
MinAge = Annotated[
    str | None,
    typer.Option(
        help="The least age of an entry, as in 30d; none: the shortest that is safe.",
        show_default=False,
    ),
]
How = Annotated[
    Literal["transaction", "delete"] | None,
    typer.Option(
        help="How merged entries are deleted: in transactions of a hundred, or one by one at "
        "half the cost. "
        f"[dim]By default {Retire.TRANSACTION}[/dim]",
        show_default=False,
    ),
]
Archive = Annotated[
    str | None,
    typer.Option(
        metavar="s3://BUCKET/PREFIX",
        help="The archive for merged entries before they are deleted; none: no archive.",
        show_default=False,
    ),
]


@app.callback()
@shared
def schedule(_options: Options) -> None:
    """When and how old entries are compacted: merged into one item, so that reads stay cheap.

    Compaction never changes a number. A namespace without a schedule is compacted only by
    hand (countledger compact), and none has a schedule until you make one.
    """


@app.command()
@shared
def create(
    options: Options,
    name: Name,
    *,
    every: Every = None,
    cron: Cron = None,
    min_entries: MinEntries = None,
    min_age: MinAge = None,
    retire: How = None,
    archive: Archive = None,
) -> None:
    """Make the schedule of a namespace.

    An entry is merged when it is so old that no retry of it can arrive any more: horizon
    + replication bound + clock skew + life of a signed request. A minimum age below that is
    refused.

    Creating the same schedule again is not an error; a different one is refused (use set).

    Examples:
      countledger schedule create likes --every 15m
      countledger schedule create clicks --cron '0 3 * * ? *' --min-entries 1000 --retire delete
      countledger schedule create stock --every 1d --min-age 30d --archive s3://bucket/stock
    """
    words = ScheduleText(
        every=every,
        cron=cron,
        min_entries=min_entries,
        min_age=min_age,
        retire=retire,
        archive=archive,
    )
    spec = words.spec()
    _show_one(options, options.client().schedules.create(name, **spec))


@app.command("set")
@shared
def set_schedule(
    options: Options,
    name: Name,
    *,
    every: Every = None,
    cron: Cron = None,
    min_entries: MinEntries = None,
    min_age: MinAge = None,
    retire: How = None,
    archive: Archive = None,
) -> None:
    """Change the schedule of a namespace; what is not named stays.

    Examples:
      countledger schedule set likes --every 1h
      countledger schedule set likes --min-age none --archive none
    """
    words = ScheduleText(
        every=every,
        cron=cron,
        min_entries=min_entries,
        min_age=min_age,
        retire=retire,
        archive=archive,
    )
    if words == ScheduleText():
        raise BadUsage(f"nothing to change of the schedule of {name!r}: give an option")
    spec = words.spec()
    _show_one(options, options.client().schedules.set(name, **spec))


@app.command("list")
@shared
def list_all(options: Options) -> int:
    """List the schedules of the stack, by namespace.

    One that cannot be read is named, and the exit code is 1.
    """
    unread = Unread()
    found = options.client().schedules.list(on_corrupt=unread.note)
    documents = [*unread.after(_document(each) for each in found)]
    show(options, [_row(each) for each in found], documents)
    return unread.report()


@app.command("show")
@shared
def show_one(options: Options, name: Name) -> None:
    """Show the schedule of one namespace, and whether it runs.

    "enabled" or "disabled", as EventBridge Scheduler has it; "missing" where it knows nothing of
    it: create or set makes it run.
    """
    schedules = options.client().schedules
    found = schedules.get(name)
    state = {"state": schedules.state(name)}
    show(options, [{**_row(found), **state}], {**_document(found), **state})


@app.command()
@shared
def delete(options: Options, name: Name) -> None:
    """Delete the schedule of a namespace; its counters are compacted no more.

    What was compacted stays as it is. That there is no schedule is no error.
    """
    deleted = options.client().schedules.delete(name)
    if options.json:
        show_json({"namespace": name, "deleted": deleted})
    else:
        notice(f"the schedule of {name} is gone" if deleted else f"{name} has no schedule")


@app.command()
@shared
def apply(
    options: Options,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A settings file, TOML or YAML.")],
) -> None:
    r"""Make the schedules of a settings file, and change those that differ.

    All are checked before the first is written. Schedules that the file does not name stay as
    they are; what it leaves out of one has its default. Run it after every deployment: doing it
    again changes nothing.

    Examples:
      countledger schedule apply countledger.toml

    A file:

      \[schedules.likes]
      every = "15m"

      \[schedules.stock]
      cron = "0 3 * * ? *"
      min_entries = 1000
      min_age = "30d"
      retire = "delete"
      archive = "s3://bucket/stock"
    """
    specs = read_schedules(file)
    done = list(options.client().schedules.apply(specs))
    rows = [{"change": str(change), **_row(each)} for each, change in done]
    show(options, rows, [{"change": str(change), **_document(each)} for each, change in done])


def _show_one(options: Options, shown: Schedule) -> None:
    show(options, [_row(shown)], _document(shown))


def _row(shown: Schedule) -> Row:
    age_ms = shown.min_age_ms
    return {
        "namespace": shown.namespace,
        "when": shown.expression,
        "min entries": shown.min_entries,
        "min age": None if age_ms is None else show_duration(age_ms),
        "retire": str(shown.retire),
        "archive": shown.archive,
    }


def _document(shown: Schedule) -> Row:
    return {
        "namespace": shown.namespace,
        "expression": shown.expression,
        "region": shown.region,
        "min_entries": shown.min_entries,
        "min_age_ms": shown.min_age_ms,
        "retire": str(shown.retire),
        "archive": shown.archive,
    }
