"""Tables in memory that take transactions: all conditions hold, or nothing is written."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.operations import Check, Delete, Put, Update, action
from tests.unit.ledger.memory import Fault, MemoryClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.operations import Write


@dataclass(frozen=True, slots=True)
class TransactingClient(MemoryClient):
    """A client in memory that takes transactions, and remembers their tokens for good.

    Attributes:
        tokens: what was written under each.
        transact_faults: what the coming transactions meet, one each; None lets one through.
    """

    tokens: dict[str, list[object]] = field(default_factory=dict)
    transact_faults: list[Fault | None] = field(default_factory=list)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; two units for each write."""
        self.calls.append("transact")
        fault = self.transact_faults.pop(0) if self.transact_faults else None
        if fault and not fault.applied:
            raise fault.error
        fresh = self._transact(writes, token)
        if fault:
            raise fault.error
        return fresh

    def _transact(self, writes: Sequence[Write], token: str) -> bool:
        actions: list[object] = [action(write) for write in writes]
        if token in self.tokens:
            if self.tokens[token] != actions:
                raise TokenMismatch(token)
            return False
        self.meter.written([{"CapacityUnits": 2.0 * len(writes)}])
        before = deepcopy(self.tables)
        calls = len(self.calls)
        reasons = tuple(self._carried_out(write) for write in writes)
        del self.calls[calls:]
        if any(reason.condition_failed for reason in reasons):
            self.tables.clear()
            self.tables.update(before)
            raise TransactionCancelled(reasons)
        self.tokens[token] = actions
        return True

    def _carried_out(self, write: Write) -> Reason:
        try:
            match write:
                case Put():
                    MemoryClient.put(self, write)
                case Update():
                    MemoryClient.update(self, write)
                case Delete():
                    MemoryClient.delete(self, write)
                case Check():
                    self._judged(write.table, write.key, write.condition)
                case _:
                    assert_never(write)
        except ConditionFailed as failed:
            return Reason("ConditionalCheckFailed", failed.item)
        return Reason("None")
