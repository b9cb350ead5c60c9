"""The commands of `countledger` as a table, each loaded when it runs.

The page of `countledger --help` is made from the table alone; a test holds that each line says what
the loaded command's own help begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from countledger.infra.cli.arguments import SignedCommand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Below each heading of the help page: a command, what it loads of `infra/cli` (`app` is a group of
# commands), and the first line of its help.
_TABLE: Final = """
On this machine
  up engine.up Start AWS with the deployed stack on this machine, in the background.
  down engine.down Stop the stack of this machine and delete its data.
  serve serve.serve Serve the dashboard and the HTTP API of a stack on this machine, until Ctrl-C.
  demo demo.demo Count a git repository, and check every total against git.
In an AWS account
  deploy deploy.deploy Create the stack in an AWS account, or update it to this release.
  package packaging.package Upload the functions' code, and print the template that uses it.
  destroy destroy.destroy Remove the stack from an AWS account; its tables and their items stay.
  region regions.app Regions: each has a replica of the ledger, and totals of its own.
  policy policies.app Policies of those who deploy, as documents for IAM.
  cost cost.cost Estimate what a month costs, at list prices of us-east-1, and what would save
      most.
Count
  emit emit.emit Record an event, or a file of them.
  set strict_change.set_value Set a counter to a value; 0 resets it.
  namespace namespaces.app Settings shared by all counters of one namespace, the name before the
      colon.
  strict strict.app Counters that never pass their bounds: tickets, stock, credit.
  sequence sequences.app Numbers that are given out once: of orders, invoices, tickets.
  claim claims.app Values that at most one owner has: e-mail addresses, user names, seats.
  quota quotas.app Limits for each window of time: budgets a day, calls an hour.
  group groups.app Counters that belong together: a group has many, and a counter belongs to many
      groups.
Read and check
  total totals.total Read totals, and how fresh they are.
  top namespaces.top Show the highest totals of a ranked namespace, or sums of a day; equal ones by
      name.
  snapshot totals.snapshot Read the totals of up to 100 counters as of one moment.
  windows windows.app Sums for each minute, hour, day and month of business time, as exact as
      totals.
  entries totals.entries Read a counter's change log, newest first.
  status status.status Show the state of the stack: what runs, how late totals are, where action
      is required.
  doctor doctor.doctor Check what an app needs here: versions, credentials, clock, stack,
      permissions.
  watch watch.watch Follow totals and alerts in the terminal, as they change.
  verify audit.verify Compare totals with the exact sums of the ledger, and prove the verdict.
  repair audit.repair Set totals that drifted to the exact sums of the ledger; create missing
      totals.
  quarantine quarantine.app Records that could not be applied, evaluated or counted: action
      required.
Compact
  compact compact.compact Merge old entries of counters into one item each. No sum and no total
      changes.
  schedule schedules.app When and how old entries are compacted: merged into one item, so that
      reads stay cheap.
Move in and out
  export portability.export Write namespaces and the value of every counter, a line of JSON each.
  import portability.import_ Write opening balances, each once under the name of the import.
  restore portability.restore Fill a new, empty stack from two tables that DynamoDB or AWS Backup
      restored.
  delete deletions.delete Delete counters: entries, total, alert states and log, group
      memberships.
Alert
  alert alerts.app Alerts: every crossing of a threshold that a total makes, once.
"""
# Their last argument may be a negative number.
_SIGNED: Final = frozenset({"emit", "set"})


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands.

    Attributes:
        panel: under which heading it is listed.
        module: of `infra/cli`.
        name: of the function in that module; `app` is a group of commands.
        summary: the first line of its help.
    """

    panel: str
    module: str
    name: str
    summary: str

    def load(self, spelling: str) -> Any:  # noqa: ANN401 - a command of Typer's own click
        """The command itself: imports its module."""
        found = getattr(import_module(f"countledger.infra.cli.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        kind = SignedCommand if spelling in _SIGNED else TyperCommand
        alone.command(spelling, cls=kind)(found)
        return typer.main.get_command(alone)


def _commands() -> Iterator[tuple[str, Command]]:
    """The rows of the table, by the names of the commands."""
    panel = ""
    for line in _TABLE.strip().replace("\n      ", " ").splitlines():
        if line.startswith(" "):
            spelling, place, summary = line.split(maxsplit=2)
            module, _, name = place.partition(".")
            yield spelling, Command(panel, module, name, summary)
        else:
            panel = line


# In the order of the help page.
COMMANDS: Final[Mapping[str, Command]] = dict(_commands())


class CommandsOnDemand(TyperGroup):
    """The group of all commands: it lists them by the table, and loads the one that runs."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - Typer's own
        """List the commands; none is loaded."""
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name=name, help=one.summary, rich_help_panel=one.panel)
            for name, one in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - Typer's own
        """Find the command that the arguments name, and load it."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else COMMANDS[name].load(name), rest
