"""The one client to git: a repository's objects, read through no configuration but our own.

What git prints depends on more than the history: on the configuration of user and repository, on
attributes, mail maps, replacement refs and the environment. A count must not. So the history is
read through a *view*: an empty bare repository in a temporary directory that borrows the objects
(and the shallow boundary) of the real one. The real repository is asked only where its objects are
and what HEAD is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHUNK_BYTES: Final = 1 << 16
# One command line has space for so many.
_OBJECTS_AT_ONCE: Final = 500
# Grep ends so where no file has a line.
_NO_MATCH: Final = (1, "grep")
_SHA256_HEX_DIGITS: Final = 64
_PLAIN: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_OPTIONS: Final = (
    # Since 2.43 a bare repository may take its attributes from a tree, and always its mail map.
    *("-c", "attr.tree=none-of-them"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "mailmap.blob=none-of-them"),
    "--no-pager",
)
_PARTIAL: Final = "in a partial clone, `git fetch --refetch --no-filter` brings the missing objects"


class GitUnusable(SetupError):
    """Git, the repository, its first commit or an object is missing; the message says which."""


class View:
    """A repository's history as bytes on a pipe.

    Attributes:
        root: where the repository is, for people.
        head: the commit at HEAD, in hex.
        shallow: whether the history ends at a shallow boundary rather than at its first commit.
    """

    def __init__(self, root: Path, head: str, directory: Path, objects: Path) -> None:
        self.root = root
        self.head = head
        self.shallow = (directory / "shallow").exists()
        self._directory = directory
        self._environment = _environment() | _PLAIN
        self._environment |= {"GIT_DIR": str(directory), "GIT_OBJECT_DIRECTORY": str(objects)}
        # Before 2.32 only this hides the user's own configuration.
        self._environment |= {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}

    def tokens(self, *arguments: str, end: bytes = b"\0") -> Iterator[bytes]:
        """The output of a git command, cut at each end mark.

        Raises:
            GitUnusable: the command failed; the text is git's own.
        """
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(  # noqa: S603 - arguments are ours, and no shell reads them
                ["git", *_OPTIONS, *arguments],  # noqa: S607 - the user's git, from PATH
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._directory,
                env=self._environment,
            ) as running,
        ):
            if running.stdout is None:
                raise AssertionError("the process was made with a pipe")
            try:
                rest = b""
                while chunk := running.stdout.read(_CHUNK_BYTES):
                    *whole, rest = (rest + chunk).split(end)
                    yield from whole
                if rest:
                    yield rest
                code = running.wait()
            finally:
                running.kill()
            if code and (code, arguments[0]) != _NO_MATCH:
                errors.seek(0)
                reason = _first_line(errors.read())
                raise GitUnusable(
                    f"git {arguments[0]} failed in {self.root}: {reason} ({_PARTIAL})"
                )

    def lines(self, objects: Sequence[str]) -> dict[str, int]:
        """The lines of objects as git counts them, by object; 0 for a binary one.

        A last line without a newline is a line.
        """
        counts = dict.fromkeys(objects, 0)
        count = ("grep", "-I", "--count", "--null", "--no-color", "-e", "")
        for n in range(0, len(objects), _OBJECTS_AT_ONCE):
            chosen = objects[n : n + _OBJECTS_AT_ONCE]
            for token in self.tokens(*count, *chosen, end=b"\n"):
                oid, _, lines = token.partition(b"\0")
                counts[oid.decode()] = int(lines)
        return counts


@contextmanager
def open_repository(path: Path) -> Iterator[View]:
    """The repository that holds the path, bare or not, from any of its directories.

    Raises:
        GitUnusable: git is not installed, the path is in no repository that git opens, or HEAD
            names no commit.
    """
    if not path.is_dir():
        raise GitUnusable(f"{path} is not a directory: give the path of a git repository")
    objects = Path(_ask(path, "rev-parse", "--git-path", "objects"))
    shallow = path / _ask(path, "rev-parse", "--git-path", "shallow")
    try:
        head = _ask(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitUnusable:
        raise GitUnusable(f"{path} has no commit at HEAD: nothing can be counted") from None
    with tempfile.TemporaryDirectory(prefix="countledger-git-") as name:
        directory = Path(name)
        # Written by hand: no template, no hook; and of the same hash function.
        config = "[core]\n\tbare = true\n\trepositoryformatversion = 0\n"
        if len(head) == _SHA256_HEX_DIGITS:
            config = config.replace("= 0", "= 1") + "[extensions]\n\tobjectformat = sha256\n"
        (directory / "config").write_text(config)
        (directory / "HEAD").write_text(f"{head}\n")
        (directory / "refs").mkdir()
        (directory / "objects").mkdir()
        if shallow.exists():
            (directory / "shallow").write_bytes(shallow.read_bytes())
        yield View(path, head, directory, (path / objects).resolve())


def _ask(path: Path, *arguments: str) -> str:
    """One line from the real repository, found from this path whatever the environment says."""
    try:
        done = subprocess.run(  # noqa: S603 - arguments are ours, and no shell reads them
            ["git", *arguments],  # noqa: S607 - the user's git, from PATH
            cwd=path,
            env=_environment("GIT_CONFIG", "GIT_CEILING", "GIT_DISCOVERY") | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise GitUnusable("git was not found: install git, the demo counts a repository") from None
    except OSError as error:
        raise GitUnusable(f"{path} cannot be opened: {error.strerror}") from error
    if done.returncode:
        raise GitUnusable(f"{path} cannot be opened: {_first_line(done.stderr)}")
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


def _environment(*keep: str) -> dict[str, str]:
    """The environment without what would point git elsewhere or change what it prints."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(keep or ("GIT_EXEC_PATH",))
    }


def _first_line(text: bytes) -> str:
    """Git's own reason in one printable line."""
    lines = text.decode(errors="replace").strip().splitlines()
    return re.sub(r"^fatal: ", "", lines[0]) if lines else "git gave no reason"
