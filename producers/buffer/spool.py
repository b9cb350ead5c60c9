"""The spool: a file that keeps unacknowledged entries across a crash of their process.

A row is written before `add` returns, and removed once its entry is acknowledged. After a crash,
the entries are sent again with the same ids, so that the ledger recognises those that arrived.
Events that wait to be coalesced have rows of their own. One commit replaces them by their entry
*before* its first send: after a crash the spool has either the events or the entry, never both.

It is an SQLite database with a write-ahead log: a commit survives the end of the process without
any sync, and the end of the machine with `fsync`. Its owner alone can read it. One process locks
the file until it closes the file or dies. A fork must not use the connection: SQLite in a fork
could remove the log of its parent, even at the end of the fork.
"""

from __future__ import annotations

import atexit
import json
import os
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet

from countledger.ledger.amount import Amount, from_number, to_text
from countledger.ledger.entry import Entry, Note
from countledger.ledger.private_files import ensure_private
from countledger.ledger.processes import abandon, this_process
from countledger.producers.buffer.settings import SpoolRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from countledger.producers.buffer.settings import PendingEntry


# The rows of a spool: each has an entry, or an event that has no entry yet.


class Spooled(NamedTuple):
    """One row; without an entry it is an event that waits to be coalesced."""

    row: int
    counter: str
    delta: Amount
    entry: Entry | None


def encode_row(counter: str, delta: Amount, entry: Entry | None) -> str:
    """The text of an entry, or of its event if the entry is not created yet."""
    if entry is None:
        return json.dumps({"counter": counter, "delta": to_text(delta)})
    facts = {
        "counter": entry.counter,
        "delta": to_text(entry.delta),
        "id": entry.id,
        "at_ms": entry.at_ms,
        "origin": entry.origin,
        "events": entry.events,
        "key": entry.key,
        "note": dict(entry.note) if entry.note else None,
        "occurred_at_ms": entry.occurred_at_ms,
    }
    return json.dumps({name: value for name, value in facts.items() if value is not None})


def decode_row(row: int, text: str) -> Spooled:
    """The row of a text; `ValueError`, `KeyError` or `TypeError`: it is none."""
    facts: dict[str, Any] = json.loads(text)
    counter, delta = facts.pop("counter"), from_number(facts.pop("delta"))
    if "id" not in facts:
        return Spooled(row, counter, delta, None)
    if "note" in facts:
        facts["note"] = Note(facts["note"])
    return Spooled(row, counter, delta, Entry(counter=counter, delta=delta, **facts))


# "ctls": distinguishes spools from databases of other programs.
_APPLICATION: Final = 0x63746C73
_FORMAT: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE about (ledger TEXT NOT NULL)",
    "CREATE TABLE rows (row INTEGER PRIMARY KEY, body TEXT NOT NULL, refused TEXT)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)


class _SpoolClosed(SpoolRefused):
    """The spool is closed."""


