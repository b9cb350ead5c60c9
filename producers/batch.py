"""Batches of entries: their namespaces, and the state while one is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from countledger.ledger.errors import BadInput, CountledgerError
from countledger.ledger.keys import namespace_of
from countledger.ledger.namespace import Kind
from countledger.producers.event import Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespace, Namespaces

Outcome: TypeAlias = Receipt | CountledgerError


class BatchProgress(NamedTuple):
    """The state of a batch: the entries to be sent, and the outcomes of the others.

    Attributes:
        pending: by their number in the batch.
        namespaces: of their counters, by counter: an entry's place and age are a matter of it.
        outcomes: of the others.
    """

    pending: Mapping[int, Entry]
    namespaces: Mapping[str, Namespace]
    outcomes: Mapping[int, Outcome]

    def with_outcomes(self, outcomes: Mapping[int, Outcome]) -> BatchProgress:
        """The same with these outcomes, whose entries are not pending any more."""
        left: dict[int, Entry] = {}
        if len(outcomes) < len(self.pending):
            left = {n: one for n, one in self.pending.items() if n not in outcomes}
        every = {**self.outcomes, **outcomes} if self.outcomes else outcomes
        return BatchProgress(left, self.namespaces, every)


def admitted(entries: Sequence[Entry], namespaces: Namespaces) -> BatchProgress:
    """The entries whose namespace is known, and why others are not; ages are checked later."""
    counters = [entry.counter for entry in entries]
    usable, refused = ledgers_of(counters, namespaces, (BadInput,))
    pending = dict(enumerate(entries))
    if refused:
        pending = {n: one for n, one in pending.items() if n not in refused}
    return BatchProgress(pending, usable, refused)


def ledgers_of(
    counters: Iterable[str],
    namespaces: Namespaces,
    refusing: tuple[type[CountledgerError], ...],
) -> tuple[dict[str, Namespace], dict[int, Outcome]]:
    """The namespaces of counters, each looked up until it is found.

    Args:
        counters: any number, also several times the same.
        namespaces: of the stack.
        refusing: the errors that concern one counter; any other is raised.

    Returns:
        The namespaces by counter; and the error of each counter that has none, by its number.
    """
    usable: dict[str, Namespace] = {}
    refused: dict[int, Outcome] = {}
    known: dict[str, Namespace] = {}
    for number, counter in enumerate(counters):
        if counter in usable:
            continue
        name = namespace_of(counter)
        if name not in known:
            try:
                known[name] = namespaces.for_use(counter, Kind.LEDGER)
            except refusing as error:
                refused[number] = error
                continue
        usable[counter] = known[name]
    return usable, refused
