"""One run over one counter: carries out what `plan` decides. `compactor` explains the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.compaction import plan
from countledger.compaction.archive import GenerationArchiver
from countledger.compaction.report import (
    CompactionReport,
    CompactionStep,
    Retire,
    Retirer,
    RunEnd,
    RunOutcome,
    Tampered,
    Verb,
    refuse_changed,
)
from countledger.ledger.clock import polled
from countledger.ledger.departure import guarded
from countledger.ledger.errors import ConditionFailed, CountledgerError, LeaseEnded, ServiceFailed
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import RUN_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.compactor import Compactor
    from countledger.compaction.regions import Views
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.exact import ArchiveRef, Head
    from countledger.ledger.namespace import Namespace


class Run:
    """One run over one counter."""

    def __init__(
        self,
        compactor: Compactor,
        counter: str,
        namespace: Namespace,
        *,
        run: str,
        deadline_ms: int | None,
        on_step: Callable[[CompactionStep], None],
    ) -> None:
        """Prepare; no request is sent yet.

        Args:
            compactor: whose run it is.
            counter: its name.
            namespace: the counter's.
            run: an id that no other run has.
            deadline_ms: the time after which nothing new is begun.
            on_step: called with each step as it begins.
        """
        self._compactor = compactor
        self._counter = counter
        self._run = run
        self._deadline_ms = deadline_ms
        self._on_step = on_step
        self._table = compactor.regions.table
        self._views: Views = compactor.regions.metered()
        self._began_ms = compactor.clock.now_ms()
        self._cutoff_ms = compactor.limit(namespace).cutoff_ms(self._began_ms)
        self._ranges = plan.ranges(namespace.spread, self._cutoff_ms)
        self._after: Key | None = None
        self._head: Head | None = None
        self._fresh: list[plan.Candidate] = []
        self._merged = 0
        self._generations = 0
        self._held_back = 0

    def report(self) -> CompactionReport:
        """Work, and return the result; a `CountledgerError` is part of it and not raised."""
        error: CountledgerError | None = None
        try:
            end = self._work()
        except LeaseEnded as ended:
            end = RunEnd(RunOutcome.WAITING, str(ended))
        except CountledgerError as failed:
            outcome = RunOutcome.TAMPERED if isinstance(failed, Tampered) else RunOutcome.FAILED
            end, error = RunEnd(outcome, str(failed)), failed
        return CompactionReport(
            counter=self._counter,
            outcome=end.outcome,
            merged=self._merged,
            generations=self._generations,
            compacted=self._head.entries if self._head else None,
            write_units=self._views.write_units,
            read_units=self._views.read_units,
            detail=end.detail,
            error=error,
        )

    def _work(self) -> RunEnd:
        """One generation after another, until nothing is left to select."""
        if self._compactor.retire is Retire.TRANSACTION:
            self._views.regions.refuse_transactions()
        head = self._head = self._views.head(self._counter)
        while True:
            end = self._await(head) or self._retire(head) or self._wait_until_deleted(head)
            if end:
                return end
            self._step(Verb.SELECT, head)
            selected = self._select(head)
            if not selected or self._late():
                return self._close(head)
            after = plan.next_head(head, selected, self._run, self._seal(head, selected))
            if end := self._publish(head, after):
                return end
            self._merged += len(selected)
            self._fresh = selected if self._compactor.archive else []
            head = after

    def _await(self, head: Head) -> RunEnd | None:
        """This region holds the home's lease, and every region shows this head."""
        self._step(Verb.AWAIT, head)

        def missing() -> RunEnd | None:
            if unready := self._views.regions.survey().unready:
                detail = f"replicas not in service: {', '.join(unready)}"
                return RunEnd(RunOutcome.WAITING, detail)
            if reason := self._views.regions.hold_lease():
                return RunEnd(RunOutcome.WAITING, reason)
            late = plan.arrived(head, self._views.heads_elsewhere(self._counter))
            return RunEnd(*late) if late else None

        return self._poll(missing)

    def _retire(self, head: Head) -> RunEnd | None:
        """Delete the entries that the head covers, once they are archived."""
        if not head.covers:
            return None
        mine = head.run == self._run
        # Another run may have deleted some already: their delete need not be paid for again.
        items = self._still_there(head) if not mine else {}
        for key, item in items.items():
            refuse_changed(head.covers[key], item)
        found = [one.item for one in self._fresh] if mine else [*items.values()]
        if end := self._archive(head, found):
            return end
        self._step(Verb.RETIRE, head)
        compactor = self._compactor
        retirer = Retirer(
            dynamo=self._views.home,
            table=self._table,
            counter=self._counter,
            head=head,
            how=compactor.retire,
            run=self._run,
            clock=compactor.clock,
            random=compactor.random,
            backoff=compactor.backoff,
            workers=compactor.workers,
            before_send=self._check_leaving,
        )
        if retirer.retire(list(head.covers if mine else items), self._late):
            return None
        return RunEnd(RunOutcome.STOPPED, "the deadline has passed; the next run continues")

    def _archive(self, head: Head, items: list[Item]) -> RunEnd | None:
        """Archive the entries that the head covers, if it says so.

        Raises:
            CountledgerError: they could not be stored; nothing was deleted.
        """
        if head.archive is None:
            return None
        archiver = GenerationArchiver(
            self._compactor.archive, self._compactor.archive_as_found, self._views, self._counter
        )
        record = archiver.recorded()
        if not archiver.owes(head, record):
            return None
        self._step(Verb.ARCHIVE, head)
        with guarded(self._check_leaving):
            kept = archiver.keep(head, items, record)
        detail = f"another run has replaced generation {head.generation}"
        return None if kept else RunEnd(RunOutcome.OVERTAKEN, detail)

    def _wait_until_deleted(self, head: Head) -> RunEnd | None:
        """No region shows a covered entry any more."""
        if not head.covers:
            return None
        self._step(Verb.WAIT_UNTIL_DELETED, head)

        def missing() -> RunEnd | None:
            regions = self._views.regions
            for region in (regions.region, *regions.survey().others):
                if left := self._still_there(head, region):
                    detail = f"{region} still shows {len(left)} merged entries"
                    return RunEnd(RunOutcome.WAITING, detail)
            return None

        return self._poll(missing)

    def _still_there(self, head: Head, region: str | None = None) -> dict[str, Item]:
        shown = self._views.shown(self._counter, head.covers, region)
        return plan.still_there(head, shown)

    def _select(self, head: Head) -> list[plan.Candidate]:
        """The next entries to merge, as many as fit.

        Each page is read once in a run, and only after the covered entries are deleted.
        """
        selected: list[plan.Candidate] = []
        while len(selected) < self._compactor.covers_max and not self._late():
            items = self._next_page(self._compactor.covers_max - len(selected))
            if items is None:
                break
            old = plan.mergeable(items, head, self._cutoff_ms)
            if not old:
                continue
            elsewhere = self._views.shown_elsewhere(self._counter, [one.key for one in old])
            alike = plan.shown_alike(old, elsewhere)
            self._held_back += len(old) - len(alike)
            selected += alike
        return selected

    def _next_page(self, size: int) -> list[Item] | None:
        """The next page of the ranges; None after the last one."""
        if not self._ranges:
            return None
        query = plan.page_of(self._table, self._counter, self._ranges[0], size, self._after)
        page = self._views.home.page(query)
        self._after = page.after
        if page.after is None:
            self._ranges = self._ranges[1:]
        return page.items

    def _seal(self, head: Head, selected: list[plan.Candidate]) -> ArchiveRef | None:
        if self._compactor.archive is None:
            return None
        items = [one.item for one in selected]
        incarnation = head.incarnation or self._run
        return self._compactor.archive.seal(self._counter, head.generation + 1, incarnation, items)

    def _publish(self, head: Head, after: Head) -> RunEnd | None:
        """Replace the head, if it is still the one that was read.

        Raises:
            ServiceFailed: it would leave so late that "no head" could mean another counter.
        """
        self._step(Verb.PUBLISH, head)
        try:
            with guarded(self._check_leaving):
                self._views.home.put(plan.publish_of(self._table, self._counter, head, after))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            # A copy of this process's memory may have published other entries under the same run.
            found = decode_head(failed.item)
            if found != after:
                self._head = found
                detail = f"another run has published generation {found.generation}"
                if not found.generation:
                    detail = "its head was forgotten after the counter was deleted"
                return RunEnd(RunOutcome.OVERTAKEN, detail)
        self._head = after
        self._generations += 1
        return None

    def _check_leaving(self) -> None:
        """Called when a merging write leaves.

        Raises:
            LeaseEnded, ServiceFailed: it must not.
        """
        if self._compactor.clock.now_ms() - self._began_ms > RUN_LIFE_MS:
            raise ServiceFailed("this run was suspended for half a day and writes nothing more")
        self._compactor.regions.check_lease()

    def _close(self, head: Head) -> RunEnd:
        """Drop the covers, whose entries are deleted everywhere, and say how the run ended."""
        if head.covers and (end := self._publish(head, plan.closing_head(head, self._run))):
            return end
        if self._late():
            return RunEnd(RunOutcome.STOPPED, f"the deadline passed after {self._merged} entries")
        if self._held_back:
            return RunEnd(RunOutcome.WAITING, f"{self._held_back} entries are not in every region")
        if self._generations:
            return RunEnd(RunOutcome.MERGED, f"{self._merged} entries merged")
        return RunEnd(RunOutcome.NOTHING, "no entry is old enough")

    def _poll(self, missing: Callable[[], RunEnd | None]) -> RunEnd | None:
        """Poll until nothing is missing; after the compactor's patience return what is missing."""
        clock, patience_ms = self._compactor.clock, self._compactor.patience_ms

        def ends(found: RunEnd) -> bool:
            return found.outcome is not RunOutcome.WAITING or self._late()

        return polled(clock, patience_ms, missing, ends)

    def _late(self) -> bool:
        return self._deadline_ms is not None and self._compactor.clock.now_ms() >= self._deadline_ms

    def _step(self, verb: Verb, head: Head) -> None:
        self._on_step(CompactionStep(self._counter, verb, head.generation, self._merged))
