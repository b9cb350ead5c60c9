"""`countledger schedule`: when and how the old entries of a namespace's counters are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import BadUsage, Options, SettingsFile, shared
from countledger.infra.cli.output import Unread, facts, show, show_all, show_or_say
from countledger.infra.cli.settings_file import ScheduleText, read_schedules
from countledger.ledger.clock import show_duration

if TYPE_CHECKING:
    from countledger import Schedule
    from countledger.infra.cli.output import Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose counters to compact.")]
_NOTHING = ScheduleText()


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
    spec: ScheduleText = _NOTHING,
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
    wanted = spec.spec()
    _show_one(options, options.client().schedules.create(name, **wanted))


@app.command("set")
@shared
def set_schedule(
    options: Options,
    name: Name,
    *,
    spec: ScheduleText = _NOTHING,
) -> None:
    """Change the schedule of a namespace; what is not named stays.

    Examples:
      countledger schedule set likes --every 1h
      countledger schedule set likes --min-age none --archive none
    """
    if spec == _NOTHING:
        raise BadUsage(f"nothing to change of the schedule of {name!r}: give an option")
    wanted = spec.spec()
    _show_one(options, options.client().schedules.set(name, **wanted))


@app.command("list")
@shared
def list_all(options: Options) -> int:
    """List the schedules of the stack, by namespace.

    One that cannot be read is named, and the exit code is 1.
    """
    unread = Unread()
    found = options.client().schedules.list(on_corrupt=unread.note)
    return show_all(options, found, _row, _document, unread)


@app.command("show")
@shared
def show_one(options: Options, name: Name) -> None:
    """Show the schedule of one namespace, and whether it runs.

    "enabled" or "disabled", as EventBridge Scheduler has it; "missing" where it knows nothing of
    it: create or set makes it run.
    """
    schedules = options.client().schedules
    found = schedules.get(name)
    state = {"state": schedules.state(found)}
    show(options, [{**_row(found), **state}], {**_document(found), **state})


@app.command()
@shared
def delete(options: Options, name: Name) -> None:
    """Delete the schedule of a namespace; its counters are compacted no more.

    What was compacted stays as it is. That there is no schedule is no error.
    """
    deleted = options.client().schedules.delete(name)
    text = f"the schedule of {name} is gone" if deleted else f"{name} has no schedule"
    show_or_say(options, {"namespace": name, "deleted": deleted}, text)


@app.command()
@shared
def apply(options: Options, file: SettingsFile) -> None:
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
        "retire": shown.retire,
        "archive": shown.archive,
    }


def _document(shown: Schedule) -> Row:
    return facts(shown, "namespace expression region min_entries min_age_ms retire archive")
