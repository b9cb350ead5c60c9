"""Verify windows: with each other, with the total, and with the entries that are there.

    1  read the total and the items of its windows
    2  read the entries: of the ledger, and of the archive where entries were merged
    3  wait until the stream has been handled past that moment (`proof`)
    4  read the items and then the total again

If the total has the same version in (1) and (4), all windows of (4) contain the same entries: the
total is written before them. Then they can be compared with each other, and with the entries.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.consumers.verify import Judgement, Verdict
from countledger.ledger import amount, keys
from countledger.ledger.attributes import check_format
from countledger.ledger.calendar import Per, Window, window_of
from countledger.ledger.entry import decode_entry
from countledger.ledger.errors import CorruptItem, CountledgerError, NewerFormat, ServiceFailed
from countledger.ledger.exact import decode_head
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.total import windows_id_of, windows_ids_in, windows_names
from countledger.ledger.windows import EVENTS, SUM, cells_of, decode_settings, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from countledger.consumers.proof import Proof
    from countledger.consumers.verify import Verifier
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry
    from countledger.ledger.exact import Head
    from countledger.ledger.windows import WindowSetting


# What windows must add up to, and which of them differ from their entries. Pure.
#
# minutes = hour, hours = day, days = what the total says is in windows; and where the entries are
# still there (or archived), each cell = its entries. The ledger itself is compared with the total
# by `verify`.


Worth: TypeAlias = "tuple[Amount, int]"
"""A sum and a number of events."""

_NOTHING: Final[Worth] = (0, 0)


@dataclass(frozen=True, slots=True)
class CountedWindows:
    """Windows of a counter, counted again from entries.

    By item, when TTL may remove it, in seconds; None: never.
    """

    whole: Worth
    cells: Mapping[str, Mapping[str, Worth]]
    expires_at: Mapping[str, int | None]


def counted(setting: WindowSetting, entries: Iterable[Entry]) -> CountedWindows:
    whole = _NOTHING
    cells: defaultdict[str, defaultdict[str, Worth]] = defaultdict(
        lambda: defaultdict(lambda: _NOTHING)
    )
    expires: dict[str, int | None] = {}
    for entry in entries:
        if not setting.holds_at(entry.at_ms):
            continue
        worth = (entry.delta, entry.events)
        whole = _plus(whole, worth)
        for cell in cells_of(setting, entry.at_ms, entry.occurred_at_ms):
            expires[cell.item] = cell.expires_at
            cells[cell.item][cell.name] = _plus(cells[cell.item][cell.name], worth)
    return CountedWindows(whole, cells, expires)


def name_in(item: Item) -> str:
    """Which item of windows this is, as `Cell.item`."""
    return str(item["part"]).split("#", 2)[2]


def windows_id_in(item: Item) -> str:
    return str(item["part"]).split("#", 2)[1]


def cells_in(item: Item) -> dict[str, Worth]:
    """The cells of a stored item, whatever they hold."""
    names = {name[1:] for name in item if _is_cell(name)}
    return {name: (item.get(SUM + name, 0), item.get(EVENTS + name, 0)) for name in names}


def _is_cell(attribute: str) -> bool:
    return attribute[:1] in (SUM, EVENTS) and len(attribute) == 3 and attribute[1:].isdigit()  # noqa: PLR2004 - letter and digits


def is_expired(item: Item, now_ms: int) -> bool:
    """Whether an item counts as gone, although TTL has not removed it yet."""
    expires_at = item.get("expires_at")
    return isinstance(expires_at, int) and expires_at * SECOND_MS <= now_ms


def broken_links(
    setting: WindowSetting, items: Sequence[Item], windowed: Worth, now_ms: int
) -> Iterator[str]:
    """Where windows do not add up, each as text; of items that are not expired.

    Hours and minutes are compared while they are kept: later events count in their day alone.
    `windowed` is what the total says is in windows.
    """
    slots: dict[str, dict[Window, Worth]] = {kind: {} for kind in (Per.MONTH, Per.DAY, Per.HOUR)}
    for item in items:
        found = {slot.window: (slot.sum, slot.events) for slot in slots_of(setting, item)}
        slots[name_in(item).partition("#")[0]] |= found
        whole = (item.get("sum"), item.get("events"))
        if whole != _sum(found.values()):
            added = _shown(_sum(found.values()))
            yield f"{name_in(item)} says {_shown(whole)}, and its windows add up to {added}"
        if setting.ranked and "ranked" in item and item.get("total") != item.get("sum"):
            yield f"{name_in(item)} is ranked by {item.get('total')}, and its sum is {whole[0]}"
    days = _sum(slots[Per.MONTH].values())
    if days != windowed:
        yield f"days add up to {_shown(days)}, and the total counted {_shown(windowed)} in windows"
    if setting.has(Per.HOUR) or setting.ranked:
        yield from _compared(setting, slots[Per.DAY], slots[Per.MONTH], Per.DAY, now_ms)
    if setting.has(Per.MINUTE):
        yield from _compared(setting, slots[Per.HOUR], slots[Per.DAY], Per.HOUR, now_ms)


def _compared(
    setting: WindowSetting,
    fine: Mapping[Window, Worth],
    coarse: Mapping[Window, Worth],
    per: Per,
    now_ms: int,
) -> Iterator[str]:
    sums: defaultdict[Window, Worth] = defaultdict(lambda: _NOTHING)
    for window, worth in fine.items():
        larger = window_of(window.start_ms, per, setting.calendar)
        sums[larger] = _plus(sums[larger], worth)
    for window in sorted({*sums, *coarse}, key=lambda one: one.start_ms):
        day = window_of(window.start_ms, Per.DAY, setting.calendar)
        is_kept = day.end_ms + setting.keep_ms > now_ms + setting.skew_ms
        whole = coarse.get(window, _NOTHING)
        if is_kept and sums[window] != whole:
            finer = Per.MINUTE if per is Per.HOUR else Per.HOUR
            yield (
                f"{per} {window.name}: its {finer}s add up to {_shown(sums[window])}, and it is "
                f"{_shown(whole)}"
            )


def differences(
    found: CountedWindows, items: Sequence[Item], windowed: Worth, now_ms: int
) -> Iterator[str]:
    """Where windows differ from their entries, each as text."""
    if windowed != found.whole:
        yield f"the total counted {_shown(windowed)} in windows, of entries {_shown(found.whole)}"
    stored = {name_in(item): cells_in(item) for item in items}
    for name in sorted({*stored, *found.cells}):
        expires_at = found.expires_at.get(name)
        if expires_at is not None and expires_at * SECOND_MS <= now_ms:
            continue
        there, here = stored.get(name, {}), found.cells.get(name, {})
        for cell in sorted({*there, *here}):
            one, other = there.get(cell, _NOTHING), here.get(cell, _NOTHING)
            if one != other:
                yield f"{name}, cell {cell}: {_shown(one)}, and its entries {_shown(other)}"


def _plus(one: Worth, other: Worth) -> Worth:
    return amount.add(one[0], other[0]), one[1] + other[1]


def _sum(worths: Iterable[Worth]) -> Worth:
    whole = _NOTHING
    for worth in worths:
        whole = _plus(whole, worth)
    return whole


def _shown(worth: tuple[object, object]) -> str:
    return f"{worth[0]} of {worth[1]} event(s)"


_ATTEMPTS: Final = 3
_CHUNK: Final = 20
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """What was found of one counter's windows: its total and their items, at first and at the end.

    `entries` may be the reason why they cannot be counted again. `is_deleted`: there are items that
    the total does not name, and a deletion that has not ended explains them: it removes them.
    `flaw` says why nothing may be written: the setting cannot be read, or an item is of a later
    release.
    """

    counter: str
    settings: tuple[WindowSetting, ...] = ()
    before: Item = field(default_factory=dict)
    total: Item = field(default_factory=dict)
    items_before: dict[str, Item] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    entries: list[Entry] | str = field(default_factory=list)
    proof: Proof | None = None
    since_ms: int = 0
    is_deleted: bool = False
    flaw: str | None = None

    @property
    def is_decided(self) -> bool:
        """Whether another attempt would find the same: it is quiet, or nothing can be compared."""
        return self.is_quiet or not self.settings or self.flaw is not None

    @property
    def is_quiet(self) -> bool:
        """Whether all items belong to one moment."""
        at = ("version", "updated_at")
        return self.proof is not None and all(self.before.get(n) == self.total.get(n) for n in at)

    def windows(self, setting: WindowSetting, now_ms: int) -> list[Item]:
        """The items of a setting that are not expired."""
        prefix = keys.window_part(windows_id_of(self.total, setting.id) or "")
        mine = (item for part, item in self.items.items() if part.startswith(prefix))
        return [item for item in mine if not is_expired(item, now_ms)]

    def unnamed(self) -> dict[str, list[Item]]:
        """The items that the total does not name, by the id of their windows.

        They are of a total that was lost, or of a deleted counter: its deletion removes them.
        """
        named = windows_ids_in(self.total)
        found: dict[str, list[Item]] = {}
        for item in self.items.values():
            windows_id = windows_id_in(item)
            if windows_id not in named:
                found.setdefault(windows_id, []).append(item)
        return found

    def windowed(self, setting: WindowSetting) -> Worth:
        _, total, events = windows_names(setting.id)
        return self.total.get(total, 0), self.total.get(events, 0)


@dataclass(frozen=True, slots=True)
class WindowVerifier:
    """Verifies windows; the entries of a chunk of counters, which share one proof, are in memory.

    `archived` gives the archived entries of a counter and an incarnation of its head.
    """

    verifier: Verifier
    archived: Callable[[str, str], Iterable[Entry]] | None = None
    chunk: int = _CHUNK

    def verify(self, counters: Iterable[str]) -> Iterator[Verdict]:
        """As `WindowAuditor.verify`; twice if windows change meanwhile or differ."""
        return (
            verdict_of(one, self.verifier.connection.clock.now_ms())
            for one in self.compare(counters)
        )

    def compare(self, counters: Iterable[str]) -> Iterator[WindowEvidence]:
        feed = map(keys.check_counter, counters)
        while chunk := list(islice(feed, self.chunk)):
            known: dict[str, WindowEvidence] = {}
            found = {counter: self._opened(counter, known) for counter in dict.fromkeys(chunk)}
            for number in range(_ATTEMPTS):
                # The record of an entry may show a moment after the entry: a difference counts once
                # it is found after a pause.
                open_ = [
                    one
                    for one in found.values()
                    if not one.is_decided or (number == 1 and self._differs(one))
                ]
                if not open_:
                    break
                found |= self._attempt(open_, settled=number > 0)
            yield from (found[counter] for counter in chunk)

    def _differs(self, found: WindowEvidence) -> bool:
        return verdict_of(found, self.verifier.connection.clock.now_ms()).verdict is Judgement.DRIFT

    def _opened(self, counter: str, known: dict[str, WindowEvidence]) -> WindowEvidence:
        """The setting of a counter's namespace: one read unit for each namespace."""
        namespace = keys.namespace_of(counter)
        if namespace not in known:
            to = self.verifier.connection
            try:
                item = to.retrying.get(to.counters, keys.windows_key(namespace), consistent=True)
                known[namespace] = WindowEvidence(counter, decode_settings(item))
            except CorruptItem as error:
                known[namespace] = WindowEvidence(counter, flaw=str(error))
        return replace(known[namespace], counter=counter)

    def _attempt(
        self, opened: list[WindowEvidence], *, settled: bool
    ) -> Iterator[tuple[str, WindowEvidence]]:
        one, since_ms = self.verifier, self.verifier.connection.clock.now_ms()
        began = [
            replace(
                each,
                before=self._total(each.counter),
                items_before=self._items(each.counter),
                entries=self._entries(each),
                since_ms=since_ms,
            )
            for each in opened
        ]
        moment_ms = self.verifier.connection.clock.now_ms()
        if settled:
            one.connection.clock.sleep_ms(one.settle_ms)
        proof = one.prover.past(moment_ms, closely=True)
        for each in began:
            items = self._items(each.counter)  # before the total, which is written first
            total = self._total(each.counter)
            flaw = _newer_in([total, *items.values()])
            seen = replace(each, items=items, total=total, proof=proof, flaw=flaw)
            is_deleted = bool(seen.unnamed()) and self.verifier.exact.is_emptied(each.counter)
            yield each.counter, replace(seen, is_deleted=is_deleted)

    def _total(self, counter: str) -> Item:
        return self.verifier.totals.item(counter) or {}

    def _items(self, counter: str) -> dict[str, Item]:
        to = self.verifier.connection
        where = AllOf(Compare("counter", "=", counter), BeginsWith("part", keys.WINDOW_PREFIX))
        pages = to.retrying.pages(Query(to.counters, where, consistent=True))
        return {item["part"]: item for page in pages for item in page}

    def _entries(self, found: WindowEvidence) -> list[Entry] | str:
        """Every entry once, merged ones from the archive; or why that is not possible."""
        to, counter = self.verifier.connection, found.counter
        where = AllOf(Compare("counter", "=", counter), BeginsWith("entry", keys.ENTRY_PREFIX))
        try:
            head = self._head(counter)
            pages = to.retrying.pages(Query(to.ledger, where, consistent=True))
            entries = [decode_entry(item) for page in pages for item in page]
            if head != self._head(counter) or head.covers:
                return "a compaction of it is running"
            return [*entries, *self._merged(found, head)]
        except (CorruptItem, ServiceFailed) as error:
            return str(error)

    def _head(self, counter: str) -> Head:
        to = self.verifier.connection
        return decode_head(to.retrying.get(to.ledger, keys.head_key(counter), consistent=True))

    def _merged(self, evidence: WindowEvidence, head: Head) -> list[Entry]:
        first_ms = min((one.from_ms for one in evidence.settings), default=0)
        if not head.entries or (head.to_at_ms is not None and head.to_at_ms < first_ms):
            return []  # they are in no window
        if self.archived is None:
            raise CorruptItem(
                f"{head.entries} of its entries were merged: give the archive that has them"
            )
        found = list(self.archived(evidence.counter, head.incarnation))
        if (len(found), amount.total_of(one.delta for one in found)) != (head.entries, head.sum):
            raise CorruptItem(
                f"{head.entries} of its entries were merged, and the archive has {len(found)}"
            )
        return found


