"""`countledger demo`: the main job on a real repository, on an engine of its own."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group
from rich.text import Text

import countledger
from countledger import CountLedger, Settings
from countledger.infra.cli.engine import require_engine
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, show_json
from countledger.infra.cli.progress import Bars, open_progress
from countledger.infra.demo.checks import Report, problems
from countledger.infra.demo.history import GitUnusable, count_commits, open_repository
from countledger.infra.demo.run import DemoRun, Via
from countledger.ledger.amount import to_text
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.consumers.alerts.alert import Alert

# The summary names so many; `--json` names all.
_NAMED_WRONG: Final = 50
_NAMED_ALERTS: Final = 12


@shared
def demo(
    options: Options,
    *,
    repo: Annotated[
        Path | None, typer.Option(help="A git repository. [dim]Default: countledger's own[/dim]")
    ] = None,
    via: Annotated[Via, typer.Option(help="How events reach the ledger.")] = Via.DYNAMODB,
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="Sum up events of one counter before they are sent.")
    ] = False,
    regions: Annotated[int, typer.Option(min=1, max=5, help="Count in so many regions.")] = 1,
) -> int:
    """Count a git repository, and check every total against git.

    Each commit along the first parent adds 1 to commits:<author>, and to lines:<path> the lines
    that it added minus those it removed, for every text file that it touched. Every tenth event
    is sent twice, as a retry would be. Each total, and each day of the largest, must be git's own.

    A rule, demo-long-files, alerts when a file passes 1,000 lines. The alerts must be those that a
    reading of the stream of totals finds, no more and no less.

    The demo starts AWS on this machine for itself and stops it again, whatever the environment
    says. To use a running stack (of countledger up, or on AWS), name it: --stack-name,
    --endpoint-url, --profile or --region.

    With --coalesce, events of one counter share an entry, which has their sum and their number.
    They have no keys then: the entry of every tenth event is sent twice, and a second run on the
    same stack counts once more.
    With --regions, commits are counted in several regions, and midway one of them is cut off. At
    the end every total and every exact sum in every region is checked.

    In a counter's name, a byte that counter names may not hold is written as %XX and % as %25; a
    name that is too long is cut and ends in %~ and its SHA-256. The exit code is 0 only if no
    number and no alert is wrong.

    Examples:
      countledger demo
      countledger demo --repo ~/src/project --json
      countledger demo --via kinesis
      countledger demo --coalesce
      countledger demo --regions 3
      countledger demo --stack-name countledger               [dim]where countledger up runs[/dim]
    """
    if coalesce and via is Via.KINESIS:
        raise BadUsage("--coalesce writes straight into DynamoDB: leave out --via kinesis")
    if regions > 1:
        return _over_regions(options, repo, regions, plain=not coalesce and via is Via.DYNAMODB)
    clock = SystemClock()
    started_s = clock.now_ms() / SECOND_MS
    # What can be refused is refused before an engine is started for it.
    with (
        open_repository(repo if repo is not None else _own_repository()) as view,
        open_progress() as progress,
        _stack(options, progress, via) as (client, drain),
    ):
        commits = progress.add("commits", count_commits(view))
        materialized = progress.add("materialized")

        def on_progress(read: int, recorded: int, done: int) -> None:
            commits.set(read)
            materialized.set(done, max(recorded, done))

        own_engine = not options.names_a_stack
        run = DemoRun(client, view, clock, on_progress, via, coalesce, drain, fresh=own_engine)
        report = run.report(started_s)
    if options.json:
        show_json(report)
    else:
        print_summary(report, run.alerts.alerts, own_engine=own_engine)
    return 0 if report["good"] else FINDINGS


def _over_regions(options: Options, repo: Path | None, count: int, *, plain: bool) -> int:
    """The demo in several regions of an engine of its own; the exit code."""
    if options.names_a_stack or not plain:
        raise BadUsage("--regions runs on a stack of its own, and sends into DynamoDB directly")
    require_engine()
    from countledger.infra.cli.demo_regions import REGIONS, RegionsRun, summary  # noqa: PLC0415 - an extra
    from countledger.infra.local.stack import LocalStack  # noqa: PLC0415 - as above

    started_s = SystemClock().now_ms() / SECOND_MS
    with (
        open_repository(repo if repo is not None else _own_repository()) as view,
        open_progress() as progress,
    ):
        progress.say(f"Starting AWS in {count} regions on this machine ...")
        with LocalStack(regions=REGIONS[:count]) as stack:
            commits = progress.add("commits", count_commits(view))
            report = RegionsRun(stack, view, commits.set).report(started_s)
    if options.json:
        show_json(report)
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print("\n".join(summary(report)), markup=False)
    return 0 if report["good"] else FINDINGS


def _own_repository() -> Path:
    """The checkout that this package runs from, never a repository around an installed package.

    Raises:
        GitUnusable: it was installed from a wheel, or its checkout has no history.
    """
    root = Path(countledger.__file__).resolve().parent.parent
    if (root / ".git").exists() and (root / "pyproject.toml").is_file():
        return root
    raise GitUnusable(
        f"countledger runs from {root}, which is not a git checkout of countledger: "
        "name a repository to count with --repo PATH"
    )


@contextmanager
def _stack(
    options: Options, progress: Bars, via: Via
) -> Iterator[tuple[CountLedger, Callable[[], None]]]:
    """A client of the stack to count on: the one that the options name, or one of our own.

    The second value returns once nothing is on its way, which is known of our own stack alone.
    """
    if options.names_a_stack:
        yield options.client(), lambda: None
        return
    require_engine()
    from countledger.infra.local.stack import LocalStack  # noqa: PLC0415 - it is an extra

    progress.say("Starting AWS on this machine ...")
    parameters = {"IngestStream": "provisioned"} if via is Via.KINESIS else None
    with LocalStack(parameters=parameters) as stack:
        # All names are given, so that none is taken from the user's environment.
        outputs = stack.outputs
        settings = Settings(
            stack_name=stack.name,
            ledger_table=outputs["LedgerTableName"],
            counters_table=outputs["CountersTableName"],
            ledger_stream_arn=outputs["LedgerStreamArn"],
            quarantine_queue_url=outputs["QuarantineQueueUrl"],
            home_region=outputs["HomeRegion"],
            counters_stream_arn=outputs["CountersStreamArn"],
            alert_bus=outputs["AlertBusName"],
            alert_topic_arns=outputs["AlertTopicArns"],
            ingest_stream_arn=outputs.get("IngestStreamArn"),
        )
        yield CountLedger(settings, session=stack.session(), endpoint_url=stack.url), stack.drain


def print_summary(report: Report, alerts: Sequence[Alert], *, own_engine: bool) -> None:
    """Print the report on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    text = Text()
    for name, value in _facts(report).items():
        text.append(f"{name:<14}", style="bold").append(f"{value}\n")
    text.append("\nlargest counters\n", style="bold")
    for counter, total in report["largest"].items():
        text.append(f"{total:>12,}  {counter}\n")
    if alerts:
        text.append("\nalerts, each found in the totals' own history\n", style="bold")
    for alert in alerts[-_NAMED_ALERTS:]:
        text.append(f"{to_text(alert.old):>6} to {to_text(alert.new):>6}  {alert.counter}\n")
    if len(alerts) > _NAMED_ALERTS:
        text.append(f"  and {len(alerts) - _NAMED_ALERTS} earlier: --json names them all\n")
    console.print(Group(text, _verdict(report)))
    for line in report["wrong_days"][:_NAMED_WRONG]:
        console.print(f"  wrong: {line}", markup=False)
    wrong = report["wrong_totals"]
    for one in wrong[:_NAMED_WRONG]:
        line = "  wrong: {counter} is {total}, git says {truth} (emitted: {emitted})"
        console.print(line.format(**one), markup=False)
    if len(wrong) > _NAMED_WRONG:
        console.print(f"  and {len(wrong) - _NAMED_WRONG} more: --json names them all")
    if wrong and not own_engine:
        console.print("This stack may hold the counts of another repository already.")


