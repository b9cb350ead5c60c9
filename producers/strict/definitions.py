"""Definitions, read once per process and forgotten when a write says that they are old."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import NoSuchCounter
from countledger.producers.strict.context import MethodContext, StaleDefinition
from countledger.producers.strict.definition import Definition, decode_definition

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item

# About two megabytes; beyond, those used longest ago are read again.
_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of strict counters.

    Attributes:
        context: what to read with.
    """

    context: MethodContext
    _known: OrderedDict[str, Definition] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def get(self, counter: str) -> tuple[Definition, Item | None]:
        """A counter's definition, and its main item if it had to be read: one read unit then.

        Raises:
            NoSuchCounter: there is none of that name.
            CorruptItem: it cannot be read.
        """
        with self._lock:
            known = self._known.get(counter)
            if known is not None:
                self._known.move_to_end(counter)
                return known, None
        return self.read(counter)

    def read(self, counter: str) -> tuple[Definition, Item]:
        """The same, always read anew.

        Raises:
            NoSuchCounter: there is none of that name.
            CorruptItem: it cannot be read.
        """
        try:
            item = self.context.read(keys.total_key(counter))
        except StaleDefinition:
            self.forget(counter)
            raise NoSuchCounter(
                f"there is no strict counter {counter!r}: `countledger strict create` makes it"
            ) from None
        definition = decode_definition(item)
        with self._lock:
            self._known[counter] = definition
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return definition, item

    def forget(self, counter: str) -> None:
        """Read it anew the next time."""
        with self._lock:
            self._known.pop(counter, None)
