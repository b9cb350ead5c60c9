"""Which step of adding or removing a region comes next, from what is observed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from countledger.consumers.region_state import Phase, RegionState
from countledger.infra.deploy.region_change import (
    ADDING,
    Observed,
    Step,
    next_of_adding,
    next_of_dropping,
    next_of_removing,
    parameters_of,
    without,
)
from countledger.infra.template import load_template
from countledger.ledger.errors import BadInput, WrongRegion

ROOT = Path(__file__).parents[3]
NOTHING = Observed(region="eu", owner="us", home="us")
LISTED = replace(NOTHING, listed=("eu",), replicas={"eu": "ACTIVE"}, table_there=True)
STORED_READY = RegionState(Phase.READY, 2, "b")
REBUILDING = RegionState(Phase.REBUILDING, 1, "a")
READY = replace(LISTED, counters="totals", stack=True, complete=True, state=STORED_READY)


def _after(step: Step, seen: Observed) -> Observed:
    """What is observed once a step succeeded."""
    changed = {
        Step.REPLICA: {"listed": ("eu",), "replicas": {"eu": "CREATING"}, "table_there": True},
        Step.WAIT: {"replicas": {"eu": "ACTIVE"}},
        Step.COUNTERS: {"counters": "totals", "stack": True},
        Step.MARK: {"state": REBUILDING},
        Step.STACK: {"complete": True},
        Step.READY: {"state": STORED_READY},
        Step.DESTROY: {"stack": False, "counters": None, "complete": False, "state": RegionState()},
        Step.UNPROTECT: {"protected": False},
        Step.DROP: {"listed": (), "replicas": {}, "table_there": False},
    }.get(step, {})
    return replace(seen, done=seen.done | {step}, **changed)  # type: ignore[arg-type]


def test_adding_takes_each_step_in_order() -> None:
    seen, taken = NOTHING, []
    while (step := next_of_adding(seen)) is not None:
        taken.append(step)
        seen = _after(step, seen)

    assert tuple(taken) == ADDING


def test_the_state_is_stored_before_anything_can_make_totals() -> None:
    """Else the materializer's first totals would be read as whole."""
    taken = list(ADDING)

    assert taken.index(Step.COUNTERS) < taken.index(Step.MARK) < taken.index(Step.STACK)
    assert next_of_adding(replace(LISTED, stack=True, counters="totals")) is Step.MARK


def test_another_run_repairs_and_verifies_again() -> None:
    """What was verified by a run that failed later may have changed."""
    rebuilding = replace(READY, state=REBUILDING)

    assert next_of_adding(rebuilding) is Step.REPAIR
    assert next_of_adding(replace(rebuilding, done=frozenset({Step.REPAIR}))) is Step.VERIFY


def test_a_region_without_a_stored_state_is_ready() -> None:
    assert next_of_adding(replace(READY, state=RegionState())) is None


def test_one_replica_is_added_at_a_time() -> None:
    seen = replace(NOTHING, listed=("ap",), replicas={"ap": "CREATING"})

    assert next_of_adding(seen) is Step.WAIT
    assert next_of_adding(replace(seen, replicas={"ap": "ACTIVE"})) is Step.REPLICA
    assert next_of_adding(replace(NOTHING, busy="shop (UPDATE_IN_PROGRESS)")) is Step.WAIT


