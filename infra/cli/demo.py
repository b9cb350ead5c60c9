"""`countledger demo`: the main job on a real repository, on an engine of its own."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - Typer reads it
from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger import CountLedger, Settings
from countledger.infra.cli.engine import require_engine
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import show_json
from countledger.infra.cli.progress import Bars, open_progress
from countledger.infra.cli.usage import BadUsage
from countledger.infra.demo.checkout import own_repository
from countledger.infra.demo.git import open_repository
from countledger.infra.demo.job import Job, Stage
from countledger.infra.demo.summary import print_summary
from countledger.infra.demo.ways import COALESCED, WAYS, Via
from countledger.ledger.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FINDINGS: Final = 1


@shared
def demo(
    options: Options,
    *,
    repo: Annotated[
        Path | None,
        typer.Option(help="A git repository. [dim]Else countledger's own[/dim]"),
    ] = None,
    via: Annotated[
        Via, typer.Option(help="How events go in: straight into DynamoDB, or through Kinesis.")
    ] = Via.DYNAMODB,
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="Sum up events of one counter before they go in.")
    ] = False,
) -> int:
    """Count a git repository, and check every total against git.

    Each commit along the first parent adds 1 to commits:<author>, and to lines:<path> the lines
    that it added minus those it removed, for every text file that it touched. Every tenth event
    is sent twice, as a retry would be. In the end each total must be what git itself says.

    A rule, demo-long-files, alerts when a file passes 1,000 lines. The alerts must be those that a
    reading of the stream of totals finds, no more and no less.

    It starts AWS on this machine for itself, and ends it again; the environment does not change
    that. To use a running stack (of countledger up, or on AWS), say so here: --stack-name,
    --endpoint-url, --profile or --region.

    With --coalesce, events of one counter go in as one entry, with their sum and their number. They
    have no keys then: what is sent twice is the entry of every tenth event, and a second run on the
    same stack counts once more.

    In a counter's name, a byte that counter names may not hold stands as %XX and % as %25; a name
    that is too long is cut and ends in %~ and its SHA-256.

    The exit code is 0 only if no total and no alert is wrong.

    Examples:
      countledger demo
      countledger demo --repo ~/src/project --json
      countledger demo --via kinesis
      countledger demo --coalesce
      countledger demo --stack-name countledger               [dim]where countledger up runs[/dim]
    """
    if coalesce and via is Via.KINESIS:
        raise BadUsage("--coalesce goes straight into DynamoDB: leave out --via kinesis")
    way = COALESCED if coalesce else WAYS[via]
    clock = SystemClock()
    started_s = clock.now_ms() / 1_000
    # What can be refused is refused before an engine is started for it.
    with (
        open_repository(repo if repo is not None else own_repository()) as view,
        open_progress() as progress,
        _stack(options, progress, via) as (client, settle),
    ):
        fresh = not options.names_a_stack
        job = Job(
            client,
            view,
            clock=clock,
            on_stage=_bars(progress),
            way=way,
            settle=settle,
            fresh=fresh,
        )
        report = job.run(started_s)
    if options.json:
        show_json(report.document())
    else:
        print_summary(report, own_engine=not options.names_a_stack)
    return 0 if report.good else FINDINGS


@contextmanager
def _stack(
    options: Options, progress: Bars, via: Via
) -> Iterator[tuple[CountLedger, Callable[[], None]]]:
    """A client of the stack to count on: the one that the options name, or one of our own.

    With it comes what returns once nothing is on its way; only of our own stack this is known.
    """
    if options.names_a_stack:
        yield options.client(), lambda: None
        return
    require_engine()
    from countledger.infra.local_stack import LocalStack  # noqa: PLC0415 - it is an extra

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


def _bars(progress: Bars) -> Callable[[Stage], None]:
    """Two lines of progress: events emitted (out of a guess by commits), and materialized."""
    emitted, materialized = progress.add("emitted"), progress.add("materialized")

    def on_stage(stage: Stage) -> None:
        share = stage.commits / stage.commits_in_all
        expected = max(round(stage.emitted / share), stage.emitted) if share else None
        emitted.set(stage.emitted, stage.emitted if share == 1 else expected)
        materialized.set(stage.materialized, max(stage.recorded, stage.materialized))

    return on_stage
