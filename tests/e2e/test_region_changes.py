"""A region is added to a stack and removed from it, also if the command fails after any step."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from unittest.mock import patch

import pytest

from countledger import CountLedger, Settings
from countledger.consumers.region_state import Phase, RegionStateStore
from countledger.infra.cli.app import Options
from countledger.infra.cli.regions import change_of
from countledger.infra.deploy.region_change import (
    ADDING,
    Code,
    RegionChange,
    Step,
    next_of_adding,
    next_of_removing,
)
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.local.stack import ROOT, LocalStack, session_of
from countledger.ledger.connection import Connection
from countledger.ledger.errors import RegionRebuilding
from tests.e2e.command import PATIENCE_S, Command
from tests.e2e.world import bundle_of, following

HOME, OTHER = "us-east-1", "eu-west-1"
COUNTERS = ("likes:a", "likes:b", "likes:c")
BOUND = {"COUNTLEDGER_REPLICATION_BOUND_MS": "1500"}


@pytest.fixture
def stack() -> Iterator[LocalStack]:
    with LocalStack(name="joining") as running, following(running):
        yield running


def _client(stack: LocalStack, region: str) -> CountLedger:
    session = session_of(ROOT, region)
    return CountLedger(Settings.of_stack(stack.name), session=session, endpoint_url=stack.url)


def _totals(stack: LocalStack, region: str) -> dict[str, object]:
    found = _client(stack, region).totals(COUNTERS)
    return {name: one.value for name, one in found.items()}


def _record(stack: LocalStack, region: str, times: int = 1) -> None:
    client = _client(stack, region)
    for _ in range(times):
        for number, name in enumerate(COUNTERS):
            client.record(name, number + 1)


def test_a_region_joins_counts_and_leaves(stack: LocalStack) -> None:
    command = Command(stack.environment())
    _record(stack, HOME, 3)
    assert command("region", "list", "--json").json["items"][0]["state"] == "ready"
    assert command("region", "add", OTHER, "--plan").code == 1

    added = command("region", "add", OTHER, "--yes")

    assert added.code == 0, added.err
    assert _totals(stack, OTHER) == {"likes:a": 3, "likes:b": 6, "likes:c": 9}
    listed = command("region", "list", "--json").json["items"]
    assert [(one["name"], one["home"], one["state"]) for one in listed] == [
        (HOME, True, "ready"),
        (OTHER, False, "ready"),
    ]
    assert command("region", "add", OTHER, "--yes").err.strip().endswith("nothing is left to do")
    _record(stack, OTHER)
    expected = {"likes:a": 4, "likes:b": 8, "likes:c": 12}
    for region in (HOME, OTHER):
        _await_totals(stack, region, expected)

    # DynamoDB would refuse to delete the ledger, with the stack gone already.
    destroyed = command("destroy", "--delete-data", "--yes", stack.name)
    assert destroyed.code == 2
    assert "has a replica in eu-west-1 that was made less than 24 hours ago" in destroyed.err
    assert command("region", "list").code == 0

    recording = threading.Event()
    thread = threading.Thread(target=_keep_recording, args=(stack, recording), daemon=True)
    thread.start()
    refused = command("region", "remove", OTHER, "--yes", env=BOUND)
    recording.set()
    thread.join()
    assert refused.code == 4, refused.err
    assert "was recorded in eu-west-1" in refused.err
    counters = _client(stack, OTHER).connection.setting("counters_table")

    removed = command("region", "remove", OTHER, "--yes", env=BOUND)

    assert removed.code == 0, removed.err
    assert f"table {counters} in eu-west-1 stays" in removed.err
    assert len(command("region", "list", "--json").json["items"]) == 1
    exact = {name: _client(stack, HOME).exact(name).value for name in COUNTERS}
    assert exact["likes:a"] > 4
    _await_totals(stack, HOME, exact)


def _await_totals(stack: LocalStack, region: str, expected: Mapping[str, object]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while _totals(stack, region) != expected and time.monotonic() < ends_s:
        time.sleep(0.1)
    assert _totals(stack, region) == expected


def _keep_recording(stack: LocalStack, ended: threading.Event) -> None:
    client = _client(stack, OTHER)
    while not ended.wait(0.2):
        client.record("likes:a", 1)


class _Killed(Exception):
    """The command ends here."""


def _change(stack: LocalStack) -> RegionChange:
    """What the command line makes: another one for each run, as in another process."""
    with patch.dict(os.environ, {**stack.environment(), **BOUND}):
        change = change_of(
            Options(stack_name=stack.name),
            OTHER,
            lambda: Code(bucket=_bucket(stack), bundle=bundle_of()),
        )
        change.owner.setting("ledger_table")
        return change


def _bucket(stack: LocalStack) -> str:
    s3 = session_of(ROOT, OTHER).client("s3", endpoint_url=stack.url)
    name = f"code-{OTHER}"
    if name not in [one["Name"] for one in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return name


def test_a_run_that_ends_after_any_step_is_continued(stack: LocalStack) -> None:
    """Before each step the command is killed once, and started again."""
    _record(stack, HOME, 2)
    killed: list[Step] = []

    def kill(step: Step) -> None:
        if step in {Step.REPAIR, Step.VERIFY, Step.READY}:
            with pytest.raises(RegionRebuilding):
                _client(stack, OTHER).total("likes:a")
        if step not in killed:
            killed.append(step)
            raise _Killed

    for decide in (next_of_adding, next_of_removing):
        while True:
            with patch.dict(os.environ, {**stack.environment(), **BOUND}):
                try:
                    _change(stack).run(decide, kill)
                except _Killed:
                    continue
            break
        if decide is next_of_adding:
            assert set(killed) >= set(ADDING) - {Step.WAIT}
            assert _totals(stack, OTHER) == {"likes:a": 2, "likes:b": 4, "likes:c": 6}
    assert killed[-3:] == [Step.QUIET, Step.DESTROY, Step.DROP]
    with patch.dict(os.environ, stack.environment()):
        assert _change(stack).observe().replicas == {}


def test_a_region_that_joined_again_is_proven_again(stack: LocalStack) -> None:
    """A run is suspended before its last step; meanwhile the region leaves, and another run joins.

    What the suspended run has proven are the totals of a table that the region does not use.
    """
    _record(stack, HOME, 2)
    taken: list[Step] = []

    def join_again(step: Step) -> None:
        taken.append(step)
        if taken.count(Step.READY) != 1 or step is not Step.READY:
            return
        _change(stack).run(next_of_removing)
        with pytest.raises(_Killed):
            _change(stack).run(next_of_adding, _kill_before(Step.REPAIR))
        with pytest.raises(RegionRebuilding):
            _client(stack, OTHER).total("likes:a")

    with patch.dict(os.environ, {**stack.environment(), **BOUND}):
        _change(stack).run(next_of_adding, join_again)

    assert taken[-4:] == [Step.READY, Step.REPAIR, Step.VERIFY, Step.READY]
    assert _totals(stack, OTHER) == {"likes:a": 2, "likes:b": 4, "likes:c": 6}


@pytest.mark.parametrize("last", [Step.DESTROY, Step.DROP])
def test_a_suspended_removal_leaves_a_region_that_joined_again(
    stack: LocalStack, last: Step
) -> None:
    """A run is suspended before a step; meanwhile another one removes the region and adds it."""
    _record(stack, HOME, 2)

    def join_again(step: Step) -> None:
        if step is last:
            _change(stack).run(next_of_removing)
            _change(stack).run(next_of_adding)

    with patch.dict(os.environ, {**stack.environment(), **BOUND}):
        _change(stack).run(next_of_adding)
        with pytest.raises(DeployFailed, match="another run has changed eu-west-1"):
            _change(stack).run(next_of_removing, join_again)

    assert _totals(stack, OTHER) == {"likes:a": 2, "likes:b": 4, "likes:c": 6}


def _kill_before(last: Step) -> Callable[[Step], None]:
    def kill(step: Step) -> None:
        if step is last:
            raise _Killed

    return kill


def test_a_region_that_was_rebuilding_is_found_by_status(stack: LocalStack) -> None:
    with patch.dict(os.environ, stack.environment()):
        connection = Connection.open(Settings(stack_name=stack.name))
        store = RegionStateStore(connection)
        store.write(Phase.REBUILDING, store.read())

    found = Command(stack.environment())("status", "--json", "--region", HOME).json

    assert "region" in {one["subject"] for one in found["findings"]}
    assert found["region"]["phase"] == "rebuilding"
