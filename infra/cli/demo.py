"""`countledger demo`: the main job on a real repository, on an engine of its own."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.engine import require_engine
from countledger.infra.cli.output import FINDINGS, open_progress, show_json, show_rows, show_text
from countledger.infra.demo import DemoRun, Report, open_repository, problems

if TYPE_CHECKING:
    from countledger.infra.cli.output import Bars
    from countledger.infra.local.stack import LocalStack

_REGIONS: Final = ("us-east-1", "eu-west-1", "ap-northeast-1", "eu-central-1", "us-west-2")
# A list in the summary has so many rows; `--json` has all.
_ROWS: Final = 20
_SECONDS: Final = "_seconds"


@shared
def demo(
    options: Options,
    *,
    repo: Annotated[Path, typer.Option(help="A git repository.")] = Path(),
    via: Annotated[
        Literal["dynamodb", "kinesis"], typer.Option(help="How events reach the ledger.")
    ] = "dynamodb",
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="Sum up events of one counter before they are sent.")
    ] = False,
    regions: Annotated[int, typer.Option(min=1, max=5, help="Count in so many regions.")] = 1,
) -> int:
    """Count a git repository, and check every total against git.

    Each commit along the first parent adds 1 to commits:<author>, and to lines:<path> the lines
    that it added minus those it removed, for every text file that it touched. Every tenth event
    is sent twice, as a retry would be. Each total, each day of the busiest counters, and each alert
    of a file that passes 1,000 lines must be right; else the exit code is 1.

    The demo starts AWS on this machine for itself and stops it again, whatever the environment
    says. To use a running stack (of countledger up, or on AWS), name it: --stack-name,
    --endpoint-url, --profile or --region.

    With --coalesce, events of one counter share an entry, and have no keys: a second run on the
    same stack counts once more. With --regions, one of them is cut off midway.

    Examples:
      countledger demo
      countledger demo --repo ~/src/project --json
      countledger demo --via kinesis
      countledger demo --coalesce
      countledger demo --regions 3
      countledger demo --stack-name countledger               [dim]where countledger up runs[/dim]
    """
    kinesis, begun_s = via == "kinesis", time.monotonic()
    if coalesce and kinesis:
        raise BadUsage("--coalesce writes straight into DynamoDB: leave out --via kinesis")
    if regions > 1 and (options.names_a_stack or coalesce or kinesis):
        raise BadUsage("--regions runs on a stack of its own, and sends into DynamoDB directly")
    # What can be refused is refused before an engine is started for it.
    with (
        open_repository(repo) as history,
        open_progress() as bars,
        nullcontext() if options.names_a_stack else _own_stack(bars, regions, via) as stack,
    ):
        commits, materialized = bars.add("commits", len(history.commits)), bars.add("materialized")

        def on_progress(read: int, recorded: int, done: int) -> None:
            commits.set(read)
            materialized.set(done, max(recorded, done))

        clients = [one.ledger() for one in stack.stacks.values()] if stack else [options.client()]
        report = DemoRun(clients, history, stack, kinesis, coalesce, on_progress).report()
    report["run_time_seconds"] = round(time.monotonic() - begun_s, 3)
    found = problems(report)
    if options.json:
        show_json({**report, "good": not found})
    else:
        _show(report, found)
    return FINDINGS if found else 0


def _own_stack(bars: Bars, regions: int, via: str) -> LocalStack:
    require_engine()
    from countledger.infra.local.stack import LocalStack  # noqa: PLC0415 - it is an extra

    bars.say(f"Starting AWS {f'in {regions} regions ' if regions > 1 else ''}on this machine ...")
    parameters = {"IngestStream": "provisioned"} if via == "kinesis" else None
    return LocalStack(parameters=parameters, regions=_REGIONS[:regions])


def _show(report: Report, found: list[str]) -> None:
    """Print the summary for people: the facts of the run, the rows of each list, the verdict."""
    show_rows(
        {"fact": name.removesuffix(_SECONDS).replace("_", " "), "value": _text(name, value)}
        for name, value in report.items()
        if value is not None
    )
    for name, rows in report.items():
        if isinstance(rows, list) and isinstance(next(iter(rows), None), dict):
            show_text("\n" + name.replace("_", " "))
            show_rows(rows[:_ROWS])
            if len(rows) > _ROWS:
                show_text(f"and {len(rows) - _ROWS} more: --json has them all")
    verdict = (
        f"Every number of {report['counters_checked']:,} counters is what git says; no retry "
        "counted twice. Every alert was due, and no alert is missing."
    )
    show_text("\n" + (f"WRONG: {'; '.join(found)}." if found else verdict))


def _text(name: str, value: object) -> str:
    """The value of a fact: a list by its texts, one of rows by their number."""
    if isinstance(value, list):
        return ", ".join(one for one in value if isinstance(one, str)) or f"{len(value):,}"
    if isinstance(value, float):
        return f"{value:,.1f} s" if name.endswith(_SECONDS) else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
