"""The spool: a file that keeps what is not acknowledged across a crash of its process.

A row is written before `add` returns, and removed once its entry is acknowledged. What a crash
leaves is sent again under the same ids: an entry that had arrived lies there already. Events that
wait to be coalesced are rows of their own; one commit replaces them by their entry *before* that is
first sent, so that a crash finds either of the two, never both and never none.

SQLite's write-ahead log: a commit survives the end of the process without any sync, and with
`fsync` that of the machine. The file is locked for one process, until it closes it or dies. A fork
has no part in it: SQLite in a fork would take the log away from under its parent, if only at the
fork's own end.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from countledger.ledger.forks import abandon, this_process
from countledger.producers.buffer.errors import SpoolRefused
from countledger.producers.buffer.spool_rows import (
    Spooled,
    decode_row,
    encode_entry_row,
    encode_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from countledger.producers.buffer.outcomes import PendingEntry

# "ctls", so that no other program's database is taken for a spool.
_APPLICATION: Final = 0x63746C73
_FORMAT: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE about (ledger TEXT NOT NULL)",
    "CREATE TABLE rows (row INTEGER PRIMARY KEY, body TEXT NOT NULL, refused TEXT)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)


class _SpoolClosed(SpoolRefused):
    """It was closed before."""


@dataclass(eq=False)
class Spool:
    """An open spool, this process's alone. Safe to share between threads.

    Attributes:
        path: its file.
        connection: the open database.
        next_row: the number of the next row.
        process: the one that it belongs to.
        closed: whether it is closed; a sender may outlive that.
    """

    path: str
    connection: sqlite3.Connection
    next_row: int
    process: tuple[int, int] = field(default_factory=this_process)
    closed: bool = False
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, path: str | Path, *, ledger: str, fsync: bool = False) -> Spool:
        """Open a spool, or make one.

        Args:
            path: its file.
            ledger: which ledger its entries go to; a spool belongs to one for good.
            fsync: whether each commit waits for the disk.

        Raises:
            SpoolRefused: another process has it, it was filled for another ledger or by a later
                release, or it is no spool, or cannot be read or written.
        """
        with _refusing(path):
            connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        try:
            with _refusing(path):
                _prepare(connection, str(path), ledger, fsync=fsync)
                (last,) = connection.execute("SELECT max(row) FROM rows").fetchone()
        except SpoolRefused:
            connection.close()
            raise
        spool = cls(str(path), connection, (last or 0) + 1)
        _OPEN.add(spool)
        return spool

    def append(self, pendings: Sequence[PendingEntry]) -> None:
        """Keep pending entries, or events, each in a row of its own: one commit.

        Raises:
            SpoolRefused: the disk is full, or failed; nothing was kept.
        """
        with self._commit():
            rows = []
            for number, pending in enumerate(pendings, self.next_row):
                rows.append((number, encode_row(pending)))
                pending.rows = [number]
            self.connection.executemany("INSERT INTO rows (row, body) VALUES (?, ?)", rows)
            self.next_row += len(rows)

    def freeze(self, pendings: Iterable[PendingEntry]) -> None:
        """Keep the entries that were made of events, in place of these: one commit.

        Raises:
            SpoolRefused: the disk is full, or failed; the events are kept as they were.
        """
        with self._commit():
            for pending in pendings:
                if pending.rows is None or pending.entry is None:
                    continue
                first = pending.rows[0]
                self.connection.execute(
                    "UPDATE rows SET body = ? WHERE row = ?",
                    (encode_entry_row(pending.entry), first),
                )
                self._delete(pending.rows[1:])

    def update(self, acknowledged: Iterable[int], refused: Iterable[tuple[str, int]]) -> None:
        """Forget what is acknowledged, and put aside what can never be: one commit.

        If the spool is closed nothing is done: all of it comes again at the next start.

        Args:
            acknowledged: rows.
            refused: a reason and a row, each.

        Raises:
            SpoolRefused: the disk failed; all of it comes again at the next start, and counts once.
        """
        with suppress(_SpoolClosed), self._commit():
            self._delete(acknowledged)
            self.connection.executemany("UPDATE rows SET refused = ? WHERE row = ?", refused)

    def kept(self) -> list[Spooled]:
        """What is not acknowledged, in the order of its rows.

        Raises:
            SpoolRefused: a row cannot be understood.
        """
        return [row for row, _ in self._read("IS NULL")]

    def refused(self) -> list[tuple[Spooled, str]]:
        """What was put aside, each with its reason: too old, or against a rule.

        Raises:
            SpoolRefused: a row cannot be understood.
        """
        return self._read("IS NOT NULL")

    def forget(self, rows: Iterable[int]) -> None:
        """Remove rows that were put aside."""
        with self._commit():
            self._delete(rows)

    @property
    def belongs_to_parent(self) -> bool:
        """Whether this is a fork of the process that it belongs to."""
        return self.process != this_process()

    def close(self) -> None:
        """Let go of the file; in a fork it is left alone."""
        if self.belongs_to_parent:
            abandon(self.connection)
            return
        with self._lock, _refusing(self.path):
            self.closed = True
            self.connection.close()

    def _read(self, which: str) -> list[tuple[Spooled, str]]:
        self._refuse_in_a_fork()
        query = f"SELECT row, body, refused FROM rows WHERE refused {which} ORDER BY row"  # noqa: S608 - ours
        with self._lock, _refusing(self.path):
            self._refuse_closed()
            found = self.connection.execute(query).fetchall()
        try:
            return [(decode_row(row, body), reason) for row, body, reason in found]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpoolRefused(f"spool {self.path!r} holds what is no entry: {error}") from error

    def _refuse_in_a_fork(self) -> None:
        if self.belongs_to_parent:
            raise SpoolRefused(
                f"spool {self.path!r} is that of the process that this one was forked from: make a "
                "producer here, with a spool of its own"
            )

    def _refuse_closed(self) -> None:
        if self.closed:
            raise _SpoolClosed(f"spool {self.path!r} is closed with its producer")

    def _delete(self, rows: Iterable[int]) -> None:
        self.connection.executemany("DELETE FROM rows WHERE row = ?", ((row,) for row in rows))

    @contextmanager
    def _commit(self) -> Iterator[None]:
        self._refuse_in_a_fork()
        with self._lock, _refusing(self.path):
            self._refuse_closed()
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                # Of a disk that is full, SQLite has undone it already.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")


def _leave_to_the_parent() -> None:
    """In a fork: nothing may touch or close what was open, not even Python as it ends."""
    for spool in _OPEN:
        if spool.belongs_to_parent:
            abandon(spool.connection)


_OPEN: Final[WeakSet[Spool]] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
# In a fork that Python has not seen.
atexit.register(_leave_to_the_parent)


def _prepare(connection: sqlite3.Connection, path: str, ledger: str, *, fsync: bool) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (tables or application) and application != _APPLICATION:
        raise SpoolRefused(f"{path!r} is a database of something else, and no spool")
    if version > _FORMAT:
        raise SpoolRefused(f"spool {path!r} has format {version}; this release reads {_FORMAT}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    # The lock is taken with the first write, and kept.
    connection.execute("BEGIN IMMEDIATE")
    if not tables:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO about (ledger) VALUES (?)", (ledger,))
    (filled_for,) = connection.execute("SELECT ledger FROM about").fetchone()
    connection.execute("COMMIT")
    if filled_for != ledger:
        raise SpoolRefused(
            f"spool {path!r} was filled for {filled_for}, and this is {ledger}: its entries would "
            "count in the wrong place; name another file"
        )


@contextmanager
def _refusing(path: object) -> Iterator[None]:
    """Turn what SQLite raises into an error of ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            text = f"spool {str(path)!r} is in use: each process needs one of its own"
        else:
            text = f"spool {str(path)!r} cannot be used: {error}"
        raise SpoolRefused(text) from error
