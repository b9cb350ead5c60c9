"""The report of a run for a person: what was done, whether it is right, how fast, at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.text import Text

from countledger.infra.demo.long_files import THRESHOLD
from countledger.ledger.amount import to_text

if TYPE_CHECKING:
    from countledger.infra.demo.report import Report

# A line each; beyond that a person wants `--json`.
_NAMED_WRONG: Final = 50
_NAMED_ALERTS: Final = 12


def print_summary(report: Report, *, own_engine: bool) -> None:
    """Print the report on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Group(_facts(report), _largest(report), _alerts(report), _verdict(report)))
    for wrong in report.wrong[:_NAMED_WRONG]:
        console.print(
            f"  wrong: {wrong.counter} is {wrong.total}, git says {wrong.truth} "
            f"(emitted: {wrong.emitted})",
            markup=False,
        )
    if len(report.wrong) > _NAMED_WRONG:
        console.print(f"  and {len(report.wrong) - _NAMED_WRONG} more: --json names them all")
    if report.wrong and not own_engine:
        console.print("This stack may hold the counts of another repository already.")


def _facts(report: Report) -> Text:
    shallow = ", a shallow clone: counted from its boundary" if report.shallow else ""
    text = Text()
    for name, value in (
        ("repository", f"{report.repo} at {report.head[:12]}{shallow}"),
        ("commits", f"{report.commits:,}"),
        ("events", _events(report)),
        ("resent", f"{report.resent:,} under their {'keys' if report.entries is None else 'ids'}"),
        ("duplicates", _duplicates(report)),
        ("counters", f"{report.counters:,} checked against git"),
        ("wrong totals", f"{len(report.wrong):,}"),
        ("emitted", f"{report.emit_events_per_second:,.0f} events/s"),
        ("materialized", f"{report.end_to_end_events_per_second:,.0f} events/s, end to end"),
        ("lag of totals", f"{report.lag_p50_s:.1f} s median, {report.lag_max_s:.1f} s at most"),
        ("alerts", _alerts_said(report)),
        ("write units", _cost(report)),
        ("time", f"{report.seconds:.1f} s all in"),
    ):
        text.append(f"{name:<14}", style="bold").append(f"{value}\n")
    return text


def _events(report: Report) -> str:
    if report.entries is None:
        return f"{report.events:,}"
    return f"{report.events:,}, coalesced into {report.entries:,} entries"


def _duplicates(report: Report) -> str:
    if report.duplicates is None:
        return "told by the ingest's metrics; the totals show that none counted"
    return f"{report.duplicates:,} recognised"


def _cost(report: Report) -> str:
    if report.duplicates is None:
        materializer = report.materializer_write_units / report.events
        return f"{materializer:.2f} per event by the materializer, and the ingest's: 1 per sending"
    producer = report.producer_write_units / report.events
    materializer = report.materializer_write_units / report.events
    return (
        f"{report.write_units_per_event:.2f} per event: {producer:.2f} producer (resends "
        f"included), {materializer:.2f} materializer"
    )


def _largest(report: Report) -> Text:
    text = Text("largest counters\n", style="bold")
    for counter, total in report.largest.items():
        text.append(f"{total:>12,}  {counter}\n", style="not bold")
    return text


def _alerts_said(report: Report) -> str:
    found = report.alerts
    said = f"{len(found.alerts):,} of files that passed {THRESHOLD:,} lines"
    if found.latency_p50_s is None or found.latency_max_s is None:
        return said
    return (
        f"{said}, {found.latency_p50_s:.1f} s after the event (median), "
        f"{found.latency_max_s:.1f} s at most"
    )


def _alerts(report: Report) -> Text:
    """The alerts of the run, the newest last."""
    alerts = report.alerts.alerts
    if not alerts:
        return Text(end="")
    text = Text("alerts, each found in the totals' own history\n", style="bold")
    for alert in alerts[-_NAMED_ALERTS:]:
        said = f"{to_text(alert.old):>6} to {to_text(alert.new):>6}  {alert.counter}\n"
        text.append(said, style="not bold")
    if len(alerts) > _NAMED_ALERTS:
        text.append(f"  and {len(alerts) - _NAMED_ALERTS} before: --json names them all\n")
    return text


def _verdict(report: Report) -> Text:
    if report.good:
        said = f"Every one of {report.counters:,} totals is what git says; no retry counted twice."
        said += " Every alert was due, and every one that was due was told."
        return Text(said, style="bold green")
    reasons = []
    if report.wrong:
        reasons.append(f"{len(report.wrong):,} totals are not what git says")
    if report.missing:
        reasons.append(f"{report.missing:,} events did not reach their totals")
    alerts = report.alerts
    if not alerts.good:
        reasons.append(
            f"{len(alerts.missing):,} alerts are missing, {len(alerts.unexpected):,} should not be "
            f"there, {len(alerts.silent):,} long files never alerted"
        )
    if report.unrecognised:
        known = report.resent - report.unrecognised
        reasons.append(f"only {known:,} of {report.resent:,} retries were recognised")
    return Text(f"WRONG: {'; '.join(reasons)}.", style="bold red")
