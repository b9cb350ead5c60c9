"""Methods `occ` and `history`: write what was read plus the change, on condition of the version.

One read unit and one write unit; no read if the caller passes the state that its last change
returned (`known`). With `history` these units are for each KB of an item that grows with the
history: 20 tags are about 1 KB. The item's version identifies a state, its tags the last changes:
one of them with `occ`, a number of them with `history`. "Bound reached" is concluded from a state
that this call read, so it costs no write.

After a write that got no answer the item is read again, and `fate` decides:

    my tag is among the tags                 applied
    the same version                         not yet: the request may still be applied. A fence (a
                                             write of version + 1, nothing else) refuses it
    no more versions on than tags are kept   not applied, final: mine would be among the tags
    more versions on                         unknown: my tag may have been pushed out
    recreated                                unknown

The fence may fail or get no answer itself: then the item is read again, with the same table. After
"not applied" the change goes on from the state that was found.

Every change of the item raises its version, also one of its bounds. A version never comes back: a
recreated counter begins above its old one. A key that is used again is recognized while its tag is
among the last ones; later it counts again, and nothing can detect that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.attempts import Again, Done, Recheck, Reply, Send, attempt, otherwise
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import ConditionFailed, CountledgerError, Throttled, Unclear
from countledger.ledger.operations import Add, Assign, Compare, Get, Update
from countledger.producers.strict.change import end, refusal
from countledger.producers.strict.definition import (
    Method,
    StrictState,
    decode_state,
    encode_state,
    of,
)
from countledger.producers.strict.outcome import Applied, Duplicate, Unknown

if TYPE_CHECKING:
    from countledger.ledger.attempts import Attempts, Steps, Verdict
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition
    from countledger.producers.strict.outcome import StrictOutcome

# Writers that conflict wait longer each time, so that contention does not feed on itself.
_POLICY: Final = Backoff(attempts=14, base_ms=10, cap_ms=1_000)
_ADVICE: Final = (
    "a request got no clear answer, and so many others changed the counter since that its own tag "
    "may have been overwritten: compare with your own records; keep a longer history, or take "
    "method marker"
)
_BUSY: Final = "others changed the counter each time before this change could"


class Fate(Enum):
    """What became of a write that got no answer."""

    APPLIED = "applied"
    NOT_YET = "not yet"
    NOT_APPLIED = "not applied, final"
    UNKNOWN = "unknown"


def fate(change: StrictChange, based_on: StrictState, found: StrictState, kept: int) -> Fate:
    """What became of a write, by the state that it was based on and the one found since."""
    if found.incarnation != based_on.incarnation:
        return Fate.UNKNOWN
    if change.remembered_in(found.tags):
        return Fate.APPLIED
    steps = found.version - based_on.version
    if steps == 0:
        return Fate.NOT_YET
    # If mine had been the first of those steps, its tag would still be among the last ones.
    return Fate.NOT_APPLIED if steps <= kept else Fate.UNKNOWN


def applied_to(state: StrictState, change: StrictChange, kept: int) -> StrictState:
    """The state with the change; `kept` is how many tags it keeps."""
    return replace(
        state,
        version=state.version + 1,
        total=amount.add(state.total, change.delta),
        tags=(*state.tags, change.tag)[-kept:],
    )


def plan_change(
    table: str, definition: Definition, state: StrictState, change: StrictChange
) -> Update:
    """The write of a change: the state plus the change, if the item is still at that state."""
    after = applied_to(state, change, kept_tags(definition))
    written = encode_state(after)
    names = ("total", "headroom_up", "headroom_down", "version")
    # `occ` stores its one tag as a string.
    one = definition.method is Method.OCC
    tags = Assign("tag", after.tags[-1]) if one else Assign("tags", list(after.tags))
    return Update(
        table,
        definition.main,
        (
            *(Assign(name, written[name]) for name in names),
            tags,
            Assign("updated_at", change.at_ms),
        ),
        of(state.incarnation, Compare("version", "=", state.version)),
    )


def plan_fence(table: str, definition: Definition, state: StrictState) -> Update:
    """The write that refuses every request based on this state, and changes nothing else."""
    condition = of(state.incarnation, Compare("version", "=", state.version))
    return Update(table, definition.main, (Add("version", 1),), condition)


def kept_tags(definition: Definition) -> int:
    return (definition.history or 1) if definition.method is Method.HISTORY else 1


@dataclass(frozen=True, slots=True)
class _Read:
    """Read the item; `based_on`: the state of a write without an answer."""

    based_on: StrictState | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """Write the change on top of a state; `first`: no other write was faster yet."""

    state: StrictState
    first: bool = True


@dataclass(frozen=True, slots=True)
class _Fence:
    """Refuse the write that is based on `based_on`; the item is still at that version."""

    based_on: StrictState
    found: StrictState


_Next = _Read | _Write | _Fence


@dataclass(slots=True)
class OptimisticChange:
    """One change by method occ or history."""

    connection: Connection
    definition: Definition
    change: StrictChange
    attempts: Attempts

    @classmethod
    def begin(
        cls, connection: Connection, definition: Definition, change: StrictChange
    ) -> OptimisticChange:
        return cls(connection, definition, change, connection.attempts(policy=_POLICY))

    def apply(self, known: StrictState | None, *, read: bool = False) -> Steps[StrictOutcome]:
        """Read, unless the state is known; write; find out what became of it.

        `read`: this call read that state; a refusal must not be based on an older one.
        """
        first: Recheck[_Next] | Done[StrictOutcome] = Recheck(_Read())
        if known is not None:
            first = self._from(known, read=read)
        if isinstance(first, Done):
            return first.value
        return (
            yield from attempt(
                first.state,
                self._request,
                self._interpret,
                lambda exhausted: end(exhausted, self.change.counter, _ADVICE),
                self.attempts,
            )
        )

    def _request(self, state: _Next) -> Send:
        table, definition = self.connection.counters, self.definition
        match state:
            case _Read():
                return Send(Get(table, definition.main))
            case _Write():
                return Send(plan_change(table, definition, state.state, self.change))
            case _Fence():
                return Send(plan_fence(table, definition, state.found))

    def _interpret(  # noqa: PLR0911 - one for each row
        self, reply: Reply[_Next]
    ) -> Verdict[_Next, StrictOutcome]:
        match reply:
            case Reply(ConditionFailed(item=item), _Write(first=first)):
                return self._overtaken(self._state_in(item), first=first)
            case Reply(Unclear(), _Write(state=state)):
                return Again(_Read(based_on=state))
            case Reply(ConditionFailed(item=item), _Fence(based_on=based_on)):
                return self._found(based_on, item)
            case Reply(CountledgerError(), _Fence(based_on=based_on)):
                return otherwise(replace(reply, state=_Read(based_on)))
            case Reply(CountledgerError()):
                return otherwise(reply)
            case Reply(item, _Read(based_on=None)):
                return self._from(self._state_in(item), read=True)
            case Reply(item, _Read(based_on=StrictState() as based_on)):
                return self._found(based_on, item)
            case Reply(_, _Fence(found=found)):
                return self._fenced(found)
            case Reply(_, _Write(state=state)):
                after = applied_to(state, self.change, kept_tags(self.definition))
        return Done(Applied(self.change.counter, after.total, after))

    def _from(
        self, state: StrictState, *, read: bool, resolved: bool = False
    ) -> Recheck[_Next] | Done[StrictOutcome]:
        """What to do with a state that no request in doubt is based on."""
        counter = self.change.counter
        if self.change.remembered_in(state.tags):
            # A retry of the key. An id that was drawn for this call was stored by this call.
            if self.change.key is None:
                return Done(Applied(counter, state.total, state))
            return Done(Duplicate(counter, state.total))
        refused = refusal(counter, state, self.change.delta)
        if refused is None:
            return Recheck(_Write(state), resolved=resolved)
        return Done(refused) if read else Recheck(_Read())

    def _overtaken(self, found: StrictState, *, first: bool) -> Verdict[_Next, StrictOutcome]:
        """Another write was faster. The state in its answer is old after a longer wait."""
        following = self._from(found, read=True)
        if isinstance(following, Done):
            return following
        return Again(_Write(found, first=False) if first else _Read(), Throttled(_BUSY))

    def _found(self, based_on: StrictState, item: Item | None) -> Verdict[_Next, StrictOutcome]:
        """What became of the write without an answer, by the item as it is now."""
        if item is None or not self.definition.is_of(item):
            return Done(Unknown(self.change.counter, _ADVICE))
        found = decode_state(item)
        match fate(self.change, based_on, found, kept_tags(self.definition)):
            case Fate.APPLIED:
                return Done(Applied(self.change.counter, found.total, found))
            case Fate.NOT_YET:
                return Recheck(_Fence(based_on, found))
            case Fate.NOT_APPLIED:
                return self._from(found, read=True, resolved=True)
            case Fate.UNKNOWN:
                return Done(Unknown(self.change.counter, _ADVICE))

    def _fenced(self, found: StrictState) -> Verdict[_Next, StrictOutcome]:
        """The old request can no longer be applied: go on from the state after the fence."""
        after = replace(found, version=found.version + 1)
        return self._from(after, read=True, resolved=True)

    def _state_in(self, item: Item | None) -> StrictState:
        return decode_state(self.definition.expect(item))
