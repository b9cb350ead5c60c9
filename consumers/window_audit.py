"""Rebuild windows: replace those that differ from their entries.

Each item is replaced on condition that it is as it was before the entries were read. So an entry is
in what was counted again, or its record changes the item before the write, or comes after it; never
two of them. As in `repair`, the write raises the watermarks of shards that were handled lately.
What the total says about windows is replaced in the same way.

A total that was lost and repaired does not name its windows any more. It gets the id of those that
are there, so each of them is the same window as before, to its ranking and to the alerts that it
raised. If it got another id meanwhile, by a later entry, the items of the old one are deleted. The
windows of a counter that was deleted are never taken over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.consumers.audit import SEGMENTS_DEFAULT, Auditor
from countledger.consumers.verify import (
    Judgement,
    Remedy,
    Repair,
    clear_total,
    raised,
    refuse_if_old,
)
from countledger.consumers.window_verify import (
    WindowEvidence,
    WindowVerifier,
    cells_in,
    counted,
    is_expired,
    name_in,
    verdict_of,
)
from countledger.consumers.windows import no_windows
from countledger.ledger import amount, keys
from countledger.ledger.attempts import wrote
from countledger.ledger.departure import guarded
from countledger.ledger.errors import CountledgerError, SetupError
from countledger.ledger.indexes import day_clauses
from countledger.ledger.operations import (
    AllOf,
    Assign,
    AssignOnce,
    Compare,
    Delete,
    Drop,
    Update,
    unchanged,
)
from countledger.ledger.total import (
    REPAIRED_AT,
    new_windows_id,
    repaired_ms_of,
    setting_id_of,
    windows_id_of,
    windows_names,
)
from countledger.ledger.windows import EVENTS, SUM, decode_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from countledger.consumers.audit import Audit
    from countledger.consumers.proof import Proof
    from countledger.consumers.verify import Verdict, Verifier
    from countledger.consumers.window_verify import CountedWindows
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting


@dataclass(frozen=True, slots=True)
class WindowRebuilder:
    windows: WindowVerifier
    dry_run: bool = False

    def rebuild(self, counters: Iterable[str]) -> Iterator[Repair]:
        """As `WindowAuditor.rebuild`."""
        return map(self._rebuilt, self.windows.compare(counters))

    def _now_ms(self) -> int:
        return self.windows.verifier.connection.clock.now_ms()

    def _rebuilt(self, found: WindowEvidence) -> Repair:
        verdict, reason = verdict_of(found, self._now_ms()), ""
        is_proven = not isinstance(found.entries, str) and found.flaw is None
        if verdict.verdict is Judgement.EXACT:
            if is_proven and not self.dry_run:
                self._note_rebuilt(found)
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
                named: set[str] = set()
                for setting in found.settings:
                    windows = counted(setting, entries)
                    is_named = windows_id_of(found.total, setting.id) is not None
                    if is_named or windows.whole[1] or found.windowed(setting) != (0, 0):
                        windows_id = _id_of(found, setting, self._now_ms())
                        named.add(windows_id)
                        changed += self._write(found, setting, windows_id, windows, proof)
                changed += self._delete_unnamed(found, named)
                if not changed:
                    self._note_rebuilt(found)
        except SetupError:
            raise  # it concerns every counter
        except CountledgerError as error:
            return str(error)
        return f"{changed} of its items changed meanwhile; try again" if changed else ""

    def _write(
        self,
        found: WindowEvidence,
        setting: WindowSetting,
        windows_id: str,
        windows: CountedWindows,
        proof: Proof,
    ) -> int:
        """Write the total and the items of a setting; how many had changed meanwhile."""
        now_ms, table = self._now_ms(), self.windows.verifier.connection.counters
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

    def _delete_unnamed(self, found: WindowEvidence, named: Collection[str]) -> int:
        """Delete the items of windows that the total does not name; how many had changed meanwhile.

        They would stay in the rankings of their days.
        """
        if found.is_deleted:
            return 0  # the deletion does
        to = self.windows.verifier.connection
        dynamo, table = to.retrying, to.counters
        changed = 0
        for windows_id, items in found.unnamed().items():
            for item in items if windows_id not in named else ():
                same = unchanged("version", item.get("version"))
                key = {"counter": found.counter, "part": item["part"]}
                changed += not wrote(dynamo, Delete(table, key, same))
        return changed

    def _note_rebuilt(self, found: WindowEvidence) -> None:
        """The windows contain everything that the repaired total contained."""
        at_ms = found.total.get(REPAIRED_AT)
        if at_ms is not None:
            key, same = keys.total_key(found.counter), Compare(REPAIRED_AT, "=", at_ms)
            table = self.windows.verifier.connection.counters
            self._applied(Update(table, key, (Drop(REPAIRED_AT),), same))

    def _applied(self, update: Update) -> bool:
        return wrote(self.windows.verifier.connection.retrying, update)


def _id_of(found: WindowEvidence, setting: WindowSetting, now_ms: int) -> str:
    """The id of a counter's windows: as its total says, or of those that a lost total left."""
    named = windows_id_of(found.total, setting.id)
    if named is not None:
        return named
    left = {} if found.is_deleted else found.unnamed()
    mine = [(len(items), one) for one, items in left.items() if setting_id_of(one) == setting.id]
    return max(mine)[1] if mine else new_windows_id(setting.id, found.counter, now_ms)


