"""What `verify` and `repair` print: an outcome for each counter, and a summary at the end.

Of a strict counter it is whether the counter holds what its open holds reserve.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from countledger import Audit, Judgement, Remedy, Repair, Verdict
from countledger.infra.cli.output import FINDINGS, facts, notice, open_progress, show_report
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem, NoSuchCounter
from countledger.ledger.namespace import Kind
from countledger.producers.strict.definition import Method
from countledger.producers.strict.release import counters_with_holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger import CountLedger
    from countledger.infra.cli.app import Options
    from countledger.infra.cli.output import Row
    from countledger.ledger.attributes import Key
    from countledger.producers.strict.release import HeldComparison


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


def has_holds(client: CountLedger, counter: str) -> bool:
    """Whether a counter may have holds: a read unit or two."""
    try:
        counter = keys.check_counter(counter)
        namespace = client.namespaces.find(keys.namespace_of(counter))
    except CorruptItem:
        return False  # the verdict on the counter says so
    return (
        namespace is not None
        and namespace.kind is Kind.STRICT
        and client.strict.show(counter).method is Method.MARKER
    )


def all_with_holds(client: CountLedger) -> Iterator[str]:
    """The strict counters to compare: those of the home region that have holds."""
    if client.connection.setting("home_region") == client.connection.region:
        found = client.namespaces.list(on_corrupt=lambda _error: None)
        strict = [one.name for one in found if one.kind is Kind.STRICT]
        yield from counters_with_holds(client.strict.context, strict)


def held_verdicts(client: CountLedger, counters: Iterable[str]) -> Iterator[Verdict]:
    """What strict counters hold, compared with their open holds."""
    for counter in counters:
        try:
            yield verdict_on_holds(client.strict.verify_holds(counter))
        except CorruptItem as error:
            yield Verdict(counter, Judgement.UNREADABLE, None, None, 0, str(error))
        except NoSuchCounter:
            continue  # it was deleted since it was found


def verdict_on_holds(found: HeldComparison) -> Verdict:
    """The verdict on what a strict counter holds; its open holds decide. Pure."""
    proof = f"what it holds (not its value), by {found.holds} open holds"
    if found.overdue:
        proof += f", {found.overdue} of them expired and not released"
    if not found.proven:
        verdict, proof = Judgement.BUSY, "no verdict: holds were placed or ended; try again"
    elif found.differing:
        verdict = Judgement.DRIFT
        proof += f"; what they reserve is not what is held in {', '.join(found.differing)}"
    else:
        verdict = Judgement.EXACT
    return Verdict(found.counter, verdict, found.held, found.reserved, 0, proof)
