"""Verify and repair, for one counter, for many, or for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from countledger.consumers.audit import CHUNK, Audit, FileBookmarks, NoBookmarks
from countledger.consumers.directory import ProgressRecovery
from countledger.consumers.repair import Repair, Repairer, unrepaired
from countledger.consumers.verify import Judgement
from countledger.consumers.walk import SEGMENTS_DEFAULT, Walker
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from countledger.consumers.verify import Verdict, Verifier
    from countledger.ledger.namespace import Namespaces

Audited = TypeVar("Audited")
Judge: TypeAlias = "Callable[[Iterable[str]], Iterator[Audited]]"


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
        return self._each(self.verifier.verify, self._unread, counters)

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
        verify = replace(self.verifier, chunk=CHUNK).verify
        return self._audit(
            "verify", verify, self._unread, lambda one: str(one.verdict), segments, resume
        )

    def repair(self, counter: str, *, dry_run: bool = False) -> Repair:
        """Set a total to its ledger's sum if it drifted, behind the same proof as `verify`.

        Raises:
            WrongKind: it is no counter of a ledger.
        """
        return next(self.repair_many([counter], dry_run=dry_run))

    def repair_many(self, counters: Iterable[str], *, dry_run: bool = False) -> Iterator[Repair]:
        """`repair` for many counters, a hundred behind one proof."""
        return self._each(Repairer(self.verifier, dry_run).repair, self._unrepaired, counters)

    def repair_all(
        self,
        *,
        dry_run: bool = False,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Repair]:
        """Repair every counter there is, and make the totals that are missing; as `verify_all`."""
        repair = Repairer(replace(self.verifier, chunk=CHUNK), dry_run).repair
        task = "repair, dry run" if dry_run else "repair"
        return self._audit(
            task, repair, self._unrepaired, lambda one: str(one.remedy), segments, resume
        )

    def recover_progress(self) -> Iterator[str]:
        """Let every stream shard go on whose progress is lost; which. Repair all totals after it.

        Raises:
            SetupError: the stream was switched off.
        """
        one = self.verifier
        return ProgressRecovery(
            one.totals.dynamo, one.totals.table, one.stream, one.clock
        ).recover()

    def _each(
        self,
        judge: Judge[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        counters: Iterable[str],
    ) -> Iterator[Audited]:
        """The outcomes of counters in their order, some at a time.

        Of one whose namespace cannot be read nobody knows whether it has a ledger: nothing is
        compared, and above all nothing repaired.
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
            outcomes |= zip(good, judge(good.values()), strict=True)
            yield from (outcomes[place] for place in range(len(chunk)))

    def _unread(self, counter: str, error: CorruptItem) -> Verdict:
        return unrepaired(self.verifier, counter, error).verdict

    def _unrepaired(self, counter: str, error: CorruptItem) -> Repair:
        return unrepaired(self.verifier, counter, error)

    def _audit(  # noqa: PLR0917 - handed on
        self,
        task: str,
        judge: Judge[Audited],
        unread: Callable[[str, CorruptItem], Audited],
        name_of: Callable[[Audited], str],
        segments: int,
        resume: Path | None,
    ) -> Audit[Audited]:
        ledger = self.verifier.exact.table
        totals = self.verifier.totals.table
        purpose = f"{task} of {ledger} and {totals} in {self.region}"
        return Audit(
            Walker(self.verifier.exact.dynamo, ledger, totals),
            judge,
            name_of,
            self.namespaces.is_of_a_ledger,
            segments,
            NoBookmarks() if resume is None else FileBookmarks(resume, purpose),
            unread=unread,
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


_ADVICE = "; it is not what its ledger says: `countledger repair` it first"


def why_not_exact(auditor: Auditor, counter: str) -> str | None:
    """Why nothing can be rested on a counter's total, or None: it is exact, and proven so.

    As `Auditor.verify`. A drift is no last word: a record that the stream did not show, or a repair
    that is under way, would make a total anew once this one is gone.
    """
    verdict = auditor.verify(counter)
    if verdict.verdict is Judgement.EXACT:
        return None
    advice = _ADVICE if verdict.verdict is Judgement.DRIFT else ""
    return f"{verdict.verdict}: {verdict.proof}{advice}"
