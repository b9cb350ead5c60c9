"""What exports have found, and what imports were given of it: outside of the product."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countledger.infra.portability.lines import CounterLine


@dataclass
class Exported:
    """What exports have found, and what imports were given of it.

    Attributes:
        lines: the last lines of each counter that an export wrote.
        offered: by import and counter, the values that it was given; more than one where a name
            was used again.
        last: by sequence that was moved, the highest number that an import has answered for.
    """

    lines: list[CounterLine] = field(default_factory=list)
    offered: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
