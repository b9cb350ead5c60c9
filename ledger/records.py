"""Records: named settings, each one item, which calls create, change and remove.

Quotas, schedules, windows, rankings, groups, memberships, namespaces, alert rules, the marks of
deletions and the notes of imports are records. Each has these attributes beside its own:

    incarnation    the id of this record; no other record has had it, also not at this key
    revision       how often it was written; each write raises it by one
    changed_by     the id of the call that wrote it last

A removed record leaves a tombstone (see `ledger/tombstones.py`), which has its next revision.

There is one protocol for every change. A call reads the record, decides what takes its place (a
function of the record and the time), and writes that on condition that the record still is what was
read. Before each further attempt it decides again.
A call that expects no record need not read: its first condition is that nothing is there, or a
tombstone from before. What that meets instead is as good as read, so the next attempt is at once.

    read                            decide
    written                         done
    condition failed, by an         done
      attempt of this call
    condition failed, and the       if an attempt of this call got no answer: none of them was
      record is the next revision   applied, and none can be any more; decide again
    condition failed by a record    if an attempt of this call got no answer: it left nothing that
      of another incarnation, in a    is still there, and none can be applied any more; decide again
      call that may be repeated
    condition failed, anything      if an attempt of this call got no answer, it may have been
      else                          applied before: `Unclear`; or else decide again
    throttle, conflict, no answer   again

So a decision to refuse, or to leave the record as it is, is made only while no request of the call
can have been applied, or can be applied later: nothing more is needed to make it final. A record of
a kind that is never removed is simpler still: a creation that met another record can never be
applied. (An alert rule is such a kind: a deleted one is a record whose last revision has ended.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

from countledger.ledger.attempts import (
    Again,
    Done,
    GiveUp,
    Recheck,
    Send,
    always,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    Throttled,
    TransactionCancelled,
)
from countledger.ledger.operations import Absent, Get, Put, Transact, all_unchanged
from countledger.ledger.tombstones import (
    present,
    removal_id,
    removed_id,
    tombstone,
    vacant,
    was_removed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attempts import Exhausted, Reply, Steps, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.errors import Reason
    from countledger.ledger.operations import Condition, Write

INCARNATION: Final = "incarnation"
REVISION: Final = "revision"
CHANGED_BY: Final = "changed_by"
_ADVICE: Final = "it may have been done: look, and call again"


class NotRead(Enum):
    """What a call knows of a record before it has read it."""

    READ_IT = "read it first"
    EXPECT_NOTHING = "expect that no record has the key"


Seen: TypeAlias = "Item | NotRead | None"


class Replacement(NamedTuple):
    """What a call writes in place of the record that it has read.

    `item` has the record's own attributes and its key; None: the record is removed. `beside` are
    other writes of the same transaction. `before_send` is called as the request leaves, and raises
    where it must not leave any more.
    """

    item: Item | None
    beside: tuple[Write, ...] = ()
    before_send: Callable[[], None] = always


class RecordWritten(NamedTuple):
    """What a call has done.

    `item` is the record afterwards, as this call wrote or left it; `before` what it replaced or
    left: a record, a tombstone, or nothing. `refused`: what a write beside the record met, if that
    was refused: then nothing was written.
    """

    item: Item | None
    before: Item | None
    changed: bool
    refused: tuple[Reason, ...] = ()


# From the record as it is to what takes its place; None: it stays as it is. What it raises, the
# call raises. What it reads beside the record, it reads again for each attempt.
Decide: TypeAlias = Callable[["Item | None"], "Replacement | None"]


class _Plan(NamedTuple):
    """What is sent next; without a replacement the record is read.

    All requests of which one may be applied name one `planned_ms`.
    """

    seen: Seen
    planned_ms: int
    replacement: Replacement | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one kind; messages put `kind` before the name of a record: `quota`."""

    connection: Connection
    table: str
    kind: str
    removable: bool = True

    def write(
        self,
        name: str,
        key: Key,
        decide: Decide,
        *,
        seen: Seen = NotRead.READ_IT,
        repeatable: bool = False,
    ) -> Steps[RecordWritten]:
        """Change a record: one write unit; a read unit first, unless `seen` says what is there.

        A write unit more for each time that another call was faster. With writes beside it two
        units for each write of the transaction. `seen` is the item as the caller has read it, a
        tombstone as well. `repeatable`: the decision about another record is right also if this
        call has written one that is gone by now; what it did then is not in its result.

        `Unclear`: a request may have been applied, or may still be. `Throttled`, and what `decide`
        raises: nothing was written, or will be.
        """
        return Writing(self, name, key, decide, repeatable).steps(seen)

    def is_seen(self, seen: Item | NotRead | None, planned_ms: int) -> Condition:
        """The record, or what is in its place, is still what was seen."""
        if isinstance(seen, NotRead):
            return vacant(planned_ms, self.connection.clock_skew_ms)
        if seen is None:
            return Absent("counter")
        if (removed := removed_id(seen)) is not None:
            return was_removed(removed)
        return is_same(seen)


