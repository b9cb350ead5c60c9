"""What git itself says that every counter must be, by other commands than the events come from.

The events are sums over `git log`'s differences. The truth looks at the end alone: `git grep`
counts the lines of every text file in the tree of HEAD, `git ls-tree` and `git cat-file` those of
symbolic links (which grep passes over), and `git shortlog` counts the commits of each author.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.infra.demo.blobs import open_blobs
from countledger.infra.demo.history import COMMITS, LINES
from countledger.infra.demo.names import counter_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.demo.git import View

_SYMBOLIC_LINK = b"120000"
# What shortlog prints for a commit whose author line cannot be read at all; for log it is nobody.
_UNREADABLE_AUTHOR = b"%aN"


def read_truth(view: View) -> dict[str, int]:
    """Every counter that is not zero at HEAD, and its value."""
    truth = {counter_name(LINES, path): lines for path, lines in _lines_of_files(view)}
    truth |= {counter_name(LINES, path): lines for path, lines in _lines_of_links(view)}
    for author, commits in _commits_of_authors(view):
        counter = counter_name(COMMITS, author)
        truth[counter] = truth.get(counter, 0) + commits
    return truth


def _lines_of_files(view: View) -> Iterator[tuple[bytes, int]]:
    """`<commit>:<path>NUL<lines>`, one a line; a path may itself hold newlines, so cut at NULs."""
    count = ("grep", "-I", "--count", "--null", "--no-color", "--no-recurse-submodules")
    prefix = f"{view.head}:".encode()
    path: bytes | None = None
    for token in view.tokens(*count, "--full-name", "-e", "", view.head):
        lines, _, following = token.partition(b"\n") if path is not None else (b"", b"", token)
        if path is not None:
            yield path, int(lines)
        path = following.removeprefix(prefix)


def _lines_of_links(view: View) -> Iterator[tuple[bytes, int]]:
    with open_blobs(view) as blobs:
        for token in view.tokens("ls-tree", "-r", "-z", "--full-tree", view.head):
            facts, _, path = token.partition(b"\t")
            mode, _, oid = facts.split(b" ")
            if mode == _SYMBOLIC_LINK:
                yield path, blobs.lines(oid.decode())


def _commits_of_authors(view: View) -> Iterator[tuple[bytes, int]]:
    summary = ("shortlog", "--summary", "--first-parent", "--encoding=UTF-8", view.head)
    for line in view.tokens(*summary, end=b"\n"):
        commits, _, author = line.partition(b"\t")
        yield (b"" if author == _UNREADABLE_AUTHOR else author), int(commits)