def _newer_in(items: Iterable[Item]) -> str | None:
    """Why these items may not be written: a later release wrote one of them."""
    try:
        for item in items:
            check_format(item)
    except NewerFormat as error:
        return str(error)
    return None


def _unnamed(found: WindowEvidence, now_ms: int) -> Iterator[str]:
    """The windows that the total does not name, each as text; they would stay in rankings."""
    for windows_id, items in () if found.is_deleted else found.unnamed().items():
        there = [item for item in items if not is_expired(item, now_ms)]
        if there:
            yield f"{len(there)} item(s) of windows {windows_id!r}, which its total does not name"


def verdict_of(found: WindowEvidence, now_ms: int) -> Verdict:
    """The verdict on a counter's windows. Pure."""
    if found.flaw is not None:
        return _said(found, Judgement.UNREADABLE, found.flaw)
    if not found.settings:
        return _said(found, Judgement.EXACT, "its namespace has no windows")
    if not found.is_quiet or found.proof is None:
        reason = "its total changed, or the stream has not been handled that far"
        return _said(found, Judgement.BUSY, f"no verdict: {reason}; try again")
    broken = list(_unnamed(found, now_ms))
    try:
        for setting in found.settings:
            items, windowed = found.windows(setting, now_ms), found.windowed(setting)
            broken += broken_links(setting, items, windowed, now_ms)
            if not isinstance(found.entries, str):
                recount = counted(setting, found.entries)
                broken += differences(recount, items, windowed, now_ms)
    except CountledgerError as error:
        return _said(found, Judgement.UNREADABLE, str(error))
    if broken:
        more = f"; and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        return _said(found, Judgement.DRIFT, "; ".join(broken[:_SHOWN]) + more)
    again = ", and are those of its entries"
    if isinstance(found.entries, str):
        again = f"; not counted again: {found.entries}"
    return _said(found, Judgement.EXACT, f"windows add up{again}")


def _said(found: WindowEvidence, judgement: Judgement, proof: str) -> Verdict:
    """A verdict whose numbers are those in windows, and those of entries in windows."""
    windowed = [found.windowed(one) for one in found.settings]
    entries = found.entries
    exact = (
        None
        if isinstance(entries, str)
        else amount.total_of(counted(one, entries).whole[0] for one in found.settings)
    )
    sums = [worth[0] for worth in windowed]
    is_readable = all(isinstance(one, int | Decimal) for one in sums)
    total = amount.total_of(sums) if is_readable else None  # not one that was edited by hand
    return Verdict(found.counter, judgement, total, exact, 0, proof)
