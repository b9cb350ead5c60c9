"""What namespaces say, remembered for a while: the writers of a batch ask again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TtlCache(Generic[Value]):
    """What was read for each namespace, and when.

    Of several threads that ask at once, each may read; who minds lets one at a time ask.

    Attributes:
        life_ms: from which age on it is read anew.
    """

    life_ms: int
    _known: dict[str, tuple[int, Value]] = field(default_factory=dict, repr=False)

    def of(self, namespace: str, now_ms: int, read: Callable[[str], Value]) -> Value:
        """What a namespace says, read unless that was done lately; what `read` raises passes."""
        known = self._known.get(namespace)
        if known is None or now_ms - known[0] >= self.life_ms:
            known = self._known[namespace] = now_ms, read(namespace)
        return known[1]
