"""Puts an app's own item under the next number of its collection, without gaps.

The highest number is read, and the item is put under the next one if that is free. There are no
gaps as long as nothing is deleted: a number becomes visible with its item, and only after the one
before. If the highest item is deleted, its number is given out again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Recheck,
    Send,
    ask,
    attempt,
    otherwise,
)
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    Throttled,
    Unclear,
    Unnumbered,
)
from countledger.ledger.operations import Get, Query
from countledger.producers.sequences.expecting import CROWDED
from countledger.producers.strict.context import raise_exhausted

if TYPE_CHECKING:
    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.producers.sequences.sequence import Collection
    from countledger.producers.strict.context import MethodContext

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

    context: MethodContext
    pending: PendingAppend
    attempts: Attempts

    @classmethod
    def begin(cls, context: MethodContext, pending: PendingAppend) -> Appending:
        """Nothing sent yet by this call."""
        in_doubt = pending.in_doubt is not None
        attempts = Attempts(context.clock, context.random, CROWDED, maybe_applied=in_doubt)
        return cls(context, pending, attempts)

    def resume(self) -> Numbered:
        """Read whether an earlier call has put it after the number in doubt; else put it.

        Raises:
            As `carry_out`.
        """
        return self.context.run(self._resuming())

    def carry_out(self) -> Numbered:
        """Put it.

        Raises:
            Unnumbered: the item may have been put or not.
            Throttled, Unreachable: the item was not put, and no attempt is left.
            BadSequence, SequenceExhausted: the collection has no next number.
        """
        return self.context.run(self._putting())

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
