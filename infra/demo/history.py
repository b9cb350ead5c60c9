r"""A git repository as a stream of counter events, and what git itself says that they add up to.

For every commit along the first parent of HEAD, oldest first: `commits:<author>` +1 under the key
`<commit>`, and for every text file that it touched `lines:<path>` by the lines added minus the
lines removed, under the key `<commit>:<path>`. A merge counts against its first parent, so the
deltas of a path add up to the lines that it has in the tree of HEAD:

- A **text file** has no NUL in its first 8,000 bytes; attributes and configuration have no say. A
  binary file has 0 lines. Git prints no numbers for a step between text and binary, so both sides
  are counted.
- A **symbolic link** has the lines of its target's text; a **submodule** has 0 lines.
- Nothing is a rename, and a step of 0 is no event. A mail map is not applied to authors.
- In a **shallow clone** the commit at the boundary counts as the first one, with all its files.

The truth comes from other commands than the events: `git grep` counts the lines of every file in
the tree of HEAD, `git shortlog` the commits of authors.

A counter is named after the bytes that git has. Those that a counter name may not hold are written
as `%XX` and `%` as `%25`; nothing is `%`; a name of more than 512 bytes is cut and ends in `%~` and
its SHA-256. So different names give different counters.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger import Event
from countledger.ledger.keys import has_control_characters
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.infra.demo.git import View

LINES: Final = "lines"
COMMITS: Final = "commits"
# One event in so many is sent twice, after so many others, as a retry would be.
RESEND_EVERY: Final = 10
RESEND_DELAY: Final = 250

_HALF_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
_SUBMODULE: Final = "160000"
# What shortlog prints for a commit whose author line cannot be read; for log it is nobody.
_UNREADABLE_AUTHOR: Final = b"%aN"
_LOG: Final = (
    *("log", "--first-parent", "-m", "--reverse", "--no-show-signature", "--encoding=UTF-8"),
    *("--format=tformat:>%H%x00%an", "-z", "--raw", "--numstat", "--no-abbrev", "--no-renames"),
    *("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short"),
    "--ignore-submodules=none",
)
# Mode and object of a path, in hex, on one side of a commit.
_Side: TypeAlias = "tuple[str, str]"


@dataclass(slots=True)
class _Commit:
    oid: str
    author: bytes
    sides: dict[bytes, tuple[_Side, _Side]] = field(default_factory=dict)
    deltas: dict[bytes, int] = field(default_factory=dict)


def count_commits(view: View) -> int:
    """How many commits the history has."""
    (answer,) = view.tokens("rev-list", "--count", "--first-parent", view.head, end=b"\n")
    return int(answer)


def read_events(view: View) -> Iterator[list[Event]]:
    """The events of the history, oldest first, a commit at a time."""
    for commit in _parse_log(view.tokens(*_LOG, view.head)):
        events = [Event(counter_name(COMMITS, commit.author), 1, key=commit.oid)]
        for path, delta in (commit.deltas | _counted(view, commit)).items():
            if delta:
                # The counter's spelling of the path: valid in a key, and never too long.
                counter = counter_name(LINES, path)
                key = f"{commit.oid}:{counter.removeprefix(LINES + ':')}"
                events.append(Event(counter, delta, key=key))
        yield events


def _parse_log(tokens: Iterator[bytes]) -> Iterator[_Commit]:
    r"""Commits from what `git log -z --raw --numstat` prints in this module's format.

    The pieces between NULs, in order: `>commit`, author; then for each path
    `:mode mode oid oid letter` (the first of a commit after a newline) and the path itself;
    then for each path `added\tremoved\tpath`, with `-` for numbers that git does not print.
    """
    commit: _Commit | None = None
    for token in tokens:
        if token.startswith(b">"):
            if commit is not None:
                yield commit
            commit = _Commit(token[1:].decode(), next(tokens))
            continue
        if commit is None:
            raise AssertionError(f"git log began with {token!r}")
        fact = token.removeprefix(b"\n")
        if fact.startswith(b":"):
            old_mode, new_mode, old_oid, new_oid, _ = fact[1:].decode().split(" ")
            commit.sides[next(tokens)] = (old_mode, old_oid), (new_mode, new_oid)
        else:
            added, removed, path = fact.split(b"\t", 2)
            if added != b"-":
                commit.deltas[path] = int(added) - int(removed)
    if commit is not None:
        yield commit


def _counted(view: View, commit: _Commit) -> dict[bytes, int]:
    """The deltas of paths for which git's diff has no such number, counted in the objects."""
    unknown = {
        path: sides
        for path, sides in commit.sides.items()
        if path not in commit.deltas or any(mode == _SUBMODULE for mode, _ in sides)
    }
    files = {oid for sides in unknown.values() for mode, oid in sides if _is_file(mode, oid)}
    lines = view.lines(sorted(files))
    return {
        path: lines.get(new, 0) - lines.get(old, 0)
        for path, ((_, old), (_, new)) in unknown.items()
    }


def _is_file(mode: str, oid: str) -> bool:
    """Whether git keeps content here: neither nothing nor a submodule."""
    return mode != _SUBMODULE and oid.strip("0") != ""


def with_resends(
    events: Iterable[Event], *, every: int = RESEND_EVERY, delay: int = RESEND_DELAY
) -> Iterator[tuple[Event, bool]]:
    """All events in their order, and every so-many-th once more, later; true for the second."""
    waiting: deque[tuple[int, Event]] = deque()
    for number, event in enumerate(events, start=1):
        yield event, False
        if number % every == 0:
            waiting.append((number + delay, event))
        while waiting and waiting[0][0] <= number:
            yield waiting.popleft()[1], True
    for _, event in waiting:
        yield event, True


def read_truth(view: View) -> dict[str, int]:
    """Every counter that is not zero at HEAD, and its value, as git itself says."""
    files: dict[bytes, str] = {}
    for token in view.tokens("ls-tree", "-r", "-z", "--full-tree", view.head):
        facts, _, path = token.partition(b"\t")
        mode, _, oid = facts.decode().split(" ")
        if _is_file(mode, oid):
            files[path] = oid
    lines_of = view.lines(sorted(set(files.values())))
    truth = {counter_name(LINES, path): lines_of[oid] for path, oid in files.items()}
    summary = ("shortlog", "--summary", "--first-parent", "--encoding=UTF-8", view.head)
    for line in view.tokens(*summary, end=b"\n"):
        commits, _, author = line.partition(b"\t")
        counter = counter_name(COMMITS, b"" if author == _UNREADABLE_AUTHOR else author)
        truth[counter] = truth.get(counter, 0) + int(commits)
    return {counter: value for counter, value in truth.items() if value}


def counter_name(namespace: str, name: bytes) -> str:
    """The counter of a git name (a path, an author) in a namespace; see the module's docstring."""
    rest = "".join(map(_spelled, name.decode("utf-8", "surrogateescape"))) or "%"
    limit = COUNTER_NAME_MAX_BYTES - len(f"{namespace}:".encode())
    if len(rest.encode()) > limit:
        digest = f"%~{sha256(name).hexdigest()}"
        cut = rest.encode()[: limit - len(digest)].decode(errors="ignore")
        rest = _HALF_ESCAPE.sub("", cut) + digest
    return f"{namespace}:{rest}"


def _spelled(char: str) -> str:
    """One character as itself, or its bytes as `%XX` where a counter name may not hold it."""
    if char not in "%#" and not has_control_characters(char):
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
