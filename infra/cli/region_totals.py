"""`countledger total --regions`: each region's total, and the one that counted the most entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.infra.cli.output import FINDINGS, facts, notice, show_json, show_rows, shown_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger import RegionAnswer, TotalOverRegions
    from countledger.infra.cli.app import Options
    from countledger.infra.cli.output import Row


def show_over_regions(options: Options, counters: list[str]) -> int:
    """Print the totals of counters over the regions of a stack; the exit code."""
    found = options.client().totals(counters, regions=True)
    first = next(iter(found.values()))
    if options.json:
        show_json(
            {
                "totals": [_document(one) for one in found.values()],
                "regions": [_region_document(one) for one in first.regions],
                "read_units": first.read_units,
            }
        )
        return FINDINGS if first.missing else 0
    show_rows(row for one in found.values() for row in _rows(one))
    for answer in first.regions:
        notice(_answer_text(answer))
    if any(len(set(map(_shown, one.by_region.values()))) > 1 for one in found.values()):
        notice("regions differ: entries are under way between them, or in their streams")
    return FINDINGS if first.missing else 0


def _rows(found: TotalOverRegions) -> Iterator[Row]:
    """A row for each included region, the chosen one marked."""
    for region, total in found.by_region.items():
        row = facts(total, "counter")
        row |= {"region": region, "most entries": "*" if region == found.region else ""}
        yield row | facts(total, "value events entries", updated=total.updated_at)


def _shown(total: object) -> object:
    return tuple(facts(total, "value events entries").values())


def _answer_text(answer: RegionAnswer) -> str:
    if answer.problem is not None or answer.freshness is None:
        return f"{answer.region} is not included: {answer.problem}"
    handled = answer.freshness.handled_through
    if handled is None:
        return f"{answer.region}: no stream record was handled yet"
    until = shown_time(handled)
    return f"{answer.region}: entries that its stream showed up to {until} are in its totals"


def _document(found: TotalOverRegions) -> Row:
    names = "counter value events entries version updated_at"
    return {
        **facts(found.total, names),
        "region": found.region,
        "agree": found.agree,
        "regions": [
            {"region": region, **facts(total, "value events entries version updated_at")}
            for region, total in found.by_region.items()
        ],
    }


def _region_document(answer: RegionAnswer) -> Row:
    handled = answer.freshness.handled_through if answer.freshness else None
    return {"region": answer.region, "problem": answer.problem, "handled_through": handled}
