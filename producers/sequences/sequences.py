"""Sequences: make them, draw from them, number an app's own items."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    GiveUp,
    Recheck,
    Reply,
    Send,
    ask,
    attempt,
    otherwise,
    raise_exhausted,
    wrote,
)
from countledger.ledger.attributes import require
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NoSuchCounter,
    SequenceExists,
    Throttled,
    Unclear,
    Unnumbered,
)
from countledger.ledger.limits import BLOCK_DEFAULT, SEQUENCE_LAST
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import AllOf, Compare, Delete, Get, Query
from countledger.ledger.processes import SuspendableLock, clock_offset_s, has_jumped, this_copy
from countledger.producers.own_items import check_item
from countledger.producers.sequences.sequence import (
    METHOD,
    Sequence,
    check_number,
    check_size,
    decode_sequence,
    exhausted,
    plan_draw,
    plan_expected,
    plan_making,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.ledger.attempts import Exhausted, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.producers.sequences.sequence import Collection


# Draws by expectation: the next number is taken only if the last is the one that was seen.
#
# One item for each kind of things that are numbered, all in one table. A number is never given out
# twice.


# If many draw at the same time, one of them wins each round, so more rounds are needed here.
CROWDED: Final = Backoff(attempts=24, base_ms=10, cap_ms=1_000)
_GAP: Final = "one number may be lost, but none is given out twice: draw again, and accept the gap"


@dataclass(frozen=True, slots=True)
class NumberAimedAt:
    """The number that a draw tries to take, of the incarnation that was read, if one was.

    `in_doubt`: a request for it got no answer.
    """

    last: int
    incarnation: str | None
    tag: str
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class ReadLast:
    """The sequence must be read; then the draw tries a number, after this one if it is given."""

    before: NumberAimedAt | None = None


DrawState: TypeAlias = NumberAimedAt | ReadLast


@dataclass(slots=True)
class ExpectedDraw:
    """A draw of the next number, on condition that the last is the one that was seen."""

    connection: Connection
    sequence: str
    attempts: Attempts

    @classmethod
    def begin(cls, connection: Connection, sequence: str) -> ExpectedDraw:
        return cls(connection, sequence, connection.attempts(policy=CROWDED))

    def draw(self, known: int | None) -> int:
        """The next number: one write unit, and a read unit unless the last is known.

        The answers to the write mean:

            done                 the number is this call's
            condition failed     another draw was faster, and the item came back: again from that
                                 item. After a longer wait it is old: again after a read
            throttle, conflict   nothing was drawn: again
            no answer            read: with this call's tag, the number is this call's; with the
                                 same last number, the same request again (it can be applied once);
                                 else another draw was faster, and which draw took which number
                                 is unknown: this call tries the next one, maybe after a gap

        `Unclear`: no attempt got a clear answer; one number may be lost.
        """
        begin: DrawState = ReadLast()
        if known is not None and known != SEQUENCE_LAST:  # else: the caller may be wrong
            begin = self._aim(known, None, None)
        what = f"a draw from sequence {self.sequence!r}"

        def give_up(exhausted: Exhausted[DrawState]) -> int:
            raise_exhausted(exhausted, what, _GAP)

        steps = attempt(begin, self._request, self._interpret, give_up, self.attempts)
        return self.connection.run(steps)

    def _request(self, state: DrawState) -> Send:
        if isinstance(state, ReadLast):
            return Send(Get(self.connection.counters, keys.total_key(self.sequence)))
        now_ms = self.connection.clock.now_ms()
        return Send(
            plan_expected(
                self.connection.counters,
                self.sequence,
                state.last,
                incarnation=state.incarnation,
                tag=state.tag,
                new_id=self.connection.ids.new_id(now_ms),
                now_ms=now_ms,
            )
        )

    def _interpret(self, reply: Reply[DrawState]) -> Verdict[DrawState, int]:
        if isinstance(reply.state, NumberAimedAt):
            return self._interpret_write(reply, reply.state)
        if isinstance(reply.answer, CountledgerError):
            return otherwise(reply)
        found, before = reply.answer, reply.state.before
        if before and before.in_doubt and found and found.get("tag") == before.tag:
            return Done(before.last + 1)
        return Recheck(self._next(found, before))

    def _interpret_write(
        self, reply: Reply[DrawState], aimed: NumberAimedAt
    ) -> Verdict[DrawState, int]:
        match reply.answer:
            case ConditionFailed(item=found) if found is None or found.get("tag") != aimed.tag:
                aimed = replace(aimed, in_doubt=False)
                again = ReadLast(aimed) if self.attempts.made else self._next(found, aimed)
                return Again(again, Throttled("others drew each time before this call could"))
            case CountledgerError() as error if not isinstance(error, ConditionFailed):
                verdict = otherwise(reply)
                in_doubt = aimed.in_doubt or isinstance(error, Unclear)
                if isinstance(verdict, Again) and in_doubt:
                    return Again(ReadLast(replace(aimed, in_doubt=True)), verdict.error)
                return verdict
        return Done(aimed.last + 1)

    def _next(self, found: Item | None, before: NumberAimedAt | None) -> NumberAimedAt:
        """The number after the last one of the sequence that was read."""
        if not found:
            return self._aim(0, None, before)
        incarnation = require(found, "incarnation", str)
        return self._aim(require(found, "total", int), incarnation, before)

    def _aim(
        self, last: int, incarnation: str | None, before: NumberAimedAt | None
    ) -> NumberAimedAt:
        """Try the number after the last one: with the same tag as long as the number is the same.

        If the caller gave the last number, the sequence was not read for the first try.
        """
        if last >= SEQUENCE_LAST:
            raise exhausted(self.sequence)
        if before and before.last == last and before.incarnation in (None, incarnation):
            return replace(before, incarnation=incarnation)
        return NumberAimedAt(
            last, incarnation, self.connection.ids.new_id(self.connection.clock.now_ms())
        )


# Draws by ADD: one write, whatever the size of the block; the service counts.
#
# A number is never given out twice, and a lost answer costs the numbers that it carried.


_GAPS: Final = "numbers may be lost, but none is given out twice: draw again, and accept the gap"
_MADE: Final = "create it again: if it exists by then, this call or another one has created it"


def draw(connection: Connection, sequence: str, size: int) -> range:
    """The next numbers of a sequence: one write unit.

    The answers mean:

        done                 the numbers up to the new value are this call's
        condition failed     the sequence has fewer numbers left
        throttle, conflict   nothing was drawn: again
        no answer            again: the numbers that the lost request drew are never given out
    """
    now_ms = connection.clock.now_ms()

    def request(_: None) -> Send:
        # Each request has an id of its own: one that is applied late and begins a new sequence
        # must not look like a sequence that existed before.
        new_id = connection.ids.new_id(now_ms)
        return Send(plan_draw(connection.counters, sequence, size, new_id, now_ms))

    def interpret(reply: Reply[None]) -> Verdict[None, range]:
        match reply.answer:
            case ConditionFailed():
                raise exhausted(sequence) from None
            case CountledgerError():
                return otherwise(reply)
            case None:
                raise CorruptItem(f"sequence {sequence!r}: the service did not answer its value")
        last = require(reply.answer, "total", int)
        return Done(range(last - size + 1, last + 1))

    attempts = connection.attempts()
    what = f"a draw from sequence {sequence!r}"
    return connection.run(
        attempt(None, request, interpret, lambda e: raise_exhausted(e, what, _GAPS), attempts)
    )


def make(connection: Connection, sequence: str, first: int) -> None:
    """Make a sequence: one write unit.

    The answers mean:

        done                       made
        condition failed           made by an attempt without an answer, if the sequence that exists
                                   has the id of one; else it exists. Unclear, if an attempt got no
                                   answer: once the other sequence is deleted it may be applied
        throttle, conflict, none   again, under another id: a request that is applied late, after a
                                   deletion, makes another sequence
    """
    now_ms = connection.clock.now_ms()

    def request(tags: tuple[str, ...]) -> Send:
        return Send(plan_making(connection.counters, sequence, first, tags[-1], now_ms))

    def interpret(reply: Reply[tuple[str, ...]]) -> Verdict[tuple[str, ...], None]:
        match reply.answer:
            case ConditionFailed(item=found):
                found = found or {}
                if found.get("incarnation") in reply.state:
                    return Done(None)
                if reply.maybe_applied:
                    return GiveUp(Unclear("a sequence of that name exists"))
                raise SequenceExists(
                    f"sequence {sequence!r} exists, its last number is {found.get('total')}: "
                    "take another name"
                ) from None
            case CountledgerError():
                verdict = otherwise(reply)
                if isinstance(verdict, Again):
                    return Again((*reply.state, connection.ids.new_id(now_ms)), verdict.error)
                return verdict
        return Done(None)

    attempts = connection.attempts()
    tags: tuple[str, ...] = (connection.ids.new_id(now_ms),)
    what = f"to make sequence {sequence!r}"
    connection.run(
        attempt(tags, request, interpret, lambda e: raise_exhausted(e, what, _MADE), attempts)
    )


@dataclass(slots=True)
class _Block:
    """The rest of a block, the lock under which threads draw from it, and the clock then."""

    left: Iterator[int] = field(default_factory=lambda: iter(()))
    offset_s: float = field(default_factory=clock_offset_s)
    lock: SuspendableLock = field(default_factory=SuspendableLock)


class Lease:
    """Draws numbers out of a block, and takes another block when it is empty.

    Safe to share between threads, which get growing numbers in the order in which they are given.
    A block belongs to one process: a child that was forked off takes a block of its own, and so
    does a copy of a memory image that is seen (see `Sequences.lease`). What is left when the
    process ends is never given out.
    """

    def __init__(self, take: Callable[[], range]) -> None:
        self._take = take
        self._blocks: dict[object, _Block] = {this_copy(): _Block()}

    def draw(self) -> int:
        """The next number: one write unit for each block.

        Raises:
            ServiceFailed, SetupError, SequenceExhausted: no block could be drawn.
        """
        copy = this_copy()
        block = self._blocks.get(copy) or self._in_a_copy(copy)
        with block.lock:
            offset_s = clock_offset_s()
            if has_jumped(offset_s, block.offset_s):
                # Perhaps of a copy: what the block had left may be another one's.
                block.left, block.offset_s = iter(()), offset_s
            number = next(block.left, None)
            if number is None:
                block.left = iter(self._take())
                number = next(block.left)
            return number

    def _in_a_copy(self, copy: object) -> _Block:
        """The block of a child or a copy: others draw from the one before, and may hold its lock.

        Of several threads the first one decides (`setdefault` is one step), so none of them throws
        away what another one has taken.
        """
        block = self._blocks.setdefault(copy, _Block())
        for other in set(self._blocks) - {copy}:
            self._blocks.pop(other, None)
        return block


# Puts an app's own item under the next number of its collection, without gaps.
#
# The highest number is read, and the item is put under the next one if that is free. There are no
# gaps as long as nothing is deleted: a number becomes visible with its item, and only after the
# one before. If the highest item is deleted, its number is given out again.


_ADVICE: Final = "resume the item with `sequences.resume(error.pending)`: it cannot be put twice"


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
class PendingAppend:
    """An item on its way into its collection.

    Attributes:
        collection: the collection.
        item: the app's own attributes.
        tag: by which its own call, and a call that resumes it, recognizes the item.
        in_doubt: the number under which it may have been put; None: it was not put.
    """

    collection: Collection
    item: Item
    tag: str
    in_doubt: int | None = None


@dataclass(frozen=True, slots=True)
class LookAt:
    """The number in doubt must be read; the highest number is another one."""

    number: int
    highest: int


# Read the highest number, read the number in doubt, or put the item under this number.
AppendState: TypeAlias = Query | LookAt | int


@dataclass(slots=True)
class Appending:
    """A call that puts an item."""

    connection: Connection
    pending: PendingAppend
    attempts: Attempts

    @classmethod
    def begin(cls, connection: Connection, pending: PendingAppend) -> Appending:
        in_doubt = pending.in_doubt is not None
        attempts = Attempts(connection.clock, connection.random, CROWDED, maybe_applied=in_doubt)
        return cls(connection, pending, attempts)

    def resume(self) -> Numbered:
        """Read whether an earlier call has put it after the number in doubt; else put it."""
        return self.connection.run(self._resuming())

    def carry_out(self) -> Numbered:
        return self.connection.run(self._putting())

    def _resuming(self) -> Steps[Numbered]:
        collection, in_doubt = self.pending.collection, self.pending.in_doubt
        query = None if in_doubt is None else collection.since(in_doubt)
        while query is not None:
            page = yield from ask(query, self.attempts, self._give_up)
            for item in filter(self._is_mine, page.items):
                return Numbered(collection.number_of(item), item)
            query = replace(query, after=page.after) if page.after else None
        return (yield from self._putting())

    def _putting(self) -> Steps[Numbered]:
        """Put the item.

        The answers to the write mean:

            done                 the item has that number
            condition failed     another item was faster: the highest number is read again. The
                                 lost number plus one is a guess: many may have been put since, and
                                 if that number was deleted meanwhile the guess would leave a gap
            throttle, conflict   not put: the highest number is read again
            no answer            the same, and the number in doubt is read. This call's tag: the
                                 item is put. Another tag: it is not put and never will be. No
                                 item: again for the same number; the second of the two requests
                                 then finds the number taken
        """
        begin: AppendState = self.pending.collection.highest()
        return attempt(begin, self._request, self._interpret, self._give_up, self.attempts)

    def _request(self, state: AppendState) -> Send:
        collection = self.pending.collection
        if isinstance(state, Query):
            return Send(state)
        if isinstance(state, LookAt):
            key: Any = collection.key(state.number)  # keys of an app's own may be numbers
            return Send(Get(collection.table, key))
        return Send(collection.put(state, self.pending.item, self.pending.tag))

    def _interpret(self, reply: Reply[AppendState]) -> Verdict[AppendState, Numbered]:
        if isinstance(reply.state, int):
            return self._after_write(reply, reply.state)
        if isinstance(reply.answer, CountledgerError):
            return self._again(reply)
        if isinstance(reply.state, LookAt):
            return self._after_look(reply.answer, reply.state)
        page = reply.answer
        if not page.items and page.after:
            # A page may be empty although more follow.
            return Recheck(replace(reply.state, after=page.after))
        return self._after_highest(page.items[0] if page.items else None)

    def _after_write(
        self, reply: Reply[AppendState], number: int
    ) -> Verdict[AppendState, Numbered]:
        match reply.answer:
            case ConditionFailed(item=found) if not self._is_mine(found):
                self._doubt(None)
                busy = Throttled("others put theirs each time before this call could")
                return Again(self.pending.collection.highest(), busy, resolved=True)
            case CountledgerError() as error if not isinstance(error, ConditionFailed):
                if isinstance(error, Unclear):
                    self._doubt(number)
                return self._again(reply)
        put = self.pending.collection.put(number, self.pending.item, self.pending.tag)
        return Done(Numbered(number, put.item))

    def _again(self, reply: Reply[AppendState]) -> Verdict[AppendState, Numbered]:
        """Read the highest number again after a passing error."""
        verdict = otherwise(reply)
        if not isinstance(verdict, Again):
            return verdict
        return Again(self.pending.collection.highest(), verdict.error)

    def _after_highest(self, found: Item | None) -> Verdict[AppendState, Numbered]:
        """The number to try; unless the item has that one already."""
        highest = self.pending.collection.number_of(found) if found else 0
        if found and self._is_mine(found):
            return Done(Numbered(highest, found))
        in_doubt = self.pending.in_doubt
        if in_doubt is None:
            return Recheck(highest + 1)
        return Recheck(in_doubt if highest < in_doubt else LookAt(in_doubt, highest))

    def _after_look(self, found: Item | None, state: LookAt) -> Verdict[AppendState, Numbered]:
        if found is None:
            raise Unnumbered(
                f"number {state.number} of table {self.pending.collection.table!r} was deleted "
                "before this call could see whether it was its own: search for your item, and "
                "append it if it does not exist",
                replace(self.pending, in_doubt=None),
            )
        if self._is_mine(found):
            return Done(Numbered(state.number, found))
        self._doubt(None)
        return Recheck(state.highest + 1, resolved=True)

    def _is_mine(self, item: Item | None) -> bool:
        return item is not None and item.get(self.pending.collection.tag) == self.pending.tag

    def _doubt(self, number: int | None) -> None:
        self.pending = replace(self.pending, in_doubt=number)

    def _give_up(self, exhausted: Exhausted[Any]) -> NoReturn:
        what = f"an item for table {self.pending.collection.table!r}"
        if self.pending.in_doubt is not None:
            raise Unnumbered(
                f"{what}: no clear answer in {exhausted.attempts} attempts, it may be there as "
                f"number {self.pending.in_doubt}; {_ADVICE}",
                self.pending,
            ) from exhausted.error
        raise_exhausted(exhausted, what, _ADVICE)


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of a stack. Safe to share between threads.

    A sequence's namespace is of kind sequence; the first use creates it. A sequence itself must be
    created only if its first number is not 1. Sequences are in the home region only.
    """

    connection: Connection
    namespaces: Namespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespaces", Namespaces(self.connection))

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
        make(self.connection, self._usable(sequence), first)
        return self.show(sequence)

    def draw(self, sequence: str) -> int:
        """The next number: one write unit.

        After a lost answer it draws again, so there may be a gap, and never a number twice.

        Raises:
            SequenceExhausted: none is left.
            Unclear: no attempt got a clear answer; draw again.
            WrongKind, WrongRegion: as `create`.
        """
        return draw(self.connection, self._usable(sequence), 1)[0]

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
        return draw(self.connection, self._usable(sequence), size)

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
        return ExpectedDraw.begin(self.connection, self._usable(sequence)).draw(known)

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
        same = Compare("incarnation", "=", require(item, "incarnation", str))
        key = keys.total_key(sequence)
        # False: by an attempt that got no answer, or by another call.
        wrote(self.connection.retrying, Delete(self.connection.counters, key, AllOf(is_one, same)))

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
        tag = self.connection.ids.new_id(self.connection.clock.now_ms())
        return Appending.begin(
            self.connection, PendingAppend(collection, dict(item), tag)
        ).carry_out()

    def resume(self, pending: PendingAppend) -> Numbered:
        """Finish putting an item that may have been put or not; it is put once.

        As `append`, and a read unit for each 4 KB of what was put since. Any process may do it,
        again as well, but not two at the same time.

        Raises:
            As `append`.
        """
        return Appending.begin(self.connection, pending).resume()

    def _item(self, sequence: str) -> Item | None:
        self.connection.refuse_elsewhere(f"{sequence!r}: sequences work")
        sequence = keys.check_counter(sequence)
        self.namespaces.expect(sequence, Kind.SEQUENCE)
        key = keys.total_key(sequence)
        return self.connection.retrying.get(self.connection.counters, key, consistent=True)

    def _usable(self, sequence: str) -> str:
        """The name, once its namespace is known to be of the right kind."""
        sequence = keys.check_counter(sequence)
        self.connection.refuse_elsewhere(f"{sequence!r}: sequences work")
        self.namespaces.for_use(sequence, Kind.SEQUENCE)
        return sequence
