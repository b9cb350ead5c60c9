"""`countledger alert`: the commands of rules, and test, log and resend of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.consumers.alerts.message import message_of
from countledger.infra.cli import alert_rules
from countledger.infra.cli.app import AtMost, Options, TargetCommand, shared
from countledger.infra.cli.output import FINDINGS, Unread, facts, notice, show, show_all
from countledger.ledger.amount import to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.alerts.delivery import LoggedAlert, Resent
    from countledger.consumers.alerts.message import Alert
    from countledger.infra.cli.output import Row


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
@shared
def alert(_options: Options) -> None:
    """Alerts: every crossing of a threshold that a total makes, once.

    A rule watches one counter, or all whose names begin alike, of any kind: ledger, strict or
    sequence. Whenever a total goes from one side of a threshold to the other from one update to the
    next, an alert goes to the stack's event bus or to an SNS topic, at least once and always with
    the same id. docs/alerts.md describes the message.
    """


@shared
def test(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The rule whose target to test.")],
    counter: Annotated[
        str,
        typer.Argument(
            metavar="COUNTER", help="The counter to name in the message; the rule must watch it."
        ),
    ],
) -> None:
    """Send a test message to the target of a rule.

    Its id begins with test/, and it carries "test": true. If the target refuses it, that is an
    error; nothing goes to the dead-letter queue.

    Examples:
      countledger alert test busy likes:post-1
    """
    alert = options.client().alerts.test(name, counter)
    show(options, [{"sent": True, "id": alert.id, **alert_row(alert)}], alert_document(alert))


@shared
def log(
    options: Options,
    counter: Annotated[
        str | None, typer.Argument(metavar="[COUNTER]", help="Of one counter only.")
    ] = None,
    *,
    limit: AtMost = None,
) -> int:
    """List the alerts of the last ninety days, newest first.

    An alert that its target refused has the reason, also after resend has sent it. An item that
    cannot be read is named, and the exit code is 1.

    Examples:
      countledger alert log --limit 20
      countledger alert log likes:post-1 --json
    """
    unread = Unread()
    found = options.client().alerts.log(counter, limit=limit, on_corrupt=unread.note)
    return show_all(options, found, logged_row, logged_document, unread)


@shared
def resend(options: Options, *, limit: AtMost = None) -> int:
    """Send the alerts again that their targets refused.

    They are in the dead-letter queue. An alert that is accepted leaves the queue; one that is
    refused again stays, and the exit code is 1. A message may arrive twice, with the same id.

    Examples:
      countledger alert resend
    """
    failed = 0

    def counted(feed: Iterator[Resent]) -> Iterator[Resent]:
        nonlocal failed
        for resent in feed:
            failed += resent.reason is not None
            yield resent

    found = counted(options.client().alerts.resend(limit))
    show_all(options, found, resent_row, resent_document)
    if failed:
        notice(f"{failed} were refused again and stay in the queue")
    return FINDINGS if failed else 0


app.command("create", cls=TargetCommand)(alert_rules.create)
app.command("set", cls=TargetCommand)(alert_rules.set_rule)
app.command("list")(alert_rules.list_all)
app.command("show")(alert_rules.show_one)
app.command("delete")(alert_rules.delete)
app.command("apply")(alert_rules.apply)
app.command("test")(test)
app.command("log")(log)
app.command("resend")(resend)


def alert_row(alert: Alert) -> Row:
    """An alert for a person; of a range from its first to its last threshold."""
    crossed: object = alert.threshold
    if alert.through is not None:
        crossed = f"{to_text(alert.threshold)} to {to_text(alert.through)} ({alert.count})"
    window = alert.window and alert.window.name
    row = facts(alert, "at rule counter direction", crossed=crossed, window=window)
    return row | facts(alert, "old new")


def alert_document(alert: Alert) -> Row:
    """An alert for a program: its message."""
    return message_of(alert).model_dump(mode="json", exclude_none=True)


def logged_row(logged: LoggedAlert) -> Row:
    """An alert of the log for a person."""
    return {**alert_row(logged.alert), "dead letter": logged.reason}


def logged_document(logged: LoggedAlert) -> Row:
    """An alert of the log for a program: the message, its time, and why it was refused."""
    times = {"published_at": logged.published_at, "dead_letter": logged.reason}
    return {**alert_document(logged.alert), **times}


def resent_row(resent: Resent) -> Row:
    """What became of a dead letter, for a person."""
    letter = resent.dead_letter
    return {
        "sent": resent.reason is None,
        "alert": None if letter is None else letter.alert.id,
        "to": None if letter is None else str(letter.target),
        "reason": resent.reason,
    }


def resent_document(resent: Resent) -> Row:
    """What became of a dead letter, for a program."""
    letter = resent.dead_letter
    return {
        "sent": resent.reason is None,
        "message": None if letter is None else alert_document(letter.alert),
        "to": None if letter is None else str(letter.target),
        "failed_before": None if letter is None else letter.reason,
        "reason": resent.reason,
    }
