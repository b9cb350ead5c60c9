"""Gaps of MiniStack 1.5.33 in what IAM authorises; imported by `engine_process.py` alone."""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ministack.core import iam_actions, iam_evaluator
from ministack.services import dynamodb


def patch_iam_names_streams() -> None:
    """Stream calls are authorised on the stream that they name.

    MiniStack authorises them on `*`, which no policy for one stream admits.
    """
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
    """A look at one event source mapping is authorised as such.

    MiniStack takes it for a list of all.
    """
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
    """Who may send, publish, delete or hide a message may do so with ten at once.

    MiniStack requires actions that IAM does not know.
    """
    plain = iam_actions.extract_iam_action

    def action(service: str, *rest: Any) -> str | None:  # noqa: ANN401 - its arguments are its own
        name: str | None = plain(service, *rest)
        return name.removesuffix("Batch") if name and service in {"sqs", "sns"} else name

    iam_actions.extract_iam_action = action


def patch_iam_names_schedules() -> None:
    """A schedule is authorised under the group that it is in.

    MiniStack takes every one for one of the group `default`.
    """
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
    """A look at an event bus is authorised on that bus.

    MiniStack takes its name for that of a rule.
    """
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
