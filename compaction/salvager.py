"""Carries out a salvage: reads two copies of the ledger, and writes what one of them lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from countledger.compaction.archive import is_archived
from countledger.compaction.plan import is_still
from countledger.compaction.salvage import SalvageEvidence, SalvageFate, SalvageReport, fate_of
from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    ConditionFailed,
    NamespaceUnknown,
    ServiceFailed,
    TransactionCancelled,
)
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.operations import Absent, AllOf, Check, Compare, Put, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.compaction.plan import AgeLimit
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.exact import Head
    from countledger.ledger.namespace import Namespace
    from countledger.ledger.operations import Condition

# Entries of one transaction, beside the check of their head.
_TOGETHER: Final = 25
_ATTEMPTS: Final = 5
_WAIT_MS: Final = 200
# A request leaves within so long of its reads: "no head" identifies nothing for half a day.
_LEAVES_MS: Final = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCopy:
    """A copy of the ledger.

    Attributes:
        dynamo: a client that reaches it.
        table: its name or ARN.
    """

    dynamo: DynamoClient
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """Brings in what one copy of the ledger has and another one lacks.

    Attributes:
        source: the copy of the lost region; or another one that is in service, which may have got
            what this one has not.
        target: the copy to be completed.
        held: asks whether nothing was merged since the loss; asked again after each read of a head,
            since another salvage may have ended the wait.
        in_service: whether the source is a replica of the target's table: then a head that arrived
            there alone is taken over as well.
        limit: how old an entry must be before it is merged.
        namespace_of: the namespace of that name.
        clock: the time, and waiting.
        new_id: makes the tokens of transactions.
    """

    source: LedgerCopy
    target: LedgerCopy
    held: Callable[[], bool]
    in_service: bool = False
    limit: Callable[[Namespace], AgeLimit]
    namespace_of: Callable[[str], Namespace]
    clock: Clock
    new_id: Callable[[], str]

    def run(
        self,
        report: SalvageReport,
        *,
        after: Key | None = None,
        page_size: int | None = None,
        on_page: Callable[[SalvageReport, Key | None], None] = lambda *_: None,
    ) -> SalvageReport:
        """Compare all entries, and write what is missing.

        Costs half a read unit for each 4 KB of the source; here one read unit for each entry, and
        one and two write units for each that is brought in.

        Args:
            report: to which the findings are added.
            after: the key that an earlier call handed to `on_page` last, to go on from there.
            page_size: the most items of one page of the source.
            on_page: called after each page, with the key from which to go on.

        Raises:
            CountledgerError: a copy cannot be read or written; what was brought in stays.
        """
        while True:
            scan = Scan(self.source.table, after=after, page_size=page_size)
            page = self.source.dynamo.page(scan)
            for counter, items in groupby(page.items, key=lambda item: str(item["counter"])):
                self._take(counter, list(items), report)
            after = page.after
            on_page(report, after)
            if after is None:
                return report

    def _take(self, counter: str, items: list[Item], report: SalvageReport) -> None:
        if counter.startswith(keys.NAMESPACE_PREFIX):
            for item in items:
                self._take_namespace(item, report)
            return
        entries = [item for item in items if item["entry"].startswith(keys.ENTRY_PREFIX)]
        kinds = {item["entry"] for item in items}
        if self.in_service and keys.HEAD in kinds:
            self._take_head(counter, report)
        if keys.ARCHIVED in kinds:
            self._take_record(counter)
        if entries:
            report.counters += 1
        for batch in _batches(entries):
            self._bring(counter, batch, report)

    def _bring(self, counter: str, items: list[Item], report: SalvageReport) -> None:
        """Write those of a batch that are missing; decide again whenever the head moved."""
        for attempt in range(1, _ATTEMPTS + 1):
            began_ms = self.clock.now_ms()
            there = decode_head(self._get(self.source, keys.head_key(counter)))
            head = self._get(self.target, keys.head_key(counter))
            asked = [{"counter": counter, "entry": item["entry"]} for item in items]
            found = self.target.dynamo.get_many(self.target.table, asked, consistent=True)
            evidence = SalvageEvidence(
                here=decode_head(head),
                there=there,
                awaited=self.in_service or self.held(),
                merged_before_ms=self._merged_before_ms(counter),
            )
            shown = {item["entry"]: item for item in found}
            fates = [fate_of(item, shown.get(item["entry"]), evidence) for item in items]
            missing = self._still_there(
                [
                    item
                    for item, fate in zip(items, fates, strict=True)
                    if fate is SalvageFate.BROUGHT
                ]
            )
            fates = [
                SalvageFate.MERGED if fate is SalvageFate.BROUGHT and item not in missing else fate
                for item, fate in zip(items, fates, strict=True)
            ]
            if not missing or self._written(counter, evidence.here, missing, began_ms):
                report.note(counter, items, fates)
                return
            self.clock.sleep_ms(_WAIT_MS * attempt)
        raise ServiceFailed(f"counter {counter!r} is being merged all the time: call again")

    def _still_there(self, items: list[Item]) -> list[Item]:
        """Those that the source shows now, after the heads were read.

        A copy in service may have deleted one since its page was read: it was merged.
        """
        asked = [{"counter": item["counter"], "entry": item["entry"]} for item in items]
        found = self.source.dynamo.get_many(self.source.table, asked, consistent=True)
        shown = {item["entry"]: item for item in found}
        return [item for item in items if shown.get(item["entry"]) == item]

    def _written(self, counter: str, head: Head, items: list[Item], began_ms: int) -> bool:
        """Whether all were written; False: the head, or one of the entries, has changed."""
        check = Check(self.target.table, keys.head_key(counter), is_still(head))
        puts = [Put(self.target.table, item, Absent("entry")) for item in items]
        try:
            with guarded(partial(self._refuse_late, began_ms)):
                self.target.dynamo.transact([check, *puts], self.new_id()[:36])
        except TransactionCancelled:
            return False
        return True

    def _refuse_late(self, began_ms: int) -> None:
        if self.clock.now_ms() - began_ms > _LEAVES_MS:
            raise ServiceFailed("this process was suspended before it sent what it had compared")

    def _merged_before_ms(self, counter: str) -> int:
        """The time from which on no entry can have been merged, by the clock of any run.

        By the time after the head was read: what that head has merged was old enough before.
        """
        now_ms = self.clock.now_ms()
        try:
            limit = self.limit(self.namespace_of(keys.namespace_of(counter)))
        except NamespaceUnknown:
            return now_ms
        return limit.cutoff_ms(now_ms) + limit.clock_skew_ms

    def _take_head(self, counter: str, report: SalvageReport) -> None:
        """Take over a head that arrived there and never here: the one after this one's.

        The home that published it was lost; nothing of it is deleted before every region shows it.
        """
        began_ms = self.clock.now_ms()
        item = self._get(self.source, keys.head_key(counter))
        theirs = decode_head(item)
        ours = decode_head(self._get(self.target, keys.head_key(counter)))
        follows = theirs.generation == ours.generation + 1
        # The empty head of a deletion begins an incarnation of its own.
        begins = theirs.run == theirs.incarnation and not theirs.entries
        continues = ours.incarnation in {"", theirs.incarnation}
        if item is not None and follows and (continues or begins):
            # That there is no head proves little: the counter may have been deleted since.
            with guarded(partial(self._refuse_late, began_ms)):
                put = Put(self.target.table, item, is_still(ours))
                report.heads += wrote(self.target.dynamo, put)

    def _take_record(self, counter: str) -> None:
        """Take over the record that the entries of this head are archived.

        Without it, entries that were deleted after it look as if a person had deleted them. Written
        with a check of the head: where that is shown nobody has recorded a later one.
        """
        key = keys.archived_key(counter)
        theirs, ours = self._get(self.source, key), self._get(self.target, key)
        head = decode_head(self._get(self.target, keys.head_key(counter)))
        if not is_archived(head, theirs) or is_archived(head, ours) or theirs is None:
            return
        check = Check(self.target.table, keys.head_key(counter), is_still(head))
        put = Put(self.target.table, theirs, _is_still_recorded(ours))
        try:
            self.target.dynamo.transact([check, put], self.new_id()[:36])
        except TransactionCancelled:
            return

    def _take_namespace(self, item: Item, report: SalvageReport) -> None:
        try:
            self.target.dynamo.put(Put(self.target.table, item, Absent("entry")))
        except ConditionFailed as failed:
            found = failed.item or {}
            if any(item.get(name) != found.get(name) for name in ("kind", "spread")):
                raise ServiceFailed(
                    f"{item['counter']!r} was created again here with another kind or spread: its "
                    "entries cannot be brought in under their own ids"
                ) from failed
        else:
            report.namespaces.append(str(item["counter"]).removeprefix(keys.NAMESPACE_PREFIX))

    @staticmethod
    def _get(copy: LedgerCopy, key: Key) -> Item | None:
        return copy.dynamo.get(copy.table, key, consistent=True)


def _is_still_recorded(seen: Item | None) -> Condition:
    if seen is None:
        return Absent("entry")
    return AllOf(*(Compare(name, "=", seen.get(name)) for name in ("generation", "run")))


def _batches(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), _TOGETHER):
        yield items[start : start + _TOGETHER]
