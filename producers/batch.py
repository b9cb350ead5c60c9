"""Batches of entries: their namespaces, the state while one is sent, and the outcomes of many."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, overload

from countledger.ledger.errors import CountledgerError, Unacknowledged, WrongKind
from countledger.ledger.keys import namespace_of
from countledger.ledger.namespace import Kind
from countledger.producers.event import Receipt, receipt_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace, Namespaces

Outcome: TypeAlias = Receipt | CountledgerError

_MAY_BE_IN: Final = (Receipt, Unacknowledged)


class BatchProgress(NamedTuple):
    """The state of a batch.

    Attributes:
        entries: all of them.
        pending: the numbers of those that are to be sent.
        namespaces: of their counters, by counter: an entry's place and age are a matter of it.
        others: by number, the outcomes of those that are neither recorded nor pending.
    """

    entries: Sequence[Entry]
    pending: Sequence[int]
    namespaces: Mapping[str, Namespace]
    others: Mapping[int, Outcome]

    @property
    def to_send(self) -> Sequence[Entry]:
        """The entries that are to be sent."""
        if len(self.pending) == len(self.entries):
            return self.entries
        return [self.entries[n] for n in self.pending]

    def without(self, outcomes: Mapping[int, Outcome]) -> BatchProgress:
        """The same with these outcomes, whose entries are not pending any more."""
        left = [n for n in self.pending if n not in outcomes]
        return self._replace(pending=left, others={**self.others, **outcomes})


class OutcomeList(Sequence[Outcome]):
    """The outcomes of events, in their order.

    The receipt of an entry is made when it is read. So a million outcomes are little more than a
    million ids, and the garbage collector does not go through them again and again.
    """

    __slots__ = ("_counters", "_ids", "_others")

    def __init__(
        self,
        counters: Iterable[str] = (),
        ids: Iterable[str] = (),
        others: Mapping[int, Outcome] | None = None,
    ) -> None:
        """The outcomes of some events.

        Args:
            counters: of each event.
            ids: of the entry of each; any text for an event that has none.
            others: by the number of the event, each outcome that is no receipt of its recording.
        """
        self._counters = [*counters]
        self._ids = [*ids]
        self._others = dict(others or {})

    def __len__(self) -> int:
        """How many events."""
        return len(self._ids)

    @overload
    def __getitem__(self, number: int) -> Outcome: ...

    @overload
    def __getitem__(self, number: slice) -> list[Outcome]: ...

    def __getitem__(self, number: int | slice) -> Outcome | list[Outcome]:
        """One outcome, or a list of some."""
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        place = range(len(self))[number]
        return self._others.get(place) or receipt_of(self._counters[place], self._ids[place])

    def __iter__(self) -> Iterator[Outcome]:
        """Each outcome."""
        if self._others:
            return map(self.__getitem__, range(len(self)))
        return map(receipt_of, self._counters, self._ids)

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same outcomes."""
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        """As a list's."""
        return repr([*self])

    @property
    def any_may_be_in(self) -> bool:
        """Whether the entry of one of them is, or may be, in the ledger."""
        others = self._others
        return len(others) < len(self) or any(isinstance(o, _MAY_BE_IN) for o in others.values())

    def extend(self, more: OutcomeList) -> None:
        """Add the outcomes of later events."""
        before = len(self)
        self._counters += more._counters
        self._ids += more._ids
        self._others.update((before + n, one) for n, one in more._others.items())

    def fail(self, count: int, error: CountledgerError) -> None:
        """Add an error as the outcome of so many later events."""
        self.extend(OutcomeList([""] * count, [""] * count, dict.fromkeys(range(count), error)))


def ledgers_of(
    counters: Sequence[str],
    namespaces: Namespaces,
    refusing: tuple[type[CountledgerError], ...],
) -> tuple[dict[str, Namespace], dict[int, Outcome]]:
    """The namespaces of counters, each looked up once.

    Where that fails, it fails for every counter of the namespace: a service that does not answer
    would be waited for as often as there are events.

    Args:
        counters: any number, also several times the same.
        namespaces: of the stack.
        refusing: the errors that concern one counter; any other is raised.

    Returns:
        The namespaces by counter; and the error of each counter that has none, by its number.
    """
    found: dict[str, Namespace] = {}
    refused: dict[str, CountledgerError] = {}
    known: dict[str, Namespace] = {}
    failed: dict[str, CountledgerError] = {}
    for counter in dict.fromkeys(counters):
        name = namespace_of(counter)
        if name in failed:
            refused[counter] = failed[name]
            continue
        try:
            if name not in known:
                known[name] = namespaces.for_use(counter, Kind.LEDGER)
            found[counter] = known[name]
        except refusing as error:
            refused[counter] = error
            # A wrong kind is known without a request, and its text names the counter.
            if not isinstance(error, WrongKind):
                failed[name] = error
    if not refused:
        return found, {}
    return found, {n: refused[one] for n, one in enumerate(counters) if one in refused}