def clear_with_windows(verifier: Verifier, counter: str) -> str | None:
    """Clear a total (`clear_total`), and count the windows of what was recorded since; why not.

    The total that is left has windows of its own: what the cleared one had counted of the next
    counter is not in them until then. What cannot be counted again stays incomplete.
    """
    if reason := clear_total(verifier, counter):
        return reason
    if repaired_ms_of(verifier.totals.item(counter) or {}) is None:
        return None
    windows = WindowVerifier(verifier)
    (evidence,) = windows.compare([counter])
    if not evidence.settings or isinstance(evidence.entries, str):
        return None
    (done,) = WindowRebuilder(windows).rebuild([counter])
    return None if done.healthy else f"its windows: {done.reason}"


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


# Verify and rebuild windows: of counters by name, of a namespace, or of all.


# Of a walk: each proof may wait as long as clocks differ, and all entries of these are in memory.
_CHUNK: Final = 100


@dataclass(frozen=True, slots=True)
class WindowAuditor:
    """Compares windows with each other and with their entries, and rebuilds those that differ.

    Attributes:
        archive_at: opens an archive, `s3://bucket/prefix`: the archived entries of a counter and an
            incarnation of its head.
    """

    connection: Connection
    archive_at: Callable[[str], Callable[[str, str], Iterable[Entry]]]
    auditor: Auditor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "auditor", Auditor(self.connection))

    def verify(self, counters: Iterable[str], *, archived: str | None = None) -> Iterator[Verdict]:
        """Compare the windows of counters: minutes with hours, hours with days, days with totals.

        And all of them with the entries that are in the ledger or the archive. Where entries were
        merged and are in neither, windows are only compared with each other; `proof` says so.
        Reads all windows of each counter twice, and its entries once.

        Args:
            counters: their names.
            archived: where merged entries are: `s3://bucket/prefix`.

        Raises:
            WrongKind: one is not a ledger counter.
        """
        auditor = self.auditor
        return auditor.each(self._verifier(archived).verify, auditor.unread, counters)

    def verify_all(
        self,
        namespace: str | None = None,
        *,
        archived: str | None = None,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Verdict]:
        """`verify` for all counters of a namespace, or of all that have windows.

        Scans both tables. `segments` and `resume` as for `Auditor.verify_all`.

        Raises:
            NoWindows: the namespace never had windows.
        """
        verify = self._verifier(archived, _CHUNK).verify
        return self.auditor.walk(
            _task("verify windows", namespace),
            verify,
            self.auditor.unread,
            lambda one: str(one.verdict),
            segments,
            resume,
            self._wanted(namespace),
        )

    def rebuild(
        self, counters: Iterable[str], *, archived: str | None = None, dry_run: bool = False
    ) -> Iterator[Repair]:
        """Replace windows that differ from their entries, with the same proof as `verify`.

        A counter is skipped, with the reason, where entries were merged and are in no archive.
        Costs as `verify`, and a write unit for each KB of each item written.

        Raises:
            WrongKind: one is not a ledger counter.
        """
        rebuild = WindowRebuilder(self._verifier(archived), dry_run).rebuild
        return self.auditor.each(rebuild, self.auditor.unrepaired, counters)

    def rebuild_all(
        self,
        namespace: str | None = None,
        *,
        archived: str | None = None,
        dry_run: bool = False,
        segments: int = SEGMENTS_DEFAULT,
        resume: Path | None = None,
    ) -> Audit[Repair]:
        """`rebuild` for all counters of a namespace, or of all; otherwise as `verify_all`."""
        rebuild = WindowRebuilder(self._verifier(archived, _CHUNK), dry_run).rebuild
        task = "rebuild windows, dry run" if dry_run else "rebuild windows"
        return self.auditor.walk(
            _task(task, namespace),
            rebuild,
            self.auditor.unrepaired,
            lambda one: str(one.remedy),
            segments,
            resume,
            self._wanted(namespace),
        )

    def _verifier(self, archived: str | None, chunk: int | None = None) -> WindowVerifier:
        entries = None if archived is None else self.archive_at(archived)
        made = WindowVerifier(self.auditor.verifier, entries)
        return made if chunk is None else WindowVerifier(made.verifier, entries, chunk)

    def _wanted(self, namespace: str | None) -> Callable[[str], bool]:
        """Which counters of a walk have windows: a read unit for each namespace."""
        if namespace is not None and not self._has_windows(keys.check_namespace(namespace)):
            raise no_windows(namespace)
        known: dict[str, bool] = {}

        def is_wanted(counter: str) -> bool:
            name = keys.namespace_of(counter)
            if namespace not in {None, name} or not self.auditor.namespaces.is_of_a_ledger(counter):
                return False
            if name not in known:
                known[name] = self._has_windows(name)
            return known[name]

        return is_wanted

    def _has_windows(self, namespace: str) -> bool:
        to = self.connection
        item = to.retrying.get(to.counters, keys.windows_key(namespace), consistent=True)
        return bool(decode_settings(item))


def _task(what: str, namespace: str | None) -> str:
    return what if namespace is None else f"{what} of {namespace}"
