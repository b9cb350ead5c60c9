"""Git repositories made on the spot by `git fast-import`: any bytes as a name, any mode."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class At(NamedTuple):
    """Content at a mode other than a plain file's."""

    mode: str
    content: bytes


EXECUTABLE = "100755"
LINK = "120000"
SUBMODULE = "160000"

Content: TypeAlias = bytes | At | None
"""A plain file's bytes, something else at its mode, or None for "delete"."""

AUTHOR = b"Ann Author"

# What git makes hard to read, and a counter name may not hold.
ODD_NAMES = (
    b"with space.txt",
    b' leading and trailing ".txt ',
    b"tab\there",
    b"new\nline",
    b"caf\xe9-latin-1",
    "café-utf-8-日本".encode(),
    b"100%#1",
    b"%41",
    b"a:b:c",
    b":100644 100644 0 0 M",
    b">0123456789",
    b"1\t2\tthree",
    b"-\t-\tfour",
    b"back\\slash",
    b"'quoted'",
    b"del\x7f-c1\xc2\x85-ls\xe2\x80\xa8",
    b"deep/" * 60 + b"one",
    b"deep/" * 160 + b"two",
    b"deep/" * 160 + b"three",
)


def git(path: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git there, under no configuration but the repository's."""
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *arguments],  # noqa: S607 - the machine's git
        cwd=path,
        input=stdin,
        env=environment,
        capture_output=True,
        check=True,
    ).stdout


class Repository:
    """A repository that grows commit by commit."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--template=", "--initial-branch=main", *options)
        self._commits = 0

    def commit(
        self,
        files: Mapping[bytes, Content] | None = None,
        *,
        author: bytes = AUTHOR,
        encoding: bytes = b"",
        branch: str = "main",
        merge: str = "",
        start: str = "",
    ) -> str:
        """Add a commit to a branch (by default after its tip) and return its object name."""
        self._commits += 1
        reference = f"refs/heads/{branch}"
        stream = [
            f"commit {reference}".encode(),
            b"author " + (author + b" " if author else b"") + b"<ann@example.org> 1 +0000",
            f"committer C <c@example.org> {self._commits} +0000".encode(),
            *([b"encoding " + encoding] if encoding else []),
            b"data 1\nm",
        ]
        start = start or (reference if self._exists(reference) else "")
        stream += [f"from {start}^0".encode()] if start else []
        stream += [f"merge {merge}^0".encode()] if merge else []
        stream += [_change(path, content) for path, content in (files or {}).items()]
        git(self.path, "fast-import", "--quiet", "--force", stdin=b"\n".join(stream) + b"\n")
        return git(self.path, "rev-parse", reference).decode().strip()

    def _exists(self, reference: str) -> bool:
        return bool(git(self.path, "for-each-ref", reference))


def _change(path: bytes, content: Content) -> bytes:
    quoted = b'"' + b"".join(f"\\{byte:03o}".encode() for byte in path) + b'"'
    if content is None:
        return b"D " + quoted
    mode, body = content if isinstance(content, At) else ("100644", content)
    if mode == SUBMODULE:
        return b"M 160000 " + body + b" " + quoted
    return b"M %s inline %s\ndata %d\n%s" % (mode.encode(), quoted, len(body), body)


def make_odd_repository(path: Path) -> Repository:
    """A small repository in which everything is odd, and all of it is grown, shrunk and dropped."""
    made = Repository(path)
    made.commit(dict.fromkeys(ODD_NAMES, b"one\ntwo\n"))
    made.commit(dict.fromkeys(ODD_NAMES[::2], b"one\n2\nthree"), author="Ünï Cødé".encode())
    made.commit(dict.fromkeys(ODD_NAMES[::5]), author=b"")
    made.commit({b"module": At(SUBMODULE, b"1" * 40), b"link": At(LINK, b"with space.txt")})
    made.commit({b"both": b"text\n\0binary\n", b"link": b"a\nb\nc\n"}, author=b"caf\xe9")
    made.commit({b"both": b"text\n", b"module": b"now\na file\n", b"empty": b""})
    made.commit({b"both": b"a\nb\n"}, author=b"100% #1\ttab")
    side = made.commit({b"side": b"a\nb\n", b"both": b"\0"}, branch="side", start="main")
    made.commit({b"main": b"a\n"})
    made.commit({b"side": b"a\nb\n", b"both": b"\0"}, merge=side)
    made.commit()
    return made
