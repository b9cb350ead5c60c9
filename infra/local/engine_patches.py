"""Gaps of MiniStack 1.5.33 in what a template may say; imported by `engine_process.py` alone."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import yaml
from ministack.core.responses import get_region
from ministack.services import apigateway, eventbridge, lambda_svc
from ministack.services.cloudformation import changesets, engine, handlers, provisioners, stacks

_THIS_REGION: Final = {"Ref": "AWS::Region"}
_SCHEDULED: Final = "<aws.scheduler.scheduled-time>"


def patch_alarms_over_several_metrics() -> None:
    """An alarm may have an expression over metrics instead of one metric.

    MiniStack refuses it. It is described then, and its state can be set, but nothing evaluates the
    expression. The record names the expression in the place of the metric, which has no
    data. As on AWS, exactly one of the metrics and expressions is the one that the alarm looks at.
    """
    plain = provisioners._cw_metric_alarm_record  # noqa: SLF001 - it has no seam

    def record(name: str, properties: dict[str, Any]) -> dict[str, Any]:
        metrics = properties.get("Metrics")
        if not metrics:
            return dict(plain(name, properties))
        returned = [one["Id"] for one in metrics if one.get("ReturnData", True) in (True, "true")]
        if len(returned) != 1:
            raise ValueError(f"exactly one of Metrics must have ReturnData true, not {returned}")
        single = {"MetricName": returned[0], "Namespace": "expression"}
        return dict(plain(name, {**properties, **single, "Metrics": None}))

    provisioners._cw_metric_alarm_record = record  # noqa: SLF001 - as above


def patch_concurrency_is_a_number() -> None:
    """A queue's mapping has a number as its concurrency, not the text of a parameter."""
    plain = lambda_svc._sqs_esm_concurrency  # noqa: SLF001 - as above

    def concurrency(mapping: dict[str, Any], *rest: Any) -> int:  # noqa: ANN401 - its arguments
        scaling = mapping.get("ScalingConfig") or {}
        if isinstance(scaling.get("MaximumConcurrency"), str):
            scaling["MaximumConcurrency"] = int(scaling["MaximumConcurrency"])
        return int(plain(mapping, *rest))

    lambda_svc._sqs_esm_concurrency = concurrency  # noqa: SLF001 - as above


def patch_schedules_say_their_time() -> None:
    """The input of a schedule may contain the time for which it was scheduled.

    MiniStack passes the placeholder on. The time is that of the tick, which is a little later.
    """
    plain = eventbridge._invoke_target  # noqa: SLF001 - as above

    def invoke(target: dict[str, Any], event: dict[str, Any], *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - its own
        if event.get("Source") == "aws.scheduler" and _SCHEDULED in str(target.get("Input")):
            time = datetime.fromtimestamp(event["Time"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            target = {**target, "Input": target["Input"].replace(_SCHEDULED, time)}
        return plain(target, event, *rest, **more)

    eventbridge._invoke_target = invoke  # noqa: SLF001 - as above


def patch_conditions_join_split_and_know_the_region() -> None:
    """A condition may join a list parameter, split a text, and compare with the stack's region.

    MiniStack evaluates none of these in a condition, and takes what it does not know for true.
    """
    plain = engine._evaluate_conditions  # noqa: SLF001 - as above

    def joined(value: Any, parameters: dict[str, Any]) -> Any:  # noqa: ANN401 - a part of a template
        if isinstance(value, list):
            return [joined(one, parameters) for one in value]
        if not isinstance(value, dict):
            return value
        if value == _THIS_REGION:
            return get_region()
        if {"Fn::Join", "Fn::Select", "Fn::Split"} & value.keys():
            return engine._resolve_refs(value, {}, parameters, {}, {}, "", "")  # noqa: SLF001 - as above
        return {key: joined(one, parameters) for key, one in value.items()}

    def evaluate(template: dict[str, Any], parameters: dict[str, Any]) -> dict[str, bool]:
        conditions = joined(template.get("Conditions", {}), parameters)
        return dict(plain({**template, "Conditions": conditions}, parameters))

    for module in (changesets, engine, handlers, stacks):
        module._evaluate_conditions = evaluate  # noqa: SLF001 - as above


def patch_change_sets_follow_conditions() -> None:
    """A change set names the resources that a changed condition adds or removes.

    MiniStack adds and removes them, but its change set shows no difference.
    """
    plain = changesets._resolve_props_for_diff  # noqa: SLF001 - as above

    def resolved(template: dict[str, Any], parameters: dict[str, Any], *rest: Any) -> Any:  # noqa: ANN401 - its own
        found = plain(template, parameters, *rest)
        if not found:
            return found
        conditions = changesets._evaluate_conditions(template, parameters)  # noqa: SLF001 - as above
        resources = {
            name: one
            for name, one in found["Resources"].items()
            if conditions.get(one.get("Condition"), True)
        }
        return {**found, "Resources": resources}

    changesets._resolve_props_for_diff = resolved  # noqa: SLF001 - as above


def patch_names_differ_between_regions() -> None:
    """Stacks of one name in two regions have roles and policies of their own.

    MiniStack makes the name of a resource from that of its stack alone, and IAM has one space of
    names for all regions: the second stack would replace the roles of the first.
    """
    plain = provisioners._physical_name  # noqa: SLF001 - as above

    def name_of(stack: str, logical_id: str, **rest: Any) -> str:  # noqa: ANN401 - its own
        name: str = plain(stack, logical_id, **rest)
        start, dash, suffix = name.rpartition("-")
        digest = sha256(f"{suffix} {get_region()}".encode()).hexdigest()[: len(suffix)]
        return start + dash + (digest if suffix.islower() else digest.upper())

    provisioners._physical_name = name_of  # noqa: SLF001 - as above


def patch_templates_are_parsed_by_libyaml() -> None:
    """A template is parsed in a tenth of the time: libyaml instead of Python, same constructors."""
    plain, fast = engine.CfnLoader, getattr(yaml, "CSafeLoader", None)
    if fast is not None:
        names = ("yaml_constructors", "yaml_multi_constructors", "yaml_implicit_resolvers")
        engine.CfnLoader = type("CfnLoader", (fast,), {one: getattr(plain, one) for one in names})


def patch_origins_of_an_http_api() -> None:
    """The CORS configuration of an HTTP API may come from a template.

    MiniStack keeps it by the names of CloudFormation, and reads it by those of its own API.
    """
    for name in ("_cors_preflight_response", "_cors_response_headers"):
        plain = getattr(apigateway, name)

        def answer(configured: dict[str, Any], origin: str, plain: Any = plain) -> Any:  # noqa: ANN401 - its own
            return plain(provisioners._pascal_to_camel(configured), origin)  # noqa: SLF001 - as above

        setattr(apigateway, name, answer)


TEMPLATE_PATCHES: Final = (
    patch_templates_are_parsed_by_libyaml,
    patch_origins_of_an_http_api,
    patch_conditions_join_split_and_know_the_region,
    patch_change_sets_follow_conditions,
    patch_alarms_over_several_metrics,
    patch_concurrency_is_a_number,
    patch_schedules_say_their_time,
    patch_names_differ_between_regions,
)
