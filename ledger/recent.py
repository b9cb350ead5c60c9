"""What this process has read before, and uses again without reading it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, NoReturn, TypeVar

from countledger.ledger.processes import LockPerProcess, refuse_to_pickle

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V")


class Known(NamedTuple, Generic[_V]):
    """A value, and when its reading began."""

    read_at_ms: int
    value: _V


@dataclass(slots=True)
class Recent(Generic[_K, _V]):
    """Values by name, each used for `life_ms` after its reading began, or until it is forgotten.

    Of more than `most` values those that were read first are read again.
    """

    life_ms: float = inf
    most: int = 10_000
    _known: dict[_K, Known[_V]] = field(default_factory=dict, repr=False)
    _keeping: LockPerProcess = field(default_factory=LockPerProcess, repr=False)

    def __reduce__(self) -> NoReturn:
        refuse_to_pickle()

    def get(self, name: _K, now_ms: int = 0) -> Known[_V] | None:
        known = self._known.get(name)
        return None if known is None or not self.is_fresh(known.read_at_ms, now_ms) else known

    def keep(self, name: _K, value: _V, read_at_ms: int = 0) -> Known[_V]:
        """Use a value from now on; the time is from before it was read."""
        known = Known(read_at_ms, value)
        with self._keeping:
            self._known.pop(name, None)
            self._known[name] = known
            if len(self._known) > self.most:
                del self._known[next(iter(self._known))]
        return known

    def forget(self, name: _K) -> None:
        with self._keeping:
            self._known.pop(name, None)

    def of(self, name: _K, now_ms: int, read: Callable[[_K], _V]) -> _V:
        """A value, read if it is not known; if `read` raises, nothing is kept."""
        known = self.get(name, now_ms) or self.keep(name, read(name), now_ms)
        return known.value

    def is_fresh(self, read_at_ms: int, now_ms: int) -> bool:
        """Whether what was read then may still be used; not if the clock was set back since."""
        return 0 <= now_ms - read_at_ms < self.life_ms
