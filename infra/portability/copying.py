"""The copy of a restore: each item once, and none after another call has copied everything.

The record of the restore names each call that copies (`call#<id>`). A call that ends, and whose
puts all got an answer, takes its name out again. So a name that is left belongs to a call that was
killed, is suspended, or sent a put that got no answer: one of its puts may arrive later.

    begin       `call#<id>` and `last_call`, unless everything is copied
    put         leaves within a minute after the record was read, and showed no `copied_at`
    complete    `copied_at`, if no call began since the record was read; and `settles_at` if a name
                of another call is left: from then on none of its puts can arrive. This write, and a
                put of a call that read the record just before it, each leave within a minute, and
                arrive within the life of a signed request

An item that is absent may have been copied, used and deleted since: an entry was merged, a claim
was released. Nothing of that happens before the restore ends, and it ends when it has settled.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Self

from countledger.ledger import keys
from countledger.ledger.attempts import (
    Attempts,
    Done,
    DynamoPerformer,
    Send,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    CountledgerError,
    ServiceFailed,
    shown,
)
from countledger.ledger.ids import unique_id
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    MINUTE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.operations import Absent, AllOf, Assign, Compare, Drop, Update, unchanged

if TYPE_CHECKING:
    from types import TracebackType

    from countledger.ledger.attempts import Exhausted, Reply, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause, Condition, Put

_RECORD: Final = keys.restore_key()
_CALL: Final = "call#"
# For how long a look at the record is valid; and what is sent under it leaves within a minute.
_LOOK_MS: Final = 30 * SECOND_MS
_LEAVES_MS: Final = MINUTE_MS
_BACKOFF: Final = Backoff(attempts=10)


@dataclass(slots=True)
class Copying:
    """One call that copies items; a context in which it may.

    Attributes:
        dynamo: a DynamoDB client; its SDK may retry.
        puts: a client whose SDK does not: each put that got no answer is known.
        counters: the table `counters` of the new stack.
        clock_skew_ms: how far two clocks may differ.
        clock: the time.
        id: of this call.
        random: for the jitter of waits.
    """

    dynamo: DynamoClient
    puts: DynamoClient
    counters: str
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    clock: Clock = field(default_factory=SystemClock)
    id: str = field(default_factory=unique_id)
    random: Random = field(default_factory=Random)
    _looked_ms: int = 0
    _unanswered: bool = False

    @property
    def _perform(self) -> DynamoPerformer:
        return DynamoPerformer(self.puts, self.dynamo, self.clock)

    def __enter__(self) -> Self:
        """Name this call in the record: one write unit.

        Raises:
            ServiceFailed: another call has copied everything.
        """
        self._looked_ms = self.clock.now_ms()
        self._noted((Assign(_CALL + self.id, self._looked_ms), Assign("last_call", self.id)))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Take the name out again, if no put can arrive later: one write unit."""
        if not self._unanswered:
            with suppress(CountledgerError):  # then it counts as one that was killed
                self._noted((Drop(_CALL + self.id),))

    def put(self, write: Put) -> None:
        """Put an item, if it is absent, or there as it is: a write unit for each KB.

        Raises:
            BadSetting: another item has its key.
            ServiceFailed: another call has copied everything; or this process was suspended.
        """
        attempts = Attempts(self.clock, self.random, _BACKOFF)

        def request(_: None) -> Send:
            self._look()
            return Send(write, self._refuse_late)

        def interpret(reply: Reply[None]) -> Verdict[None, None]:
            match reply.answer:
                case ConditionFailed() as there:
                    _refuse_another(write, there.item)
                case CountledgerError():
                    return otherwise(reply)
            return Done(None)

        def give_up(exhausted: Exhausted[None]) -> None:
            raise exhausted.error

        try:
            run(attempt(None, request, interpret, give_up, attempts), self._perform)
        finally:
            self._unanswered |= attempts.maybe_applied

    def complete(self) -> None:
        """Note that everything is copied: a read unit and a write unit.

        Raises:
            ServiceFailed: another call was first; or this process was suspended.
        """
        for _ in _BACKOFF.tries(self.clock, self.random):
            now_ms = self._looked_ms = self.clock.now_ms()
            record = self.dynamo.get(self.counters, _RECORD, consistent=True) or {}
            left = {name for name in record if name.startswith(_CALL)} - {_CALL + self.id}
            clauses: tuple[Clause, ...] = (Assign("copied_at", now_ms),)
            if left or self._unanswered:
                late_ms = 2 * (_LEAVES_MS + SIGNED_REQUEST_LIFE_MS + self.clock_skew_ms)
                clauses += (Assign("settles_at", now_ms + late_ms),)
            with guarded(self._refuse_late):
                if self._noted(clauses, unchanged("last_call", record.get("last_call"))):
                    return
        raise ServiceFailed("other calls of this restore keep beginning: call again")

    def _look(self) -> None:
        """Read the record, unless that was done a moment ago."""
        now_ms = self.clock.now_ms()
        if 0 <= now_ms - self._looked_ms < _LOOK_MS:
            return
        if "copied_at" in (self.dynamo.get(self.counters, _RECORD, consistent=True) or {}):
            raise ServiceFailed("another call has copied everything meanwhile: call again")
        self._looked_ms = now_ms

    def _refuse_late(self) -> None:
        if not 0 <= self.clock.now_ms() - self._looked_ms < _LEAVES_MS:
            raise ServiceFailed("this process was suspended while it copied an item: call again")

    def _noted(self, clauses: tuple[Clause, ...], same: Condition | None = None) -> bool:
        """Change the record, unless everything is copied; false: it is not the same.

        Raises:
            ServiceFailed: another call has copied everything.
        """
        begun = AllOf(Compare("counter", "=", _RECORD["counter"]), Absent("copied_at"))
        condition = begun if same is None else AllOf(begun, same)
        try:
            self.dynamo.update(Update(self.counters, _RECORD, clauses, condition))
        except ConditionFailed as failed:
            item = failed.item or {}
            # By an attempt of this write that got no answer.
            done = all(item.get(one.name) == getattr(one, "value", None) for one in clauses)
            if not done and "copied_at" in item:
                raise ServiceFailed("another call has copied everything: call again") from None
            return done
        return True


def _refuse_another(write: Put, there: Item | None) -> None:
    if there != write.item:
        names = [name for name in ("counter", "part", "entry") if name in write.item]
        key = ", ".join(shown(write.item[name]) for name in names)
        raise BadSetting(
            f"{write.table} has another item {key} than the restored table: the stack was "
            "used before the restore ended; stop its writers, and restore into a new stack"
        )
