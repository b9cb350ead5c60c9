"""`countledger ingest`: entries that arrived through Kinesis too late, and sending them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import notice, show
from countledger.ledger.errors import BadInput, CountledgerError
from countledger.producers.ingest.late import LateEntry, LateStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.infra.cli.output import Row

FINDINGS: Final = 1

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
@shared
def ingest(_options: Options) -> None:
    """List and resend entries that arrived through Kinesis too late.

    An entry that waits in a backlog for longer than the horizon of its namespace is not counted. It
    is kept in a queue for fourteen days.
    """


@app.command()
@shared
def expired(options: Options) -> int:
    """List the entries that arrived too late, and whether they were counted.

    "uncounted": it was never counted, and can be sent safely. "counted": an earlier send of it is
    in the ledger. "unknown": it may have been counted and merged since, or it expired less than
    half an hour ago. "refused": its key was used by an entry with another delta. The exit code is 1
    if the list is not empty.

    Examples:
      countledger ingest expired
      countledger ingest expired --json
    """
    lates = list(options.client().expired.list())
    _print(options, lates)
    return FINDINGS if lates else 0


@app.command()
@shared
def resend(
    options: Options,
    *,
    even_if_counted: Annotated[
        bool,
        typer.Option(
            "--even-if-counted",
            help="Send also the unknown ones: an entry that was counted then counts twice.",
        ),
    ] = False,
) -> int:
    """Send the entries that arrived too late and were never counted.

    Each becomes a new entry, created now; its old time is kept as its business time. Running this
    again counts nothing twice. "unknown" and "refused" entries stay in the queue, and the exit
    code is then 1. If the namespace of an unknown one has an archive, look for it there first with
    countledger entries --archived.

    Examples:
      countledger ingest resend
      countledger ingest resend --even-if-counted    [dim]rather twice than never[/dim]
    """
    lates = list(options.client().expired.resend(even_if_counted=even_if_counted))
    _print(options, lates)
    failures = [late.sent for late in lates if isinstance(late.sent, CountledgerError)]
    for failure in failures:
        notice(str(failure))
    unknown = sum(not late.resolved and late.status is LateStatus.UNKNOWN for late in lates)
    if unknown and not even_if_counted:
        notice(
            f"{unknown} may have been counted before and stay in the queue; --even-if-counted "
            "sends them as well"
        )
    hard = [failure.exit_code for failure in failures if not isinstance(failure, BadInput)]
    return max([*hard, 0 if all(late.resolved for late in lates) else FINDINGS])


def _print(options: Options, lates: Iterable[LateEntry]) -> None:
    rows = [_row(late) for late in lates]
    show(options, rows, rows)


def _row(late: LateEntry) -> Row:
    entry = late.entry
    return {
        "counter": entry.counter,
        "delta": entry.delta,
        "made": entry.at,
        "id": entry.id,
        "key": entry.key,
        "status": str(late.status),
        "sent": str(late.sent) if late.sent is not None else None,
    }
