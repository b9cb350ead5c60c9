"""The auditor's account of numbers: what sequences gave out, and what lies in item collections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.compaction.world import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.table import Change

# The app's own table, and how its items are numbered.
POSTS: Final = "posts"
PREFIX: Final = "comment#"


@dataclass
class NumberAccounts:
    """All sequences and collections.

    Attributes:
        given: the numbers of each sequence that somebody was told.
        highest: of those that were drawn one by one or by a block.
        items: of each collection the tags by number.
        appended: of each collection the numbers that somebody was told, with their texts.
    """

    given: dict[str, set[int]] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    items: dict[str, dict[int, str]] = field(default_factory=dict)
    appended: dict[str, dict[int, str]] = field(default_factory=dict)

    def before_draw(self, sequence: str) -> int:
        """The highest number that was acknowledged by now: a draw that begins now is above it."""
        return self.highest.get(sequence, 0)

    def drawn(self, sequence: str, numbers: Iterable[int], above: int | None) -> None:
        """Somebody was told numbers.

        Args:
            sequence: of which sequence.
            numbers: which.
            above: the highest that had been acknowledged before; None: no order is promised.

        Raises:
            Wrong: one was given out before, or is not above.
        """
        given = self.given.setdefault(sequence, set())
        for number in numbers:
            if number in given:
                raise Wrong(f"{sequence} gave {number} out twice")
            if above is not None and number <= above:
                raise Wrong(f"{sequence} gave {number} out, though {above} was acknowledged before")
            given.add(number)
            if above is not None:
                self.highest[sequence] = max(self.highest.get(sequence, 0), number)

    def changed(self, change: Change) -> None:
        """An item of a collection was put: under the next number, and once.

        Raises:
            Wrong: it was not.
        """
        if change.table.name != POSTS:
            return
        collection, sort = change.key
        items = self.items.setdefault(collection, {})
        number = int(sort.removeprefix(PREFIX))
        if change.before is not None or change.after is None:
            raise Wrong(f"number {number} of {collection} was overwritten: {change}")
        if number != len(items) + 1:
            raise Wrong(f"number {number} of {collection} follows {len(items)}")
        tag = str(change.after["countledger_tag"])
        if tag in items.values():
            raise Wrong(f"an item of {collection} was put twice: {change.after}")
        items[number] = tag

    def put(self, collection: str, number: int, text: str) -> None:
        """Somebody was told where its item lies.

        Raises:
            Wrong: another one was told the same.
        """
        told = self.appended.setdefault(collection, {})
        if told.setdefault(number, text) != text:
            raise Wrong(f"number {number} of {collection} is {told[number]!r} and {text!r}")
