"""The command line `countledger`: its page of help, and what every command takes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from countledger.infra.cli.commands import CommandsOnDemand
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
  5  a sum needs more than the 38 digits of a stored number
"""

app = typer.Typer(
    cls=CommandsOnDemand,
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
