"""Reading a total that includes every entry that was acknowledged before the read.

    1  read the total                 it counts entries of the ledger of this moment, and no others
    2  read the ledger exactly        its entries include each acknowledged one
    3  as many in (1) as in (2)       they are the same entries: return the total
    4  read the total until it counts as many entries as (2) had
    5  a counter without spread       its entries are applied in the order in which they were
                                      written, so those of (2) are the first: return the total
       a spread counter               its entries are in several partitions, and entries written
                                      after (2) may be applied before those of (2): repeat from (2)

No stream is read, because a stream has capacity for its consumer alone, and no clocks are compared.
A still stream makes no difference. If the consumer stopped, the wait ends with its time.

DynamoDB does not promise (5) for a counter without spread whose entries it has divided among
several partitions by itself, which it does for the heat of a single counter. Such a counter should
have a spread: then only (3) counts, and it needs a moment at which nothing is outstanding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import TotalBehind
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.exact import ExactReader, ExactSum
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.total import Total

# The first wait, and the longest; each is half as long again as the one before.
_FIRST_MS: Final = 20
_LONGEST_MS: Final = 500


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Waits until totals include what was recorded.

    Attributes:
        totals: reads totals.
        exact: reads the ledger.
        namespaces: of the stack; they say whether a counter is spread.
        clock: the time, and waiting.
    """

    totals: TotalsReader
    exact: ExactReader
    namespaces: Namespaces
    clock: Clock = field(default_factory=SystemClock)

    def read(self, counter: str, timeout_s: float) -> Total:
        """A ledger counter's total, with every entry that was acknowledged before this call.

        One exact read (two read units, and one for each 4 KB of entries), and half a read unit for
        each read of the total: some 10 in the first second, then 2 a second. A spread counter may
        need several exact reads.

        Args:
            counter: its name.
            timeout_s: how long to wait, in seconds.

        Raises:
            TotalBehind: the total did not include them in time, or differs from its ledger.
            NamespaceUnknown, WrongKind: the counter has no ledger.
        """
        ordered = self.namespaces.expect(counter, Kind.LEDGER).spread == 1
        end_ms = self.clock.now_ms() + timeout_s * SECOND_MS
        wait_ms: float = _FIRST_MS
        total = self.totals.read(counter)
        exact = self.exact.read(counter)
        while total.entries != exact.entries:
            if total.entries > exact.entries:
                raise TotalBehind(_surplus(total, exact))
            while total.entries < exact.entries:
                left_ms = end_ms - self.clock.now_ms()
                if left_ms <= 0:
                    raise TotalBehind(_missing(total, exact, timeout_s))
                self.clock.sleep_ms(min(wait_ms, left_ms))
                wait_ms = min(wait_ms * 1.5, _LONGEST_MS)
                total = self.totals.read(counter)
            if ordered:
                return total
            exact = self.exact.read(counter)
        return total


def _missing(total: Total, exact: ExactSum, timeout_s: float) -> str:
    missing = exact.entries - total.entries
    return (
        f"the total of {total.counter!r} lacks {missing} of {exact.entries} recorded "
        f"{'entries' if exact.entries > 1 else 'entry'} after "
        f"{show_duration(round(timeout_s * SECOND_MS))}: they are recorded and will count; read "
        "the total later, or see with `countledger status` why the consumer is late"
    )


def _surplus(total: Total, exact: ExactSum) -> str:
    return (
        f"the total of {total.counter!r} counts {total.entries} entries and its ledger has "
        f"{exact.entries}, so it does not show what it includes: run `countledger verify "
        f"{total.counter}`"
    )
