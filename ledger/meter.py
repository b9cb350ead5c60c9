"""What the calls of one process consumed, as the service reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger.forks import lock_open_in_forks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb.type_defs import ConsumedCapacityTypeDef

# One for all meters: it is held for less than a microsecond.
_COUNTING: Final = lock_open_in_forks()


@dataclass(slots=True)
class Meter:
    """Capacity units, summed; safe to share between threads.

    Attributes:
        write_units: write request units consumed so far. A write whose condition failed is charged
            by the service but not reported with the failure: it counts as one unit in here (in
            a transaction as two for each item).
        read_units: read request units consumed so far.
        parent: a meter that counts the same units as part of a larger sum.
    """

    write_units: float = 0.0
    read_units: float = 0.0
    parent: Meter | None = None

    def written(self, consumed: Iterable[ConsumedCapacityTypeDef]) -> None:
        """Note the units of a write."""
        self._count(_units(consumed), 0.0)

    def refused(self, write_units: float = 1.0) -> None:
        """Note a write whose condition failed, by the least that it costs."""
        self._count(write_units, 0.0)

    def read(self, consumed: Iterable[ConsumedCapacityTypeDef]) -> None:
        """Note the units of a read."""
        self._count(0.0, _units(consumed))

    def _count(self, write_units: float, read_units: float) -> None:
        meter: Meter | None = self
        with _COUNTING.here:
            while meter is not None:
                meter.write_units += write_units
                meter.read_units += read_units
                meter = meter.parent


def _units(consumed: Iterable[ConsumedCapacityTypeDef]) -> float:
    units = 0.0
    for one in consumed:
        units += one.get("CapacityUnits", 0.0)
    return units
