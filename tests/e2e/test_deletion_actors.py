"""Deletion with IAM enforced: what its policy allows with the two beside it, and what not."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from countledger import CountLedger, Settings
from countledger.compaction.deletion import DeletionStage
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import AccessDenied
from countledger.ledger.expressions import Assign
from countledger.ledger.limits import DAY_MS, SECOND_MS
from countledger.ledger.operations import Update
from tests.e2e.aged import record_aged, total_item

if TYPE_CHECKING:
    from countledger.infra.local.stack import LocalStack

ALL_THREE = ("DeletePolicyArn", "OperatePolicyArn", "CompactPolicyArn")


def actor(stack: LocalStack, *policies: str) -> CountLedger:
    """Someone who works on the stack under these of its policies."""
    credentials = stack.credentials_for(*policies)
    session = stack.session(credentials)
    # A proof waits for as long as clocks may differ while the stream is never still.
    settings = Settings(stack_name=stack.name, clock_skew_ms=SECOND_MS)
    return CountLedger(settings, session=session, endpoint_url=stack.url)


@pytest.fixture
def root(auth_stack: LocalStack) -> CountLedger:
    """Someone who may do everything."""
    settings = Settings(stack_name=auth_stack.name)
    return CountLedger(settings, session=auth_stack.session(), endpoint_url=auth_stack.url)


@pytest.fixture
def counter(auth_stack: LocalStack, root: CountLedger) -> str:
    """An old counter with its total, in a group."""
    namespace = f"r{uuid.uuid4().hex[:8]}"
    root.namespaces.create(namespace)
    record_aged(root, f"{namespace}:gone", [5, 7], 4 * DAY_MS)
    auth_stack.pump.drain()
    root.groups.add(f"{namespace}-group", [f"{namespace}:gone"])
    return f"{namespace}:gone"


def _days_pass(root: CountLedger, counter: str, days: int) -> None:
    """As if the mark, the last move of the total and the deletion were so old."""
    then_ms = SystemClock().now_ms() - days * DAY_MS
    table, dynamo = root.connection.setting("counters_table"), root.connection.dynamo("standard")
    mark = dynamo.get(table, keys.deletion_key(counter)) or {}
    name = "deleted_at" if "deleted_at" in mark else "at"
    dynamo.update(Update(table, keys.deletion_key(counter), (Assign(name, then_ms),)))
    if name == "at":
        group = f"{keys.namespace_of(counter)}-group"
        membership = keys.member_key(group, counter)
        dynamo.update(Update(table, membership, (Assign("at", then_ms),)))
        dynamo.update(Update(table, keys.total_key(counter), (Assign("updated_at", then_ms),)))


def test_who_deletes_does_all_of_it(
    auth_stack: LocalStack, root: CountLedger, counter: str
) -> None:
    """From the mark to the name, with the policies for operating and compacting beside."""
    deleter = actor(auth_stack, *ALL_THREE)
    stages = [deleter.deletions.delete(counter).stage]
    for days in (3, 2):
        _days_pass(root, counter, days)
        stages.append(deleter.deletions.delete(counter).stage)

    assert stages == [DeletionStage.MARKED, DeletionStage.DELETED, DeletionStage.FORGOTTEN]
    assert (total_item(root, counter), root.exact(counter).sum) == ({}, 0)
    assert list(root.groups.of(counter)) == []


@pytest.mark.parametrize("left_out", ["DeletePolicyArn", "OperatePolicyArn"])
def test_nobody_deletes_under_less(auth_stack: LocalStack, counter: str, left_out: str) -> None:
    """Without either of them no number goes; the third only lets merged entries be archived."""
    deleter = actor(auth_stack, *(one for one in ALL_THREE if one != left_out))
    root = actor(auth_stack, *ALL_THREE)
    root.deletions.delete(counter)
    _days_pass(root, counter, 3)

    try:
        stage = deleter.deletions.delete(counter).stage
    except AccessDenied:
        stage = DeletionStage.SKIPPED

    assert stage is DeletionStage.SKIPPED
    assert root.exact(counter).sum == 12


def test_who_deletes_may_not_touch_functions_and_queues(
    auth_stack: LocalStack, counter: str
) -> None:
    """The policy alone neither reads a counter nor sees what is beside the tables."""
    deleter = actor(auth_stack, "DeletePolicyArn")

    for call in (
        lambda: deleter.total(counter),
        lambda: deleter.exact(counter),
        lambda: list(deleter.quarantine.list()),
        lambda: list(deleter.deletions.pending(keys.namespace_of(counter))),
    ):
        with pytest.raises(AccessDenied):
            call()
