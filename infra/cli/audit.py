"""`countledger verify` and `repair`: whether totals are right, and how they become so."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from countledger import Audit, Judgement, Remedy, Repair, Verdict
from countledger.consumers.audit import SEGMENTS_DEFAULT, SEGMENTS_MAX
from countledger.infra.cli.app import BadUsage, CounterNames, Options, WholeNamespace, shared
from countledger.infra.cli.output import (
    FINDINGS,
    facts,
    notice,
    open_progress,
    show_json,
    show_report,
    show_rows,
)
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem, NoSuchCounter
from countledger.ledger.namespace import Kind
from countledger.producers.strict.definition import Method
from countledger.producers.strict.release import counters_with_holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from countledger import CountLedger
    from countledger.infra.cli.output import Row
    from countledger.ledger.attributes import Key
    from countledger.producers.strict.release import HeldComparison


# What `verify` and `repair` print: an outcome for each counter, and a summary at the end.
#
# Of a strict counter it is whether the counter holds what its open holds reserve.


AuditOutcome = TypeVar("AuditOutcome", Verdict, Repair)

# Outcomes after which a total is exact, and those of them that need no line among all counters.
_GOOD: Final = frozenset({Judgement.EXACT, Remedy.NONE, Remedy.REPAIRED, Remedy.MADE})
_FACTS: Final = "counter verdict total exact drift events_drift"
_FOREIGN_SHOWN: Final = 10
_QUIET: Final = frozenset({Judgement.EXACT, Remedy.NONE})


def show_outcomes(
    options: Options,
    found: Iterator[AuditOutcome] | Audit[AuditOutcome],
    more: Iterable[AuditOutcome] = (),
) -> int:
    """Print outcomes as they come, and in the end how many there were of each; the exit code.

    The counts of an audit do not include those in `more`.
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

    show_report(options, rows(), summary)
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
        return _facts(outcome) | {"proof": outcome.proof}
    return facts(outcome, "counter remedy") | _facts(outcome.verdict) | {"reason": outcome.reason}


def _facts(verdict: Verdict) -> dict[str, object]:
    """Its amounts as `Decimal`: a document has them as texts."""
    found = facts(verdict, _FACTS)
    for name in ("total", "exact", "drift"):
        found[name] = None if found[name] is None else Decimal(getattr(verdict, name))
    return found


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
        yield from counters_with_holds(client.connection, strict)


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


Everything = Annotated[bool, typer.Option("--all", help="Every counter there is.")]
Segments = Annotated[
    int,
    typer.Option(
        min=1,
        max=SEGMENTS_MAX,
        help="With --all: how many parts of each table are read in parallel.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --all: a file that stores the position. If it exists, continue from there.",
    ),
]
Archived = Annotated[
    str | None,
    typer.Option(
        metavar="s3://BUCKET/PREFIX", help="Windows: where the entries are that were merged."
    ),
]


@shared
def verify(
    options: Options,
    counters: CounterNames = None,
    *,
    everything: Everything = False,
    windows: Annotated[
        bool, typer.Option("--windows", help="Compare windows instead of totals.")
    ] = False,
    namespace: WholeNamespace = None,
    archived: Archived = None,
    segments: Segments = SEGMENTS_DEFAULT,
    resume: Resume = None,
) -> int:
    """Compare totals with the exact sums of the ledger, and prove the verdict.

    Of a strict counter with holds: what it holds (shown as total) with the sum of its open holds.

    "exact": they agree. "drift": they do not, although everything has arrived. "busy": too much
    was going on to prove either; try again. "unreadable": an item is corrupt. The exit
    code is 1 unless all are exact.

    With --all both tables are read completely, and only counters that are not exact are listed.
    Items of the ledger's table that countledger did not write are reported, too, and the exit code
    is then 1: no number contains them.
    With --resume an interrupted walk continues where it stopped; at its end the file is deleted.

    With --windows minutes are compared with hours, hours with days, days with the total, and all of
    them with the entries that are there. Give --archived where entries were merged: else their
    windows are only compared with each other. --namespace takes all counters of one.

    Examples:
      countledger verify likes:post-1
      countledger verify views:home --windows
      countledger verify --windows --namespace views --archived s3://my-bucket/counters
      countledger verify --all --json
      countledger verify --all --segments 16 --resume verify.json
    """
    if windows:
        named = named_of_windows(counters, namespace, everything=everything, resume=resume)
        audit = options.client().window_audit
        if named:
            return show_outcomes(options, audit.verify(named, archived=archived))
        walk = audit.verify_all(namespace, archived=archived, segments=segments, resume=resume)
        return show_outcomes(options, walk)
    if namespace is not None or archived is not None:
        raise BadUsage("--namespace and --archived go with --windows")
    named = _named(counters, everything=everything, resume=resume)
    client = options.client()
    if named:
        strict = [one for one in named if has_holds(client, one)]
        others = [one for one in named if one not in strict]
        found = chain(client.audit.verify_many(others), held_verdicts(client, strict))
        return show_outcomes(options, found)
    walk = client.audit.verify_all(segments=segments, resume=resume)
    return show_outcomes(options, walk, held_verdicts(client, all_with_holds(client)))


