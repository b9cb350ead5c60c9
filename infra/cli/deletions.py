"""`countledger delete`: a counter with all that is kept of it, or all counters of a namespace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.compaction.deletion import DeletionStage
from countledger.infra.cli.app import BadUsage, CounterNames, Options, WholeNamespace, shared
from countledger.infra.cli.output import FINDINGS, facts, notice, show
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.compaction.deletion import Deletion
    from countledger.compaction.deletions import Deletions
    from countledger.infra.cli.output import Row

_ENDED = frozenset({DeletionStage.DELETED, DeletionStage.FORGOTTEN})


@shared
def delete(
    options: Options,
    counters: CounterNames = None,
    *,
    namespace: WholeNamespace = None,
    yes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Do not ask: repeat the name of the counter or namespace."
        ),
    ] = None,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel the deletion, if the numbers are not deleted yet."),
    ] = False,
) -> int:
    """Delete counters: entries, total, alert states and log, group memberships.

    Deleting a ledger counter takes three calls of the same command. The first call marks it and
    says when to call again (after a day or more, when no earlier entry can arrive any more). The
    second deletes its numbers. The third, a day later, deletes its name. Until the second call it
    is read as before, and an entry newer than the mark stops the deletion. Strict counters and
    sequences are deleted by the first call. The exit code is 1 while anything is left to delete.

    Examples:
      countledger delete likes:post-1                    [dim]prompts for the name[/dim]
      countledger delete likes:post-1 --yes likes:post-1
      countledger delete --namespace likes               [dim]can be interrupted[/dim]
      countledger delete likes:post-1 --cancel
    """
    names = [keys.check_counter(counter) for counter in dict.fromkeys(counters or ())]
    if bool(names) == (namespace is not None):
        raise BadUsage("give counters, or --namespace")
    deletions = options.client().deletions
    if cancel:
        return _cancel(options, deletions, names, namespace)
    _confirm(names, namespace, yes)
    deleted = map(deletions.delete, names) if namespace is None else deletions.delete_all(namespace)
    return _show(options, deleted)


def _confirm(names: list[str], namespace: str | None, yes: str | None) -> None:
    """Have the name typed once more: of several counters that of the first."""
    wanted = names[0] if namespace is None else namespace
    if yes is None:
        if not sys.stdin.isatty():
            raise BadUsage(
                "stdin is not a terminal, so nobody can confirm; nothing was deleted: "
                f"give --yes {wanted}"
            )
        what = f"{len(names)} counter(s)" if namespace is None else "all counters of the namespace"
        yes = typer.prompt(
            f"This deletes {what}; it cannot be undone. Type {wanted!r} to continue", err=True
        )
    if yes != wanted:
        raise BadUsage(f"{yes!r} is not {wanted!r}: nothing was deleted")


def _cancel(options: Options, deletions: Deletions, names: list[str], namespace: str | None) -> int:
    marked = names if namespace is None else [*deletions.pending(namespace)]
    rows: list[Row] = [{"counter": name, "kept": deletions.cancel(name)} for name in marked]
    show(options, rows, rows)
    return 0 if all(row["kept"] for row in rows) else FINDINGS


def _show(options: Options, deleted: Iterable[Deletion]) -> int:
    rows: list[Row] = []
    unfinished = 0
    try:
        for one in deleted:
            unfinished += one.stage not in _ENDED
            rows.append(_row(one))
    finally:
        # Also where the next one fails, or somebody interrupts: so much was done.
        if rows:
            show(options, rows, rows)
    if not rows:
        show(options, rows, rows)
    if unfinished:
        notice(f"{unfinished} still to be deleted: call again when the table says")
    return FINDINGS if unfinished else 0


def _row(deletion: Deletion) -> Row:
    next_at = None if deletion.next_at_ms is None else to_datetime(deletion.next_at_ms)
    return facts(deletion, "counter stage", call_again=next_at, detail=deletion.detail)
