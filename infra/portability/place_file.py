"""How far an emit or an import of a file has come, stored on the disk before anything is sent.

It is an SQLite database of one row: a save is atomic and waits for the disk. A process locks the
file until it closes it or dies.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countledger.ledger.errors import BadSetting
from countledger.ledger.private_files import ensure_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# "ctlp": distinguishes it from databases of other programs.
_APPLICATION: Final = 0x63746C70


class FilePlace(BaseModel):
    """How far an emit or an import has come.

    Attributes:
        id: a random id; the ids of the entries of an emit follow from it.
        purpose: the ledger, and how lines are read. A task for another purpose cannot continue.
        through: the last line of which everything was answered.
        last: the last line that may have been sent; `through`, if there is none after it.
        at_ms: the time of the entries of the lines after `through`, ms since the epoch.
        digest: of everything in the file up to line `last`.
        counts: what became of the lines up to `through`: how many, by outcome.
        worst: the exit code that they come to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    id: str
    purpose: str
    through: int = Field(default=0, ge=0)
    last: int = Field(default=0, ge=0)
    at_ms: int = 0
    digest: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    worst: int = 0


@dataclass(frozen=True, eq=False)
class PlaceFile:
    """An open place file, locked by this process.

    Attributes:
        path: the file.
        connection: the open database.
    """

    path: Path
    connection: sqlite3.Connection

    def load(self) -> FilePlace | None:
        """The place; None: nothing was saved yet.

        Raises:
            BadSetting: the file cannot be read, or a later release wrote it.
        """
        with _refusing(self.path):
            row = self.connection.execute("SELECT body FROM place").fetchone()
        if row is None:
            return None
        try:
            return FilePlace.model_validate_json(row[0])
        except ValidationError as error:
            raise BadSetting(
                f"{self.path} is not valid ({error.errors()[0]['msg']}): look in the change log "
                "for what was sent, and remove the file to send every line again"
            ) from error

    def save(self, place: FilePlace) -> None:
        """Replace the place; it survives the end of the machine.

        Raises:
            BadSetting: the disk is full or failed.
        """
        with _refusing(self.path), self.connection:
            self.connection.execute(
                "INSERT OR REPLACE INTO place (id, body) VALUES (1, ?)", (place.model_dump_json(),)
            )

    def remove(self) -> None:
        """Close and delete the file."""
        self.connection.close()
        self.path.unlink(missing_ok=True)


class NoPlace:
    """No place is stored: that of standard input without `--place`."""

    def load(self) -> None:
        """Always None."""

    def save(self, place: FilePlace) -> None:
        """Do nothing."""

    def remove(self) -> None:
        """Do nothing."""


@contextmanager
def open_place(path: Path) -> Iterator[PlaceFile]:
    """Open or create a place file, and lock it.

    Raises:
        BadSetting: another process uses it, it is another program's, or it cannot be written.
    """
    with _refusing(path):
        ensure_private(path)
        connection = sqlite3.connect(path, timeout=0)
    try:
        with _refusing(path):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if (tables or application) and application != _APPLICATION:
                raise BadSetting(f"{path} belongs to another program: name another file by --place")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            # The first write takes the lock; the connection keeps it.
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS place (id INTEGER PRIMARY KEY, body TEXT NOT NULL)"
            )
        yield PlaceFile(path, connection)
    finally:
        connection.close()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Raise `BadSetting` for each error of SQLite, and of the file itself."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise BadSetting(
                f"{path} is in use: another emit or import of this file is running"
            ) from error
        raise BadSetting(
            f"{path} cannot be used ({error}): name a file that can be written by --place"
        ) from error
