"""Gaps of MiniStack 1.5.33, patched; imported by `engine_process.py` alone.

First what IAM authorises, then what AWS refuses, replicas of tables, and what a template may say.
It imports nothing of countledger.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import yaml
from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import get_region
from ministack.services import apigateway, dynamodb, eventbridge, iam, lambda_svc
from ministack.services.cloudformation import changesets, engine, handlers, provisioners, stacks

# Gaps in what IAM authorises.


def patch_iam_names_streams() -> None:
    """Stream calls are authorised on the stream that they name; MiniStack does it on `*`."""
    plain = iam_actions.extract_resource_arn

    def resource_arn(service: str, *rest: Any) -> str:  # noqa: ANN401 - its arguments are its own
        if service != "dynamodbstreams":
            return str(plain(service, *rest))
        _method, _path, _headers, body, *_others = rest
        request = _json_object(body)
        if "ShardIterator" in request:
            request = _json_object(base64.urlsafe_b64decode(request["ShardIterator"]))
        return str(request.get("StreamArn") or request.get("arn") or "*")

    iam_actions.extract_resource_arn = resource_arn


def patch_iam_names_mappings() -> None:
    """A look at one event source mapping is authorised as such, and not as a list of all."""
    plain = iam_actions._lambda_action  # noqa: SLF001 - as above

    def action(method: str, path: str) -> str | None:
        if method == "GET" and "/event-source-mappings/" in path.rstrip("/"):
            return "GetEventSourceMapping"
        name: str | None = plain(method, path)
        return name

    iam_actions._lambda_action = action  # noqa: SLF001 - as above


def patch_iam_leading_keys() -> None:
    """The condition key `dynamodb:LeadingKeys` carries the partition keys of the request.

    MiniStack leaves it out, and `ForAllValues` over nothing admits everything.
    """
    plain, enforce = iam_actions.dynamodb_service_context, iam_evaluator.enforce

    def with_leading_keys(body: bytes) -> dict[str, Any]:
        context: dict[str, Any] = plain(body)
        found: dict[str, set[str]] = {}
        for table, key in _leading_keys(_json_object(body)):
            found.setdefault(table, set()).add(str(*key.values()))
        return {**context, _KEYS_BY_TABLE: found}

    def enforced(*request: Any, service_context: Any = None, **rest: Any) -> Any:  # noqa: ANN401 - its own
        # One request may name several tables, and each is checked by its own keys.
        context = dict(service_context or {})
        keys = context.pop(_KEYS_BY_TABLE, {}).get(_table(str(rest.get("resource_arn", ""))))
        if keys:
            context["dynamodb:LeadingKeys"] = sorted(keys)
        return enforce(*request, service_context=context, **rest)

    iam_actions.dynamodb_service_context = with_leading_keys
    iam_evaluator.enforce = enforced


_KEYS_BY_TABLE: Final = "keys by table"


def _table(name_or_arn: str) -> str:
    """The name of a table, of which a request may give the ARN, or that of an index."""
    return name_or_arn.rpartition(":table/")[2].partition("/")[0]


def _leading_keys(request: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The tables and partition keys of a request, of a batch or a transaction, or of a query."""
    own = _table(str(request.get("TableName", "")))
    requests = [(own, request)]
    for table, batch in (request.get("RequestItems") or {}).items():
        of_one = batch if isinstance(batch, list) else [{"Key": key} for key in batch["Keys"]]
        requests += [(_table(table), part) for one in of_one for part in (one, *one.values())]
    for one in request.get("TransactItems") or ():
        requests += [(_table(part["TableName"]), part) for part in one.values()]
    for table, part in requests:
        known = dynamodb._tables.get(table)  # noqa: SLF001 - as above
        item = part.get("Key") or part.get("Item") or {}
        if known and known.get("pk_name") in item:
            yield table, item[known["pk_name"]]
    # A query compares it with `=`; its other part is a range or a prefix.
    for match in re.finditer(r"= (:\w+)", str(request.get("KeyConditionExpression", ""))):
        yield own, request["ExpressionAttributeValues"][match[1]]


def patch_iam_batches_of_messages() -> None:
    """Who may handle a message may handle ten at once; MiniStack's actions are none of IAM's."""
    plain = iam_actions.extract_iam_action

    def action(service: str, *rest: Any) -> str | None:  # noqa: ANN401 - its arguments are its own
        name: str | None = plain(service, *rest)
        return name.removesuffix("Batch") if name and service in {"sqs", "sns"} else name

    iam_actions.extract_iam_action = action


