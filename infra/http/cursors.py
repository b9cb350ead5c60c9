"""Pages of a list: how many items, and an opaque text from which the next page begins."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BeforeValidator

from countledger.ledger.errors import BadInput

PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100
_CURSOR_MAX: Final = 6_000


class BadCursor(BadInput):
    """A cursor is of no page of this list."""


def _only_digits(value: object) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError(f"{value[:60]!r} is no whole number in decimal digits")
    return value


# A number in a query; pydantic alone takes 1.0, too.
PLAIN_INTEGER: Final = BeforeValidator(_only_digits)
Limit = Annotated[
    int, Query(ge=1, le=PAGE_MAX, description="the largest number of items"), PLAIN_INTEGER
]
Cursor = Annotated[
    str | None,
    Query(
        max_length=_CURSOR_MAX,
        description="`next` of the page before; what it contains may change between releases",
    ),
]


def to_cursor(*position: str | int) -> str:
    """A text that a client sends back as it is."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=False)
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position in a cursor, of these types; None: the first page.

    Raises:
        BadCursor: no page of this list has ended there.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(urlsafe_b64decode(padded.encode("ascii")).decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or [*map(type, found)] != [*kinds]:
        raise BadCursor(f"cursor {cursor[:60]!r} is of no page of this list: begin without one")
    return tuple(found)
