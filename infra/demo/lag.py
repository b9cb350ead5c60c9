"""How far the totals lag behind what was emitted, from counts alone: no two clocks are compared."""

from __future__ import annotations

from bisect import bisect_left
from statistics import median


class Lag:
    """Acknowledged events against materialized ones, over one clock.

    A sample is the age of the oldest acknowledged event that is not in its total yet; nothing
    missing is a lag of 0.
    """

    def __init__(self) -> None:
        self._acknowledged: list[int] = [0]
        self._at_s: list[float] = [0.0]
        self._samples_s: list[float] = []

    def acknowledged(self, count: int, at_s: float) -> None:
        """By now so many events were acknowledged as recorded."""
        if count > self._acknowledged[-1]:
            self._acknowledged.append(count)
            self._at_s.append(at_s)

    def materialized(self, count: int, at_s: float) -> None:
        """By now so many events are in their totals: takes a sample."""
        if count >= self._acknowledged[-1]:
            self._samples_s.append(0.0)
            return
        oldest_missing = bisect_left(self._acknowledged, count + 1)
        self._samples_s.append(at_s - self._at_s[oldest_missing])

    @property
    def p50_s(self) -> float:
        """The median of the samples."""
        return median(self._samples_s) if self._samples_s else 0.0

    @property
    def max_s(self) -> float:
        """The largest sample."""
        return max(self._samples_s, default=0.0)
