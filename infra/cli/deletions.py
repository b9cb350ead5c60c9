"""`countledger delete`: a counter with all that is kept of it, or all counters of a namespace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.compaction.deletion import DeletionStage
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.compaction.deletion import Deletion
    from countledger.compaction.deletions import Deletions
    from countledger.infra.cli.output import Row

_ENDED = frozenset({DeletionStage.DELETED, DeletionStage.FORGOTTEN})
UNFINISHED = 1


@shared
def delete(
    options: Options,
    counters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COUNTER]...", help="Counters by name.", show_default=False),
    ] = None,
    *,
    namespace: Annotated[
        str | None, typer.Option(help="All counters of a namespace.", show_default=False)
    ] = None,
    yes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Do not ask: the counter, or the namespace, named once more.",
            show_default=False,
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Leave them after all, if their numbers are there.")
    ] = False,
) -> int:
    """Delete counters for good: entries, total, alert states and log, group memberships.

    A ledger counter goes in three calls of the same command, each as far as is safe: the first
    marks it and says when to call again (a day and more: nothing made before may arrive after it);
    the second deletes its numbers, at once; the third, a day later, its name. Until the second all
    is read as before. What is recorded after the mark stops it. Strict counters and sequences go at
    once. The exit code is 1 while anything is still to be deleted.

    Examples:
      countledger delete likes:post-1                    [dim]asks for the name[/dim]
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
            raise BadUsage(f"nobody is here to be asked, nothing was deleted: give --yes {wanted}")
        what = f"{len(names)} counter(s)" if namespace is None else "all counters of the namespace"
        yes = typer.prompt(f"This deletes {what} for good. Type {wanted!r} to go on", err=True)
    if yes != wanted:
        raise BadUsage(f"{yes!r} is not {wanted!r}: nothing was deleted")


def _cancel(options: Options, deletions: Deletions, names: list[str], namespace: str | None) -> int:
    marked = names if namespace is None else [*deletions.pending(namespace)]
    rows: list[Row] = [{"counter": name, "kept": deletions.cancel(name)} for name in marked]
    show(options, rows, rows)
    return 0 if all(row["kept"] for row in rows) else UNFINISHED


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
    return UNFINISHED if unfinished else 0


def _row(deletion: Deletion) -> Row:
    next_at = None if deletion.next_at_ms is None else to_datetime(deletion.next_at_ms)
    return {
        "counter": deletion.counter,
        "stage": str(deletion.stage),
        "call_again": next_at,
        "detail": deletion.detail,
    }
