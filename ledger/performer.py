"""Carries out writes, and the steps of the attempt driver, through DynamoDB clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from countledger.ledger.attempts import Pause
from countledger.ledger.before_send import guarded
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.operations import (
    Delete,
    Get,
    GetMany,
    Put,
    PutBatch,
    Query,
    Scan,
    Transact,
    TransactGet,
    Update,
)

if TYPE_CHECKING:
    from countledger.ledger.attempts import Answer, Step
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Operation


def write_one(dynamo: DynamoClient, write: Put | Update | Delete) -> Item | None:
    """Carry out the write of one item: one write unit for each KB, also if its condition fails.

    Returns:
        The item as it is now, of an update that requests it.

    Raises:
        ConditionFailed: with the item that is there.
    """
    if isinstance(write, Update):
        return dynamo.update(write)
    if isinstance(write, Put):
        dynamo.put(write)
    else:
        dynamo.delete(write)
    return None


def wrote(dynamo: DynamoClient, write: Put | Update | Delete) -> bool:
    """As `write_one`; whether it was carried out. False: its condition failed."""
    try:
        write_one(dynamo, write)
    except ConditionFailed:
        return False
    return True


@dataclass(frozen=True, slots=True)
class DynamoPerformer:
    """Carries out steps whose operations are those of `ledger.operations`.

    Attributes:
        dynamo: for writes; its SDK must not retry, or a lost answer would be hidden.
        reads: for reads, which the SDK may retry.
        clock: waits.
    """

    dynamo: DynamoClient
    reads: DynamoClient
    clock: Clock

    def __call__(self, step: Step) -> Answer:
        """The answer to a request, or None after a pause; True where the call must end instead."""
        if isinstance(step, Pause):
            if self.over(step):
                return True
            return self.clock.sleep_ms(step.wait_ms)
        with guarded(step.before_send):
            return self._answer(step.operation)

    def over(self, pause: Pause) -> bool:
        """Whether the limits of a call allow no attempt after a pause."""
        limits = self.dynamo.limits
        return limits is not None and limits.reached(pause, self.clock.now_ms())

    def _answer(self, operation: Operation) -> Answer:  # noqa: PLR0911 - one for each operation
        match operation:
            case Put() | Update() | Delete():
                return write_one(self.dynamo, operation)
            case Transact(writes, token):
                return self.dynamo.transact(writes, token)
            case PutBatch():
                return self.dynamo.put_entries(operation)
            case Get(table, key, consistent):
                return self.reads.get(table, key, consistent=consistent)
            case GetMany(table, keys, consistent):
                return self.reads.get_many(table, keys, consistent=consistent)
            case TransactGet(table, keys):
                return self.reads.transact_get(table, keys)
            case Query() | Scan():
                return self.reads.page(operation)
        assert_never(operation)
