"""A git repository as a stream of counter events, and what git itself says that they add up to.

docs/demo.md says what is counted. The events come from the changes that `git log` lists, and
`git grep` counts their lines. The truth comes from elsewhere: `git diff-tree` counts the lines of
the last tree, and `git log` names all authors.

What git prints depends on more than the history: on configuration, attributes, mail maps,
replacement refs and the environment. A count must not. So the history is read through a *view*: an
empty bare repository in a temporary directory that borrows the objects and the shallow boundary of
the real one, which is asked only where its objects are and what HEAD is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from countledger import Event
from countledger.ledger.errors import SetupError
from countledger.ledger.keys import has_control_characters
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LINES: Final = "lines"
COMMITS: Final = "commits"
# One command line has space for so many objects; a history may be larger than memory.
_OBJECTS_AT_ONCE: Final = 500
_COMMITS_AT_ONCE: Final = 100
_SWITCHED_ON: Final = ("GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_NO_REPLACE_OBJECTS")
# Since 2.43 a bare repository may take its attributes from a tree, and always its mail map.
_OPTIONS: Final = (
    *("-c", "attr.tree=none-of-them", "-c", "mailmap.blob=none-of-them"),
    *("-c", "core.bigFileThreshold=1024g"),  # a big text file is a text file
)
_PARTIAL: Final = "in a partial clone, `git fetch --refetch --no-filter` brings the missing objects"
# The modes of a submodule, and of nothing.
_WITHOUT_CONTENT: Final = ("160000", "000000")
_LOG: Final = (
    *("log", "--no-walk=unsorted", "--first-parent", "-m", "-z", "--raw", "--no-abbrev"),
    *("--no-renames", "--encoding=UTF-8", "--format=tformat:>%H%x00%an%x00%at"),
)
_AUTHORS: Final = ("log", "--first-parent", "-z", "--encoding=UTF-8", "--format=tformat:%an")
_TREE: Final = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--ignore-submodules=all")


class GitUnusable(SetupError):
    """Git, the repository, its first commit or an object is missing; the message says which."""


@dataclass(frozen=True, slots=True)
class View:
    """A repository's commits (in hex, oldest first); from a boundary on if it is `shallow`."""

    root: Path
    commits: tuple[str, ...]
    shallow: bool
    environment: dict[str, str]

    def tokens(self, *arguments: str, end: bytes = b"\0") -> list[bytes]:
        """The output of a git command, cut at each end mark.

        Raises:
            GitUnusable: the command failed; the text is git's own.
        """
        problem = f"git {arguments[0]} failed in {self.root} ({_PARTIAL})"
        directory = Path(self.environment["GIT_DIR"])
        output = _output((*_OPTIONS, *arguments), directory, self.environment, problem)
        return output.removesuffix(end).split(end) if output else []

    def lines(self, objects: Iterable[str]) -> dict[str, int]:
        """The lines of objects by object, also a last one without a newline; 0 if it is binary."""
        counts = dict.fromkeys(objects, 0)
        names = list(counts)
        count = ("grep", "-I", "--count", "--null", "--no-color", "-e", "")
        for n in range(0, len(names), _OBJECTS_AT_ONCE):
            for token in self.tokens(*count, *names[n : n + _OBJECTS_AT_ONCE], end=b"\n"):
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
    objects, shallow = (path / _ask(path, "--git-path", name) for name in ("objects", "shallow"))
    try:
        head = _ask(path, "--verify", "--quiet", "HEAD^{commit}")
    except GitUnusable:
        raise GitUnusable(f"{path} has no commit at HEAD: nothing can be counted") from None
    with tempfile.TemporaryDirectory(prefix="countledger-git-") as name:
        # Another home hides the user's own configuration and attributes.
        places = {"GIT_DIR": name, "HOME": name, "XDG_CONFIG_HOME": name}
        environment = _environment() | dict.fromkeys(_SWITCHED_ON, "1") | places
        form = "--object-format=" + _ask(path, "--show-object-format")
        init = ("init", "--quiet", "--bare", "--template=", form)
        _output(init, Path(name), environment, "git cannot make a view")
        if shallow.exists():
            Path(name, "shallow").write_bytes(shallow.read_bytes())
        environment["GIT_OBJECT_DIRECTORY"] = str(objects.resolve())
        view = View(path, (head,), shallow.exists(), environment)
        commits = view.tokens("rev-list", "--first-parent", "--reverse", head, end=b"\n")
        yield replace(view, commits=tuple(one.decode() for one in commits))


