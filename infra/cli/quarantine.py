"""`countledger quarantine`: records that could not be applied, and what to do about them."""

from __future__ import annotations

import base64
import getpass
import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.app import BadUsage, Options, confirm, shared
from countledger.infra.cli.output import FINDINGS, Unread, facts, notice, show, show_all, show_json
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput
from countledger.ledger.quarantine import QuarantinedRecord, QuarantineSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.infra.cli.output import Row
    from countledger.ledger.quarantine import QuarantineOutcome
    from countledger.producers.ingest.ingest import LateEntry

_REASON_CHARACTERS: Final = 100

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The ids that list shows.")]
Of = Annotated[
    QuarantineSource | None, typer.Option("--source", help="Only records of this source.")
]
Everything = Annotated[bool, typer.Option("--all", help="All that wait.")]
By = Annotated[
    str | None, typer.Option(help="Your name. [dim]Default: the name of your account here[/dim]")
]


@app.callback()
@shared
def quarantine(_options: Options) -> None:
    """Records that could not be applied, evaluated or counted: action required.

    Sources: "ledger", records that are in no total; "counters", changes of totals that no alert
    rule saw; "kinesis", records of the ingest that are not in the ledger. Each is kept until it is
    resent or discarded.
    """


@app.command("list")
@shared
def list_(
    options: Options,
    *,
    source: Of = None,
    handled: Annotated[
        bool, typer.Option("--handled", help="Also records handled in the last ninety days.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of records.")] = None,
) -> int:
    """List the records that require action, newest first. Exit code 1: the list is not empty.

    A record that cannot be read is named: it requires action as well.

    Examples:
      countledger quarantine list
      countledger quarantine list --source kinesis --limit 20 --json
    """
    waiting = 0

    def counted(records: Iterable[QuarantinedRecord]) -> Iterable[QuarantinedRecord]:
        nonlocal waiting
        for record in records:
            waiting += record.handled is None
            yield record

    unread = Unread()
    service = options.client().quarantine
    found = counted(service.list(source, handled=handled, limit=limit, on_corrupt=unread.note))
    code = show_all(options, found, row, document, unread)
    return max(FINDINGS if waiting else 0, code)


@app.command("show")
@shared
def show_(
    options: Options,
    quarantine_id: Annotated[str, typer.Argument(metavar="ID", help="The id that list shows.")],
) -> None:
    """Show one record with its content.

    Examples:
      countledger quarantine show ledger-1700000000000-0123456789abcdef
    """
    show_json(document(options.client().quarantine.show(quarantine_id)))


@app.command()
@shared
def resend(
    options: Options,
    ids: Ids = None,
    *,
    everything: Everything = False,
    source: Of = None,
    even_if_counted: Annotated[
        bool,
        typer.Option(
            "--even-if-counted",
            help="Count also expired entries that may have been counted: these then count twice.",
        ),
    ] = False,
    by: By = None,
) -> int:
    """Apply records; running this again counts nothing twice.

    A record of Kinesis is written to the ledger with its own identity. For a record of the
    ledger's stream the counter is repaired. A record that cannot be resolved stays, with the
    reason, and the exit code is then 1.

    Examples:
      countledger quarantine resend ledger-1700000000000-0123456789abcdef
      countledger quarantine resend --all --source kinesis
    """
    service, unread = options.client().quarantine, Unread()
    chosen = ids_of(options, ids, source, unread, everything=everything)
    outcomes = list(service.resend(chosen, by=by or _me(), even_if_counted=even_if_counted))
    return max(_show(options, outcomes), unread.report())


@app.command()
@shared
def expired(options: Options) -> int:
    """List the entries that arrived through Kinesis too late, and whether they were counted.

    "uncounted": it was never counted, and can be resent safely. "counted": an earlier send of it is
    in the ledger. "unknown": it may have been counted and merged since, or it expired less than
    half an hour ago. "refused": its key was used by an entry with another delta. The exit code is 1
    if the list is not empty.

    Examples:
      countledger quarantine expired
      countledger quarantine resend --all --source kinesis       [dim]counts the uncounted[/dim]
    """
    lates = list(options.client().expired.list())
    show_all(options, lates, _late_row)
    return FINDINGS if lates else 0


def _late_row(late: LateEntry) -> Row:
    names = facts(late.entry, "counter delta", made=late.entry.at)
    return names | facts(late.entry, "id key", status=late.status)


@app.command()
@shared
def discard(
    options: Options,
    ids: Ids = None,
    *,
    everything: Everything = False,
    source: Of = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not prompt for confirmation.")] = False,
    by: By = None,
) -> int:
    """Remove records without counting them. They stay readable for ninety days, with your name.

    No total changes: a total that lacks a record lacks it until repair.

    Examples:
      countledger quarantine discard kinesis-1700000000000-0123456789abcdef
      countledger quarantine discard --all --source counters --yes
    """
    service, unread = options.client().quarantine, Unread()
    chosen = ids_of(options, ids, source, unread, everything=everything)
    question = f"Discard these records of the quarantine: {len(chosen)}?"
    would = f"records to discard: {len(chosen)}"
    refusal = f"{would}, and the input is not a terminal: give --yes"
    if chosen and not yes and not confirm(question, refusal):
        raise typer.Abort
    return max(_show(options, list(service.discard(chosen, by=by or _me()))), unread.report())


def ids_of(
    options: Options,
    ids: list[str] | None,
    source: QuarantineSource | None,
    unread: Unread,
    *,
    everything: bool,
) -> list[str]:
    if everything == bool(ids):
        raise BadUsage("give ids, as list shows them, or --all")
    if ids:
        if source is not None:
            raise BadUsage("--source goes with --all")
        return list(dict.fromkeys(ids))
    found = options.client().quarantine.list(source, on_corrupt=unread.note)
    return [record.id for record in found]


def _show(options: Options, outcomes: list[QuarantineOutcome]) -> int:
    rows = [
        {"id": one.record.id, "resolved": one.resolved, "detail": one.detail} for one in outcomes
    ]
    show(options, rows, rows)
    left = sum(not one.resolved for one in outcomes)
    if left:
        notice(f"records that stay in quarantine: {left}")
    hard = [
        one.error.exit_code
        for one in outcomes
        if one.error is not None and not isinstance(one.error, BadInput)
    ]
    return max([*hard, FINDINGS if left else 0])


def row(record: QuarantinedRecord) -> Row:
    return {
        "id": record.id,
        "made": record.at,
        **facts(record, "counter kind messages"),
        "reason": record.reason[:_REASON_CHARACTERS],
        "handled": record.handled and record.handled.how,
    }


def document(record: QuarantinedRecord) -> Row:
    """Its content is JSON, or else text, or else base64."""
    done = record.handled
    return {
        **facts(record, "id source kind reason counter where sequence part messages"),
        "made": record.at,
        "kept": to_datetime(record.kept_at_ms),
        "cut_from_bytes": record.cut_from_bytes,
        "handled": done and {**facts(done, "how by"), "at": to_datetime(done.at_ms)},
        **_content(record.content),
    }


def _content(content: bytes) -> Row:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    try:
        return {"record": json.loads(text)}
    except (ValueError, RecursionError):
        return {"text": text}


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
