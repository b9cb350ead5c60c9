"""What an earlier stack left: removed, adopted or named by `countledger deploy`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import typer

from countledger.infra.cli.app import BadUsage, confirm
from countledger.infra.cli.destroy import destruction_of
from countledger.infra.cli.output import FINDINGS, notice
from countledger.infra.deploy.deployment import FAILED_CREATION
from countledger.infra.template import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.infra.deploy.deployment import Deployment
    from countledger.infra.deploy.retained_tables import RetainedTable
    from countledger.ledger.connection import Connection

NOBODY: Final = "stdin is not a terminal, so nobody can confirm; nothing was changed: give --yes"


@dataclass(frozen=True, slots=True)
class EarlierStack:
    """What is left of an earlier stack of the same name.

    Attributes:
        connection: to the account.
        deployment: of the stack that is made now.
        yes: whether nobody is asked.
    """

    connection: Connection
    deployment: Deployment
    yes: bool

    def remove_failed(self, *, adopted: Mapping[str, str]) -> None:
        """Delete what a failed creation left; the tables that are adopted stay."""
        destruction = destruction_of(self.connection, self.deployment.stack, None)
        left = destruction.plan()
        if left is None or left.status == "DELETE_COMPLETE":
            return  # removed by an earlier call
        if left.status not in FAILED_CREATION:
            raise BadUsage(f"stack {self._name} is {left.status}: no creation of it failed")
        gone = tuple(one for one in left.tables if one.name not in adopted.values())
        full = [one for one in gone if not one.empty]
        if full:
            raise BadUsage(
                f"{_named(full)} has items: nothing was deleted; give --adopt with both tables to "
                "keep them, or use `countledger destroy --delete-data`"
            )
        notice(f"delete stack {self._name} ({left.status}) and {_named(gone) or 'no table'}")
        self._confirm()
        destruction.delete(left)
        destruction.delete_tables(replace(left, tables=gone))

    def adopt(
        self,
        tables: Mapping[str, str],
        *,
        bucket: str,
        parameters: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Create the stack around two tables."""
        stack = self.deployment.stack.describe()
        if stack is not None and stack["StackStatus"] == "IMPORT_COMPLETE":
            return  # by an earlier call, which did not come to the rest
        if stack is not None and stack["StackStatus"] != "REVIEW_IN_PROGRESS":
            raise BadUsage(
                f"stack {self._name} exists ({stack['StackStatus']}): only a new one can adopt "
                "tables; a failed one goes by --remove-failed"
            )
        notice(f"make stack {self._name} around {' and '.join(tables.values())}")
        self._confirm()
        self.deployment.adopt(tables, bucket=bucket, parameters=parameters, tags=tags)

    def name_what_is_left(self) -> None:
        """Say so if a new stack will have new tables beside those of a deleted one."""
        if self.deployment.stack.describe() is not None:
            return
        left = destruction_of(self.connection, self.deployment.stack, None).plan()
        if left is not None:
            names = ",".join(one.name for one in left.tables)
            notice(
                f"{_named(left.tables)} of the deleted stack {self._name} still exist: this makes "
                f"new, empty ones; --adopt {names} would use them"
            )

    @property
    def _name(self) -> str:
        return self.deployment.stack.name

    def _confirm(self) -> None:
        if not (self.yes or confirm("Go on?", NOBODY)):
            raise typer.Exit(FINDINGS)


def two_tables(text: str | None) -> dict[str, str]:
    """The tables that are adopted, by their names in the template."""
    if text is None:
        return {}
    names = [one.strip() for one in text.split(",")]
    if len(names) != len(TABLES) or not all(names):
        raise BadUsage(f"--adopt {text!r} is not LEDGER,COUNTERS: the names of two tables")
    return dict(zip(TABLES, names, strict=True))


def _named(tables: Sequence[RetainedTable]) -> str:
    return " and ".join(f"table {one.name}" for one in tables)
