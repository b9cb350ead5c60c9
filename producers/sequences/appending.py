"""Puts an app's own item under the next number of its collection, without gaps.

Ask for the highest number, put the item under the next one if that is free. An answer context:

    done                         the item has that number
    condition failed             another was faster: **ask again**. The lost number plus one is a
                                 guess: many may have passed, and if that number was deleted
                                 meanwhile the guess would leave a gap
    throttle, conflict           not put: ask again
    none (500, time-out, reset)  ask again, and look at the number that is in doubt. The item there
                                 has this call's tag: it is put. Another's: it is not, and never
                                 will be. Nobody's: sent again for the same number, whichever comes
                                 first, the other one finds it taken

There are no gaps as long as nobody deletes: a number becomes visible with its item, and only behind
the one before. Deleting the highest item frees its number for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from countledger.ledger.errors import ConditionFailed, Throttled, Unclear, Unnumbered
from countledger.producers.last_word import raise_end
from countledger.producers.sequences.expecting import CROWDED
from countledger.producers.strict.context import PASSING, Attempts

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.errors import CountledgerError
    from countledger.producers.sequences.collection import Collection
    from countledger.producers.strict.context import MethodContext

_ADVICE: Final = "resume what this error carries: the item cannot be put twice"


@dataclass(frozen=True, slots=True)
class Numbered:
    """An item that is put.

    Attributes:
        number: its place in the collection, from 1.
        item: all of its attributes, as they are stored.
    """

    number: int
    item: Item


@dataclass(frozen=True, slots=True)
class Pending:
    """An item on its way into its collection.

    Attributes:
        collection: where to.
        item: the app's own attributes.
        tag: by which its own call, and whoever resumes it, knows it.
        in_doubt: the number under which it may be there already; None: it surely is not.
    """

    collection: Collection
    item: Item
    tag: str
    in_doubt: int | None = None


@dataclass(slots=True)
class Appending:
    """A call that puts an item."""

    context: MethodContext
    pending: Pending
    attempts: Attempts

    @classmethod
    def begin(cls, context: MethodContext, pending: Pending) -> Appending:
        """Nothing sent yet by this call."""
        return cls(context, pending, Attempts(context, CROWDED, _ADVICE))

    def resume(self) -> Numbered:
        """Look whether an earlier call has put it behind the number in doubt; else put it.

        Raises:
            As `carry_out`.
        """
        pending = self.pending
        if pending.in_doubt is not None:
            try:
                for page in self.context.reads.pages(pending.collection.since(pending.in_doubt)):
                    for item in filter(self._is_mine, page):
                        return Numbered(pending.collection.number_of(item), item)
            except PASSING as error:
                self._end(error)
        return self.carry_out()

    def carry_out(self) -> Numbered:
        """Put it.

        Raises:
            Unnumbered: it may be there or not.
            Throttled, Unreachable: it is not, and no attempt is left.
            BadSequence, SequenceExhausted: the collection does not go on.
        """
        while True:
            failure: CountledgerError
            try:
                return self._attempt()
            except PASSING as error:
                failure = error
            if not self.attempts.again(failure):
                self._end(failure)

    def _attempt(self) -> Numbered:
        number, mine = self._ask()
        if mine is not None:
            return Numbered(number, mine)
        write = self.pending.collection.put(number, self.pending.item, self.pending.tag)
        try:
            self.context.dynamo.put(write)
        except ConditionFailed as failed:
            if self._is_mine(failed.item):
                return Numbered(number, write.item)
            self._doubt(None)
            raise Throttled("others put theirs each time before this call could") from failed
        except Unclear:
            self._doubt(number)
            raise
        return Numbered(number, write.item)

    def _ask(self) -> tuple[int, Item | None]:
        """The number to go for; or the one that the item has already, and the item."""
        collection, in_doubt = self.pending.collection, self.pending.in_doubt
        # A page may be empty although more follow.
        found = next(
            (page[0] for page in self.context.reads.pages(collection.highest()) if page), None
        )
        highest = collection.number_of(found) if found else 0
        if found and self._is_mine(found):
            return highest, found
        if in_doubt is None:
            return highest + 1, None
        if highest < in_doubt:
            return in_doubt, None
        key: Any = collection.key(in_doubt)  # keys of an app's own may be numbers
        there = self.context.reads.get(collection.table, key, consistent=True)
        if there is None:
            raise Unnumbered(
                f"number {in_doubt} of table {collection.table!r} was deleted before this call "
                "could see whether it was its own: look for your item, and append it if it is gone",
                replace(self.pending, in_doubt=None),
            )
        if self._is_mine(there):
            return in_doubt, there
        self._doubt(None)
        return highest + 1, None

    def _is_mine(self, item: Item | None) -> bool:
        return item is not None and item.get(self.pending.collection.tag) == self.pending.tag

    def _doubt(self, number: int | None) -> None:
        self.pending = replace(self.pending, in_doubt=number)

    def _end(self, error: CountledgerError) -> NoReturn:
        table = self.pending.collection.table
        if self.pending.in_doubt is not None:
            raise Unnumbered(
                f"an item for table {table!r}: no clear answer in {self.attempts.made} attempts, "
                f"it may be there as number {self.pending.in_doubt}; {_ADVICE}",
                self.pending,
            ) from error
        self.attempts.maybe_applied = False  # of reads, or of numbers that others have
        raise_end(self.attempts, f"an item for table {table!r}", error)
