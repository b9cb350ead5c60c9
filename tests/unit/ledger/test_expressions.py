"""Conditions and updates as text, written in one place."""

import pytest

from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    BeginsWith,
    Between,
    Clause,
    Compare,
    Condition,
    Delete,
    Drop,
    Lacks,
    Placeholders,
    SizeAtMost,
    Update,
    all_unchanged,
    encode_update,
    unchanged,
)

_KEY = {"counter": "a:b", "part": "total"}


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Absent("a"), "attribute_not_exists(#0)"),
        (Compare("a", "=", 1), "#0 = :0"),
        (Compare("a", "<=", 1), "#0 <= :0"),
        (unchanged("a", None), "attribute_not_exists(#0)"),
        (unchanged("a", 0), "#0 = :0"),
        (all_unchanged({"a": 0, "b": 1}, "a", "c"), "#0 = :0 AND attribute_not_exists(#1)"),
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
def test_names_are_never_part_of_a_text(name: str) -> None:
    text = Compare(name, "=", 1).encode(Placeholders())

    assert name not in text


@pytest.mark.parametrize("first", [1, "text", b"bytes"])
def test_a_text_that_is_known_belongs_to_the_values_of_its_request(first: object) -> None:
    """Two requests of one shape share their texts, and nothing else."""

    def update(value: object) -> Update:
        clauses = (Add("a", value), Assign("b", value), AssignOnce("c", value), Drop("d"))
        condition = AllOf(
            AnyOf(Absent("e"), Compare("a", "<", value)),
            Between("f", value, value),
            BeginsWith("g", "h"),
            Lacks("i", value),
            SizeAtMost("j", 5),
        )
        return Update("t", {"counter": "x"}, clauses, condition)

    def composed(write: Update) -> dict[str, object]:
        placeholders = Placeholders()
        texts = encode_update(write.clauses, placeholders)
        assert write.condition is not None
        condition = write.condition.encode(placeholders)
        expressions = {"UpdateExpression": texts, "ConditionExpression": condition}
        return expressions | placeholders.arguments()

    for value in (first, 7, first):
        write = update(value)
        found = write.arguments()
        assert {name: found[name] for name in composed(write)} == composed(write)
        found["ExpressionAttributeNames"].clear()


def test_conditions_of_other_shapes_have_texts_of_their_own() -> None:
    """Neither the grouping nor an operator nor a name is mistaken."""
    one, two, three = Absent("a"), Absent("b"), Absent("c")
    texts = {
        Delete("t", {"counter": "x"}, condition).arguments()["ConditionExpression"]
        for condition in (
            AllOf(one, two, three),
            AllOf(one, AllOf(two, three)),
            AllOf(AllOf(one, two), three),
            AnyOf(one, two, three),
            AllOf(one, AnyOf(two, three)),
            Compare("a", "<", 1),
            Compare("a", "<=", 1),
            Compare("a", "=", 1),
        )
    }

    assert len(texts) == 8
