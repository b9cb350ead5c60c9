"""`countledger strict hold`, `confirm`, `cancel` and `holds`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import At, Notes, Options, shared
from countledger.infra.cli.emit import parse_notes
from countledger.infra.cli.output import Unread, facts, show_all
from countledger.infra.cli.strict_answers import (
    BAD_INPUT,
    DONE,
    REFUSED,
    ChangeAnswer,
    bound_reached,
    undecided,
)
from countledger.ledger.amount import to_text
from countledger.ledger.values import parse_delta_text, parse_duration_ms, parse_time
from countledger.producers.payload import keyed
from countledger.producers.strict.outcome import (
    BoundReached,
    Cancelled,
    Confirmed,
    Contended,
    Duplicate,
    ExceedsHold,
    Held,
    HoldCancelled,
    HoldConfirmed,
    HoldExpired,
    Unknown,
    Withdrawn,
)

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.producers.strict.hold import Hold
    from countledger.producers.strict.outcome import EndOutcome, HoldOutcome


HoldId = Annotated[str, typer.Argument(metavar="HOLD", help="The id that `strict hold` showed.")]


@shared
def hold(
    options: Options,
    counter: Annotated[str, typer.Argument(help="A counter of method marker.")],
    amount: Annotated[str, typer.Argument(help="How much to hold, more than 0.")],
    *,
    key: Annotated[
        str | None, typer.Option(help="A retry repeats the key: same key, held once.")
    ] = None,
    at: At = None,
    expires_in: Annotated[
        str, typer.Option(metavar="TIME", help="For how long it can be confirmed.")
    ] = "10m",
    note: Notes = None,
) -> int:
    """Reserve an amount of a strict counter, to be confirmed or cancelled later.

    The value stays, and nothing else can take what is held. After its time it is released.

    Exit codes: 0 held, now or before under this key. 4 not enough is available. 3 unknown, or too
    many conflicts: run it again with the same key. 2 bad input, or a key that was withdrawn.

    Examples:
      countledger strict hold tickets:hall 2 --key basket-7 --expires-in 10m
    """
    held = parse_delta_text(amount)
    length = timedelta(milliseconds=parse_duration_ms(expires_in))
    identity = keyed(key, None if at is None else parse_time(at))
    outcome = options.client().strict.hold(
        counter, held, key=identity, expires_in=length, note=parse_notes(note)
    )
    return answer_to_hold(outcome, {"counter": counter, "amount": held}).print(options)


@shared
def confirm(
    options: Options,
    hold_id: HoldId,
    amount: Annotated[
        str | None, typer.Argument(help="How much of it to take; the rest is released.")
    ] = None,
    *,
    readmit: Annotated[
        bool, typer.Option("--readmit", help="After its time: take it if enough is available.")
    ] = False,
) -> int:
    """Take what is held, all of it or a part.

    Exit codes: 0 taken, now or before. 4 refused: it has expired, was cancelled, was confirmed with
    another amount, or holds less. 3 unknown, or too many conflicts: run it again.

    Examples:
      countledger strict confirm tickets:hall#k0123456789abcdef0123456789abcdef
      countledger strict confirm tickets:hall#k0123456789abcdef0123456789abcdef 1
    """
    taken = None if amount is None else parse_delta_text(amount)
    outcome = options.client().strict.confirm(hold_id, taken, readmit=readmit)
    return answer_to_end(outcome, hold_id).print(options)


@shared
def cancel(options: Options, hold_id: HoldId) -> int:
    """Make what is held available again.

    Exit codes: 0 available again, now or before. 4 it was confirmed. 3 unknown, or too many
    conflicts: run it again.

    Examples:
      countledger strict cancel tickets:hall#k0123456789abcdef0123456789abcdef
    """
    outcome = options.client().strict.cancel(hold_id)
    answer = answer_to_end(outcome, hold_id)
    if isinstance(outcome, HoldExpired):  # it is available again, or will be
        answer = ChangeAnswer(DONE, answer.facts)
    return answer.print(options)


@shared
def holds(
    options: Options,
    counter: Annotated[str, typer.Argument(help="The counter whose open holds to list.")],
) -> int:
    """List the open holds of a counter, those that end first first.

    Also those whose time is over and that nobody needed to release yet.

    Examples:
      countledger strict holds tickets:hall
    """
    unread = Unread()
    found = options.client().strict.holds(counter, on_corrupt=unread.note)
    return show_all(options, found, _row, _document, unread)


def _row(one: Hold) -> Row:
    return facts(one, "id amount key") | {"expires": one.expires_at}


def _document(one: Hold) -> Row:
    names = ("id", "counter", "amount", "expires_at", "key", "note")
    return {name: asdict(one)[name] for name in names}


def answer_to_hold(outcome: HoldOutcome, asked: Row) -> ChangeAnswer:
    match outcome:
        case Held():
            held: Row = {"hold": outcome.id, "expires_at": outcome.expires_at}
            return ChangeAnswer(DONE, {"status": "held", **asked, **held})
        case Duplicate(hold=stored):
            return ChangeAnswer(DONE, {"status": "duplicate", **asked, **_stored(stored)})
        case BoundReached():
            return bound_reached(outcome, asked)
        case Withdrawn(counter):
            return ChangeAnswer(
                BAD_INPUT,
                {"status": "withdrawn", **asked},
                f"not held: this key of counter {counter!r} was withdrawn; a new hold needs a new "
                "key",
            )
        case Contended() | Unknown():
            return undecided(outcome, asked)


def _stored(one: Hold | None) -> Row:
    if one is None:
        return {}
    return {"hold": one.id, "state": str(one.state), "expires_at": one.expires_at}


def answer_to_end(outcome: EndOutcome, hold_id: str) -> ChangeAnswer:
    asked: Row = {"hold": hold_id}
    match outcome:
        case Confirmed(amount=amount, released=released):
            more = {"amount": amount, "released": released}
            return ChangeAnswer(DONE, {"status": "confirmed", **asked, **more})
        case Cancelled(amount=amount):
            return ChangeAnswer(DONE, {"status": "cancelled", **asked, "released": amount})
        case Duplicate():
            return ChangeAnswer(DONE, {"status": "duplicate", **asked})
        case BoundReached():
            return bound_reached(outcome, asked)
        case Contended() | Unknown():
            return undecided(outcome, asked)
    return _refused(outcome, asked)


def _refused(
    outcome: HoldExpired | HoldCancelled | HoldConfirmed | ExceedsHold, asked: Row
) -> ChangeAnswer:
    name = f"hold {outcome.id!r}"
    match outcome:
        case HoldExpired(expires_at=until):
            status, why = "hold_expired", f"{name} could be confirmed until {until.isoformat()}"
        case HoldCancelled():
            status, why = "hold_cancelled", f"{name} was cancelled"
        case HoldConfirmed(amount=amount):
            status, why = "hold_confirmed", f"{name} was confirmed with {to_text(amount)}"
        case ExceedsHold(held=held, asked=more):
            status = "exceeds_hold"
            why = f"{name} reserves {to_text(held)}, and {to_text(more)} were to be confirmed"
    return ChangeAnswer(REFUSED, {"status": status, **asked}, f"{why}: nothing was changed")