def test_what_a_rollback_left_is_explained() -> None:
    left = replace(NOTHING, replicas={"eu": "ACTIVE"}, table_there=True)

    for decide in (next_of_adding, next_of_removing):
        with pytest.raises(BadInput, match=r"no stack manages.*rolled back.*update-table"):
            decide(left)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (replace(NOTHING, region="us"), "owns the ledger"),
        (replace(NOTHING, table_there=True), "no replica of it"),
        (replace(NOTHING, listed=("a", "b", "c", "d")), "4 at most"),
        (replace(LISTED, replicas={}), "deleted by hand"),
    ],
)
def test_what_is_in_the_way_is_named(seen: Observed, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        next_of_adding(seen)


def test_removing_takes_each_step_in_order() -> None:
    seen, taken = replace(READY, protected=True), []
    while (step := next_of_removing(seen)) is not None:
        taken.append(step)
        seen = _after(step, seen)

    assert taken == [Step.QUIET, Step.DESTROY, Step.UNPROTECT, Step.DROP]


def test_a_stack_is_not_removed_before_somebody_watched_it() -> None:
    assert next_of_removing(READY) is Step.QUIET
    # One without functions has no policy to record by, and no stream to watch.
    assert next_of_removing(replace(READY, complete=False)) is Step.DESTROY


@pytest.mark.parametrize(("region", "says"), [("us", "owns the ledger"), ("eu", "promote")])
def test_owner_and_home_stay(region: str, says: str) -> None:
    with pytest.raises(WrongRegion, match=says):
        next_of_removing(replace(READY, region=region, home="eu"))


def test_keys_stay_beside_their_regions() -> None:
    given = {"ReplicaRegions": "a,b,c", "RegionKmsKeyArns": "ka,kb,kc", "HomeRegion": "a"}
    assert without(given, "b", "us") == {"ReplicaRegions": "a,c", "RegionKmsKeyArns": "ka,kc"}
    assert without({"ReplicaRegions": "a"}, "a", "us") == {
        "ReplicaRegions": "",
        "RegionKmsKeyArns": "",
    }


def test_a_lost_home_is_named_by_the_owners_stack_no_longer() -> None:
    """The template refuses a home that is none of its regions."""
    given = {"ReplicaRegions": "a,b", "HomeRegion": "b"}

    assert without(given, "b", "us")["HomeRegion"] == "us"


def test_the_home_is_not_removed_whichever_of_stack_and_ledger_names_it() -> None:
    for named in ({"home": "eu"}, {"epoch_home": "eu"}):
        with pytest.raises(WrongRegion, match="region promote"):
            next_of_removing(replace(READY, **named))  # type: ignore[arg-type]


def test_a_lost_region_is_dropped_without_a_look_at_it() -> None:
    assert next_of_dropping(LISTED) is Step.DROP
    assert next_of_dropping(replace(LISTED, home="eu", epoch_home="eu")) is Step.DROP
    assert next_of_dropping(NOTHING) is None
    assert next_of_dropping(replace(LISTED, busy="x")) is Step.WAIT
    # Else the home of the settings would merge on at once, in an epoch that nobody ended.
    with pytest.raises(BadInput, match="by a parameter alone"):
        next_of_dropping(replace(LISTED, home="eu"))
    with pytest.raises(WrongRegion):
        next_of_dropping(replace(LISTED, region="us"))


def test_a_new_region_takes_settings_and_no_names_of_things() -> None:
    owner = {name: f"given-{name}" for name in load_template()["Parameters"]}
    owner |= {"KmsKeyArn": "key-us", "RegionKmsKeyArns": "key-ap,key-eu"}

    owner["StrictRegions"] = "us,eu,ap"
    found = parameters_of(owner, "eu", "key-eu", "strict-table")

    assert found["MaterializerBatchSize"] == "given-MaterializerBatchSize"
    assert found["KmsKeyArn"] == "key-eu"
    assert found["RegionKmsKeyArns"] == "key-us,key-ap"
    # The ARN of a role or policy holds in every region; all else with a place in it is left out.
    named = {name for name in found if name.endswith(("Arn", "Arns", "Bucket", "Region"))}
    assert named == {"ArchiveBucketArn", "KmsKeyArn", "PermissionsBoundaryArn", "RegionKmsKeyArns"}
    # The table of strict counters over regions is there, and nowhere else.
    assert found["StrictTableName"] == "strict-table"
    assert parameters_of(owner, "sa", None, "strict-table")["StrictTableName"] == ""


def _naming(parameter: str) -> dict[str, str]:
    """The resources that a parameter decides, by conditions as well, with their types."""
    template = load_template()
    names = {f'"{parameter}"', f"${{{parameter}}}"}
    while True:
        # A condition is named in `Fn::If`, or as the condition of a resource.
        found = {
            f'"{name}"'
            for name, one in template["Conditions"].items()
            if any(known in json.dumps(one) for known in names)
        }
        if found <= names:
            break
        names |= found
    return {
        name: one["Type"]
        for name, one in template["Resources"].items()
        if any(known in json.dumps(one) for known in names)
    }


def test_a_replica_changes_what_the_documents_say() -> None:
    assert _naming("ReplicaRegions").keys() == {"Ledger", "ReplicationAlarm"}
    keys = set(_naming("RegionKmsKeyArns").items()) - {("Ledger", "AWS::DynamoDB::GlobalTable")}
    assert {kind for _, kind in keys} == {"AWS::IAM::ManagedPolicy", "AWS::IAM::Role"}
    (row,) = (
        line
        for line in (ROOT / "docs/regions.md").read_text().splitlines()
        if line.startswith("| `replica` |")
    )
    assert "the ledger changes; the first replica also adds `ReplicationAlarm`" in row
    assert "with a key of yours, policies that name the key change" in row
