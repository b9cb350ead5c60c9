"""`countledger schedule`: when and how the old entries of a namespace's counters are compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.calls.schedules import SCHEDULES, ScheduleView
from countledger.infra.cli.app import BadUsage, Options, SettingsFile, shared
from countledger.infra.cli.calls import commands_of
from countledger.infra.cli.output import show
from countledger.infra.cli.settings_file import ScheduleText, read_schedules

if TYPE_CHECKING:
    from countledger import Schedule

app = commands_of(SCHEDULES)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose counters to compact.")]
_NOTHING = ScheduleText()


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
    done = [
        (str(change), ScheduleView.model_validate(each))
        for each, change in options.client().schedules.apply(specs)
    ]
    rows = [{"change": change, **each.row()} for change, each in done]
    show(options, rows, [{"change": change, **each.document()} for change, each in done])


def _show_one(options: Options, shown: Schedule) -> None:
    view = ScheduleView.model_validate(shown)
    show(options, [view.row()], view.document())
