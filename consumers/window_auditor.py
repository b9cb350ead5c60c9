"""Verify and rebuild windows: of counters by name, of a namespace, or of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.consumers.audit import SEGMENTS_DEFAULT
from countledger.consumers.window_audit import WindowRebuilder
from countledger.consumers.window_verify import WindowVerifier
from countledger.consumers.windows import no_windows
from countledger.ledger import keys
from countledger.ledger.windows import decode_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from countledger.consumers.audit import Audit, Auditor
    from countledger.consumers.verify import Repair, Verdict
    from countledger.ledger.entry import Entry

# Of a walk: each proof may wait as long as clocks differ, and all entries of these are in memory.
_CHUNK: Final = 100


@dataclass(frozen=True, slots=True)
class WindowAuditor:
    """Compares windows with each other and with their entries, and rebuilds those that differ.

    Attributes:
        auditor: of totals.
        archive_at: opens an archive, `s3://bucket/prefix`: the archived entries of a counter and an
            incarnation of its head.
    """

    auditor: Auditor
    archive_at: Callable[[str], Callable[[str, str], Iterable[Entry]]]

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
        totals = self.auditor.verifier.totals
        item = totals.dynamo.get(totals.table, keys.windows_key(namespace), consistent=True)
        return bool(decode_settings(item))


def _task(what: str, namespace: str | None) -> str:
    return what if namespace is None else f"{what} of {namespace}"
