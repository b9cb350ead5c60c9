"""Releases all holds of a table whose time is over, whether a call needs them or not.

A run reads the buckets of the index, each from its oldest hold on, and releases what it finds until
its time is over. What it has released leaves the index, so the next run goes on where this one
ended; each begins at another bucket. A hold that cannot be released is passed over, counted, and
read again by the next run. Two runs at once do no harm: a hold ends once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.ledger.attempts import PASSING
from countledger.ledger.errors import CorruptItem, NewerFormat, NoSuchCounter
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.definition import StaleDefinition
from countledger.producers.strict.hold import all_buckets, bucket_query
from countledger.producers.strict.known import Definitions
from countledger.producers.strict.release import change_id_of, release_hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext

_PAGE_SIZE: Final = 100
_THREADS: Final = 16


@dataclass(slots=True)
class ReleaseReport:
    """What a run did.

    Attributes:
        released: how many holds it released, or found released a moment before.
        overdue: how many it could not release, and at least one for each bucket without its turn.
        oldest_ms: for how long the oldest of these could have been released; 0 if there is none.
    """

    released: int = 0
    overdue: int = 0
    oldest_ms: int = 0

    def left(self, since_ms: int) -> None:
        """One hold is left that could have been released for that long."""
        self.overdue += 1
        self.oldest_ms = max(self.oldest_ms, since_ms)


@dataclass(frozen=True, slots=True)
class OverdueHolds:
    """The expired holds of the counters of a table.

    Attributes:
        context: of the table `counters`.
        on_failure: called with the key and the error of a hold that could not be released.
    """

    context: MethodContext
    on_failure: Callable[[Item, Exception], object] = lambda _key, _error: None
    definitions: Definitions = field(init=False)

    def __post_init__(self) -> None:
        """No definition known yet."""
        object.__setattr__(self, "definitions", Definitions(self.context))

    def release(self, deadline_ms: int) -> ReleaseReport:
        """Release expired holds until the deadline.

        Half a read unit for each bucket and for about 30 holds; for each hold two read units, and
        the write units of a cancellation.

        Args:
            deadline_ms: when no further hold is begun.

        Raises:
            ServiceFailed: the index cannot be read.
        """
        report = ReleaseReport()
        buckets = all_buckets()
        first = self.context.clock.now_ms() // MINUTE_MS % len(buckets)
        with ThreadPoolExecutor(_THREADS, "countledger-release") as pool:
            for bucket in [*buckets[first:], *buckets[:first]]:
                self._release_bucket(bucket, deadline_ms, report, pool)
        return report

    def oldest_ms(self) -> int:
        """For how long the oldest expired hold could have been released; 0 if there is none.

        Half a read unit for each bucket, eight together.

        Raises:
            ServiceFailed: the index cannot be read.
        """
        context = self.context
        before_ms = context.clock.now_ms() - context.clock_skew_ms
        pages = (
            next(context.reads.pages(bucket_query(context.table, bucket, before_ms, 1)), [])
            for bucket in all_buckets()
        )
        return max((before_ms - one["due_at"] for page in pages for one in page), default=0)

    def _release_bucket(
        self, bucket: str, deadline_ms: int, report: ReleaseReport, pool: ThreadPoolExecutor
    ) -> None:
        context = self.context
        before_ms = context.clock.now_ms() - context.clock_skew_ms
        late = context.clock.now_ms() >= deadline_ms
        page_size = 1 if late else _PAGE_SIZE
        for page in context.reads.pages(bucket_query(context.table, bucket, before_ms, page_size)):
            done = pool.map(partial(self._release, deadline_ms), page)
            for one, released in zip(page, done, strict=True):
                if released:
                    report.released += 1
                else:
                    report.left(before_ms - one["due_at"])
            if page and context.clock.now_ms() >= deadline_ms:
                return

    def _release(self, deadline_ms: int, key: Item) -> bool:
        if self.context.clock.now_ms() >= deadline_ms:
            return False
        counter, change_id = key["counter"].partition("#")[0], change_id_of(key)
        try:
            definition, _ = self.definitions.get(counter)
            return self.context.run(release_hold(self.context, definition, change_id))
        except StaleDefinition:
            self.definitions.forget(counter)  # the next run reads it again
            return False
        except (CorruptItem, NewerFormat, NoSuchCounter, *PASSING) as error:
            self.on_failure(key, error)
            return False
