"""A git repository as a stream of counter events, and what its last tree and log add up to.

docs/demo.md says what is counted. What git prints depends on more than the history: configuration,
attributes, mail maps, grafts, replacement refs and the environment. A count must not. So git prints
only names of objects, their bytes, authors and dates; lines are counted here.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from countledger import Event, counter_name
from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LINES: Final = "lines"
COMMITS: Final = "commits"
# The changes of so many commits are in memory at once; a history may be larger than memory.
_COMMITS_AT_ONCE: Final = 100
_SNIFFED_BYTES: Final = 8_000
# The modes of a submodule, and of nothing.
_WITHOUT_CONTENT: Final = (b"160000", b"000000")
_NEEDED: Final = (
    "needed is a repository with a commit at HEAD and all its objects; in a partial clone, "
    "`git fetch --refetch --no-filter` brings the missing ones"
)
# The variables of git that may stay: where it is installed, configured, and looks for repositories.
_KEPT: Final = ("GIT_EXEC_PATH", "GIT_CONFIG", "GIT_CEILING", "GIT_DISCOVERY")
# Neither replacement refs nor grafts alter the history, and no object is fetched on the way.
_SET: Final = {"GIT_GRAFT_FILE": "", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C"}
_CHANGES: Final = (
    "diff-tree --stdin --root --always -r -z --raw --encoding=UTF-8 --format=>%H%x00%an%x00%at"
)
_AUTHORS: Final = "rev-list --first-parent --encoding=UTF-8 --format=>%an"


class History(NamedTuple):
    """The history of a repository's HEAD.

    Attributes:
        root: the path at which the repository was opened.
        commits: along the first parent, in hex, oldest first.
        shallow: whether the repository is a shallow clone, which begins at a boundary.
        reader: `git cat-file --batch`, which prints the objects whose names it reads.
    """

    root: Path
    commits: Sequence[str]
    shallow: bool
    reader: subprocess.Popen[bytes]

    def lines(self, mode: bytes, oid: bytes) -> int:
        """The lines of an object with this mode in a tree; 0 if it is binary.

        A last line counts without a newline as well. The object is in memory as a whole.

        Raises:
            SetupError: the object is missing or damaged.
        """
        if mode in _WITHOUT_CONTENT:
            return 0
        names, objects = (cast("IO[bytes]", o) for o in (self.reader.stdin, self.reader.stdout))
        with suppress(BrokenPipeError):  # a reader that has ended prints nothing
            os.write(names.fileno(), oid + b"\n")
        _, _, size = objects.readline().partition(b" blob ")  # no size if it is missing
        content, end = (objects.read(int(size)), objects.read(1)) if size else (b"", b"")
        if not end:
            raise SetupError(f"{oid.decode()} is missing or damaged in {self.root} ({_NEEDED})")
        if b"\0" in content[:_SNIFFED_BYTES]:
            return 0
        return content.count(b"\n") + (content[-1:] not in (b"\n", b""))


@contextmanager
def open_repository(path: Path) -> Iterator[History]:
    """The history of the repository that holds the path, bare or not, from any of its directories.

    Raises:
        SetupError: git is not installed, the path is in no repository that git opens, or HEAD
            names no commit.
    """
    commits = _output(path, "rev-list --first-parent --reverse HEAD --").decode().split()
    shallow = _output(path, "rev-parse --is-shallow-repository") == b"true\n"
    with _git(path, "cat-file --batch") as reader:
        yield History(path, commits, shallow, reader)


def _output(path: Path, command: str, stdin: str = "") -> bytes:
    """What a git command prints.

    Raises:
        SetupError: git is not installed, or the command failed; the text is git's own.
    """
    with _git(path, command) as process:
        output, errors = process.communicate(stdin.encode())
    if process.returncode:
        said = errors.decode(errors="replace").strip() or "git gave no reason"
        reason = said.splitlines()[0].removeprefix("fatal: ")
        raise SetupError(f"git {command.partition(' ')[0]} failed in {path}: {reason} ({_NEEDED})")
    return output


def _git(path: Path, command: str) -> subprocess.Popen[bytes]:
    """A git command in the repository at the path, its input and output as pipes."""
    plain = {n: one for n, one in os.environ.items() if n[:4] != "GIT_" or n.startswith(_KEPT)}
    try:
        return subprocess.Popen(  # noqa: S603 - arguments are ours, and no shell reads them
            ["git", "--no-replace-objects", "-C", str(path), *command.split()],  # noqa: S607 - from PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plain | _SET,
        )
    except OSError as error:
        reason = f"git cannot be started: {error.strerror}"
        raise SetupError(f"{reason} (install git if it is missing)") from error


def read_events(history: History) -> Iterator[list[Event]]:
    """The events of the history, oldest first, a commit at a time.

    Git prints, each with a NUL after it: `>commit`, author, its date; then for each changed path
    `:mode mode oid oid letter`, before and after (the first of a commit after a newline), and the
    path itself.

    Raises:
        SetupError: an object is missing.
    """
    # A commit is compared with the one before, its first parent; the first one with nothing.
    commits = [f"{one} {parent}\n" for parent, one in pairwise(("", *history.commits))]
    for n in range(0, len(commits), _COMMITS_AT_ONCE):
        stdin = "".join(commits[n : n + _COMMITS_AT_ONCE])
        tokens = iter(_output(history.root, _CHANGES, stdin).split(b"\0"))
        token = next(tokens)
        while token:
            commit, author, seconds, written = token[1:].decode(), next(tokens), next(tokens), None
            with suppress(ValueError, OverflowError, OSError):  # git cannot read it, or nobody can
                written = datetime.fromtimestamp(int(seconds), UTC)
            found = [Event(counter_name(COMMITS, author), 1, commit, written)]
            while (token := next(tokens)) and not token.startswith(b">"):
                old_mode, mode, old, new, _ = token.lstrip(b"\n:").split(b" ")
                counter = counter_name(LINES, next(tokens))
                delta = history.lines(mode, new) - history.lines(old_mode, old)
                if delta:
                    # The counter's spelling of the path: valid in a key, and never too long.
                    key = f"{commit}:{counter[len(LINES) + 1 :]}"
                    found.append(Event(counter, delta, key, written))
            yield found


def read_truth(history: History) -> Counter[str]:
    """Every counter that is not zero at HEAD, and its value, by the last tree and the log alone.

    Raises:
        SetupError: an object is missing.
    """
    root, head = history.root, history.commits[-1]
    log = _output(root, f"{_AUTHORS} {head}").split(b"\n")  # other lines name the commits
    truth = Counter(counter_name(COMMITS, one[1:]) for one in log if one.startswith(b">"))
    for token in _output(root, f"ls-tree -r -z --full-tree {head}").split(b"\0")[:-1]:
        facts, _, path = token.partition(b"\t")
        mode, _, oid = facts.split(b" ")
        truth[counter_name(LINES, path)] = history.lines(mode, oid)
    return +truth