def patch_iam_names_schedules() -> None:
    """A schedule is authorised under its group; MiniStack takes each for one of `default`."""
    plain = iam_actions.extract_resource_arn

    def resource_arn(service: str, *rest: Any) -> str:  # noqa: ANN401 - its arguments are its own
        arn = str(plain(service, *rest))
        if service != "scheduler" or ":schedule/default/" not in arn:
            return arn
        _method, _path, _headers, body, query, *_others = rest
        asked = query.get("groupName") or _json_object(body).get("GroupName") or "default"
        group = asked[0] if isinstance(asked, list) else asked
        return arn.replace(":schedule/default/", f":schedule/{group}/")

    iam_actions.extract_resource_arn = resource_arn


def patch_iam_names_buses() -> None:
    """A look at an event bus is authorised on that bus; MiniStack takes its name for a rule's."""
    plain = iam_actions.extract_resource_arn

    def resource_arn(service: str, *rest: Any) -> str:  # noqa: ANN401 - its arguments are its own
        arn = str(plain(service, *rest))
        _method, _path, headers, *_others = rest
        looks = str(headers.get("x-amz-target", "")).endswith(".DescribeEventBus")
        return arn.replace(":rule/default/", ":event-bus/") if looks else arn

    iam_actions.extract_resource_arn = resource_arn


