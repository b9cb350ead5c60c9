"""`countledger quarantine`: what could not be applied, evaluated or counted, and what to do."""

from __future__ import annotations

import base64
import getpass
import json
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import Unread, notice, show, show_json, show_json_array, show_rows
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput
from countledger.ledger.quarantine_record import QuarantinedRecord, QuarantineSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.infra.cli.output import Row
    from countledger.ledger.quarantine_service import QuarantineOutcome

FINDINGS: Final = 1
_REASON_CHARACTERS: Final = 100

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="As list names them.", show_default=False),
]
Of = Annotated[
    QuarantineSource | None,
    typer.Option("--source", help="Of this source only.", show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All that wait.")]
By = Annotated[
    str | None,
    typer.Option(help="Who does it. [dim]Else your name here[/dim]", show_default=False),
]


@app.callback()
@shared
def quarantine(_options: Options) -> None:
    """Records that could not be applied, evaluated or counted: action required.

    Sources: "ledger", records that are in no total; "counters", changes of totals for which no
    alert was evaluated; "kinesis", payloads of the ingest that are not in the ledger. Each is kept
    until it is resent or discarded.
    """


@app.command("list")
@shared
def list_(
    options: Options,
    *,
    source: Of = None,
    handled: Annotated[
        bool,
        typer.Option("--handled", help="Also those that were handled in the last ninety days."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many.", show_default=False)
    ] = None,
) -> int:
    """List what requires action, newest first. The exit code is 1 if the list is not empty.

    A copy that cannot be read is named: it requires action as well.

    Examples:
      countledger quarantine list
      countledger quarantine list --source kinesis --limit 20 --json
    """
    waiting = 0

    def counted(copies: Iterable[QuarantinedRecord]) -> Iterable[QuarantinedRecord]:
        nonlocal waiting
        for copy in copies:
            waiting += copy.handled is None
            yield copy

    unread = Unread()
    service = options.client().quarantine
    found = counted(service.list(source, handled=handled, limit=limit, on_corrupt=unread.note))
    if options.json:
        show_json_array(unread.after(document(copy) for copy in found))
    else:
        show_rows(row(copy) for copy in found)
    return max(FINDINGS if waiting else 0, unread.report())


@app.command("show")
@shared
def show_(
    options: Options,
    copy_id: Annotated[str, typer.Argument(metavar="ID", help="As list names it.")],
) -> None:
    """Show one of them, with its record as it came.

    Examples:
      countledger quarantine show ledger-1700000000000-0123456789abcdef
    """
    show_json(document(options.client().quarantine.show(copy_id)))


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
            help="Count also what expired and may have been counted: it may then count twice.",
        ),
    ] = False,
    by: By = None,
) -> int:
    """Bring them where they belong; running this again counts nothing twice.

    What came through Kinesis is taken in again under its own identity. A stream record of the
    ledger is never fed again: its counter is repaired. What cannot be settled stays, with the
    reason, and the exit code is then 1.

    Examples:
      countledger quarantine resend ledger-1700000000000-0123456789abcdef
      countledger quarantine resend --all --source kinesis
    """
    service, unread = options.client().quarantine, Unread()
    chosen = ids_of(options, ids, source, unread, everything=everything)
    treated = list(service.resend(chosen, by=by or _me(), even_if_counted=even_if_counted))
    return max(_told(options, treated), unread.report())


@app.command()
@shared
def discard(
    options: Options,
    ids: Ids = None,
    *,
    everything: Everything = False,
    source: Of = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: By = None,
) -> int:
    """Give them up. A record stays readable for ninety days, with who discarded it.

    No number changes: a total that lacks a record lacks it still, until repair.

    Examples:
      countledger quarantine discard kinesis-1700000000000-0123456789abcdef
      countledger quarantine discard --all --source counters --yes
    """
    service, unread = options.client().quarantine, Unread()
    chosen = ids_of(options, ids, source, unread, everything=everything)
    if chosen and not yes:
        _ask(len(chosen))
    return max(_told(options, list(service.discard(chosen, by=by or _me()))), unread.report())


def _ask(number: int) -> None:
    """Ask for confirmation at the terminal.

    Raises:
        BadUsage: stdin is not a terminal.
        typer.Abort: the answer is no.
    """
    if not sys.stdin.isatty():
        raise BadUsage(
            f"{number} would be discarded and stdin is not a terminal, so nobody can confirm: "
            "give --yes"
        )
    typer.confirm(f"Discard {number} of quarantine?", abort=True, err=True)


def ids_of(
    options: Options,
    ids: list[str] | None,
    source: QuarantineSource | None,
    unread: Unread,
    *,
    everything: bool,
) -> list[str]:
    """The copies that are meant.

    Raises:
        BadUsage: none are named, or both some and all.
    """
    if everything == bool(ids):
        raise BadUsage("name what is meant, as list shows it, or give --all")
    if ids:
        if source is not None:
            raise BadUsage("--source goes with --all")
        return list(dict.fromkeys(ids))
    found = options.client().quarantine.list(source, on_corrupt=unread.note)
    return [copy.id for copy in found]


def _told(options: Options, treated: list[QuarantineOutcome]) -> int:
    rows = [{"id": one.copy.id, "settled": one.settled, "said": one.said} for one in treated]
    show(options, rows, rows)
    left = sum(not one.settled for one in treated)
    if left:
        notice(f"{left} stay in quarantine")
    hard = [
        one.error.exit_code
        for one in treated
        if one.error is not None and not isinstance(one.error, BadInput)
    ]
    return max([*hard, FINDINGS if left else 0])


def row(copy: QuarantinedRecord) -> Row:
    """A copy in a table."""
    return {
        "id": copy.id,
        "made": copy.at,
        "counter": copy.counter,
        "kind": copy.kind,
        "reason": copy.reason[:_REASON_CHARACTERS],
        "handled": str(copy.handled.how) if copy.handled else None,
    }


def document(copy: QuarantinedRecord) -> Row:
    """A copy for programs, with its content: as JSON, else as text, else as base64."""
    handled = copy.handled
    return {
        "id": copy.id,
        "source": str(copy.source),
        "kind": copy.kind,
        "reason": copy.reason,
        "counter": copy.counter,
        "where": copy.where,
        "sequence": copy.sequence,
        "part": copy.part,
        "made": copy.at,
        "kept": to_datetime(copy.kept_at_ms),
        "cut_from_bytes": copy.cut_from_bytes,
        "handled": None
        if handled is None
        else {"how": str(handled.how), "by": handled.by, "at": to_datetime(handled.at_ms)},
        **_content(copy.content),
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