@shared
def repair(
    options: Options,
    counters: CounterNames = None,
    *,
    everything: Everything = False,
    windows: Annotated[
        bool, typer.Option("--windows", help="As `countledger windows rebuild`.")
    ] = False,
    archived: Archived = None,
    segments: Segments = SEGMENTS_DEFAULT,
    resume: Resume = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    lost_progress: Annotated[
        bool,
        typer.Option(
            "--lost-progress",
            help="Let stream shards continue whose progress is lost. Takes no counters.",
        ),
    ] = False,
) -> int:
    """Set totals that drifted to the exact sums of the ledger; create missing totals.

    A total is repaired only with the proof that verify gives, and only if it has not changed
    since: a busy counter is skipped; run the command again. The exit code is 1 unless all are exact
    at the end.

    With --all only counters that were not exact are listed; --resume as for verify.

    With --windows it counts windows again instead, as `countledger windows rebuild` does.

    Examples:
      countledger repair likes:post-1 --dry-run
      countledger repair likes:post-1 likes:post-2
      countledger repair views:home --windows
      countledger repair --all --resume repair.json           [dim]after a table was lost[/dim]
      countledger repair --lost-progress             [dim]then: countledger repair --all[/dim]
    """
    if lost_progress:
        if counters or everything or dry_run or resume or windows or archived:
            raise BadUsage(
                "--lost-progress takes no counters and no --all: run `countledger repair --all` "
                "after it"
            )
        return _recover_progress(options)
    if windows:
        named = named_of_windows(counters, None, everything=everything, resume=resume)
        return show_rebuilt(
            options, named, None, segments, resume, archived=archived, dry_run=dry_run
        )
    if archived is not None:
        raise BadUsage("--archived goes with --windows")
    named = _named(counters, everything=everything, resume=resume)
    client = options.client()
    if named:
        return show_outcomes(options, client.audit.repair_many(named, dry_run=dry_run))
    everyone = client.audit.repair_all(dry_run=dry_run, segments=segments, resume=resume)
    return show_outcomes(options, everyone)


def _recover_progress(options: Options) -> int:
    mended = list(options.client().audit.recover_progress())
    if options.json:
        show_json({"items": [{"shard": shard} for shard in mended]})
        return 0
    show_rows({"shard": shard} for shard in mended)
    if mended:
        notice(f"{len(mended)} shard(s) continue; now run `countledger repair --all`")
    else:
        notice("no stream shard has lost its progress")
    return 0


def _named(counters: list[str] | None, *, everything: bool, resume: Path | None) -> list[str]:
    if bool(counters) == everything:
        raise BadUsage("give counters, or --all")
    if counters and resume:
        raise BadUsage("--resume goes with --all")
    return counters or []


def named_of_windows(
    counters: list[str] | None, namespace: str | None, *, everything: bool, resume: Path | None
) -> list[str]:
    """The counters whose windows are meant; none: those of a namespace, or all."""
    if [bool(counters), everything, namespace is not None].count(True) != 1:
        raise BadUsage("give counters, --namespace, or --all")
    if counters and resume:
        raise BadUsage("--resume goes with --namespace or --all")
    return counters or []


def show_rebuilt(
    options: Options,
    named: list[str],
    namespace: str | None,
    segments: int,
    resume: Path | None,
    *,
    archived: str | None,
    dry_run: bool,
) -> int:
    """Count windows again and print what became of them: of these counters, or of a walk."""
    audit = options.client().window_audit
    if named:
        found = audit.rebuild(named, archived=archived, dry_run=dry_run)
        return show_outcomes(options, found)
    walk = audit.rebuild_all(
        namespace, archived=archived, dry_run=dry_run, segments=segments, resume=resume
    )
    return show_outcomes(options, walk)