@dataclass(eq=False)
class Spool:
    """An open spool of this process. Safe to share between threads.

    A sender may still run when it is closed.
    """

    path: str
    connection: sqlite3.Connection
    next_row: int
    process: tuple[int, int] = field(default_factory=this_process)
    closed: bool = False
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, path: str | Path, *, ledger: str, fsync: bool = False) -> Spool:
        """Open or create a spool, which always belongs to the same ledger.

        `fsync`: each commit waits for the disk. `SpoolRefused`: another process uses the file, it
        belongs to another ledger or to a later release, it is not a spool, or it cannot be read or
        written.
        """
        with _refusing(path):
            ensure_private(path)
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
        """Keep pending entries or events, one row for each, or nothing: one commit."""
        with self._commit():
            rows = []
            for number, pending in enumerate(pendings, self.next_row):
                rows.append((number, encode_row(pending.counter, pending.delta, pending.entry)))
                pending.rows = [number]
            self.connection.executemany("INSERT INTO rows (row, body) VALUES (?, ?)", rows)
            self.next_row += len(rows)

    def freeze(self, pendings: Iterable[PendingEntry]) -> None:
        """Replace events by the entries that were created from them, or nothing: one commit."""
        with self._commit():
            for pending in pendings:
                if pending.rows is None or pending.entry is None:
                    continue
                first = pending.rows[0]
                self.connection.execute(
                    "UPDATE rows SET body = ? WHERE row = ?",
                    (encode_row(pending.entry.counter, pending.entry.delta, pending.entry), first),
                )
                self._delete(pending.rows[1:])

    def update(self, acknowledged: Iterable[int], refused: Iterable[tuple[str, int]]) -> None:
        """Delete acknowledged rows, and mark refused ones with a reason: one commit.

        If the spool is closed nothing is done. Then, and if the disk fails, the entries are sent
        again at the next start, and count once.
        """
        with suppress(_SpoolClosed), self._commit():
            self._delete(acknowledged)
            self.connection.executemany("UPDATE rows SET refused = ? WHERE row = ?", refused)

    def kept(self) -> list[Spooled]:
        """The rows that are neither acknowledged nor refused, in order."""
        return [row for row, _ in self._read("IS NULL")]

    def refused(self) -> list[tuple[Spooled, str]]:
        """The refused rows, each with its reason: too old, or refused by a rule."""
        return self._read("IS NOT NULL")

    def forget(self, rows: Iterable[int]) -> None:
        with self._commit():
            self._delete(rows)

    @property
    def belongs_to_parent(self) -> bool:
        """Whether this is a fork of the process that opened the spool."""
        return self.process != this_process()

    def close(self) -> None:
        """Close the file; a fork does not touch it."""
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
            raise SpoolRefused(
                f"spool {self.path!r} has a row that is not an entry: {error}"
            ) from error

    def _refuse_in_a_fork(self) -> None:
        if self.belongs_to_parent:
            raise SpoolRefused(
                f"spool {self.path!r} belongs to the parent of this forked process: create a "
                "producer with another spool in this process"
            )

    def _refuse_closed(self) -> None:
        if self.closed:
            raise _SpoolClosed(f"spool {self.path!r} is closed, as its producer is")

    def _delete(self, rows: Iterable[int]) -> None:
        self.connection.executemany("DELETE FROM rows WHERE row = ?", ((row,) for row in rows))

    @contextmanager
    def _commit(self) -> Iterator[None]:
        self._refuse_in_a_fork()
        with self._lock, _refusing(self.path):
            self._refuse_closed()
            self._roll_back()  # a signal handler may have raised in the last one, at any step
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """End the transaction, if there is one: if the disk is full, SQLite has ended it."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


def _leave_to_the_parent() -> None:
    """Abandon open spools in a fork: nothing may close them there, not even Python at its end."""
    for spool in _OPEN:
        if spool.belongs_to_parent:
            abandon(spool.connection)


_OPEN: Final[WeakSet[Spool]] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
# For a fork that was made without Python's hooks.
atexit.register(_leave_to_the_parent)


def _prepare(connection: sqlite3.Connection, path: str, ledger: str, *, fsync: bool) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (tables or application) and application != _APPLICATION:
        raise SpoolRefused(
            f"{path!r} is a database of another program, not a spool: name another file"
        )
    if version > _FORMAT:
        raise SpoolRefused(f"spool {path!r} has format {version}; this release reads {_FORMAT}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    # The first write takes the lock; the connection keeps it.
    connection.execute("BEGIN IMMEDIATE")
    if not tables:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO about (ledger) VALUES (?)", (ledger,))
    (filled_for,) = connection.execute("SELECT ledger FROM about").fetchone()
    connection.execute("COMMIT")
    if filled_for != ledger:
        raise SpoolRefused(
            f"spool {path!r} has entries for {filled_for}, but this producer writes to {ledger}: "
            "name another file"
        )


@contextmanager
def _refusing(path: object) -> Iterator[None]:
    """Raise `SpoolRefused` for each error of SQLite, and of the file itself."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            text = f"spool {str(path)!r} is in use: name another file for each process"
        else:
            text = f"spool {str(path)!r} cannot be used: {error}"
        raise SpoolRefused(text) from error
    except OSError as error:
        raise SpoolRefused(f"spool {str(path)!r} cannot be used: {error.strerror}") from error
