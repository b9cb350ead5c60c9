"""`countledger alert create|set|list|show|delete|apply`: what alerts, and where to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.alert_silence import explain_silence
from countledger.infra.cli.app import BadUsage, Options, SettingsFile, shared
from countledger.infra.cli.output import facts, report_unread, show, show_or_say
from countledger.infra.cli.settings_file import check_spec, read_rules
from countledger.infra.cli.spec_text import RuleText
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from countledger import CountLedger, Rule
    from countledger.infra.cli.output import Row

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The rule: letters, digits, '.', '_' and '-'.")
]
_NOTHING = RuleText()
EvaluateIn = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        help="The region whose totals are watched. [dim]By default the home region[/dim]",
    ),
]
EvaluatedIn = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        help="The region where it is evaluated, and kept. [dim]By default this one[/dim]",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the rule is effective.")]
Now = Annotated[
    bool,
    typer.Option(
        "--now",
        help="Also alert for totals beyond the threshold at the moment the rule is effective.",
    ),
]


@shared
def create(
    options: Options,
    name: Name,
    *,
    rule: RuleText = _NOTHING,
    evaluate_in: EvaluateIn = None,
    wait: Wait = False,
    now: Now = False,
) -> None:
    r"""Make a rule.

    The rule is effective five seconds later, for updates from then on; --wait returns then. A total
    that is beyond the threshold by then alerts when it crosses the threshold again; with --now it
    alerts at once, and the command waits. (With a prefix, --now reads all totals once.)

    An SNS topic must be listed in the stack's parameter AlertTopicArns, which allows the evaluator
    to publish to it.

    With --window, the sums of windows are watched (countledger windows): each window alerts once.

    Examples:
      countledger alert create busy --counter likes:post-1 \
        --direction rising --threshold 1000
      countledger alert create low --prefix stock: \
        --direction falling --threshold 5 --rearm 20
      countledger alert create round --prefix likes: \
        --direction rising --step 1000
      countledger alert create spike --prefix errors: \
        --threshold 100 --window hour
      countledger alert create debt --all \
        --direction falling --threshold 0 --to topic ARN
    """
    spec = rule.spec()
    check_spec(name, spec)
    if now and rule.window is not None:
        raise BadUsage("--now reads totals, and --window watches windows: leave out one of them")
    client = _at(options, evaluate_in).client()
    created = client.alerts.create(name, evaluate_in=evaluate_in, wait=wait, **spec)
    _show_changed(options, client, created, now=now)


@shared
def set_rule(
    options: Options,
    name: Name,
    *,
    rule: RuleText = _NOTHING,
    evaluate_in: EvaluatedIn = None,
    wait: Wait = False,
    now: Now = False,
) -> None:
    """Change a rule; what is not named stays.

    The change is effective five seconds later; until then the old rule is evaluated. A rule stays
    in the region that evaluates it; to move it, delete it and create it there.

    Examples:
      countledger alert set busy --threshold 2000
      countledger alert set low --rearm none --to bus
    """
    if rule == _NOTHING and not now:
        raise BadUsage(f"nothing to change of rule {name!r}: give an option")
    client = _at(options, evaluate_in).client()
    _show_changed(options, client, client.alerts.set(name, wait=wait, **rule.spec()), now=now)


@shared
def list_all(options: Options) -> int:
    """List the rules of the stack, by name.

    Of a rule on one counter it says why the rule does not alert, if the counter had crossed before;
    of one with a prefix "countledger alert show" does. A rule that cannot be read evaluates
    nothing. It is named, and the exit code is 1.
    """
    client = options.client()
    alerts = client.alerts
    found, unread = alerts.list(), alerts.unreadable()
    documents = [
        *(rule_document(each) for each in found),
        *({"unreadable": name, "reason": reason} for name, reason in unread.items()),
    ]
    show(options, [rule_row(each) for each in found], documents)
    for each in found:
        if each.counter is not None:
            explain_silence(client, each)
    return report_unread([*unread.values()])


@shared
def show_one(options: Options, name: Name) -> None:
    """Show a rule in its newest revision.

    Where a counter had crossed before the rule became effective, it says why there is no alert. Of
    a rule with a prefix it looks at up to 1,000 counters for that: their search reads the keys of
    the table `counters`, in up to 20 requests.
    """
    client = options.client()
    found = client.alerts.get(name)
    show(options, [rule_row(found)], rule_document(found))
    explain_silence(client, found)


@shared
def delete(options: Options, name: Name) -> None:
    """Delete a rule. It evaluates for five seconds more; that there is none is no error.

    Its alerts stay in the log.
    """
    deleted = options.client().alerts.delete(name)
    text = f"rule {name} is gone" if deleted else f"there is no rule {name}"
    show_or_say(options, {"rule": name, "deleted": deleted}, text)


@shared
def apply(options: Options, file: SettingsFile) -> None:
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
    rows = [{"change": change, **rule_row(each)} for each, change in done]
    show(options, rows, [{"change": change, **rule_document(each)} for each, change in done])


def _at(options: Options, evaluate_in: str | None) -> Options:
    """The options for the region that evaluates the rule, which also stores it."""
    return options if evaluate_in is None else replace(options, region=evaluate_in)


def _show_changed(options: Options, client: CountLedger, rule: Rule, *, now: bool) -> None:
    """Show a rule that was written, and the alerts that were published at once."""
    extra = {"published now": client.alerts.initial_scan(rule)} if now else {}
    document = {name.replace(" ", "_"): count for name, count in extra.items()}
    show(options, [{**rule_row(rule), **extra}], {**rule_document(rule), **document})
    explain_silence(client, rule)


def rule_row(rule: Rule) -> Row:
    """A rule for a person; what ends in a star is a prefix."""
    return {
        "rule": rule.name,
        "watches": rule.counter if rule.prefix is None else f"{rule.prefix}*",
        "threshold": rule.threshold,
        "direction": str(rule.direction),
        "rearm": rule.rearm,
        "step": rule.step,
        "window": rule.window and str(rule.window),
        "of": str(rule.of),
        "to": str(rule.target),
        "evaluated in": rule.evaluate_in,
        "effective from": to_datetime(rule.effective_from_ms),
    }


def rule_document(rule: Rule) -> Row:
    """A rule for a program."""
    return {
        "rule": rule.name,
        **facts(rule, "counter prefix threshold direction rearm step window"),
        "of": str(rule.of),
        "to": str(rule.target),
        **facts(rule, "evaluate_in revision"),
        "effective_from": to_datetime(rule.effective_from_ms),
    }
