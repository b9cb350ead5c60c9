"""Files with data of users: their owner alone may read them, whatever the umask."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

_OWNER_ALONE: Final = 0o600
# Windows has neither of them.
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


def create_private(path: str | Path) -> int:
    """A descriptor of a new file, open for reading and writing; FileExistsError if it exists."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, _OWNER_ALONE)


def open_private(path: Path) -> tuple[int, bool]:
    """A descriptor of a file for reading and writing, and whether it existed; OSError for a link.

    A file that exists keeps its mode.
    """
    try:
        return os.open(path, os.O_RDWR | _NO_LINK), True
    except FileNotFoundError:
        return create_private(path), False


def ensure_private(path: str | Path) -> None:
    """Create an empty file, unless it exists: an existing one keeps its mode.

    What creates its files by itself, such as SQLite, gives those beside it the mode of this one.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ALONE))


def replace_private(path: Path, text: str, *, locked: bool = False) -> None:
    """Give a file this text, at once: a reader sees all of the old or of the new one.

    `locked`: this process alone writes the file, by a lock. Then the next replacement removes what
    a process that was killed has left.
    """
    if locked:
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        descriptor = create_private(beside)
    else:
        # Another process may replace the same file meanwhile: each has a name of its own.
        descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        beside = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
