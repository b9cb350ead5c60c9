"""Verify and repair, one counter or all of them, as users ask for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from countledger.consumers.audit import CHUNK, Audit
from countledger.consumers.bookmarks import FileBookmarks, NoBookmarks
from countledger.consumers.repair import Repair, Repairer
from countledger.consumers.walk import SEGMENTS_DEFAULT, Walker
from countledger.ledger import keys
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from countledger.consumers.verdict import Verdict
    from countledger.consumers.verify import Verifier
    from countledger.ledger.namespace import Namespaces

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Auditor:
    """Compares totals with their ledgers, and mends those that drifted.

    Attributes:
        verifier: makes the verdicts.
        namespaces: tell which counters have a ledger.
        region: where this process works; a kept place of a walk says so.
    """

    verifier: Verifier
    namespaces: Namespaces
    region: str

    def verify(self, counter: str) -> Verdict:
        """Compare a total with its ledger, behind a proof that the stream has been handled."""
        return next(self.verify_many([counter]))

    def verify_many(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """`verify` for many counters, a hundred behind one proof."""
        return self.verifier.verify(map(self._of_a_ledger, counters))

    def verify_all(
        self, *, segments: int = SEGMENTS_DEFAULT, resume: Path | None = None
    ) -> Audit[Verdict]:
        """Compare every counter there is; reads both tables whole. Iterate over the answer.

        Args:
            segments: into how many parts each table is cut, to be read side by side: 1 to 64.
            resume: a file that keeps how far it came. Where there is one, the walk goes on behind
                it; at the end it is removed.

        Raises:
            BadSetting: when iterated: such segments cannot be, or the file is of something else.
        """
        verifier = replace(self.verifier, chunk=CHUNK)
        return self._audit(
            "verify", verifier.verify, lambda one: str(one.verdict), segments, resume
        )

    def repair(self, counter: str, *, dry_run: bool = False) -> Repair:
        """Set a total to its ledger's sum if it drifted, behind the same proof as `verify`.

        Raises:
            WrongKind: it is no counter of a ledger.
        """
        return next(self.repair_many([counter], dry_run=dry_run))

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        """`repair` for many counters, a hundred behind one proof."""
        return Repairer(self.verifier, dry_run).repair(map(self._of_a_ledger, counters))

    def repair_all(
        self,
        *,
        dry_run: bool = False,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Repair]:
        """Repair every counter there is, and make the totals that are missing; as `verify_all`."""
        repairer = Repairer(replace(self.verifier, chunk=CHUNK), dry_run)
        task = "repair, dry run" if dry_run else "repair"
        return self._audit(task, repairer.repair, lambda one: str(one.remedy), segments, resume)

    def _of_a_ledger(self, counter: str) -> str:
        return of_a_ledger(self.namespaces, counter)

    def _audit(
        self,
        task: str,
        judge: Callable[[Iterable[str]], Iterator[Outcome]],
        name_of: Callable[[Outcome], str],
        segments: int,
        resume: Path | None,
    ) -> Audit[Outcome]:
        ledger = self.verifier.exact.table
        totals = self.verifier.totals.table
        purpose = f"{task} of {ledger} and {totals} in {self.region}"
        return Audit(
            Walker(self.verifier.exact.door, ledger, totals),
            judge,
            name_of,
            self.namespaces.is_of_a_ledger,
            segments,
            NoBookmarks() if resume is None else FileBookmarks(resume, purpose),
        )


def of_a_ledger(namespaces: Namespaces, counter: str) -> str:
    """The counter, if it is one that can have a ledger: its namespace is not of another kind.

    Raises:
        BadCounterName: the name breaks the grammar.
        WrongKind: it is strict, or a sequence.
    """
    if not namespaces.is_of_a_ledger(keys.check_counter(counter)):
        namespaces.expect(counter, Kind.LEDGER)
    return counter