def _ask(path: Path, *arguments: str) -> str:
    """One fact of the real repository, found from this path whatever the environment says."""
    environment = _environment("GIT_CONFIG", "GIT_CEILING", "GIT_DISCOVERY")
    answer = _output(("rev-parse", *arguments), path, environment, f"{path} cannot be opened")
    return os.fsdecode(answer.removesuffix(b"\n"))


def _output(
    arguments: Sequence[str], directory: Path, environment: dict[str, str], problem: str
) -> bytes:
    """What git prints."""
    try:
        done = subprocess.run(  # noqa: S603 - arguments are ours, and no shell reads them
            ["git", *arguments],  # noqa: S607 - the user's git, from PATH
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=directory,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise GitUnusable(f"{problem}: {error.strerror} (install git if it is missing)") from error
    # Grep ends with 1 where no file has a line.
    if done.returncode and not (done.returncode == 1 and "grep" in arguments):
        said = done.stderr.decode(errors="replace").strip() or "git gave no reason"
        raise GitUnusable(f"{problem}: {said.splitlines()[0].removeprefix('fatal: ')}")
    return done.stdout


def _environment(*keep: str) -> dict[str, str]:
    """The environment without what would point git elsewhere or change what it prints."""
    keep = ("GIT_EXEC_PATH", *keep)
    found = os.environ.items()
    plain = {name: one for name, one in found if name[:4] != "GIT_" or name.startswith(keep)}
    return plain | {"LC_ALL": "C"}


def read_events(view: View) -> Iterator[list[Event]]:
    """The events of the history, oldest first, a commit at a time."""
    size: Counter[bytes] = Counter()
    for n in range(0, len(view.commits), _COMMITS_AT_ONCE):
        log = view.tokens(*_LOG, *view.commits[n : n + _COMMITS_AT_ONCE])
        chunk = list(_commits(iter(log)))
        lines = view.lines({oid for *_, changed in chunk for oid in changed.values() if oid})
        for commit, author, written, changed in chunk:
            events = [Event(counter_name(COMMITS, author), 1, commit, written)]
            for path, oid in changed.items():
                before, size[path] = size[path], lines[oid] if oid else 0
                if size[path] != before:
                    # The counter's spelling of the path: valid in a key, and never too long.
                    counter = counter_name(LINES, path)
                    key = f"{commit}:{counter[len(LINES) + 1 :]}"
                    events.append(Event(counter, size[path] - before, key, written))
            yield events


def _commits(
    tokens: Iterator[bytes],
) -> Iterator[tuple[str, bytes, datetime | None, dict[bytes, str]]]:
    """Commits (name, author, its date; the object of each changed path) as `git log` prints them.

    The pieces between NULs, in order: `>commit`, author, its date; then for each path
    `:mode mode oid oid letter` (the first of a commit after a newline) and the path itself.
    """
    token = next(tokens, b"")
    while token:
        commit, author, seconds = token[1:].decode(), next(tokens), next(tokens)
        try:
            written = datetime.fromtimestamp(int(seconds), UTC)
        except (ValueError, OverflowError, OSError):
            written = None  # git cannot read it, or nobody can
        changed: dict[bytes, str] = {}
        while (token := next(tokens, b"")) and not token.startswith(b">"):
            _, mode, _, oid, _ = token.decode().split(" ")
            changed[next(tokens)] = "" if mode in _WITHOUT_CONTENT else oid
        yield commit, author, written, changed


def read_truth(view: View) -> Counter[str]:
    """Every counter that is not zero at HEAD, and its value, as git itself says."""
    authors = view.tokens(*_AUTHORS, view.commits[-1])
    truth = Counter(counter_name(COMMITS, author) for author in authors)
    (empty,) = view.tokens("hash-object", "-t", "tree", "--stdin", end=b"\n")
    for token in view.tokens(*_TREE, empty.decode(), view.commits[-1]):
        added, _, path = token.split(b"\t", 2)
        if added.strip(b"-0"):  # a binary file has no number
            truth[counter_name(LINES, path)] = int(added)
    return truth


def counter_name(namespace: str, name: bytes) -> str:
    """The counter of a git name (a path, an author) in a namespace; see docs/names.md."""
    rest = "".join(map(_spelled, name.decode("utf-8", "surrogateescape"))) or "%"
    limit = COUNTER_NAME_MAX_BYTES - len(f"{namespace}:".encode())
    if len(rest.encode()) > limit:
        digest = f"%~{sha256(name).hexdigest()}"
        cut = rest.encode()[: limit - len(digest)].decode(errors="ignore")
        rest = re.sub(r"%[0-9A-F]?$", "", cut) + digest
    return f"{namespace}:{rest}"


def _spelled(char: str) -> str:
    """One character as itself, or its bytes as `%XX` where a counter name may not hold it."""
    if char not in "%#" and not has_control_characters(char):
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
