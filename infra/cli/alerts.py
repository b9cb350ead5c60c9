"""`countledger alert`: rules for totals that cross thresholds, and what they told."""

from __future__ import annotations

import typer

from countledger.infra.cli import alert_log, alert_rules
from countledger.infra.cli.options import Options, shared

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


app.command("create", cls=alert_rules.TargetCommand)(alert_rules.create)
app.command("set", cls=alert_rules.TargetCommand)(alert_rules.set_rule)
app.command("list")(alert_rules.list_all)
app.command("show")(alert_rules.show_one)
app.command("delete")(alert_rules.delete)
app.command("apply")(alert_rules.apply)
app.command("test")(alert_log.test)
app.command("log")(alert_log.log)
app.command("resend")(alert_log.resend)
