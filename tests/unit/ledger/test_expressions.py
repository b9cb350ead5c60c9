"""Conditions and updates as text, written in one place."""

from __future__ import annotations

from typing import Any

import pytest

from countledger.ledger.expressions import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    BeginsWith,
    Between,
    Clause,
    Compare,
    Condition,
    Drop,
    Placeholders,
    encode_update,
)
from countledger.ledger.operations import Put, Query, Scan, Update

_KEY = {"counter": "a:b", "part": "total"}


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Absent("a"), "attribute_not_exists(#0)"),
        (Compare("a", "=", 1), "#0 = :0"),
        (Compare("a", "<=", 1), "#0 <= :0"),
        (BeginsWith("a", "e#"), "begins_with(#0, :0)"),
        (Between("a", 1, 2), "#0 BETWEEN :0 AND :1"),
        (AllOf(Absent("a"), Compare("b", ">", 1)), "attribute_not_exists(#0) AND #1 > :0"),
        (AnyOf(Absent("a"), Compare("a", "<", 1)), "attribute_not_exists(#0) OR #0 < :0"),
        (
            AllOf(Absent("v"), AnyOf(Absent("w"), Compare("w", "<", 1))),
            "attribute_not_exists(#0) AND (attribute_not_exists(#1) OR #1 < :0)",
        ),
        (
            AnyOf(AllOf(Absent("a"), Absent("b")), Absent("c")),
            "(attribute_not_exists(#0) AND attribute_not_exists(#1)) OR attribute_not_exists(#2)",
        ),
        (
            AllOf(Between("a", 1, 2), Absent("b")),
            "#0 BETWEEN :0 AND :1 AND attribute_not_exists(#1)",
        ),
    ],
)
def test_a_condition_encodes_itself(condition: Condition, text: str) -> None:
    """With brackets wherever they decide."""
    assert condition.encode(Placeholders()) == text


@pytest.mark.parametrize(
    ("clauses", "text"),
    [
        ((Assign("a", 1),), "SET #0 = :0"),
        ((Add("a", 1), Add("b", 2)), "ADD #0 :0, #1 :1"),
        ((Drop("a"), Drop("b")), "REMOVE #0, #1"),
        ((Add("a", 1), Drop("b"), Assign("c", 2)), "SET #0 = :0 ADD #1 :1 REMOVE #2"),
    ],
)
def test_an_update_encodes_itself(clauses: tuple[Clause, ...], text: str) -> None:
    """Each verb once, in a fixed order, whatever order they come in."""
    assert encode_update(clauses, Placeholders()) == text


def test_a_name_has_one_placeholder_in_a_request() -> None:
    """Update and condition share them; values are explained in the service's form."""
    update = Update("t", _KEY, (Add("total", 5),), Compare("total", "<", 7))

    assert update.arguments() == {
        "TableName": "t",
        "Key": {"counter": {"S": "a:b"}, "part": {"S": "total"}},
        "UpdateExpression": "ADD #0 :0",
        "ConditionExpression": "#0 < :1",
        "ReturnValues": "NONE",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ExpressionAttributeNames": {"#0": "total"},
        "ExpressionAttributeValues": {":0": {"N": "5"}, ":1": {"N": "7"}},
    }


@pytest.mark.parametrize("name", ["total", "size", "a-b", "w_x=", "counter"])
def test_names_never_stand_in_a_text(name: str) -> None:
    """Reserved words and odd characters need no care."""
    text = Compare(name, "=", 1).encode(Placeholders())

    assert name not in text


def test_equal_conditions_are_equal_values() -> None:
    """So that a plan can be compared in a test."""
    assert AllOf(Absent("a"), Compare("b", "=", 1)) == AllOf(Absent("a"), Compare("b", "=", 1))
    assert AllOf(Absent("a")) != AllOf(Absent("b"))
    assert hash(Absent("a")) == hash(Absent("a"))


def test_a_put_without_condition_asks_for_nothing() -> None:
    """Attributes that are None are left out."""
    assert Put("t", {"counter": "a", "entry": "e", "key": None}).arguments() == {
        "TableName": "t",
        "Item": {"counter": {"S": "a"}, "entry": {"S": "e"}},
    }


def test_a_conditional_put_asks_for_the_item_that_stands_in_its_way() -> None:
    """No second read is needed to tell a duplicate."""
    arguments = Put("t", {"counter": "a", "entry": "e"}, Absent("entry")).arguments()

    assert arguments["ConditionExpression"] == "attribute_not_exists(#0)"
    assert arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert "ExpressionAttributeValues" not in arguments


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"ConsistentRead": False, "ScanIndexForward": True}),
        ({"consistent": True}, {"ConsistentRead": True, "ScanIndexForward": True}),
        ({"forward": False}, {"ConsistentRead": False, "ScanIndexForward": False}),
        ({"index": "i"}, {"ConsistentRead": False, "ScanIndexForward": True, "IndexName": "i"}),
        ({"page_size": 5}, {"ConsistentRead": False, "ScanIndexForward": True, "Limit": 5}),
    ],
)
def test_a_query_says_how_it_reads(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    """What is not asked for is not in the request."""
    assert Query("t", Compare("counter", "=", "a"), **changed).arguments() == {
        "TableName": "t",
        "KeyConditionExpression": "#0 = :0",
        "ExpressionAttributeNames": {"#0": "counter"},
        "ExpressionAttributeValues": {":0": {"S": "a"}},
        **expected,
    }


def test_a_scan_reads_a_segment() -> None:
    """Filter and projection share their names."""
    where = AnyOf(BeginsWith("entry", "e#"), Compare("entry", "=", "s#head"))

    assert Scan("t", where, ("counter", "entry"), 1, 4).arguments() == {
        "TableName": "t",
        "Segment": 1,
        "TotalSegments": 4,
        "FilterExpression": "begins_with(#0, :0) OR #0 = :1",
        "ProjectionExpression": "#1, #0",
        "ExpressionAttributeNames": {"#0": "entry", "#1": "counter"},
        "ExpressionAttributeValues": {":0": {"S": "e#"}, ":1": {"S": "s#head"}},
    }
    assert Scan("t").arguments() == {"TableName": "t", "Segment": 0, "TotalSegments": 1}
