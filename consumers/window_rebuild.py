"""Rebuild windows: replace those that differ from their entries.

Each item is replaced on condition that it is as it was before the entries were read. So an entry is
in what was counted again, or its record changes the item before the write, or comes after it; never
two of them. As in `repair`, the write raises the watermarks of shards that were handled lately.
What the total says about windows is replaced in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.repair import Remedy, Repair, raised, refuse_if_old
from countledger.consumers.verify import Judgement
from countledger.consumers.window_chain import (
    cells_in,
    counted,
    is_expired,
    name_in,
)
from countledger.consumers.window_verify import WindowEvidence, WindowVerifier, verdict_of
from countledger.ledger import amount, keys
from countledger.ledger.before_send import guarded
from countledger.ledger.errors import (
    CountledgerError,
    SetupError,
)
from countledger.ledger.expressions import (
    AllOf,
    Assign,
    AssignOnce,
    Compare,
    Drop,
    unchanged,
)
from countledger.ledger.operations import Update
from countledger.ledger.performer import wrote
from countledger.ledger.ranking import day_clauses
from countledger.ledger.total import new_windows_id, windows_id_of, windows_names
from countledger.ledger.windows import EVENTS, SUM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.proof import Proof
    from countledger.consumers.window_chain import CountedWindows
    from countledger.ledger.entry import Entry
    from countledger.ledger.expressions import Clause
    from countledger.ledger.windows import WindowSetting


@dataclass(frozen=True, slots=True)
class WindowRebuilder:
    """Rebuilds windows.

    Attributes:
        windows: finds what differs.
        dry_run: whether only to say what would be done.
    """

    windows: WindowVerifier
    dry_run: bool = False

    def rebuild(self, counters: Iterable[str]) -> Iterator[Repair]:
        """Set windows that differ from their entries.

        Costs as `WindowVerifier.verify`, and a write unit for each KB of each item written. A
        counter with merged entries that are in no archive is skipped: they cannot be counted.

        Raises:
            BadCounterName: a name breaks the grammar.
        """
        return map(self._rebuilt, self.windows.compare(counters))

    def _now_ms(self) -> int:
        return self.windows.verifier.clock.now_ms()

    def _rebuilt(self, found: WindowEvidence) -> Repair:
        verdict, reason = verdict_of(found, self._now_ms()), ""
        if verdict.verdict is Judgement.EXACT:
            return Repair(found.counter, Remedy.NONE, verdict, verdict.proof)
        if found.flaw is not None:
            reason = found.flaw
        elif found.proof is None or not found.total:
            reason = verdict.proof if found.total else "it has no total: repair it first"
        elif isinstance(found.entries, str):
            reason = f"its windows cannot be counted again: {found.entries}"
        elif not self.dry_run:
            reason = self._written(found, found.entries, found.proof)
        if reason:
            return Repair(found.counter, Remedy.SKIPPED, verdict, reason)
        remedy = Remedy.WOULD_REPAIR if self.dry_run else Remedy.REPAIRED
        return Repair(found.counter, remedy, verdict, verdict.proof)

    def _written(self, found: WindowEvidence, entries: list[Entry], proof: Proof) -> str:
        """Write all that differs; why something was not written, or "" if all was."""
        changed = 0
        try:
            with guarded(lambda: refuse_if_old(self.windows.verifier, found.since_ms)):
                for setting in found.settings:
                    changed += self._write(found, setting, counted(setting, entries), proof)
        except SetupError:
            raise  # it concerns every counter
        except CountledgerError as error:
            return str(error)
        return f"{changed} of its items changed meanwhile; try again" if changed else ""

    def _write(
        self, found: WindowEvidence, setting: WindowSetting, windows: CountedWindows, proof: Proof
    ) -> int:
        """Write the total and the items of a setting; how many had changed meanwhile."""
        now_ms, table = self._now_ms(), self.windows.verifier.totals.table
        windows_id = windows_id_of(found.total, setting.id)
        if windows_id is None and not windows.whole[1] and found.windowed(setting) == (0, 0):
            return 0
        windows_id = windows_id or new_windows_id(setting.id, found.counter, now_ms)
        total = total_rebuilt_of(table, found, setting, windows_id, windows)
        # The total first, as the materializer does. Items of a busy counter are decided by their
        # own versions; what the total says about windows is set once it rests.
        changed = int(not found.is_quiet or not self._applied(total))
        if changed and windows_id_of(found.total, setting.id) is None:
            return changed
        prefix = keys.window_part(windows_id)
        stored = {part.removeprefix(prefix) for part in found.items if part.startswith(prefix)}
        for name in sorted({*stored, *windows.cells}):
            key = keys.window_key(found.counter, windows_id, name)
            update = item_rebuilt_of(table, key, found, setting, windows, proof, now_ms)
            changed += update is not None and not self._applied(update)
        return changed

    def _applied(self, update: Update) -> bool:
        return wrote(self.windows.verifier.totals.dynamo, update)


def total_rebuilt_of(
    table: str,
    found: WindowEvidence,
    setting: WindowSetting,
    windows_id: str,
    windows: CountedWindows,
) -> Update:
    """Replace what a total says about windows, if it has not changed. One write unit."""
    name, total, events = windows_names(setting.id)
    clauses: tuple[Clause, ...] = (
        AssignOnce(name, windows_id),
        Assign(total, windows.whole[0]),
        Assign(events, windows.whole[1]),
    )
    same = [unchanged(name, found.total.get(name)) for name in ("version", "updated_at")]
    exists = Compare("part", "=", keys.TOTAL)
    return Update(table, keys.total_key(found.counter), clauses, AllOf(exists, *same))


def item_rebuilt_of(  # noqa: PLR0917 - of one write
    table: str,
    key: dict[str, str],
    found: WindowEvidence,
    setting: WindowSetting,
    windows: CountedWindows,
    proof: Proof,
    now_ms: int,
) -> Update | None:
    """Replace the cells of an item, if it has not changed; None: they are right, or expired.

    One write unit for each KB.
    """
    stored = found.items.get(key["part"], {})
    name, there = name_in(key), cells_in(stored)
    cells, expires_at = windows.cells.get(name, {}), windows.expires_at.get(name)
    whole = amount.total_of(one[0] for one in cells.values()), sum(one[1] for one in cells.values())
    also = day_clauses(setting, found.counter, name, Assign("total", whole[0]))
    is_right = cells == there and whole == (stored.get("sum", 0), stored.get("events", 0))
    is_right = is_right and (not also or stored.get("total", 0) == whole[0])
    if is_right or is_expired({"expires_at": expires_at}, now_ms):
        return None
    before = found.items_before.get(key["part"], {})
    clauses: list[Clause] = [
        Assign("sum", whole[0]),
        Assign("events", whole[1]),
        Assign("version", _next(before.get("version", 0))),
        *also,
    ]
    for cell, worth in cells.items():
        clauses += (Assign(SUM + cell, worth[0]), Assign(EVENTS + cell, worth[1]))
    clauses += [Drop(kind + cell) for cell in there if cell not in cells for kind in (SUM, EVENTS)]
    if expires_at is not None:
        clauses.append(Assign("expires_at", expires_at))
    clauses += raised(stored, proof, now_ms)
    return Update(table, key, tuple(clauses), unchanged("version", before.get("version")))


def _next(version: object) -> int:
    """The version after one; where that was edited by hand, the first."""
    return version + 1 if isinstance(version, int) else 1
