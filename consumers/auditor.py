"""Verify and repair, for one counter, for many, or for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from countledger.consumers.audit import CHUNK, Audit, FileBookmarks, NoBookmarks
from countledger.consumers.progress import ProgressRecovery
from countledger.consumers.verify import Judgement, Remedy, Repair, Repairer, unrepaired
from countledger.consumers.walk import SEGMENTS_DEFAULT, Walker
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.namespace import Kind
from countledger.ledger.quarantine import RedriveAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from countledger.consumers.verify import Verdict, Verifier
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine import QuarantinedRecord


Audited = TypeVar("Audited")
Process: TypeAlias = "Callable[[Iterable[str]], Iterator[Audited]]"


@dataclass(frozen=True, slots=True)
class Auditor:
    """Compares totals with their ledgers, and repairs totals that drifted.

    Attributes:
        verifier: makes the verdicts.
        namespaces: the namespaces, which say whether a counter has a ledger.
        region: the region of this process; the stored position of a walk names it.
    """

    verifier: Verifier
    namespaces: Namespaces
    region: str

    def verify(self, counter: str) -> Verdict:
        """Compare a total with its ledger, after a proof that the stream has been handled."""
        return next(self.verify_many([counter]))

    def verify_many(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """`verify` for many counters; a hundred share one proof."""
        return self.each(self.verifier.verify, self.unread, counters)

    def verify_all(
        self, *, segments: int = SEGMENTS_DEFAULT, resume: Path | None = None
    ) -> Audit[Verdict]:
        """Compare every counter; scans both tables. Iterate over the result.

        Args:
            segments: the number of parts of each table, read in parallel: 1 to 64.
            resume: a file with the position of the walk. If it exists, the walk continues after
                that position; at the end of the walk the file is deleted.

        Raises:
            BadSetting: when iterated: `segments` is invalid, or the file is of another walk.
        """
        verify = replace(self.verifier, chunk=CHUNK).verify
        return self.walk(
            "verify", verify, self.unread, lambda one: str(one.verdict), segments, resume
        )

    def repair(self, counter: str, *, dry_run: bool = False) -> Repair:
        """Set a total to its ledger's sum if it drifted, after the same proof as `verify`.

        Raises:
            WrongKind: it is not a ledger counter.
        """
        return next(self.repair_many([counter], dry_run=dry_run))

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        """`repair` for many counters; a hundred share one proof."""
        return self.each(Repairer(self.verifier, dry_run).repair, self.unrepaired, counters)

    def repair_all(
        self,
        *,
        dry_run: bool = False,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Repair]:
        """Repair every counter, and create missing totals; otherwise as `verify_all`."""
        repair = Repairer(replace(self.verifier, chunk=CHUNK), dry_run).repair
        task = "repair, dry run" if dry_run else "repair"
        return self.walk(
            task, repair, self.unrepaired, lambda one: str(one.remedy), segments, resume
        )

    def recover_progress(self) -> Iterator[str]:
        """Let stream shards continue whose progress is lost. Repair all totals after it.

        Returns:
            These shards.

        Raises:
            SetupError: the stream was switched off.
        """
        one = self.verifier
        return ProgressRecovery(
            one.totals.dynamo, one.totals.table, one.stream, one.clock
        ).recover()

    def each(
        self,
        process: Process[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        counters: Iterable[str],
    ) -> Iterator[Audited]:
        """The outcomes of counters in their order, chunk by chunk.

        If the namespace is corrupt, it is unknown whether the counter has a ledger: it is neither
        compared nor repaired.
        """
        feed = iter(counters)
        while chunk := list(islice(feed, self.verifier.chunk)):
            outcomes: dict[int, Audited] = {}
            good: dict[int, str] = {}
            for place, counter in enumerate(chunk):
                try:
                    good[place] = of_a_ledger(self.namespaces, counter)
                except CorruptItem as error:
                    outcomes[place] = unread(counter, error)
            outcomes |= zip(good, process(good.values()), strict=True)
            yield from (outcomes[place] for place in range(len(chunk)))

    def unread(self, counter: str, error: CorruptItem) -> Verdict:
        """The verdict on a counter whose namespace cannot be read."""
        return unrepaired(self.verifier, counter, error).verdict

    def unrepaired(self, counter: str, error: CorruptItem) -> Repair:
        """What becomes of such a counter: it is skipped."""
        return unrepaired(self.verifier, counter, error)

    def walk(  # noqa: PLR0917 - handed on
        self,
        task: str,
        process: Process[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        name_of: Callable[[Audited], str],
        segments: int,
        resume: Path | None,
        is_wanted: Callable[[str], bool] | None = None,
    ) -> Audit[Audited]:
        """An audit of all counters, or of those that are wanted."""
        ledger = self.verifier.exact.table
        totals = self.verifier.totals.table
        purpose = f"{task} of {ledger} and {totals} in {self.region}"
        return Audit(
            Walker(self.verifier.exact.dynamo, ledger, totals),
            process,
            name_of,
            is_wanted or self.namespaces.is_of_a_ledger,
            segments,
            NoBookmarks() if resume is None else FileBookmarks(resume, purpose),
            unread=unread,
        )


def of_a_ledger(namespaces: Namespaces, counter: str) -> str:
    """Return the counter if it can have a ledger: its namespace is not of another kind.

    Raises:
        BadCounterName: the name breaks the grammar.
        WrongKind: it is a strict counter or a sequence.
    """
    counter = keys.check_counter(counter)
    if not namespaces.is_of_a_ledger(counter):
        namespaces.expect(counter, Kind.LEDGER)
    return counter


_ADVICE = "; it differs from its ledger: run `countledger repair` first"


def why_not_exact(auditor: Auditor, counter: str) -> str | None:
    """Why a counter's total must not be deleted, or None: it is proven exact.

    As `Auditor.verify`. A drift may still change: a record that the stream has not delivered, or a
    running repair, would create the total again after its deletion.
    """
    verdict = auditor.verify(counter)
    if verdict.verdict is Judgement.EXACT:
        return None
    advice = _ADVICE if verdict.verdict is Judgement.DRIFT else ""
    return f"{verdict.verdict}: {verdict.proof}{advice}"


@dataclass(frozen=True, slots=True)
class RepairCounter:
    """Repairs the counter of a record of the stream of `ledger`; the record is never applied.

    The watermark has passed the record. A repair reads the ledger, which has the entry, after a
    proof that all other records were applied, and raises the watermarks. So nothing counts twice.
    The record may be missing in the counter's windows alone, so they are rebuilt, too.

    Attributes:
        auditor: repairs.
        rebuild: rebuilds the windows of counters.
    """

    auditor: Auditor
    rebuild: Callable[[Iterable[str]], Iterator[Repair]]

    def __call__(self, record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG002 - of the protocol
        """As `Auditor.repair`.

        Raises:
            WrongKind: the counter is not a ledger counter.
        """
        if record.counter is None:
            return RedriveAnswer(
                resolved=False,
                detail="the record names no counter: run countledger verify --all, then discard it",
            )
        repair = self.auditor.repair(record.counter)
        detail = f"{record.counter}: {repair.remedy} ({repair.reason})"
        if repair.verdict.verdict is Judgement.UNREADABLE:
            detail += (
                "; correct or delete that item by hand, then resend this record: the counter is "
                "repaired then"
            )
        if not repair.healthy:
            return RedriveAnswer(resolved=False, detail=detail)
        windows = next(iter(self.rebuild([record.counter])))
        if windows.remedy is not Remedy.NONE:
            detail += f"; windows: {windows.remedy} ({windows.reason})"
        return RedriveAnswer(windows.healthy, detail)


def review_alert_log(record: QuarantinedRecord, *, even_if_counted: bool) -> RedriveAnswer:  # noqa: ARG001 - of the protocol
    """A change of a total that no rule saw: the total is right, but an alert may be missing."""
    name = "COUNTER" if record.counter is None else record.counter
    return RedriveAnswer(
        resolved=False,
        detail=f"no total is wrong, but an alert may be missing: see countledger alert log {name}, "
        "inform the people concerned, then discard this",
    )