def _json_object(text: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(value := json.loads(text or b"{}"), dict):
            return value
    return {}


IAM_PATCHES: Final = (
    patch_iam_names_streams,
    patch_iam_names_mappings,
    patch_iam_leading_keys,
    patch_iam_batches_of_messages,
    patch_iam_names_schedules,
    patch_iam_names_buses,
)


# What AWS refuses and MiniStack's CloudFormation does not: patched, so that refusals are tested.
#
# MiniStack itself refuses a bucket of another region, and the deletion of a policy by IAM's own
# call.


# IAM counts a managed policy without its white space.
POLICY_MAX: Final = 6144

_Handler = Callable[..., Any]


def _wrap(kind: str, name: str, around: Callable[[_Handler], _Handler]) -> None:
    """Put a function around what CloudFormation does with resources of one type."""
    handlers = provisioners._RESOURCE_HANDLERS[kind]  # noqa: SLF001 - it has no seam
    handlers[name] = around(handlers[name])


def refuse_large_policies() -> None:
    """A managed policy of more than 6,144 characters is not created, and no version of it."""

    def checked(plain: _Handler, properties_at: int) -> _Handler:
        def handler(*arguments: Any) -> Any:  # noqa: ANN401 - its arguments are its own
            document = arguments[properties_at].get("PolicyDocument", {})
            if len(re.sub(r"\s", "", json.dumps(document))) > POLICY_MAX:
                raise ValueError(f"Cannot exceed quota for PolicySize: {POLICY_MAX}")
            return plain(*arguments)

        return handler

    _wrap("AWS::IAM::ManagedPolicy", "create", lambda plain: checked(plain, 1))
    _wrap("AWS::IAM::ManagedPolicy", "update", lambda plain: checked(plain, 2))


def refuse_deletion_of_attached_policies() -> None:
    """A managed policy that a user, group or role has attached is not deleted with its stack."""

    def checked(plain: _Handler) -> _Handler:
        def handler(arn: str, properties: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
            policy = iam._policies.get(arn) or {}  # noqa: SLF001 - as above
            if policy.get("AttachmentCount", 0):
                raise ValueError("Cannot delete a policy attached to entities.")
            return plain(arn, properties)

        return handler

    _wrap("AWS::IAM::ManagedPolicy", "delete", checked)


def protect_global_tables() -> None:
    """The deletion protection of a global table's replica protects it from its stack as well."""

    def protecting(plain: _Handler, properties_at: int) -> _Handler:
        def handler(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - as above
            made = plain(*arguments, **more)
            replicas = arguments[properties_at].get("Replicas") or [{}]
            wanted = str(replicas[0].get("DeletionProtectionEnabled", False)).lower() == "true"
            dynamodb._tables[made[0]]["DeletionProtectionEnabled"] = wanted  # noqa: SLF001
            return made

        return handler

    def refusing(plain: _Handler) -> _Handler:
        def handler(name: str, properties: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
            table = dynamodb._tables.get(name) or {}  # noqa: SLF001 - as above
            if table.get("DeletionProtectionEnabled"):
                raise ValueError(
                    "Resource cannot be deleted as it is currently protected against deletion. "
                    "Disable deletion protection first."
                )
            return plain(name, properties)

        return handler

    _wrap("AWS::DynamoDB::GlobalTable", "create", lambda plain: protecting(plain, 1))
    _wrap("AWS::DynamoDB::GlobalTable", "update", lambda plain: protecting(plain, 2))
    _wrap("AWS::DynamoDB::GlobalTable", "delete", refusing)


def import_global_tables() -> None:
    """A stack can be created around a global table that exists, as around any table."""
    handlers = provisioners._RESOURCE_HANDLERS  # noqa: SLF001 - as above
    plain = handlers["AWS::DynamoDB::Table"]["import"]
    handlers["AWS::DynamoDB::GlobalTable"]["import"] = plain


def authorise_tags_of_tables() -> None:
    """Tagging a table is authorised on that table; MiniStack authorises it on everything."""
    plain = iam_actions.extract_resource_arn

    def resource_arn(service: str, *rest: Any) -> str:  # noqa: ANN401 - as above
        _method, _path, _headers, body, *_others = rest
        if service == "dynamodb" and b'"ResourceArn"' in (body or b""):
            return str(json.loads(body)["ResourceArn"])
        return str(plain(service, *rest))

    iam_actions.extract_resource_arn = resource_arn


REFUSALS: Final = (
    refuse_large_policies,
    refuse_deletion_of_attached_policies,
    protect_global_tables,
    import_global_tables,
    authorise_tags_of_tables,
)


# Replicas of global tables, with replication in the hands of the replicator.
#
# MiniStack makes no replicas of a template's table, and writes into every replica at once. On AWS a
# write arrives later in the other regions, in any order, and the last writer wins. So here: the
# template's replicas are made, a write stays in its region, each item remembers which write it
# shows, and the call `ReplicateItems` brings the writes of another region. A table of multi-region
# strong consistency keeps MiniStack's way.


# Marks a stream record of a write that came from another region.
REPLICATED: Final = "replicated-"
_TARGET: Final = ".ReplicateItems"
_NEWEST: Final = "countledger newest writes"
_STRONG: Final = "STRONG"


def patch_replicas_are_made() -> None:
    """The replicas of a global table of a template are made, changed and deleted with it."""
    handlers = provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::GlobalTable"]  # noqa: SLF001 - it has no seam
    create, update, delete = handlers["create"], handlers["update"], handlers["delete"]

    def created(logical_id: str, properties: dict[str, Any], stack: str) -> Any:  # noqa: ANN401 - its own
        made = create(logical_id, properties, stack)
        _have_replicas(made[0], properties)
        return made

    def updated(name: str, old: dict[str, Any], new: dict[str, Any], *rest: Any) -> Any:  # noqa: ANN401 - its own
        # Without a name of its own MiniStack derives another one from the table's, and replaces it.
        named = {"TableName": name}
        made = update(name, {**old, **named}, {**new, **named}, *rest)
        _have_replicas(made[0], new)
        return made

    def deleted(name: str, properties: dict[str, Any]) -> Any:  # noqa: ANN401 - its own
        _have_replicas(name, {})
        return delete(name, properties)

    handlers.update(create=created, update=updated, delete=deleted)


def _have_replicas(name: str, properties: dict[str, Any]) -> None:
    table = dynamodb._tables.get(name)  # noqa: SLF001 - as above
    if table is None:
        return
    consistency = properties.get("MultiRegionConsistency")
    if consistency:
        table["MultiRegionConsistency"] = consistency
    wanted = {one["Region"] for one in properties.get("Replicas") or ()} - {get_region()}
    there = set(dynamodb._replica_group(table)) - {get_region()}  # noqa: SLF001 - as above
    updates = [{"Create": {"RegionName": region}} for region in sorted(wanted - there)]
    updates += [{"Delete": {"RegionName": region}} for region in sorted(there - wanted)]
    if updates:
        refused = dynamodb._apply_replica_updates(name, table, updates)  # noqa: SLF001 - as above
        if refused:
            raise ValueError(str(refused[2]))


def patch_consistency_is_described() -> None:
    """A description of a table says which consistency its replicas have."""
    plain = dynamodb._table_description  # noqa: SLF001 - as above

    def description(name: str, *rest: Any) -> Any:  # noqa: ANN401 - its own
        found = plain(name, *rest)
        known = dynamodb._tables[name].get("MultiRegionConsistency")  # noqa: SLF001 - as above
        return {**found, "MultiRegionConsistency": known} if known else found

    dynamodb._table_description = description  # noqa: SLF001 - as above


def patch_writes_stay_in_their_region() -> None:
    """A write goes into no other region at once, unless the table is strongly consistent."""
    plain = dynamodb._replicate_write  # noqa: SLF001 - as above

    def replicate(table: dict[str, Any], *rest: Any) -> None:  # noqa: ANN401 - its own
        if table.get("MultiRegionConsistency") == _STRONG:
            plain(table, *rest)

    dynamodb._replicate_write = replicate  # noqa: SLF001 - as above


def patch_items_know_their_write() -> None:
    """Each item remembers the write that it shows, or that deleted it: `[ms, region, number]`."""
    plain = dynamodb._build_change_record  # noqa: SLF001 - as above

    def record_of(table: dict[str, Any], *rest: Any) -> dict[str, Any]:  # noqa: ANN401 - its own
        record: dict[str, Any] = plain(table, *rest)
        change = record["dynamodb"]
        sequence = change["SequenceNumber"]
        write = [int(sequence[:-10]), get_region(), int(sequence[-10:])]
        table.setdefault(_NEWEST, {})[_place(table, change["Keys"])] = write
        return record

    dynamodb._build_change_record = record_of  # noqa: SLF001 - as above


def _place(table: dict[str, Any], key: dict[str, Any]) -> tuple[str, str]:
    extract = dynamodb._extract_key_val  # noqa: SLF001 - as above
    sort = table["sk_name"]
    return extract(key[table["pk_name"]]), extract(key[sort]) if sort else "__no_sort__"


def patch_replicate_items() -> None:
    """A call of our own, `ReplicateItems`, writes what another region wrote; last writer wins."""
    plain = dynamodb.handle_request

    async def handle(method: str, path: str, headers: dict[str, str], *rest: Any) -> Any:  # noqa: ANN401 - its own
        if not headers.get("x-amz-target", "").endswith(_TARGET):
            return await plain(method, path, headers, *rest)
        asked = json.loads(rest[0])
        applied = sum(_arrive(asked["TableName"], one) for one in asked["Writes"])
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps({"Applied": applied})

    dynamodb.handle_request = handle


def _arrive(name: str, one: dict[str, Any]) -> bool:
    """Write it unless the item shows a later write; whether it was written."""
    table = dynamodb._tables.get(name)  # noqa: SLF001 - as above
    if table is None:
        return False
    place, image = _place(table, one["Key"]), one.get("Image")
    newest = table.setdefault(_NEWEST, {})
    if newest.get(place, []) >= one["Write"]:
        return False
    before = table["items"].get(place[0], {}).get(place[1])
    if image is None:
        dynamodb._remove_item(table, *place)  # noqa: SLF001 - as above
    else:
        dynamodb._set_item(table, *place, image)  # noqa: SLF001 - as above
    if before is not None or image is not None:
        kind = "REMOVE" if image is None else "MODIFY" if before is not None else "INSERT"
        last = _last_record(name)
        dynamodb._emit_stream_event(name, kind, before, copy.deepcopy(image), replicate=False)  # noqa: SLF001 - as above
        record = _last_record(name)
        if record is not None and record is not last:
            record["eventID"] = REPLICATED + record["eventID"]
    # The record has put down a write of now.
    newest[place] = one["Write"]
    return True


def _last_record(name: str) -> dict[str, Any] | None:
    records = dynamodb._stream_records.get(name)  # noqa: SLF001 - as above
    return records[-1] if records else None


REPLICA_PATCHES: Final = (
    patch_replicas_are_made,
    patch_consistency_is_described,
    patch_writes_stay_in_their_region,
    patch_items_know_their_write,
    patch_replicate_items,
)


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
    """A change set names the resources that a changed condition adds or removes."""
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
