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

from countledger.infra.cli.options import SignedCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCAL: Final = "On this machine"
_DEPLOY: Final = "In an AWS account"
_COUNT: Final = "Count"
_CHECK: Final = "Read and check"
_MOVE: Final = "Move in and out"
_COMPACT: Final = "Compact"
_ALERT: Final = "Alert"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands.

    Attributes:
        panel: under which heading it is listed.
        module: of `infra/cli`.
        name: of the function in that module; `app` is a group of commands.
        summary: the first line of its help.
        kind: what parses its arguments.
    """

    panel: str
    module: str
    name: str
    summary: str
    kind: type[TyperCommand] = TyperCommand

    def load(self, spelling: str) -> Any:  # noqa: ANN401 - a command of Typer's own click
        """The command itself: imports its module."""
        found = getattr(import_module(f"countledger.infra.cli.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(spelling, cls=self.kind)(found)
        return typer.main.get_command(alone)


# In the order of the help page.
COMMANDS: Final[Mapping[str, Command]] = {
    "up": Command(
        _LOCAL,
        "engine",
        "up",
        "Start AWS with the deployed stack on this machine, in the background.",
    ),
    "down": Command(
        _LOCAL, "engine", "down", "Stop the stack of this machine and delete its data."
    ),
    "demo": Command(
        _LOCAL, "demo", "demo", "Count a git repository, and check every total against git."
    ),
    "deploy": Command(
        _DEPLOY,
        "deploy",
        "deploy",
        "Create the stack in an AWS account, or update it to this release.",
    ),
    "package": Command(
        _DEPLOY,
        "deploy",
        "package",
        "Upload the functions' code, and print the template that uses it.",
    ),
    "cost": Command(
        _DEPLOY,
        "cost",
        "cost",
        "Estimate what a month costs, at list prices of us-east-1, and what would save most.",
    ),
    "emit": Command(_COUNT, "emit", "emit", "Record an event, or a file of them.", SignedCommand),
    "set": Command(
        _COUNT,
        "strict_change",
        "set_value",
        "Set a counter to a value; 0 resets it.",
        SignedCommand,
    ),
    "namespace": Command(
        _COUNT,
        "namespaces",
        "app",
        "Settings shared by all counters of one namespace, the name before the colon.",
    ),
    "strict": Command(
        _COUNT, "strict", "app", "Counters that never pass their bounds: tickets, stock, credit."
    ),
    "sequence": Command(
        _COUNT, "sequences", "app", "Numbers that are given out once: of orders, invoices, tickets."
    ),
    "claim": Command(
        _COUNT,
        "claims",
        "app",
        "Values that at most one owner has: e-mail addresses, user names, seats.",
    ),
    "group": Command(
        _COUNT,
        "groups",
        "app",
        "Counters that belong together: a group has many, and a counter belongs to many groups.",
    ),
    "total": Command(_CHECK, "totals", "total", "Read totals, and how fresh they are."),
    "snapshot": Command(
        _CHECK, "totals", "snapshot", "Read the totals of up to 100 counters as of one moment."
    ),
    "entries": Command(_CHECK, "totals", "entries", "Read a counter's change log, newest first."),
    "status": Command(
        _CHECK,
        "status",
        "status",
        "Show the state of the stack: what runs, how late totals are, where action is required.",
    ),
    "watch": Command(
        _CHECK, "watch", "watch", "Follow totals and alerts in the terminal, as they change."
    ),
    "verify": Command(
        _CHECK,
        "audit",
        "verify",
        "Compare totals with the exact sums of the ledger, and prove the verdict.",
    ),
    "repair": Command(
        _CHECK,
        "audit",
        "repair",
        "Set totals that drifted to the exact sums of the ledger; create missing totals.",
    ),
    "ingest": Command(
        _CHECK, "ingest", "app", "List and resend entries that arrived through Kinesis too late."
    ),
    "quarantine": Command(
        _CHECK,
        "quarantine",
        "app",
        "Records that could not be applied, evaluated or counted: action required.",
    ),
    "compact": Command(
        _COMPACT,
        "compact",
        "compact",
        "Merge old entries of counters into one item each. No sum and no total changes.",
    ),
    "schedule": Command(
        _COMPACT,
        "schedules",
        "app",
        "When and how old entries are compacted: merged into one item, so that reads stay cheap.",
    ),
    "export": Command(
        _MOVE,
        "portability",
        "export",
        "Write namespaces and the value of every counter, a line of JSON each.",
    ),
    "import": Command(
        _MOVE,
        "portability",
        "import_",
        "Write opening balances, each once under the name of the import.",
    ),
    "delete": Command(
        _MOVE,
        "deletions",
        "delete",
        "Delete counters: entries, total, alert states and log, group memberships.",
    ),
    "alert": Command(
        _ALERT, "alerts", "app", "Alerts: every crossing of a threshold that a total makes, once."
    ),
}


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
