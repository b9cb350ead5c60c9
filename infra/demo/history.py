"""A git repository as a stream of counter events.

For every commit along the first parent of HEAD, oldest first: `commits:<author>` +1 under the key
`<commit>`, and for every text file that it touched `lines:<path>` by the lines added minus the
lines removed, under the key `<commit>:<path>`. A merge counts against its first parent, so the
deltas of a path add up to the lines that it has in the tree of HEAD. What counts as what:

- A **text file** is what git calls one by content alone: no NUL in its first 8,000 bytes.
  Attributes and configuration have no say (see `git.py`). A file that turns from text to binary
  loses its lines, and has them again when it turns back: git prints no numbers for such a step,
  so both sides are counted by themselves. A binary file has 0 lines.
- A **symbolic link** has the lines of its target's text (one), as for git.
- A **submodule** is no file: it has 0 lines, also when it replaces a file or a file replaces it.
- Nothing is a rename: the old path loses its lines and the new one has them.
- A step of 0 (a new mode, a line replaced) is no event.
- An **author** is the name in the commit itself; a mail map is not applied.
- In a **shallow clone** the history begins at its boundary: the commit there counts as the first
  one, with all the files that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from countledger.infra.demo.blobs import Blobs, open_blobs
from countledger.infra.demo.names import counter_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.demo.git import View

LINES = "lines"
COMMITS = "commits"

_SUBMODULE = "160000"
_LOG = (
    "log",
    "--first-parent",
    "-m",
    "--reverse",
    "--no-show-signature",
    "--encoding=UTF-8",
    "--format=tformat:>%H%x00%an",
    "-z",
    "--raw",
    "--numstat",
    "--no-abbrev",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--submodule=short",
    "--ignore-submodules=none",
)


class Step(NamedTuple):
    """One event to emit."""

    counter: str
    delta: int
    key: str


class Side(NamedTuple):
    """What a path was on one side of a commit: its mode and its object, in hex."""

    mode: str
    oid: str

    @property
    def is_file(self) -> bool:
        """Whether git keeps content here: neither nothing nor a submodule."""
        return self.mode != _SUBMODULE and self.oid.strip("0") != ""


class Change(NamedTuple):
    """What one commit did to one path."""

    path: bytes
    old: Side
    new: Side
    delta: int | None
    """Lines added minus lines removed; None where git prints no numbers."""


class Commit(NamedTuple):
    """One commit and all that it changed."""

    oid: str
    author: bytes
    changes: list[Change]


def count_commits(view: View) -> int:
    """How many commits the history has."""
    (answer,) = view.tokens("rev-list", "--count", "--first-parent", view.head, end=b"\n")
    return int(answer)


def read_steps(view: View) -> Iterator[list[Step]]:
    """The events of the history, oldest first, a commit at a time."""
    with open_blobs(view) as blobs:
        for commit in parse_log(view.tokens(*_LOG, view.head)):
            yield steps_of(commit, blobs)


def steps_of(commit: Commit, blobs: Blobs) -> list[Step]:
    """The events of one commit."""
    steps = [Step(counter_name(COMMITS, commit.author), 1, commit.oid)]
    for change in commit.changes:
        delta = _delta(change, blobs)
        if delta:
            counter = counter_name(LINES, change.path)
            # The counter's spelling of the path: valid in a key too, and never too long.
            key = f"{commit.oid}:{counter.removeprefix(LINES + ':')}"
            steps.append(Step(counter, delta, key))
    return steps


def _delta(change: Change, blobs: Blobs) -> int:
    """Lines added minus removed; asked of the objects where git's diff does not say it."""
    plain = all(side.mode != _SUBMODULE for side in (change.old, change.new))
    if change.delta is not None and plain:
        return change.delta
    return _lines(change.new, blobs) - _lines(change.old, blobs)


def _lines(side: Side, blobs: Blobs) -> int:
    return blobs.lines(side.oid) if side.is_file else 0


def parse_log(tokens: Iterator[bytes]) -> Iterator[Commit]:
    r"""Commits from what `git log -z --raw --numstat` prints in this module's format.

    The pieces between NULs, in order: `>commit`, author; then for each path
    `:mode mode oid oid letter` (the first of a commit behind a newline) and the path itself;
    then for each path `added\tremoved\tpath`. A path is never looked at to tell what it is.
    """
    commit: Commit | None = None
    sides: dict[bytes, tuple[Side, Side]] = {}
    for token in tokens:
        if token.startswith(b">"):
            if commit is not None:
                yield _with_leftovers(commit, sides)
            commit, sides = Commit(token[1:].decode(), next(tokens), []), {}
            continue
        if commit is None:
            raise AssertionError(f"git log began with {token!r}")
        fact = token.removeprefix(b"\n")
        if fact.startswith(b":"):
            old_mode, new_mode, old_oid, new_oid, _ = fact[1:].decode().split(" ")
            sides[next(tokens)] = (Side(old_mode, old_oid), Side(new_mode, new_oid))
        else:
            added, removed, path = fact.split(b"\t", 2)
            delta = None if added == b"-" else int(added) - int(removed)
            commit.changes.append(Change(path, *sides.pop(path), delta))
    if commit is not None:
        yield _with_leftovers(commit, sides)


def _with_leftovers(commit: Commit, sides: dict[bytes, tuple[Side, Side]]) -> Commit:
    """The commit with the paths that git named but gave no numbers for."""
    commit.changes.extend(Change(path, old, new, None) for path, (old, new) in sides.items())
    return commit