def _facts(report: Report) -> dict[str, str]:
    coalesced, from_stream = report["entries"] is not None, report["duplicates"] is None
    producer = report["producer_write_units_per_event"]
    materializer = report["materializer_write_units_per_event"]
    cost = (
        f"{producer + materializer:.2f} per event: {producer:.2f} producer (resends included), "
        f"{materializer:.2f} materializer"
    )
    if from_stream:
        cost = f"{materializer:.2f} per event by the materializer, and the ingest's: 1 per sending"
    alerts = f"{report['alerts']:,} of files that passed 1,000 lines"
    if report["alert_p50_seconds"] is not None:
        alerts += f", {report['alert_p50_seconds']:.1f} s after the event (median)"
        alerts += f", {report['alert_max_seconds']:.1f} s at most"
    shallow = ", a shallow clone: counted from its boundary" if report["shallow"] else ""
    entries = f", coalesced into {report['entries']:,} entries" if coalesced else ""
    return {
        "repository": f"{report['repo']} at {report['head'][:12]}{shallow}",
        "commits": f"{report['commits']:,}",
        "events": f"{report['events']:,}{entries}",
        "resent": f"{report['resent']:,} under their {'ids' if coalesced else 'keys'}",
        "duplicates": "see the ingest's metrics; the totals show that none counted"
        if from_stream
        else f"{report['duplicates']:,} recognised",
        "counters": f"{report['counters']:,} checked against git",
        "days": f"{report['days']:,} of the largest checked against git's log",
        "wrong totals": f"{report['wrong']:,}",
        "emitted": f"{report['emit_events_per_second']:,.0f} events/s",
        "materialized": f"{report['end_to_end_events_per_second']:,.0f} events/s, end to end",
        "lag of totals": f"{report['lag_p50_seconds']:.1f} s median, "
        f"{report['lag_max_seconds']:.1f} s at most",
        "alerts": alerts,
        "write units": cost,
        "time": f"{report['seconds']:.1f} s in all",
    }


def _verdict(report: Report) -> Text:
    if wrong := problems(report):
        return Text(f"WRONG: {'; '.join(wrong)}.", style="bold red")
    right = f"Every one of {report['counters']:,} totals is what git says; no retry counted twice."
    return Text(f"{right} Every alert was due, and no alert is missing.", style="bold green")
