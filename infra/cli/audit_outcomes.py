"""What `verify` and `repair` print: an outcome for each counter, and a summary at the end."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from countledger import Audit, Judgement, Remedy, Repair, Verdict
from countledger.infra.cli.output import FINDINGS, facts, notice, show_report
from countledger.infra.cli.progress import open_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger.infra.cli.options import Options
    from countledger.infra.cli.output import Row
    from countledger.ledger.attributes import Key

AuditOutcome = TypeVar("AuditOutcome", Verdict, Repair)

# Outcomes after which a total is exact, and those of them that need no line among all counters.
_GOOD: Final = frozenset({Judgement.EXACT, Remedy.NONE, Remedy.REPAIRED, Remedy.MADE})
_FACTS: Final = "counter verdict total exact drift events_drift"
_FOREIGN_SHOWN: Final = 10
_QUIET: Final = frozenset({Judgement.EXACT, Remedy.NONE})


def show_outcomes(
    options: Options,
    title: str,
    found: Iterator[AuditOutcome] | Audit[AuditOutcome],
    more: Iterable[AuditOutcome] = (),
) -> int:
    """Print outcomes as they come, and in the end how many there were of each; the exit code.

    Args:
        options: of the command.
        title: of the outcomes, for programs.
        found: the outcomes.
        more: further ones, which the counts of an audit do not include.
    """
    counts: dict[str, int] = {}
    further: Counter[str] = Counter()
    foreign: list[Key] = []
    if isinstance(found, Audit):
        found.on_foreign = foreign.extend

    def rows() -> Iterator[Row]:
        with open_progress() as progress:
            bar = progress.add("compared")
            for outcome in chain(found, _counted(more, further)):
                counts[_name_of(outcome)] = counts.get(_name_of(outcome), 0) + 1
                bar.advance()
                if not (isinstance(found, Audit) and _name_of(outcome) in _QUIET):
                    yield _row_of(outcome)

    def summary() -> tuple[Row, str]:
        if isinstance(found, Audit):
            # Those before an interruption as well.
            counts.update({name: n + further[name] for name, n in found.counts.items()})
        each = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
        text = f"{sum(counts.values())} compared: {each}" if counts else "there are no counters"
        names = [f"{key['counter']} {key['entry']}" for key in foreign[:_FOREIGN_SHOWN]]
        return {"counts": counts, "foreign": names, "findings": findings()}, text

    def findings() -> int:
        return sum(count for name, count in counts.items() if name not in _GOOD) + _foreign_in(
            found
        )

    show_report(options, title, rows(), summary)
    if _foreign_in(found):
        notice(_foreign_text(_foreign_in(found), foreign))
    return FINDINGS if findings() else 0


def _counted(outcomes: Iterable[AuditOutcome], counts: Counter[str]) -> Iterator[AuditOutcome]:
    for outcome in outcomes:
        counts[_name_of(outcome)] += 1
        yield outcome


def _foreign_in(found: object) -> int:
    return found.foreign.count if isinstance(found, Audit) else 0


def _foreign_text(count: int, found: Sequence[Key]) -> str:
    such = ", ".join(f"{key['counter']!r} {key['entry']!r}" for key in found[:_FOREIGN_SHOWN])
    return (
        f"items of the table `ledger` that countledger did not write: {count}"
        f"{f', such as {such}' if such else ''}; no number contains them: find out what writes "
        "them, and delete them"
    )


def _name_of(outcome: Verdict | Repair) -> str:
    return str(outcome.verdict if isinstance(outcome, Verdict) else outcome.remedy)


def _row_of(outcome: Verdict | Repair) -> Row:
    if isinstance(outcome, Verdict):
        return facts(outcome, _FACTS) | {"proof": outcome.proof}
    row = facts(outcome, "counter remedy") | facts(outcome.verdict, _FACTS)
    return row | {"reason": outcome.reason}
