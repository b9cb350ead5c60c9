"""The decisions of `occ` and `history`, as functions of the state that a write was based on.

What is promised, and the tables that `fate` follows, stand in the files of the two methods.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from countledger.ledger import amount
from countledger.ledger.expressions import Add, Assign, Compare
from countledger.ledger.operations import Update
from countledger.producers.strict.state import StrictState, encode_state, of

if TYPE_CHECKING:
    from countledger.ledger.expressions import Clause
    from countledger.producers.strict.change import StrictChange
    from countledger.producers.strict.definition import Definition


class Memory(Protocol):
    """How the last changes are remembered."""

    @property
    def length(self) -> int:
        """How many of them."""

    def after(self, state: StrictState, tag: str) -> tuple[str, ...]:
        """The tags with a new one."""

    def clause(self, tags: tuple[str, ...]) -> Clause:
        """How they are stored."""


class Fate(Enum):
    """What became of a write that got no answer."""

    APPLIED = "applied"
    NOT_YET = "not yet"
    NOT_APPLIED = "not applied, final"
    UNKNOWN = "unknown"


def fate(change: StrictChange, based_on: StrictState, found: StrictState, kept: int) -> Fate:
    """What became of a write, by the state that it was based on and the one found since.

    Raises:
        IdempotencyKeyReused: its key was used by another call, with another delta.
    """
    if found.incarnation != based_on.incarnation:
        return Fate.UNKNOWN
    if change.remembered_in(found.tags):
        return Fate.APPLIED
    steps = found.version - based_on.version
    if steps == 0:
        return Fate.NOT_YET
    # Had mine been the first of those steps, its tag would be among the last ones still.
    return Fate.NOT_APPLIED if steps <= kept else Fate.UNKNOWN


def applied_to(state: StrictState, change: StrictChange, memory: Memory) -> StrictState:
    """The state with the change."""
    return replace(
        state,
        version=state.version + 1,
        total=amount.add(state.total, change.delta),
        tags=memory.after(state, change.tag),
    )


def plan_change(
    table: str, definition: Definition, state: StrictState, change: StrictChange, memory: Memory
) -> Update:
    """The write of a change: what was read plus the change, if it is still what was read."""
    after = applied_to(state, change, memory)
    written = encode_state(after)
    return Update(
        table,
        definition.main,
        (
            *(
                Assign(name, written[name])
                for name in ("total", "headroom_up", "headroom_down", "version")
            ),
            memory.clause(after.tags),
            Assign("updated_at", change.at_ms),
        ),
        of(state.incarnation, Compare("version", "=", state.version)),
    )


def plan_fence(table: str, definition: Definition, state: StrictState) -> Update:
    """The write that refuses every request based on this state, and changes nothing else."""
    condition = of(state.incarnation, Compare("version", "=", state.version))
    return Update(table, definition.main, (Add("version", 1),), condition)
