"""Sequences: make them, draw from them, number an app's own items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attempts import wrote
from countledger.ledger.attributes import optional
from countledger.ledger.errors import NoSuchCounter, WrongRegion
from countledger.ledger.limits import BLOCK_DEFAULT, SEQUENCE_LAST
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import AllOf, Compare, Delete, unchanged
from countledger.producers.own_items import check_item
from countledger.producers.sequences import drawing
from countledger.producers.sequences.appending import Appending, PendingAppend
from countledger.producers.sequences.drawing import Lease
from countledger.producers.sequences.expecting import ExpectedDraw
from countledger.producers.sequences.sequence import (
    METHOD,
    Sequence,
    check_number,
    check_size,
    decode_sequence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attributes import Item
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.sequences.appending import Numbered
    from countledger.producers.sequences.sequence import Collection
    from countledger.producers.strict.context import MethodContext


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of a stack. Safe to share between threads.

    A sequence's namespace is of kind sequence; the first use creates it. A sequence itself must be
    created only if its first number is not 1. Sequences are in the home region only.

    Attributes:
        context: clients, table, clock and randomness.
        namespaces: show which namespace is of kind sequence.
        region: where this process works.
        home_region: where sequences live.
    """

    context: MethodContext
    namespaces: Namespaces
    region: str
    home_region: str

    def create(self, sequence: str, *, first: int = 1) -> Sequence:
        """Create a sequence with a first number of your choice: one write unit, one read unit.

        Args:
            sequence: its name, as that of a counter.
            first: the first number that it will give out, from 0. One more than the last number of
                every sequence creates one that has no number left.

        Raises:
            SequenceExists: a sequence of that name exists.
            Unclear: a request got no answer, and may be applied within 15 minutes.
            BadSequence: the first number is out of range.
            WrongKind: its namespace is of another kind.
            WrongRegion: this is not the home region.
        """
        check_number("first number", first, 0, SEQUENCE_LAST + 1)
        drawing.make(self.context, self._usable(sequence), first)
        return self.show(sequence)

    def draw(self, sequence: str) -> int:
        """The next number: one write unit.

        After a lost answer it draws again, so there may be a gap, and never a number twice.

        Raises:
            SequenceExhausted: none is left.
            Unclear: no attempt got a clear answer; draw again.
            WrongKind, WrongRegion: as `create`.
        """
        return drawing.draw(self.context, self._usable(sequence), 1)[0]

    def draw_block(self, sequence: str, size: int) -> range:
        """The next numbers, all at once: one write unit for any size.

        Args:
            sequence: its name.
            size: how many, up to a million.

        Raises:
            BadSequence: the size is out of range.
            SequenceExhausted, Unclear, WrongKind, WrongRegion: as `draw`.
        """
        check_size(size)
        return drawing.draw(self.context, self._usable(sequence), size)

    def lease(self, sequence: str, block: int = BLOCK_DEFAULT) -> Lease:
        """Numbers out of blocks that this process holds: one write unit for each block.

        For rates beyond what one item takes (about 1,000 writes a second): share one lease among
        the threads of a process. Numbers grow within a lease; those of two leases have no order.

        A forked process takes a block of its own. So does a copy of a memory image that is seen: a
        function that Lambda SnapStart restores, and a machine whose clock was set by a second or
        more since the last draw. Another copy (a restored machine before its clock is set) is not
        seen, and gives out the same numbers: do not draw from a lease before such a snapshot.

        Args:
            sequence: its name.
            block: how many numbers to take at a time.

        Raises:
            BadSequence: the block is out of range.
        """
        check_size(block)
        sequence = keys.check_counter(sequence)
        return Lease(partial(self.draw_block, sequence, block))

    def draw_expected(self, sequence: str, *, known: int | None = None) -> int:
        """The next number, on condition that the last is the one seen: one read and one write unit.

        After a lost answer it finds out whether the number is its own; a gap is possible only if
        another draw came between. One write unit more each time that another draw is faster.

        Args:
            sequence: its name; one for each kind of things that are numbered.
            known: the last number as far as the caller knows (what `draw_expected` gave it before);
                saves the read.

        Raises:
            BadSequence: `known` is out of range.
            Throttled: others were faster every time.
            SequenceExhausted, Unclear, WrongKind, WrongRegion: as `draw`.
        """
        if known is not None:
            check_number("last number", known, -1, SEQUENCE_LAST)
        return ExpectedDraw.begin(self.context, self._usable(sequence)).draw(known)

    def show(self, sequence: str) -> Sequence:
        """The current state of a sequence: one read unit.

        Raises:
            NamespaceUnknown: its namespace was never used.
            WrongKind, WrongRegion: as `create`.
        """
        item = self._item(sequence)
        return Sequence(sequence) if item is None else decode_sequence(item)

    def delete(self, sequence: str) -> None:
        """Delete a sequence: a read unit and a write unit.

        The next draw begins at 1, or where the sequence is created again: numbers are given out a
        second time. So end the leases of the sequence first: a process that holds a block goes on
        giving out its numbers. The call deletes the sequence that it reads under this name; if that
        sequence is drawn from or created again meanwhile, it is not deleted.

        Raises:
            NoSuchCounter: nothing was ever drawn from it, and it was not made.
            NamespaceUnknown, WrongKind, WrongRegion: as `show`.
        """
        item = self._item(sequence)
        if item is None:
            raise NoSuchCounter(f"sequence {sequence!r} does not exist (nothing was drawn from it)")
        is_one = Compare("method", "=", METHOD)
        same = unchanged("incarnation", optional(item, "incarnation", str))
        key = keys.total_key(sequence)
        # False: by an attempt that got no answer, or by another call.
        wrote(self.context.reads, Delete(self.context.table, key, AllOf(is_one, same)))

    def append(self, collection: Collection, item: Mapping[str, object]) -> Numbered:
        """Put an app's own item into its collection under the next number, without gaps.

        One read unit for each 4 KB of the item with the highest number, and one write unit for each
        KB of this one; both once more for each time that others were faster.

        Args:
            collection: where, and how its numbers are written.
            item: the app's own attributes; the keys and the tag are added.

        Raises:
            BadItem: it cannot be stored, or sets what the call sets.
            BadSequence: the highest key in the collection is not a number of it.
            SequenceExhausted: there is no number left.
            Throttled: others were faster every time; nothing was put.
            Unnumbered: the item may have been put or not; `resume` the error's `pending`.
        """
        check_item(item, besides=collection.own_names)
        tag = self.context.new_id(self.context.clock.now_ms())
        return Appending.begin(self.context, PendingAppend(collection, dict(item), tag)).carry_out()

    def resume(self, pending: PendingAppend) -> Numbered:
        """Finish putting an item that may have been put or not; it is put once.

        As `append`, and a read unit for each 4 KB of what was put since. Any process may do it,
        again as well, but not two at the same time.

        Raises:
            As `append`.
        """
        return Appending.begin(self.context, pending).resume()

    def _item(self, sequence: str) -> Item | None:
        self._refuse_elsewhere(sequence)
        sequence = keys.check_counter(sequence)
        self.namespaces.expect(sequence, Kind.SEQUENCE)
        key = keys.total_key(sequence)
        return self.context.reads.get(self.context.table, key, consistent=True)

    def _usable(self, sequence: str) -> str:
        """The name, once its namespace is known to be of the right kind."""
        sequence = keys.check_counter(sequence)
        self._refuse_elsewhere(sequence)
        self.namespaces.for_use(sequence, Kind.SEQUENCE)
        return sequence

    def _refuse_elsewhere(self, sequence: str) -> None:
        if self.region != self.home_region:
            raise WrongRegion(
                f"{sequence!r}: sequences live in the home region {self.home_region} alone, where "
                f"one copy decides; this is {self.region}: call there"
            )
