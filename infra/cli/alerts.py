"""`countledger alert`: rules, and why they do not alert; the other commands are described calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger.consumers.alerts.rule import Direction
from countledger.consumers.alerts.service import SilenceReader, is_past
from countledger.consumers.totals import NamesPage
from countledger.infra.calls.alerts import ALERTS, ResentView, RuleView, rules_of
from countledger.infra.calls.call import Call
from countledger.infra.cli.app import AtMost, BadUsage, Options, SettingsFile, TargetCommand, shared
from countledger.infra.cli.calls import commands_of, in_order
from countledger.infra.cli.output import FINDINGS, Unread, notice, show, show_views
from countledger.infra.cli.settings_file import RuleText, check_spec, read_rules
from countledger.ledger.amount import add, negated, to_text
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadSetting, CountledgerError, NoWindows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import CountLedger, Rule
    from countledger.consumers.alerts.delivery import Resent
    from countledger.consumers.alerts.service import SilentCounter
    from countledger.ledger.calendar import Per


# Why a rule has not alerted: its counters had passed the threshold before it was effective.


# So many counters of a prefix are looked at, so many with windows; and so many are named.
_COUNTERS_MAX: Final = 1_000
_WITH_WINDOWS_MAX: Final = 100
_NAMED_MAX: Final = 3


def explain_silence(client: CountLedger, rule: Rule) -> None:
    """Say why a rule does not alert for counters that had passed its threshold before.

    Of a rule on one counter half a read unit, and half of one if it is beyond. Of a prefix the same
    for each of up to 1,000 counters, and their search: half a read unit for each 4 KB of the table
    `counters`, in up to 20 requests. Of a rule with a window one read unit for each of up to 100
    counters, half of one for its namespace, and half a unit for each 4 KB of up to 100 alerts of
    each that is beyond.
    """
    try:
        if rule.window is not None:
            _explain_windows(client, rule, rule.window)
        else:
            _explain_totals(client, rule)
    except CountledgerError:
        return  # the rule was shown; other commands report what is wrong with the counter


def _explain_totals(client: CountLedger, rule: Rule) -> None:
    page = _watched(client, rule, _COUNTERS_MAX)
    reader = SilenceReader(client.connection)
    silent = reader.silent([(rule, name) for name in page.names])
    found = [_reason(one) for one in sorted(silent, key=lambda one: one.counter)]
    _say(rule, page, found)
    if found:
        notice(f"`countledger alert set {rule.name} --now` alerts at once")


def _watched(client: CountLedger, rule: Rule, limit: int) -> NamesPage:
    """The counters of a rule, or the first of them."""
    if rule.prefix is not None:
        return client.names_page(rule.prefix, limit=limit)
    return NamesPage(() if rule.counter is None else (rule.counter,), None, 0)


def _say(rule: Rule, page: NamesPage, found: list[str]) -> None:
    for reason in found[:_NAMED_MAX]:
        notice(reason)
    if len(found) > _NAMED_MAX:
        notice(f"the same is so of {len(found) - _NAMED_MAX} more counters of rule {rule.name}")
    if page.after is not None:
        notice(f"looked at {len(page.names)} counters of rule {rule.name}; there are more")


def _reason(one: SilentCounter) -> str:
    rule, passed = one.rule, to_text(one.passed)
    again = f"crosses {passed} again"
    if rule.step is not None:
        step = negated(rule.step) if rule.direction is Direction.FALLING else rule.step
        again = f"passes {to_text(add(one.passed, step))}, the next step"
    return (
        f"{one.counter} is at {to_text(one.value)}, and rule {rule.name} has not alerted: it was "
        f"past {passed} before {_effective(rule)}, when the rule becomes effective. It alerts when "
        f"the total {again}"
    )


def _explain_windows(client: CountLedger, rule: Rule, per: Per) -> None:
    """Of each counter: whether its current window had passed the threshold."""
    page = _watched(client, rule, _WITH_WINDOWS_MAX)
    reasons = (_reason_of_window(client, rule, per, name) for name in sorted(page.names))
    _say(rule, page, [one for one in reasons if one is not None])


def _reason_of_window(client: CountLedger, rule: Rule, per: Per, counter: str) -> str | None:
    now_ms = client.connection.clock.now_ms()
    since, until = to_datetime(now_ms - 1), to_datetime(now_ms)
    try:
        current = client.windows(counter, str(per), since=since, until=until)[-1]
    except (NoWindows, BadSetting):
        return None  # a prefix may reach into a namespace without windows of this kind
    reader = SilenceReader(client.connection)
    if not is_past(rule, current.value) or reader.is_logged(rule, counter, current.name):
        return None
    return (
        f"{counter} is at {to_text(current.value)} in {per} {current.name}, and rule {rule.name} "
        f"has not alerted: it was past {to_text(rule.threshold)} before {_effective(rule)}, when "
        "the rule becomes effective. The next window can alert"
    )


def _effective(rule: Rule) -> str:
    return f"{to_datetime(rule.effective_from_ms):%Y-%m-%d %H:%M:%S}Z"


# `countledger alert create|set|list|show|apply|resend`: what alerts, and where to.


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
    call = Call(options.client())
    found = rules_of(call)
    code = show_views(options, map(RuleView.of_rule, found), None, Unread(call.unread))
    for each in found:
        if each.counter is not None:
            explain_silence(call.ledger, each)
    return code


@shared
def show_one(options: Options, name: Name) -> None:
    """Show a rule in its newest revision.

    Where a counter had crossed before the rule became effective, it says why there is no alert. Of
    a rule with a prefix it looks at up to 1,000 counters for that: their search reads the keys of
    the table `counters`, in up to 20 requests.
    """
    client = options.client()
    found = client.alerts.get(name)
    shown = RuleView.of_rule(found)
    show(options, [shown.row()], shown.document())
    explain_silence(client, found)


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
    done = [
        (change, RuleView.of_rule(rule)) for rule, change in options.client().alerts.apply(specs)
    ]
    rows = [{"change": change, **one.row()} for change, one in done]
    show(options, rows, [{"change": change, **one.document()} for change, one in done])


def _at(options: Options, evaluate_in: str | None) -> Options:
    return options if evaluate_in is None else replace(options, region=evaluate_in)


def _show_changed(options: Options, client: CountLedger, rule: Rule, *, now: bool) -> None:
    """Show a rule that was written, and the alerts that were published at once."""
    extra = {"published now": client.alerts.initial_scan(rule)} if now else {}
    document = {name.replace(" ", "_"): count for name, count in extra.items()}
    shown = RuleView.of_rule(rule)
    show(options, [{**shown.row(), **extra}], {**shown.document(), **document})
    explain_silence(client, rule)


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
    show_views(options, map(ResentView.of, found), None, Unread())
    if failed:
        notice(f"{failed} were refused again and stay in the queue")
    return FINDINGS if failed else 0


app = commands_of(ALERTS)
app.command("create", cls=TargetCommand)(create)
app.command("set", cls=TargetCommand)(set_rule)
app.command("list")(list_all)
app.command("show")(show_one)
app.command("apply")(apply)
app.command("resend")(resend)
in_order(app, "create set list show delete apply test log resend")
