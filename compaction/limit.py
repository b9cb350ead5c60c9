"""How old an entry must be before it is merged: older than anybody may still send it.

A merged entry is gone, and with it what would tell a retry from a new change. The producers ask for
an entry's age before every attempt; this limit lies behind the last of those that can arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import SIGNED_REQUEST_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.namespace import Namespace
    from countledger.ledger.settings import Settings


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """The age from which on an entry may be merged.

    Attributes:
        horizon_ms: for how long the namespace lets producers send an entry.
        replication_bound_ms: how long an entry may take to another region.
        clock_skew_ms: how far any two clocks may differ: the producer's and the compactor's.
        request_life_ms: how long after its signature a request may arrive and still be taken.
        min_age_ms: a larger age that a schedule asks for, or None.

    Raises:
        BadSetting: the age asked for lies below the limit; the text shows the arithmetic.
    """

    horizon_ms: int
    replication_bound_ms: int
    clock_skew_ms: int
    request_life_ms: int = SIGNED_REQUEST_LIFE_MS
    min_age_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse an age that would let a late retry count twice."""
        if self.min_age_ms is not None and self.min_age_ms < self._sum_ms:
            raise BadSetting(
                f"a minimum age of {show_duration(self.min_age_ms)} is less than {self._sum()}: "
                "a late retry of a merged entry would count twice"
            )

    @property
    def age_ms(self) -> int:
        """The limit: entries made longer ago than this may be merged."""
        return self._sum_ms if self.min_age_ms is None else self.min_age_ms

    def cutoff_ms(self, now_ms: int) -> int:
        """The moment before which an entry must have been made."""
        return now_ms - self.age_ms

    def with_min_age(self, min_age_ms: int | None) -> AgeLimit:
        """The same limit with the age that a schedule asks for.

        Raises:
            BadSetting: it lies below the limit.
        """
        return replace(self, min_age_ms=min_age_ms)

    @property
    def _sum_ms(self) -> int:
        waits_ms = self.replication_bound_ms + self.clock_skew_ms + self.request_life_ms
        return self.horizon_ms + waits_ms

    def _sum(self) -> str:
        return (
            f"{show_duration(self._sum_ms)} = horizon {show_duration(self.horizon_ms)} + "
            f"replication bound {show_duration(self.replication_bound_ms)} + "
            f"clock skew {show_duration(self.clock_skew_ms)} + "
            f"life of a signed request {show_duration(self.request_life_ms)}"
        )


def limits_by(settings: Settings, min_age_ms: int | None = None) -> Callable[[Namespace], AgeLimit]:
    """The limit of each namespace, under the settings of this process."""

    def limit_of(namespace: Namespace) -> AgeLimit:
        return AgeLimit(
            namespace.horizon_ms,
            settings.replication_bound_ms,
            settings.clock_skew_ms,
            min_age_ms=min_age_ms,
        )

    return limit_of
