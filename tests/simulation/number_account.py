"""The auditor's account of numbers: what sequences gave out, and what lies in item collections."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from countledger.infra.memory.tables import Change
from tests.simulation.sums import Removals, Wrong

# The app's own table, and how its items are numbered.
POSTS: Final = "posts"
PREFIX: Final = "comment#"


@dataclass
class Numbering:
    """One sequence, under a name that may be used again.

    Attributes:
        incarnation: of the sequence that has the name, or None.
        makings: how often it began, or was deleted.
        drawn: how often each number was drawn, by all incarnations, and told to nobody so far.
        told: the numbers of this incarnation that somebody was told, or may have been.
        highest: of those that were acknowledged one by one or by a block.
        deleted: the incarnations that are gone.
    """

    incarnation: str | None = None
    makings: int = 0
    drawn: Counter[int] = field(default_factory=Counter)
    told: set[int] = field(default_factory=set)
    highest: int = -1
    deleted: Removals = field(default_factory=Removals)


@dataclass
class NumberAccounts:
    """All sequences and collections.

    Attributes:
        sequences: by name.
        items: of each collection the tags by number.
        appended: of each collection the numbers that somebody was told, with their texts.
    """

    sequences: dict[str, Numbering] = field(default_factory=lambda: defaultdict(Numbering))
    items: dict[str, dict[int, str]] = field(default_factory=dict)
    appended: dict[str, dict[int, str]] = field(default_factory=dict)

    def before_draw(self, sequence: str) -> tuple[int, int]:
        """Which incarnation it is, and the highest number that was acknowledged of it by now.

        A draw that begins now is above it, if it is of the same one.
        """
        one = self.sequences[sequence]
        return one.makings, one.highest

    def drawn(self, sequence: str, numbers: Iterable[int], before: tuple[int, int] | None) -> None:
        """Somebody was told numbers.

        Args:
            sequence: of which sequence.
            numbers: which.
            before: what `before_draw` said; None: no order is promised.
        """
        one = self.sequences[sequence]
        for number in numbers:
            if one.drawn[number] < 1:
                raise Wrong(f"{sequence} gave {number} out twice")
            one.drawn[number] -= 1
            if before is None or before[0] != one.makings:
                continue  # it may be of an incarnation that is gone
            if number <= before[1]:
                raise Wrong(f"{sequence} gave {number} out, though {before[1]} was acknowledged")
            one.told.add(number)
            one.highest = max(one.highest, number)

    def _sequence_changed(self, change: Change) -> None:
        """A sequence moved on, began, or was deleted."""
        one, before, after = self.sequences[change.key[0]], change.before, change.after
        if after is None:
            self._begin(one, None)
            one.deleted.note(change.key[0], str((before or {}).get("incarnation")))
            return
        last = 0
        if before is not None:
            last = int(before["total"])
            if after["incarnation"] != one.incarnation:
                raise Wrong(f"{change.key[0]} was {one.incarnation}, and is {after}")
        else:
            if after["incarnation"] in one.deleted.gone:
                raise Wrong(f"{change.key[0]} is {after['incarnation']} again")
            last = int(after.get("first", 1)) - 1
            self._begin(one, after["incarnation"])
        if after["total"] < last:
            raise Wrong(f"{change.key[0]} moved from {last} back to {after['total']}")
        one.drawn.update(range(last + 1, after["total"] + 1))

    def _begin(self, one: Numbering, incarnation: str | None) -> None:
        one.incarnation, one.makings = incarnation, one.makings + 1
        one.told, one.highest = set(), -1

    def changed(self, change: Change) -> None:
        """A sequence changed, or an item of a collection was put: under the next number, once."""
        item = change.after or change.before or {}
        if item.get("method") == "sequence":
            self._sequence_changed(change)
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
        """Somebody was told where its item lies."""
        told = self.appended.setdefault(collection, {})
        if told.setdefault(number, text) != text:
            raise Wrong(f"number {number} of {collection} is {told[number]!r} and {text!r}")
