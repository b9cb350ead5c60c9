"""`countledger compact`: merge old entries here and now, as the worker of a schedule would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from countledger import CountLedger, Kind
from countledger.compaction.due import DueIndex
from countledger.compaction.report import CompactionPlan, RunOutcome
from countledger.infra.cli.app import BadUsage, CounterNames, Options, shared
from countledger.infra.cli.output import FINDINGS, Unread, facts, notice, open_progress, show_report
from countledger.ledger import keys
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadInput, CorruptItem, WrongKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.compaction.report import CompactionReport, CompactionStep
    from countledger.compaction.worker import Worker
    from countledger.infra.cli.output import Row

_SUMS: Final = ("merged", "write_units", "read_units")
_REPORT: Final = "counter outcome merged generations write_units read_units detail"
_BAD: Final = frozenset({RunOutcome.TAMPERED, RunOutcome.FAILED})


@shared
def compact(
    options: Options,
    counters: CounterNames = None,
    *,
    due: Annotated[
        bool, typer.Option("--due", help="Compact the counters that are due by their schedules.")
    ] = False,
    namespace: Annotated[
        str | None,
        typer.Option(help="All counters of a namespace; with --due those of them that are due."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be merged and at what cost; write nothing."
        ),
    ] = False,
    archive_as_found: Annotated[
        bool,
        typer.Option(
            "--archive-as-found",
            help="Of counters by name: archive merged entries as they are now, although some were "
            "deleted or changed by hand before they were archived.",
        ),
    ] = False,
) -> int:
    """Merge old entries of counters into one item each. No sum and no total changes.

    Entries are merged when they are so old that no retry of them can arrive any more. The command
    can be interrupted at any moment and can run beside the workers of a schedule: the next run
    continues.

    "merged": all that was old enough; "nothing" was; "waiting": another region has not caught up;
    "overtaken" by another run; "tampered": a merged entry was changed by hand, and a person has to
    decide; "failed". The exit code is 1 if a counter was tampered with or failed, or with --due the
    schedule of a namespace cannot be read.

    Examples:
      countledger compact likes:post-1 --dry-run
      countledger compact likes:post-1 likes:post-2
      countledger compact --namespace likes
      countledger compact --due --json
      countledger compact likes:post-1 --archive-as-found
    """
    if bool(counters) == (due or namespace is not None):
        raise BadUsage("give counters, --due, or --namespace NAMESPACE")
    if archive_as_found and not counters:
        raise BadUsage("--archive-as-found is for counters that you name: look at each of them")
    client = options.client()
    worker, unread = client.compactor(archive_as_found=archive_as_found), Unread()
    chosen = _named(client, counters) if counters else _found(client, namespace, unread, due=due)
    shown = _show_plans if dry_run else _show_reports
    code = shown(options, worker, chosen)
    return max(code, unread.report())


def _named(client: CountLedger, counters: list[str]) -> list[str]:
    """The counters, if all of them can be compacted: else nothing is begun."""
    for counter in counters:
        client.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
    return list(dict.fromkeys(counters))


def _found(
    client: CountLedger, namespace: str | None, unread: Unread, *, due: bool
) -> Iterator[str]:
    """The counters of a namespace, or those that are due, in one or in all."""
    if namespace is None:
        for schedule in client.schedules.list(on_corrupt=unread.note):
            yield from client.due(schedule.namespace)
        return
    namespace = keys.check_namespace(namespace)
    kind = client.namespaces.get(namespace).kind
    if kind is not Kind.LEDGER:
        raise WrongKind(f"namespace {namespace!r} is of kind {kind}; it has no entries to compact")
    if due:
        yield from client.due(namespace)
        return
    yield from DueIndex(client.connection).all_of(namespace)


def _show_reports(options: Options, worker: Worker, counters: Iterable[str]) -> int:
    """Compact one after the other and print what became of each; the exit code."""
    reports: list[CompactionReport] = []

    def rows() -> Iterator[Row]:
        with open_progress() as progress:
            done, merged = progress.add("counters"), progress.add("entries")

            def on_step(step: CompactionStep) -> None:
                merged.set(sum(one.merged for one in reports) + step.merged)

            for counter in counters:
                reports.append(worker.compact(counter, on_step=on_step))
                done.advance()
                merged.set(sum(one.merged for one in reports))
                yield facts(reports[-1], _REPORT)

    def summary() -> tuple[Row, str]:
        sums = {name: sum(getattr(one, name) for one in reports) for name in _SUMS}
        text = (
            f"counters: {len(reports)}; entries merged: {sums['merged']}, for "
            f"{sums['write_units']:g} write units and {sums['read_units']:g} read units"
        )
        return {**sums, "findings": findings()}, text

    def findings() -> int:
        return sum(1 for one in reports if one.outcome in _BAD)

    show_report(options, rows(), summary)
    if any(one.outcome is RunOutcome.NOTHING for one in reports):
        notice("--dry-run shows how old entries must be to be merged")
    return FINDINGS if findings() else 0


def _show_plans(options: Options, worker: Worker, counters: Iterable[str]) -> int:
    """Print what would be done; nothing is written. The exit code."""
    plans: list[CompactionPlan] = []
    unplanned: list[str] = []

    def rows() -> Iterator[Row]:
        with open_progress() as progress:
            done = progress.add("counters")
            for counter in counters:
                try:
                    plans.append(worker.plan(counter))
                    yield {**_plan_row(plans[-1]), "detail": _why_none(plans[-1])}
                except (CorruptItem, BadInput) as error:
                    # One counter's trouble is no other's.
                    unplanned.append(counter)
                    yield {
                        **_plan_row(CompactionPlan(counter, 0, None, None, 0)),
                        "detail": str(error),
                    }
                done.advance()

    def summary() -> tuple[Row, str]:
        entries = sum(plan.entries for plan in plans)
        units = sum(plan.write_units for plan in plans)
        text = f"counters: {len(plans)}; to merge: {entries}, for about {units:g} write units"
        return {"entries": entries, "write_units": units, "findings": len(unplanned)}, text

    show_report(options, rows(), summary)
    return FINDINGS if unplanned else 0


def _why_none(plan: CompactionPlan) -> str:
    if plan.entries or plan.age_ms is None:
        return ""
    return f"no entry is older than {show_duration(plan.age_ms)}: none can be merged yet"


def _plan_row(plan: CompactionPlan) -> Row:
    return {
        **facts(plan, "counter entries"),
        "oldest_at": plan.oldest_at_ms and to_datetime(plan.oldest_at_ms),
        "newest_at": plan.newest_at_ms and to_datetime(plan.newest_at_ms),
        "write_units": plan.write_units,
    }