def is_same(record: Item) -> Condition:
    """The record is still the one that was read, and was not written since."""
    return all_unchanged(record, INCARNATION, REVISION)


def write_of(item: Item) -> str:
    """The write that left a record, or the last one before its tombstone: unique at its key."""
    removed = removed_id(item)
    revision = _revision_of(item) - (removed is not None)
    return f"{removed or item.get(INCARNATION)}.{revision}"


def _revision_of(item: Item | None) -> int:
    """How often it was written; 0: never, or somebody has edited the item."""
    revision = (item or {}).get(REVISION)
    return revision if isinstance(revision, int) else 0


def _is_same_record(before: Item | None, found: Item) -> bool:
    return before is not None and before.get(INCARNATION) == found.get(INCARNATION)


def is_refused(reasons: Iterable[Reason]) -> bool:
    return any(one.condition_failed for one in reasons)


@dataclass(frozen=True, slots=True)
class Writing:
    """One call of `Records.write`."""

    records: Records
    name: str
    key: Key
    decide: Decide
    repeatable: bool
    call: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", self.records.connection.ids.new_id(self._now_ms()))

    def steps(self, seen: Seen) -> Steps[RecordWritten]:
        now_ms = self._now_ms()
        read = seen is NotRead.READ_IT
        first = Recheck(_Plan(seen, now_ms)) if read else self._decided(seen, now_ms)
        if isinstance(first, Done):
            return first.value
        attempts = self.records.connection.attempts()
        steps = attempt(first.state, self._request, self._interpret, self._give_up, attempts)
        return (yield from steps)

    def _now_ms(self) -> int:
        return self.records.connection.clock.now_ms()

    def _request(self, plan: _Plan) -> Send:
        if plan.replacement is None:
            return Send(Get(self.records.table, self.key))
        item, beside, before_send = plan.replacement
        condition = self.records.is_seen(plan.seen, plan.planned_ms)
        put = Put(self.records.table, self._stamped(plan.seen, item), condition)

        def check() -> None:
            if isinstance(plan.seen, NotRead) or present(plan.seen) is None:
                self._refuse_late(plan.planned_ms)
            before_send()

        if not beside:
            return Send(put, check)
        token = self.records.connection.ids.new_id(plan.planned_ms)
        return Send(Transact((put, *beside), token), check)

    def _refuse_late(self, planned_ms: int) -> None:
        """A tombstone is kept for as long as a creation may leave after its plan, and no longer."""
        late_ms = self._now_ms() - planned_ms
        if late_ms > self.records.connection.token_life_ms:
            raise Throttled(
                f"this process was suspended for {late_ms} ms before it changed "
                f"{self.records.kind} {self.name!r}"
            )

    def _stamped(self, seen: Seen, item: Item | None) -> Item:
        """The item that is put: the next revision of the record, a new one, or a tombstone."""
        before = None if isinstance(seen, NotRead) else seen
        there = present(before)
        revision = _revision_of(before) + 1
        # Without an incarnation: somebody has edited the item.
        incarnation = (there or {}).get(INCARNATION) or self.call
        if item is not None:
            own = {INCARNATION: incarnation, REVISION: revision, CHANGED_BY: self.call}
            return {**item, **own}
        connection = self.records.connection
        grave = tombstone(
            dict(self.key),
            incarnation,
            connection.clock.now_ms(),
            connection.clock_skew_ms,
            connection.request_life_ms + connection.token_life_ms,
            removal=self.call,
        )
        return {**grave, REVISION: revision}

    def _interpret(self, reply: Reply[_Plan]) -> Verdict[_Plan, RecordWritten]:
        match reply.answer:
            case TransactionCancelled(reasons=(own, *_)) if own.condition_failed:
                return self._met(own.item, reply)
            case TransactionCancelled(reasons=(_, *beside)) if is_refused(beside):
                return self._beside_refused(tuple(beside), reply)
            case ConditionFailed(item=found):
                return self._met(found, reply)
            case CountledgerError():
                return self._failed(reply)
        if reply.state.replacement is None:
            return self._decided(reply.answer, self._now_ms())
        return Done(self._done(reply.state))

    def _failed(self, reply: Reply[_Plan]) -> Verdict[_Plan, RecordWritten]:
        verdict = otherwise(reply)
        if isinstance(verdict, GiveUp) or reply.state.replacement is None:
            return verdict
        return self._again(reply.state.seen, reply, verdict.error)

    def _beside_refused(
        self, reasons: tuple[Reason, ...], reply: Reply[_Plan]
    ) -> Verdict[_Plan, RecordWritten]:
        """A write beside the record met what it must not, the record itself is as it was."""
        if reply.maybe_applied:
            return GiveUp(reply.answer)
        return Done(self._left(reply.state.seen)._replace(refused=reasons))

    def _met(self, found: Item | None, reply: Reply[_Plan]) -> Verdict[_Plan, RecordWritten]:
        """Decide again on what a condition has met, if that is safe."""
        plan = reply.state
        if self.is_own(found):
            return Done(self._applied(plan, found))
        another = CountledgerError(f"another call has changed it ({self.records.kind})")
        if reply.maybe_applied and not self.follows(plan.seen, found):
            return GiveUp(another)
        return self._again(found, reply, another, resolved=True)

    def _again(
        self,
        seen: Seen,
        reply: Reply[_Plan],
        error: CountledgerError | None,
        *,
        resolved: bool = False,
    ) -> Verdict[_Plan, RecordWritten]:
        """Decide again, because time has passed, or what is there is another one."""
        may_be_applied = reply.maybe_applied and not resolved
        planned_ms = reply.state.planned_ms if may_be_applied else self._now_ms()
        try:
            decided = self._decided(seen, planned_ms)
        except CountledgerError as refusal:
            if may_be_applied:
                return GiveUp(refusal)
            raise
        if isinstance(decided, Recheck):
            if resolved and isinstance(reply.state.seen, NotRead):
                return Recheck(decided.state, resolved)
            return Again(decided.state, error, resolved)
        return GiveUp(error or reply.answer) if may_be_applied else decided

    def is_own(self, found: Item | None) -> bool:
        """Whether what is there shows that an attempt of this call was applied."""
        ids = removed_id(found), removal_id(found)
        return self.call in ids or self.call in map((found or {}).get, (INCARNATION, CHANGED_BY))

    def follows(self, seen: Seen, found: Item | None) -> bool:
        """Whether nothing of any attempt is there, or can be: another call was first."""
        before = None if isinstance(seen, NotRead) else present(seen)
        if found is None:
            return False
        if self.repeatable and present(found) and not _is_same_record(before, found):
            return True
        if before is None:  # an attempt may have made a record, which was removed since
            return not self.records.removable
        follows = removed_id(found) or found.get(INCARNATION), found.get(REVISION)
        return follows == (before.get(INCARNATION), _revision_of(before) + 1)

    def _decided(self, seen: Seen, planned_ms: int) -> Recheck[_Plan] | Done[RecordWritten]:
        there = None if isinstance(seen, NotRead) else present(seen)
        replacement = self.decide(there)
        if replacement is None:
            return Done(self._left(seen))
        return Recheck(_Plan(seen, planned_ms, replacement))

    def _left(self, seen: Seen) -> RecordWritten:
        before = None if isinstance(seen, NotRead) else seen
        return RecordWritten(present(before), before, changed=False)

    def _done(self, plan: _Plan) -> RecordWritten:
        before = self._left(plan.seen).before
        item = None if plan.replacement is None else plan.replacement.item
        after = None if item is None else self._stamped(plan.seen, item)
        return RecordWritten(after, before, changed=True)

    def _applied(self, plan: _Plan, found: Item | None) -> RecordWritten:
        """What an attempt without an answer has written: it may have decided otherwise."""
        written, there = self._done(plan), present(found)
        is_last = there is not None and there.get(CHANGED_BY) == self.call
        return written._replace(item=there) if is_last else written

    def _give_up(self, exhausted: Exhausted[_Plan]) -> NoReturn:
        raise_exhausted(exhausted, f"to change {self.records.kind} {self.name!r}", _ADVICE)
