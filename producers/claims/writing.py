"""Writes that belong together: all of them or none. A retry is recognized and is not refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from countledger.ledger.attempts import Attempts, Done, Recheck, Send, ask, attempt, otherwise
from countledger.ledger.attributes import Item
from countledger.ledger.errors import ConditionFailed, CountledgerError, TransactionCancelled
from countledger.ledger.limits import TOKEN_LIFE_MS
from countledger.ledger.operations import Delete, Get, Put, Transact, Update
from countledger.producers.claims.claim import Taking
from countledger.producers.strict.context import POLICY, raise_exhausted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.errors import Refused
    from countledger.producers.strict.context import MethodContext

_ADVICE: Final = "call again with the same arguments: writes that were applied are recognized"


class OwnedWrite(Protocol):
    """One of the writes."""

    @property
    def place(self) -> tuple[str, Item]:
        """Table and key."""

    def write(self) -> Put | Update | Delete:
        """The write."""

    def done(self, found: Item | None) -> bool:
        """Whether the item is as the write would leave it."""

    def refused(self, found: Item | None) -> Refused:
        """Why the write was refused, by the item that was found."""


# A write that was refused, and the item that it met.
Met: TypeAlias = tuple[OwnedWrite, Item | None]
Read: TypeAlias = Callable[[Get], "Steps[Item | None]"]
Prepare: TypeAlias = Callable[[Read], "Steps[Sequence[OwnedWrite]]"]


def write_all(context: MethodContext, what: str, prepare: Prepare) -> Steps[bool]:
    """Write everything or nothing: one write unit for a single item, two each for several.

    A refusal costs the same, and one read unit for each item that no condition met, to see whether
    it was done before. The answers mean:

        done                         all of it is written
        condition failed             refused, because of another owner or an item that is not as
                                     expected; or after a lost answer this very item: written;
                                     or all items are as the writes would leave them: done before
        condition failed: tombstones these takes again at once, each in place of the tombstone that
        and nothing else             it met: all writes cost the same once more
        throttle, conflict           nothing was written: again
        no answer                    again, a transaction under the same token; all of these writes
                                     may be applied twice and change nothing the second time: a
                                     claim is released by its id, and a later claim has another

    Args:
        context: what to work with.
        what: what this is, for messages.
        prepare: makes the writes, at different items; it is given what reads. Every attempt sends
            these writes, so that a retry names the identity of what this call saw.

    Returns:
        Whether this call did it; False: it was done before.

    Raises:
        Refused: of the write that was refused.
        Unclear: no attempt got a clear answer.
        Throttled: every attempt was refused for now.
    """
    begun_ms = context.clock.now_ms()
    until_ms = begun_ms + TOKEN_LIFE_MS - context.clock_skew_ms
    attempts = Attempts(context.clock, context.random, POLICY, until_ms)

    def give_up(exhausted: Exhausted[Any]) -> Any:  # noqa: ANN401 - it only raises
        raise_exhausted(exhausted, what, _ADVICE)

    def read(operation: Get) -> Steps[Item | None]:
        return ask(operation, attempts, give_up)

    writes = yield from prepare(read)

    def interpret(reply: Reply[_Sent]) -> Verdict[_Sent, list[Met]]:
        return reply.state.interpret(reply, lambda: context.new_id(begun_ms))

    first = _Sent(tuple(writes), context.new_id(begun_ms))
    met = yield from attempt(first, _Sent.send, interpret, give_up, attempts)
    if not met:
        return True
    _refuse(met)
    # What was met was done at that moment, whatever others have done since.
    places = [write.place for write, _ in met]
    for write in writes:
        table, key = write.place
        if write.place not in places and not write.done((yield from read(Get(table, key)))):
            refused, found = met[0]
            raise refused.refused(found)
    return False


@dataclass(frozen=True, slots=True)
class _Sent:
    """What an attempt sends.

    Attributes:
        writes: one, or those of a transaction.
        token: of the transaction.
    """

    writes: tuple[OwnedWrite, ...]
    token: str

    def send(self) -> Send:
        """The request."""
        if len(self.writes) == 1:
            return Send(self.writes[0].write())
        return Send(Transact([write.write() for write in self.writes], self.token))

    def made(self, found: Item | None) -> bool:
        """Whether an attempt without an answer has put the only item, which was met now."""
        (write,) = self.writes
        if isinstance(write, Taking) and write.released(found):
            return True
        put = write.write()
        return isinstance(put, Put) and put.item == found

    def interpret(
        self, reply: Reply[_Sent], new_id: Callable[[], str]
    ) -> Verdict[_Sent, list[Met]]:
        """The answer table."""
        match reply.answer:
            case ConditionFailed(item=found):
                if reply.maybe_applied and self.made(found):
                    return Done([])
                return self._met({0: found}, new_id)
            case TransactionCancelled(reasons=reasons):
                met = {n: one.item for n, one in enumerate(reasons) if one.condition_failed}
                return self._met(met, new_id) if met else otherwise(reply)
            case CountledgerError():
                return otherwise(reply)
        return Done([])

    def _met(
        self, met: Mapping[int, Item | None], new_id: Callable[[], str]
    ) -> Verdict[_Sent, list[Met]]:
        """Conditions failed: of takes that met tombstones only, or also of writes to be refused."""
        writes, others = list(self.writes), []
        for number, found in met.items():
            write = writes[number]
            over = write.over(found, new_id()) if isinstance(write, Taking) else None
            if over is None:
                others.append((write, found))
            else:
                writes[number] = over
        # Other writes than before: they need another token.
        return Done(others) if others else Recheck(_Sent(tuple(writes), new_id()))


def _refuse(met: Sequence[Met]) -> None:
    """Refuse for an item that is not as this call would leave it; another owner first.

    Writes of claims come before those of an app's own items, and a claim is refused for its owner.

    Raises:
        Refused: of the write that met it.
    """
    for write, found in met:
        if not write.done(found):
            raise write.refused(found)
