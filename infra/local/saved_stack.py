"""The directory in which `countledger up --persist` keeps a stack: one file, for one stack.

The first line of the file is a JSON header, the rest is the memory of the engine. A file is
replaced by one that is complete and on disk, so a crash leaves the file before it.
"""

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

from countledger.ledger.errors import SetupError

FILE: Final = "stack"
FORMAT: Final = 1
ENGINE: Final = "ministack"
_HEADER_MAX_BYTES: Final = 64 * 1024


class SavedStackRefused(SetupError):
    """The directory of `up --persist` cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStack:
    """What a file says of the stack that is saved in it.

    Attributes:
        complete: whether the engine had ended: nothing was written after it was saved.
    """

    stack_name: str
    regions: tuple[str, ...]
    port: int
    saved_at_ms: int
    complete: bool
    engine: str
    release: str

    @property
    def saved_at(self) -> datetime:
        return datetime.fromtimestamp(self.saved_at_ms / 1_000, UTC)


def installed_engine() -> str:
    return f"{ENGINE} {version(ENGINE)}"


def write(directory: Path, saved: SavedStack, memory: bytes) -> None:
    """Replace the file; at each moment the old or the new one is there as a whole."""
    header = {
        "format": FORMAT,
        **asdict(saved),
        "size": len(memory),
        "sha256": hashlib.sha256(memory).hexdigest(),
    }
    new = directory / f"{FILE}.new"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.write(memory)
        file.flush()
        os.fsync(file.fileno())
    new.replace(directory / FILE)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_header(directory: Path) -> SavedStack | None:
    """What the directory has; None: nothing is saved there."""
    try:
        with (directory / FILE).open("rb") as file:
            return _header(directory, file.readline(_HEADER_MAX_BYTES))[0]
    except FileNotFoundError:
        return None


def read(directory: Path) -> tuple[SavedStack, bytes] | None:
    """What the directory has, and the memory of the engine, compared with its checksum."""
    try:
        with (directory / FILE).open("rb") as file:
            saved, size, digest = _header(directory, file.readline(_HEADER_MAX_BYTES))
            memory = file.read()
    except FileNotFoundError:
        return None
    if len(memory) != size:
        raise _damaged(directory, f"it has {len(memory)} bytes of {size}")
    if hashlib.sha256(memory).hexdigest() != digest:
        raise _damaged(directory, "its content does not match its checksum")
    return saved, memory


def _header(directory: Path, line: bytes) -> tuple[SavedStack, int, str]:
    try:
        fields: dict[str, Any] = json.loads(line)
        found = fields.pop("format")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(directory, "it does not begin with a header") from error
    if found != FORMAT:
        raise SavedStackRefused(
            f"{directory / FILE} has format {found}, and this release reads format {FORMAT}: start "
            "it with the release of countledger that saved it, or give another directory"
        )
    try:
        size, digest = fields.pop("size"), fields.pop("sha256")
        saved = SavedStack(**{**fields, "regions": tuple(fields["regions"])})
    except (TypeError, KeyError) as error:
        raise _damaged(directory, "its header lacks a field") from error
    if saved.engine != installed_engine():
        raise SavedStackRefused(
            f"{directory / FILE} was saved by {saved.engine}, and {installed_engine()} is "
            f"installed: `pip install {saved.engine.replace(' ', '==')}`, or give another directory"
        )
    return saved, size, digest


def _damaged(directory: Path, what: str) -> SavedStackRefused:
    return SavedStackRefused(
        f"{directory / FILE} is damaged ({what}): replace it by a copy, or remove it to begin with "
        "an empty stack"
    )


class StackDirectory:
    """A directory of `up --persist`, locked for one stack at a time, for a `with` block.

    Attributes:
        lock: a descriptor; the directory is locked as long as any process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            self.lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        except OSError as error:
            raise SavedStackRefused(
                f"{path} cannot be used ({error.strerror}): give a directory whose parent exists"
            ) from error
        try:
            self._check()
        except BaseException:
            os.close(self.lock)
            raise

    def _check(self) -> None:
        found = os.fstat(self.lock)
        if found.st_mode & 0o077 or found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            raise SavedStackRefused(
                f"{self.path} is no private directory of yours: `chmod 700` it, or give another one"
            )
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SavedStackRefused(
                f"{self.path} is in use by another stack: end that one with `countledger down`, or "
                "give another directory"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self.lock)

    def find(self, stack_name: str, regions: Sequence[str]) -> SavedStack | None:
        """The stack that is saved there, refused if it is another one; no regions: where it was."""
        found = read(self.path)
        if found is None:
            return None
        saved, _memory = found
        if saved.stack_name != stack_name:
            raise SavedStackRefused(
                f"{self.path} has the stack {saved.stack_name!r}, not {stack_name!r}: give "
                f"--stack-name {saved.stack_name}, or another directory"
            )
        if regions and tuple(regions) != saved.regions:
            raise SavedStackRefused(
                f"{self.path} has a stack in {', '.join(saved.regions)}: leave out --regions, or "
                "give another directory; `countledger region add` adds a region"
            )
        return saved
