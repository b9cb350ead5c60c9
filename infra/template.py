"""Reads the deployable template: one loader, and what tests and the local engine ask of it.

Table schemas and the settings of the event source mapping are written once, in `template.yaml`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from countledger.ledger.errors import CountledgerError

TEMPLATE_PATH: Final = Path(__file__).resolve().parent / "template.yaml"

# The two tables, by their names in the template.
TABLES: Final = ("Ledger", "Counters")

# What a table of the template shares with CreateTable. The rest (capacity, recovery, time to live,
# replicas, encryption) are calls of their own, or mean nothing to a bare engine.
_SCHEMA_PROPERTIES: Final = ("AttributeDefinitions", "KeySchema")
_INDEX_PROPERTIES: Final = ("IndexName", "KeySchema", "Projection")


class TemplateUnsupported(CountledgerError):
    """The template says something that its reader does not understand.

    Raised instead of guessing: a setting that the local engine skipped in silence would make the
    local run differ from AWS.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """What a table needs to exist on a bare engine: the arguments of CreateTable, but its name."""

    create_table: dict[str, Any]
    ttl_attribute: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSettings:
    """An event source mapping over a DynamoDB stream, as the template sets it.

    Attributes:
        window_s: length of the tumbling window; 0: none, and the event carries no shard id.
        retries: how often a failing batch is tried again; -1: for ever.
        record_age_s: age at which a failing record is abandoned; -1: never.
        partial_failures: whether the function's answer may name the records that failed.
    """

    batch_size: int = 100
    window_s: int = 0
    batching_window_s: int = 0
    retries: int = -1
    record_age_s: int = -1
    bisect: bool = False
    partial_failures: bool = False
    starting_position: str = "TRIM_HORIZON"
    filter_patterns: tuple[str, ...] = ()


class _TemplateLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML with CloudFormation's short tags, which become their long forms."""


def _intrinsic(loader: _TemplateLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    name = suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        text = str(loader.construct_scalar(node))
        value: Any = text.split(".", 1) if suffix == "GetAtt" else text
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    else:
        raise TemplateUnsupported(f"the template uses !{suffix} on a node of an unknown kind")
    return {name: value}


_TemplateLoader.add_multi_constructor("!", _intrinsic)


def template_text() -> str:
    """The template as it is deployed."""
    return TEMPLATE_PATH.read_text(encoding="utf-8")


def parse_template(text: str) -> dict[str, Any]:
    """A template as plain data; short tags in their long form (`{"Fn::GetAtt": [...]}`)."""
    # A subclass of the safe loader: it builds plain data only.
    template: dict[str, Any] = yaml.load(text, Loader=_TemplateLoader)  # noqa: S506
    return template


@cache
def load_template() -> dict[str, Any]:
    """Our template as plain data, read once per process: do not change it."""
    return parse_template(template_text())


def only_tables() -> dict[str, Any]:
    """The template with nothing but the two tables, for an import; imports know no outputs."""
    whole = load_template()
    kept = {name: whole["Resources"][name] for name in TABLES}
    return {**{k: v for k, v in whole.items() if k != "Outputs"}, "Resources": kept}


def resource(logical_id: str) -> dict[str, Any]:
    try:
        properties: dict[str, Any] = load_template()["Resources"][logical_id]["Properties"]
    except KeyError:
        raise TemplateUnsupported(f"the template has no resource {logical_id!r}") from None
    return properties


def table_schemas() -> dict[str, TableSchema]:
    """The two tables, as `ledger` and `counters`, for tests on engines without CloudFormation."""
    return {"ledger": _table_schema("Ledger"), "counters": _table_schema("Counters")}


def _table_schema(logical_id: str) -> TableSchema:
    properties = resource(logical_id)
    arguments: dict[str, Any] = {name: properties[name] for name in _SCHEMA_PROPERTIES}
    arguments["BillingMode"] = "PAY_PER_REQUEST"
    arguments["GlobalSecondaryIndexes"] = [
        {name: index[name] for name in _INDEX_PROPERTIES}
        for index in properties["GlobalSecondaryIndexes"]
    ]
    arguments["StreamSpecification"] = {"StreamEnabled": True, **properties["StreamSpecification"]}
    time_to_live = properties.get("TimeToLiveSpecification")
    return TableSchema(
        create_table=json.loads(json.dumps(arguments)),
        ttl_attribute=time_to_live["AttributeName"] if time_to_live else None,
    )


def _number(value: Any, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 - of any property
    """A property; the value of a parameter of type Number that it refers to."""
    name = value.get("Ref") if isinstance(value, dict) else None
    declared = load_template()["Parameters"].get(str(name), {})
    if declared.get("Type") != "Number":
        return value
    return int(parameters.get(str(name), declared["Default"]))


def mapping_settings(
    logical_id: str = "MaterializerMapping", parameters: Mapping[str, str] | None = None
) -> MappingSettings:
    """What plays or checks an event source mapping needs to know of it.

    `TemplateUnsupported`: a setting that the pump cannot play.
    """
    properties = {
        name: _number(value, parameters or {}) for name, value in resource(logical_id).items()
    }
    if properties.get("ParallelizationFactor", 1) != 1:
        raise TemplateUnsupported(f"{logical_id}: ParallelizationFactor must be 1")
    if "DestinationConfig" in properties:
        raise TemplateUnsupported(f"{logical_id}: the pump plays no on-failure destination yet")
    responses = properties.get("FunctionResponseTypes", [])
    filters = properties.get("FilterCriteria", {}).get("Filters", [])
    return MappingSettings(
        batch_size=properties.get("BatchSize", 100),
        window_s=properties.get("TumblingWindowInSeconds", 0),
        batching_window_s=properties.get("MaximumBatchingWindowInSeconds", 0),
        retries=properties.get("MaximumRetryAttempts", -1),
        record_age_s=properties.get("MaximumRecordAgeInSeconds", -1),
        bisect=properties.get("BisectBatchOnFunctionError", False),
        partial_failures="ReportBatchItemFailures" in responses,
        starting_position=properties["StartingPosition"],
        filter_patterns=tuple(one["Pattern"] for one in filters),
    )
