"""`countledger alert create|set|list|show|delete|apply`: what alerts, and where to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path  # noqa: TC003 - Typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from countledger.infra.cli.alert_rows import rule_document, rule_row
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, report_unread, show, show_json
from countledger.infra.cli.settings_file import DirectionName, RuleText, check_spec, read_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger import Rule
    from countledger.consumers.alerts.alerts import Alerts

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The rule: letters, digits, '.', '_' and '-'.")
]
Counter = Annotated[str | None, typer.Option(help="The one counter to watch.", show_default=False)]
Prefix = Annotated[
    str | None,
    typer.Option(metavar="P", help="Watch all counters that begin so.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="Watch all counters of the stack.")]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="What a total has to reach or pass. [dim]By default the step[/dim]",
        show_default=False,
    ),
]
Direct = Annotated[
    DirectionName | None,
    typer.Option(
        help="rising: from below it; falling: from above; both: either.", show_default=False
    ),
]
Rearm = Annotated[
    str | None,
    typer.Option(
        metavar="N|none",
        help="The total must go back past N before the next alert. "
        "[dim]Default: the threshold[/dim]",
        show_default=False,
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="N|none",
        help="Alert at the threshold and each further N from it.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        metavar="bus|topic ARN",
        help="Where alerts go: the stack's event bus, or an SNS topic. [dim]By default bus[/dim]",
        show_default=False,
    ),
]
EvaluateIn = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        help="The region whose totals are watched. [dim]By default the home region[/dim]",
        show_default=False,
    ),
]
EvaluatedIn = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        help="The region where it is evaluated, and kept. [dim]By default this one[/dim]",
        show_default=False,
    ),
]
Now = Annotated[
    bool,
    typer.Option(
        "--now",
        help="Also alert for totals beyond the threshold at the moment the rule is effective.",
    ),
]


class TargetCommand(TyperCommand):
    """A command whose `--to` may be followed by `topic ARN` as well as by the ARN alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own type
        """Take the word `topic` out, then parse."""
        return super().parse_args(ctx, without_topic(args))


def without_topic(arguments: Sequence[str]) -> list[str]:
    """The same arguments, `--to topic ARN` as `--to ARN`."""
    kept: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        kept.append(argument)
        if argument == "--":
            return kept + left
        if argument == "--to" and left[:1] == ["topic"] and left[1:]:
            left.pop(0)
    return kept


@shared
def create(
    options: Options,
    name: Name,
    *,
    counter: Counter = None,
    prefix: Prefix = None,
    every: All = False,
    threshold: Threshold = None,
    direction: Direct = None,
    rearm: Rearm = None,
    step: Step = None,
    to: To = None,
    evaluate_in: EvaluateIn = None,
    now: Now = False,
) -> None:
    r"""Make a rule.

    The rule is effective five seconds later, for updates from then on. A total that is beyond the
    threshold by then alerts when it crosses the threshold again; with --now it alerts at once, and
    the command waits for that. (With a prefix, --now reads the whole table of totals once.)

    An SNS topic must be listed in the stack's parameter AlertTopicArns, which allows the evaluator
    to publish to it.

    Examples:
      countledger alert create busy --counter likes:post-1 \
        --direction rising --threshold 1000
      countledger alert create low --prefix stock: \
        --direction falling --threshold 5 --rearm 20
      countledger alert create round --prefix likes: \
        --direction rising --step 1000
      countledger alert create debt --all \
        --direction falling --threshold 0 --to topic ARN
    """
    words = RuleText(
        counter=counter,
        prefix=prefix,
        all=every,
        threshold=threshold,
        direction=direction,
        rearm=rearm,
        step=step,
        to=to,
    )
    spec = words.spec()
    check_spec(name, spec)
    alerts = _at(options, evaluate_in).client().alerts
    _show_changed(options, alerts, alerts.create(name, evaluate_in=evaluate_in, **spec), now=now)


@shared
def set_rule(
    options: Options,
    name: Name,
    *,
    counter: Counter = None,
    prefix: Prefix = None,
    every: All = False,
    threshold: Threshold = None,
    direction: Direct = None,
    rearm: Rearm = None,
    step: Step = None,
    to: To = None,
    evaluate_in: EvaluatedIn = None,
    now: Now = False,
) -> None:
    """Change a rule; what is not named stays.

    The change is effective five seconds later; until then the old rule is evaluated. A rule stays
    in the region that evaluates it; to move it, delete it and create it there.

    Examples:
      countledger alert set busy --threshold 2000
      countledger alert set low --rearm none --to bus
    """
    words = RuleText(
        counter=counter,
        prefix=prefix,
        all=every,
        threshold=threshold,
        direction=direction,
        rearm=rearm,
        step=step,
        to=to,
    )
    if words == RuleText() and not now:
        raise BadUsage(f"nothing to change of rule {name!r}: give an option")
    spec = words.spec()
    alerts = _at(options, evaluate_in).client().alerts
    _show_changed(options, alerts, alerts.set(name, **spec), now=now)


@shared
def list_all(options: Options) -> int:
    """List the rules of the stack, by name.

    One that cannot be read evaluates nothing. It is named, and the exit code is 1.
    """
    alerts = options.client().alerts
    found, unread = alerts.list(), alerts.unreadable()
    documents = [
        *(rule_document(each) for each in found),
        *({"unreadable": name, "reason": reason} for name, reason in unread.items()),
    ]
    show(options, [rule_row(each) for each in found], documents)
    return report_unread([*unread.values()])


@shared
def show_one(options: Options, name: Name) -> None:
    """Show a rule in its newest revision."""
    found = options.client().alerts.get(name)
    show(options, [rule_row(found)], rule_document(found))


@shared
def delete(options: Options, name: Name) -> None:
    """Delete a rule. It evaluates for five seconds more; that there is none is no error.

    Its alerts stay in the log.
    """
    deleted = options.client().alerts.delete(name)
    if options.json:
        show_json({"rule": name, "deleted": deleted})
    else:
        notice(f"rule {name} is gone" if deleted else f"there is no rule {name}")


@shared
def apply(
    options: Options,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A settings file, TOML or YAML.")],
) -> None:
    r"""Make the rules of a settings file, and change those that differ.

    All are checked before the first is written. Rules that the file does not name stay as they
    are; what it leaves out of one has its default. Run it after every deployment: doing it again
    changes nothing.

    Examples:
      countledger alert apply countledger.toml

    A file:

      \[\[alerts]]
      name = "busy"
      counter = "likes:post-1"
      threshold = 1000
      direction = "rising"

      \[\[alerts]]
      name = "low"
      prefix = "stock:"
      threshold = 5
      direction = "falling"
      rearm = 20
      to = "arn:aws:sns:eu-central-1:111122223333:alarms"
    """
    specs = read_rules(file)
    done = list(options.client().alerts.apply(specs))
    rows = [{"change": str(change), **rule_row(each)} for each, change in done]
    show(options, rows, [{"change": str(change), **rule_document(each)} for each, change in done])


def _at(options: Options, evaluate_in: str | None) -> Options:
    """The options for the region that evaluates the rule, which also stores it."""
    return options if evaluate_in is None else replace(options, region=evaluate_in)


def _show_changed(options: Options, alerts: Alerts, rule: Rule, *, now: bool) -> None:
    """Show a rule that was written, and the alerts that were published at once."""
    extra = {"published now": alerts.initial_scan(rule)} if now else {}
    document = {name.replace(" ", "_"): count for name, count in extra.items()}
    show(options, [{**rule_row(rule), **extra}], {**rule_document(rule), **document})
