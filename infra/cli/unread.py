"""Items that a listing could not read: the others are shown, these are named, and the code is 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.infra.cli.output import notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.infra.cli.output import Row
    from countledger.ledger.errors import CorruptItem

FINDINGS: Final = 1
# More than that is read in JSON, or in the file of an export.
SHOWN_MAX: Final = 10


class Unread:
    """The items that one command could not read."""

    def __init__(self) -> None:
        """All were read so far."""
        self._errors: list[CorruptItem] = []

    def note(self, error: CorruptItem) -> None:
        """One more."""
        self._errors.append(error)

    def rows(self) -> list[Row]:
        """Each as programs read it: its partition key, its sort key, and the reason."""
        return [
            {
                "unreadable": None if one.key is None else one.key[0],
                "item": None if one.key is None else one.key[1],
                "reason": str(one),
            }
            for one in self._errors
        ]

    def behind(self, documents: Iterable[Row]) -> Iterator[Row]:
        """Documents, and after the last of them those of what could not be read."""
        yield from documents
        yield from self.rows()

    def tell(self) -> int:
        """Name the first few on stderr; the exit code."""
        return tell_unread([str(one) for one in self._errors])


def tell_unread(reasons: list[str]) -> int:
    """Name the first few reasons on stderr; the exit code: 1 if there are any."""
    for reason in reasons[:SHOWN_MAX]:
        notice(f"not read: {reason}")
    if len(reasons) > SHOWN_MAX:
        notice(f"not read: {len(reasons) - SHOWN_MAX} more")
    return FINDINGS if reasons else 0
