"""The table of strict counters over regions in the template, and the rules of parameters."""

import json
import re

from countledger.infra.template import resource
from tests.unit.infra.test_template import RESOURCES, TEMPLATE, allowed_to


def test_the_table_over_regions_has_what_its_consistency_allows_and_no_more() -> None:
    """Multi-region strong consistency: no time to live, no local index; every region is listed."""
    strict, counters = resource("Strict"), resource("Counters")

    assert RESOURCES["Strict"]["Condition"] == "HasStrict"
    assert RESOURCES["Strict"]["DeletionPolicy"] == RESOURCES["Counters"]["DeletionPolicy"]
    assert strict["MultiRegionConsistency"] == "STRONG"
    assert strict["KeySchema"] == counters["KeySchema"]
    assert not {"TimeToLiveSpecification", "LocalSecondaryIndexes"} & set(strict)
    regions = [one if "Region" in one else one["Fn::If"] for one in strict["Replicas"]]
    assert [json.dumps(one).count("StrictRegions") for one in regions] == [1, 1, 1]
    # A witness takes the place of the third.
    assert regions[2][:2] == ["HasStrictWitness", {"Ref": "AWS::NoValue"}]


def test_rules_use_what_a_rule_may_use() -> None:
    """CloudFormation refuses a whole template for any other function in its rules."""
    used = set(re.findall(r'"(Fn::\w+|Ref|Condition)":', json.dumps(TEMPLATE["Rules"])))

    assert used <= {"Ref", "Fn::And", "Fn::Contains", "Fn::Equals", "Fn::Not", "Fn::Or"}


def test_who_changes_strict_counters_may_do_so_where_they_are() -> None:
    """In a region that is not the home only those over regions: totals are the materializer's."""
    changed = allowed_to("StrictPolicy")["dynamodb:UpdateItem"]

    nothing = {"Ref": "AWS::NoValue"}
    assert changed[0] == {"Fn::If": ["MayBeHome", {"Fn::GetAtt": ["Counters", "Arn"]}, nothing]}
    assert changed[1]["Fn::If"][0] == "UsesStrict"
    assert RESOURCES["StrictPolicy"]["Condition"] == "MayChangeStrict"
