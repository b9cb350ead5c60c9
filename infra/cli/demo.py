"""`countledger demo`: the main job on a real repository, on an engine of its own."""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

import countledger
from countledger import CountLedger, Settings
from countledger.infra.cli.engine import require_engine
from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, show_json
from countledger.infra.cli.progress import open_progress
from countledger.infra.demo.checks import Report, problems
from countledger.infra.demo.history import GitUnusable, open_repository
from countledger.infra.demo.run import DemoRun
from countledger.ledger.amount import to_text
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.alerts.alert import Alert
    from countledger.infra.cli.progress import Bars
    from countledger.infra.local.stack import LocalStack

    # Of a report, for people: facts, lines after them, and the verdict.
    Summary: TypeAlias = tuple[dict[str, str], list[str], str]

_REGIONS: Final = ("us-east-1", "eu-west-1", "ap-northeast-1", "eu-central-1", "us-west-2")
# The summary names so many; `--json` names all.
_NAMED_WRONG: Final = 50
_NAMED_ALERTS: Final = 12


class Via(StrEnum):
    """How events reach the ledger."""

    DYNAMODB = "dynamodb"
    KINESIS = "kinesis"


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
    if regions > 1 and (options.names_a_stack or coalesce or via is Via.KINESIS):
        raise BadUsage("--regions runs on a stack of its own, and sends into DynamoDB directly")
    report, shown = _counted(options, repo or _own_repository(), via, regions, coalesce=coalesce)
    if options.json:
        show_json(report)
    else:
        _print(*shown, good=report["good"])
    return 0 if report["good"] else FINDINGS


def _counted(
    options: Options, repo: Path, via: Via, regions: int, *, coalesce: bool
) -> tuple[Report, Summary]:
    """The report of a run, for programs and for people."""
    started_s, fresh = SystemClock().now_ms() / SECOND_MS, not options.names_a_stack
    # What can be refused is refused before an engine is started for it.
    with (
        open_repository(repo) as view,
        open_progress() as progress,
        _own_stack(progress, via, regions) if fresh else nullcontext() as stack,
    ):
        commits = progress.add("commits", len(view.commits))
        if stack is not None and regions > 1:
            from countledger.infra.cli.demo_regions import RegionsRun, summary_of_regions  # noqa: PLC0415 - an extra

            report = RegionsRun(stack, view, commits.set).report(started_s)
            return report, summary_of_regions(report)
        materialized = progress.add("materialized")

        def on_progress(read: int, recorded: int, done: int) -> None:
            commits.set(read)
            materialized.set(done, max(recorded, done))

        client = options.client() if stack is None else _client_of(stack)
        drain = (lambda: None) if stack is None else stack.drain
        kinesis = via is Via.KINESIS
        run = DemoRun(client, view, SystemClock(), on_progress, kinesis, coalesce, drain, fresh)
        report = run.report(started_s)
        return report, summary(report, run.long_files.alerts, own_engine=fresh)


def _print(facts: Mapping[str, str], details: Sequence[str], verdict: str, *, good: bool) -> None:
    text = Text()
    for name, value in facts.items():
        text.append(f"{name:<14}", style="bold").append(f"{value}\n")
    text.append("\n".join([*details, ""]))
    text.append(verdict, style="bold green" if good else "bold red")
    Console(highlight=False, soft_wrap=True).print(text)


def _own_stack(progress: Bars, via: Via, regions: int) -> LocalStack:
    """A stack on this machine, for this run alone."""
    require_engine()
    from countledger.infra.local.stack import LocalStack  # noqa: PLC0415 - it is an extra

    progress.say(
        f"Starting AWS {f'in {regions} regions ' if regions > 1 else ''}on this machine ..."
    )
    parameters = {"IngestStream": "provisioned"} if via is Via.KINESIS else None
    return LocalStack(parameters=parameters, regions=_REGIONS[:regions])


def _client_of(stack: LocalStack) -> CountLedger:
    settings = Settings.of_stack(stack.name)
    return CountLedger(settings, session=stack.session(), endpoint_url=stack.url)


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


def summary(report: Report, alerts: Sequence[Alert], *, own_engine: bool) -> Summary:
    """The report for people."""
    wrong, days = report["wrong_totals"], report["wrong_days"][:_NAMED_WRONG]
    details = ["", "largest counters"]
    details += [f"{total:>12,}  {counter}" for counter, total in report["largest"].items()]
    if alerts:
        details += ["", "alerts, each found in the totals' own history"]
    details += [
        f"{to_text(one.old):>6} to {to_text(one.new):>6}  {one.counter}"
        for one in alerts[-_NAMED_ALERTS:]
    ]
    if len(alerts) > _NAMED_ALERTS:
        details.append(f"  and {len(alerts) - _NAMED_ALERTS} earlier: --json names them all")
    line = "  wrong: {counter} is {total}, git says {truth} (emitted: {emitted})"
    details += [f"  wrong: {day}" for day in days]
    details += [line.format(**one) for one in wrong[:_NAMED_WRONG]]
    if len(wrong) > _NAMED_WRONG:
        details.append(f"  and {len(wrong) - _NAMED_WRONG} more: --json names them all")
    if wrong and not own_engine:
        details.append("This stack may hold the counts of another repository already.")
    verdict = (
        f"Every one of {report['counters']:,} totals is what git says; no retry counted twice. "
        "Every alert was due, and no alert is missing."
    )
    if found := problems(report):
        verdict = f"WRONG: {'; '.join(found)}."
    return _facts(report), details, verdict


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
