"""Delete the entries that the head covers, if they are exactly what was summed.

Each delete is conditional: the entry is gone, or it has the delta that was summed (and under a bare
key, the time). So any process may repeat every delete as long as that head's counter exists. Once
the counter is deleted, an expired or quarantined entry may be sent again under its old id; so a run
sends no delete after half a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    DynamoPerformer,
    Recheck,
    Send,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    ServiceFailed,
    TransactionCancelled,
)
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import Absent, AllOf, AnyOf, Compare, Delete, Transact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Backoff, Clock
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.exact import Covered, Head

    Covers: TypeAlias = Mapping[str, Covered]

_UNHARMED: Final = "None"


class Retire(StrEnum):
    """How merged entries are deleted."""

    TRANSACTION = "transaction"
    DELETE = "delete"


class Tampered(CountledgerError):
    """An entry that a head covers has another delta now: it was changed by hand."""


def delete_of(table: str, counter: str, key: str, covered: Covered) -> Delete:
    """The write that deletes an entry, if it is gone or still what was summed."""
    same = [Compare("delta", "=", covered.delta)]
    if covered.at_ms is not None:
        same.append(Compare("at", "=", covered.at_ms))
    unchanged = AnyOf(Absent("entry"), AllOf(*same))
    return Delete(table, {"counter": counter, "entry": key}, unchanged)


def refuse_changed(covered: Covered, item: Item | None) -> None:
    """Accept an entry that is gone, unchanged, or made again under a bare key.

    Raises:
        Tampered: the entry was changed by hand.
    """
    if item is None or item.get("delta") == covered.delta:
        return
    if covered.at_ms is not None and covered.at_ms != item.get("at"):
        return
    raise Tampered(
        f"counter {item.get('counter')!r}: entry {item.get('entry')!r} was merged with the delta "
        f"{covered.delta} and has {item.get('delta')!r} now: it was changed by hand; write the "
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
        clock: waits between attempts.
        random: what the jitter is drawn from.
        backoff: how often a conflict is tried again.
        workers: how many requests are under way at the same time.
        before_send: raises if a request leaves so late that the counter may be deleted.
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
    before_send: Callable[[], None]

    def retire(self, keys: list[str], late: Callable[[], bool]) -> bool:
        """Delete the entries of those sort keys.

        Args:
            keys: some or all of the head's covers.
            late: whether it is time to stop.

        Returns:
            Whether all was done before it was time to stop.

        Raises:
            Tampered: one of them was changed by hand; deleting stops.
            ServiceFailed: every attempt met a conflict; or as `before_send`.
        """
        perform = DynamoPerformer(self.dynamo, self.dynamo, self.clock)
        size = TRANSACTION_ACTIONS if self.how is Retire.TRANSACTION else 1
        feed = iter(sorted(keys))
        batches = list(iter(lambda: list(islice(feed, size)), []))

        def work(batch: list[str]) -> bool:
            if late():
                return False
            covers = {key: self.head.covers[key] for key in batch}
            steps = self._transact if self.how is Retire.TRANSACTION else self._delete
            run(steps(covers), perform)
            return True

        if self.workers == 1 or len(batches) == 1:
            return all(map(work, batches))
        with self.dynamo.workers(self.workers, "countledger-retire") as pool:
            return all(pool.map(work, batches))

    def _transact(self, covers: Covers) -> Steps[None]:
        """Delete up to a hundred entries together.

        | answer | meaning |
        |---|---|
        | done | done |
        | cancelled: an entry was made again under a bare key | send the others |
        | cancelled: an entry has another delta | `Tampered` |
        | cancelled: conflict, throttle | again, the same token: the service does it once |
        | cancelled: any other reason | `ServiceFailed` |
        """

        def request(left: Covers) -> Send:
            writes = [delete_of(self.table, self.counter, *one) for one in left.items()]
            return Send(Transact(writes, self._token(left)), self.before_send)

        def interpret(reply: Reply[Covers]) -> Verdict[Covers, None]:
            if isinstance(reply.answer, TransactionCancelled):
                renewed = self._renewed(reply.state, reply.answer)
                left = {key: one for key, one in reply.state.items() if key not in renewed}
                if not left:
                    return Done(None)
                return Recheck(left) if renewed else Again(left)
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return Done(None)

        return attempt(covers, request, interpret, self._give_up, self._attempts())

    def _renewed(self, covers: Covers, cancelled: TransactionCancelled) -> set[str]:
        """The entries that were made again under a bare key: they are not the merged ones.

        Raises:
            Tampered: one of the others was changed by hand.
            ServiceFailed: the transaction was refused for a permanent reason.
        """
        refused = dict(zip(covers, cancelled.reasons, strict=False))
        renewed = {key: reason for key, reason in refused.items() if reason.condition_failed}
        for key, reason in renewed.items():
            refuse_changed(covers[key], reason.item)
        if all(r.condition_failed or r.passing or r.code == _UNHARMED for r in refused.values()):
            return set(renewed)
        raise ServiceFailed(f"counter {self.counter!r}: {cancelled}") from cancelled

    def _delete(self, covers: Covers) -> Steps[None]:
        """Delete one entry; a refusal is as for a transaction."""
        ((key, covered),) = covers.items()

        def request(_: Covers) -> Send:
            return Send(delete_of(self.table, self.counter, key, covered), self.before_send)

        def interpret(reply: Reply[Covers]) -> Verdict[Covers, None]:
            if isinstance(reply.answer, ConditionFailed):
                refuse_changed(covered, reply.answer.item)
                return Done(None)
            if isinstance(reply.answer, CountledgerError):
                return otherwise(reply)
            return Done(None)

        return attempt(covers, request, interpret, self._give_up, self._attempts())

    def _attempts(self) -> Attempts:
        return Attempts(self.clock, self.random, self.backoff)

    def _give_up(self, exhausted: Exhausted[Covers]) -> None:
        raise ServiceFailed(
            f"counter {self.counter!r}: merged entries could not be deleted after "
            f"{exhausted.attempts} attempts ({exhausted.error}); the next run continues"
        ) from exhausted.error

    def _token(self, keys: Covers) -> str:
        """The same for the same deletes of this run."""
        text = "\n".join((self.run, str(self.head.generation), *keys))
        return blake2b(text.encode(), digest_size=16).hexdigest()
