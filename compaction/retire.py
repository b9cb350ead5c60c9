"""Deleting what the head has taken in: nothing that is not exactly what was summed.

Each delete stands on a condition: the entry is gone, or it carries the delta that was summed (and
for a bare key, was made at that time). So every delete may be sent again, by anybody, at any time
at which that head's counter is there. What expired, or was quarantined, may be resent under its old
id once the counter was deleted; so a run sends no delete once it is half a day old.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.ledger.before_send import guarded
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    ServiceFailed,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.expressions import Absent, AllOf, AnyOf, Compare
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import Delete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from countledger.ledger.attempts import Backoff
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.head import Covered, Head

_UNHARMED: Final = "None"


class Retire(StrEnum):
    """How merged entries are deleted."""

    TRANSACTION = "transaction"
    DELETE = "delete"


class Tampered(CountledgerError):
    """An entry that a head has taken in carries another delta now: somebody changed it by hand."""


def delete_of(table: str, counter: str, key: str, covered: Covered) -> Delete:
    """The write that deletes an entry, if it is gone or still what was summed."""
    same = [Compare("delta", "=", covered.delta)]
    if covered.at_ms is not None:
        same.append(Compare("at", "=", covered.at_ms))
    unchanged = AnyOf(Absent("entry"), AllOf(*same))
    return Delete(table, {"counter": counter, "entry": key}, unchanged)


def refuse_changed(covered: Covered, item: Item | None) -> None:
    """Let pass what is gone, unchanged, or made anew under a bare key.

    Raises:
        Tampered: the entry was changed by hand.
    """
    if item is None or item.get("delta") == covered.delta:
        return
    if covered.at_ms is not None and covered.at_ms != item.get("at"):
        return
    raise Tampered(
        f"counter {item.get('counter')!r}: entry {item.get('entry')!r} was merged with the delta "
        f"{covered.delta} and carries {item.get('delta')!r} now: it was changed by hand; write the "
        "merged delta back, or delete the entry (of a namespace with an archive, run "
        "`countledger compact COUNTER --archive-as-found` after that)"
    )


@dataclass(frozen=True, slots=True)
class Retirer:
    """Deletes what one head of one counter covers.

    Attributes:
        dynamo: a DynamoDB client in the home region; the SDK may retry.
        table: the table `ledger`.
        counter: whose entries.
        head: the head; every region has shown it.
        how: by transactions, two write units for each KB, or by single deletes at half of that.
        run: this run's id.
        clock: waits between tries.
        random: what the jitter is drawn from.
        backoff: how often a conflict is tried again.
        workers: how many requests are under way at once.
        look: raises where a request leaves so late that the counter may have been deleted since.
    """

    dynamo: DynamoClient
    table: str
    counter: str
    head: Head
    how: Retire
    run: str
    clock: Clock
    random: Random
    backoff: Backoff
    workers: int
    look: Callable[[], None]

    def retire(self, keys: list[str], late: Callable[[], bool]) -> bool:
        """Delete the entries of those sort keys.

        Args:
            keys: some or all of the head's covers.
            late: whether it is time to stop.

        Returns:
            Whether all was done before it was time to stop.

        Raises:
            Tampered: one of them was changed by hand; deleting stops.
            ServiceFailed: conflicts stayed through every attempt; or as `look`.
        """
        size = TRANSACTION_ACTIONS if self.how is Retire.TRANSACTION else 1
        feed = iter(sorted(keys))
        batches = list(iter(lambda: list(islice(feed, size)), []))

        def work(batch: list[str]) -> bool:
            if late():
                return False
            covers = {key: self.head.covers[key] for key in batch}
            # Each thread has a look of its own.
            with guarded(self.look):
                self._transact(covers) if self.how is Retire.TRANSACTION else self._delete(covers)
            return True

        if self.workers == 1 or len(batches) == 1:
            return all(map(work, batches))
        with ThreadPoolExecutor(self.workers, "countledger-retire") as pool:
            return all(pool.map(work, batches))

    def _transact(self, covers: Mapping[str, Covered]) -> None:
        """Delete up to a hundred together."""
        waits_ms = self.backoff.waits_ms(self.random)
        left = dict(covers)
        while left:
            writes = [delete_of(self.table, self.counter, *one) for one in left.items()]
            try:
                self.dynamo.transact(writes, self._token(left))
            except TransactionCancelled as cancelled:
                renewed = self._judge(left, cancelled)
                left = {key: one for key, one in left.items() if key not in renewed}
                if not renewed:
                    self._pause(waits_ms, cancelled)
            except (Throttled, Unclear) as error:
                # Under the same token the service carries it out once.
                self._pause(waits_ms, error)
            else:
                return

    def _judge(self, covers: Mapping[str, Covered], cancelled: TransactionCancelled) -> set[str]:
        """Which of them were made anew under a bare key; they are none of ours.

        Raises:
            Tampered: one of them was changed by hand.
            ServiceFailed: the transaction was refused for a reason that will not pass.
        """
        refused = dict(zip(covers, cancelled.reasons, strict=False))
        renewed = {key: reason for key, reason in refused.items() if reason.condition_failed}
        for key, reason in renewed.items():
            refuse_changed(covers[key], reason.item)
        if all(r.condition_failed or r.passing or r.code == _UNHARMED for r in refused.values()):
            return set(renewed)
        raise ServiceFailed(f"counter {self.counter!r}: {cancelled}") from cancelled

    def _delete(self, covers: Mapping[str, Covered]) -> None:
        """Delete one by one."""
        for key, covered in covers.items():
            waits_ms = self.backoff.waits_ms(self.random)
            while True:
                try:
                    self.dynamo.delete(delete_of(self.table, self.counter, key, covered))
                except ConditionFailed as failed:
                    refuse_changed(covered, failed.item)
                except (Throttled, Unclear) as error:
                    self._pause(waits_ms, error)
                    continue
                break

    def _pause(self, waits_ms: Iterator[float], error: CountledgerError) -> None:
        """Wait before the next attempt.

        Raises:
            ServiceFailed: there is none.
        """
        wait_ms = next(waits_ms, None)
        if wait_ms is None:
            raise ServiceFailed(
                f"counter {self.counter!r}: merged entries could not be deleted after "
                f"{self.backoff.attempts} attempts ({error}); the next run goes on"
            ) from error
        self.clock.sleep_ms(wait_ms)

    def _token(self, keys: Mapping[str, Covered]) -> str:
        """The same for the same deletes of this run."""
        text = "\n".join((self.run, str(self.head.generation), *keys))
        return blake2b(text.encode(), digest_size=16).hexdigest()
