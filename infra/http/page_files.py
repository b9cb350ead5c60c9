"""The files of the dashboard, as they are in the package: read once, and served from memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page.

    Attributes:
        kind: its media type.
        content: its bytes.
        etag: changes with its content.
    """

    kind: str
    content: bytes
    etag: str


def page_files() -> Mapping[str, PageFile]:
    """The files by the paths of their addresses; `/` is the page itself."""
    found = {}
    for file in files("countledger.infra.http").joinpath("page").iterdir():
        kind = _KINDS.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            content = file.read_bytes()
            path = "/" if file.name == _INDEX else f"/{file.name}"
            found[path] = PageFile(kind, content, f'"{sha256(content).hexdigest()[:32]}"')
    return found
