"""`countledger verify` and `repair`: whether totals are right, and how they become so."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from countledger.consumers.audit import SEGMENTS_DEFAULT, SEGMENTS_MAX
from countledger.infra.cli.app import BadUsage, CounterNames, Options, WholeNamespace, shared
from countledger.infra.cli.audit_outcomes import (
    all_with_holds,
    has_holds,
    held_verdicts,
    show_outcomes,
)
from countledger.infra.cli.output import notice, show_json, show_rows

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
            return show_outcomes(options, "verdicts", audit.verify(named, archived=archived))
        walk = audit.verify_all(namespace, archived=archived, segments=segments, resume=resume)
        return show_outcomes(options, "verdicts", walk)
    if namespace is not None or archived is not None:
        raise BadUsage("--namespace and --archived go with --windows")
    named = _named(counters, everything=everything, resume=resume)
    client = options.client()
    if named:
        strict = [one for one in named if has_holds(client, one)]
        others = [one for one in named if one not in strict]
        found = chain(client.audit.verify_many(others), held_verdicts(client, strict))
        return show_outcomes(options, "verdicts", found)
    walk = client.audit.verify_all(segments=segments, resume=resume)
    return show_outcomes(options, "verdicts", walk, held_verdicts(client, all_with_holds(client)))


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
        return show_outcomes(options, "repairs", client.audit.repair_many(named, dry_run=dry_run))
    everyone = client.audit.repair_all(dry_run=dry_run, segments=segments, resume=resume)
    return show_outcomes(options, "repairs", everyone)


def _recover_progress(options: Options) -> int:
    mended = list(options.client().audit.recover_progress())
    if options.json:
        show_json({"shards": mended})
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
    """The counters whose windows are meant; none: those of a namespace, or all.

    Raises:
        BadUsage: none of the three was given, or several.
    """
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
        return show_outcomes(options, "repairs", found)
    walk = audit.rebuild_all(
        namespace, archived=archived, dry_run=dry_run, segments=segments, resume=resume
    )
    return show_outcomes(options, "repairs", walk)
