"""The part of Lambda's filter patterns that the template uses."""

import pytest

from countledger.infra.local.mappings import record_filter
from countledger.infra.template import TemplateUnsupported, mapping_settings


def record(event_name: str, entry: str) -> dict[str, object]:
    return {"eventName": event_name, "dynamodb": {"Keys": {"entry": {"S": entry}}}}


@pytest.mark.parametrize(
    ("event_name", "entry", "passes"),
    [
        ("INSERT", "e#1", True),
        ("MODIFY", "e#f01", True),
        ("REMOVE", "e#1", False),
        ("INSERT", "s#head", False),
        ("MODIFY", "settings", False),
        ("INSERT", "E#1", False),
    ],
)
def test_the_templates_filter_passes_new_and_changed_entries(
    event_name: str, entry: str, *, passes: bool
) -> None:
    test = record_filter(mapping_settings().filter_patterns)

    assert test(record(event_name, entry)) is passes


@pytest.mark.parametrize(
    ("part", "passes"),
    [
        ("total", True),
        ("w#set.id#month#2026-11", True),
        ("alert#rule", False),
        ("log#1", False),
        ("windows", False),
    ],
)
def test_the_evaluator_reads_totals_and_windows(part: str, *, passes: bool) -> None:
    test = record_filter(mapping_settings("EvaluatorMapping").filter_patterns)

    assert test({"eventName": "MODIFY", "dynamodb": {"Keys": {"part": {"S": part}}}}) is passes


def test_a_record_without_the_key_is_held_back() -> None:
    test = record_filter(mapping_settings().filter_patterns)

    assert not test({"eventName": "INSERT", "dynamodb": {"Keys": {}}})
    assert not test({"eventName": "INSERT", "dynamodb": "x"})


def test_no_pattern_passes_all_and_one_of_several_is_enough() -> None:
    either = record_filter(('{"eventName": ["INSERT"]}', '{"eventName": ["REMOVE"]}'))

    assert record_filter(())({})
    assert either({"eventName": "REMOVE"})
    assert not either({"eventName": "MODIFY"})


@pytest.mark.parametrize(
    "pattern",
    [
        "no json",
        "[]",
        "{}",
        '{"$or": [{"a": ["b"]}]}',
        '{"a": []}',
        '{"a": [1]}',
        '{"a": "b"}',
        '{"a": [{"exists": true}]}',
        '{"a": [{"prefix": "x", "suffix": "y"}]}',
        '{"a": [{"anything-but": ["x"]}]}',
    ],
)
def test_what_it_does_not_know_it_refuses(pattern: str) -> None:
    """A filter that was half understood would make the local run differ from AWS in silence."""
    with pytest.raises(TemplateUnsupported, match="filter pattern"):
        record_filter((pattern,))
