"""The commands of `countledger`, and the page that they are found on."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from countledger.infra.cli import (
    alerts,
    at_once,
    audit,
    claims,
    compact,
    cost,
    demo,
    deploy,
    emit,
    engine,
    groups,
    ingest,
    moving,
    namespaces,
    quarantine,
    removals,
    schedules,
    sequences,
    status,
    strict,
    totals,
    watch,
)
from countledger.infra.cli.arguments import SignedCommand
from countledger.infra.cli.options import Options, reflowed, shared
from countledger.infra.cli.output import show_text

HELP = """Counters on DynamoDB in which a retry never counts twice.

Try it on this machine, without an AWS account:

  eval "$(countledger up)"              [dim]start AWS on loopback, for this shell[/dim]
  countledger emit likes:post-1 3       [dim]record an event[/dim]
  countledger total likes:post-1        [dim]read the total[/dim]
  countledger entries likes:post-1      [dim]read the change log[/dim]
  countledger down                      [dim]stop, and forget all of it[/dim]

On AWS `countledger deploy` makes the stack; the same commands work on it, by the usual AWS
environment.

Exit codes:

  0  done
  1  done with findings: bad lines, wrong totals, drift
  2  bad input or set-up
  3  AWS failed, or nobody can tell whether a change counted
  4  refused: by a bound, by an owner, or because nothing is left
"""

app = typer.Typer(
    help=reflowed(HELP),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it
    """Print the version and stop, if that is wanted."""
    if wanted:
        show_text(version("countledger"))
        raise typer.Exit


@app.callback()
@shared
def main(
    _options: Options,
    *,
    _show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Stand in front of every command."""


LOCAL = "On this machine"
DEPLOY = "In an AWS account"
COUNT = "Count"
CHECK = "Read and check"
MOVE = "Move in and out"
COMPACT = "Compact"
ALERT = "Alert"

app.command("up", rich_help_panel=LOCAL)(engine.up)
app.command("down", rich_help_panel=LOCAL)(engine.down)
app.command("demo", rich_help_panel=LOCAL)(demo.demo)
app.command("deploy", rich_help_panel=DEPLOY)(deploy.deploy)
app.command("package", rich_help_panel=DEPLOY)(deploy.package)
app.command("cost", rich_help_panel=DEPLOY)(cost.cost)
app.command("emit", rich_help_panel=COUNT, cls=SignedCommand)(emit.emit)
app.add_typer(namespaces.app, name="namespace", rich_help_panel=COUNT)
app.add_typer(strict.app, name="strict", rich_help_panel=COUNT)
app.add_typer(sequences.app, name="sequence", rich_help_panel=COUNT)
app.add_typer(claims.app, name="claim", rich_help_panel=COUNT)
app.command("set", rich_help_panel=COUNT, cls=SignedCommand)(at_once.set_value)
app.add_typer(groups.app, name="group", rich_help_panel=COUNT)
app.command("total", rich_help_panel=CHECK)(totals.total)
app.command("snapshot", rich_help_panel=CHECK)(totals.snapshot)
app.command("entries", rich_help_panel=CHECK)(totals.entries)
app.command("status", rich_help_panel=CHECK)(status.status)
app.command("watch", rich_help_panel=CHECK)(watch.watch)
app.command("verify", rich_help_panel=CHECK)(audit.verify)
app.command("repair", rich_help_panel=CHECK)(audit.repair)
app.add_typer(ingest.app, name="ingest", rich_help_panel=CHECK)
app.add_typer(quarantine.app, name="quarantine", rich_help_panel=CHECK)
app.command("compact", rich_help_panel=COMPACT)(compact.compact)
app.add_typer(schedules.app, name="schedule", rich_help_panel=COMPACT)
app.command("export", rich_help_panel=MOVE)(moving.export)
app.command("import", rich_help_panel=MOVE)(moving.import_)
app.command("delete", rich_help_panel=MOVE)(removals.delete)
app.add_typer(alerts.app, name="alert", rich_help_panel=ALERT)
