"""Deploys the template with a bundle: upload, create or update the stack, wait, say why not."""

import hashlib
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.infra.template import template_text
from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

_PREFIX: Final = "countledger"
_NOTHING_TO_DO: Final = "No updates are to be performed"


class DeployFailed(CountledgerError):
    """The stack could not be made or changed; the message has CloudFormation's first reason."""


def deploy(
    *,
    cloudformation: "CloudFormationClient",
    s3: "S3Client",
    stack_name: str,
    bucket: str,
    bundle: bytes,
    parameters: Mapping[str, str] | None = None,
    template: str | None = None,
    poll_s: float = 3.0,
    timeout_s: float = 1800.0,
) -> dict[str, str]:
    """Create the stack, or update it, and wait until that is done.

    Args:
        cloudformation: the door to CloudFormation.
        s3: the door to the bucket, in the same region.
        stack_name: the stack.
        bucket: an existing bucket for bundle and template. What lies there is never overwritten:
            its key is a hash of it.
        bundle: the zip file of the functions.
        parameters: of the template, without `CodeBucket` and `CodeKey`. One that is left out keeps
            its value in an update.
        template: its text (default: ours).
        poll_s: pause between two looks.
        timeout_s: when to stop waiting (the stack goes on by itself).

    Returns:
        The outputs of the stack.

    Raises:
        DeployFailed: with CloudFormation's reason for refusing, or that of the first resource that
            failed.
    """
    given = dict(parameters or {})
    given["CodeBucket"] = bucket
    given["CodeKey"] = _upload(s3, bucket, bundle, ".zip")
    template_key = _upload(s3, bucket, (template or template_text()).encode(), ".yaml")
    token = f"countledger-{uuid.uuid4()}"
    request: dict[str, Any] = {
        "StackName": stack_name,
        "TemplateURL": f"{s3.meta.endpoint_url}/{bucket}/{template_key}",
        "Capabilities": ["CAPABILITY_IAM"],
        "ClientRequestToken": token,
    }
    existing = _stack(cloudformation, stack_name)
    try:
        if existing is None:
            cloudformation.create_stack(Parameters=_parameters(given, ()), **request)
        else:
            _update(cloudformation, existing, given, request)
    except ClientError as error:
        reason = error.response["Error"]["Message"]
        if existing is not None and _NOTHING_TO_DO in reason:
            return outputs(existing)
        raise DeployFailed(f"stack {stack_name!r} was refused: {reason}") from error
    return _wait(cloudformation, stack_name, token, poll_s=poll_s, timeout_s=timeout_s)


def outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    """The outputs of a described stack, by name."""
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}


def _upload(s3: "S3Client", bucket: str, body: bytes, suffix: str) -> str:
    key = f"{_PREFIX}/{hashlib.sha256(body).hexdigest()[:32]}{suffix}"
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    return key


def _parameters(given: Mapping[str, str], kept: Iterable[str]) -> list[Any]:
    return [
        *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
        *({"ParameterKey": name, "UsePreviousValue": True} for name in kept if name not in given),
    ]


def _stack(cloudformation: "CloudFormationClient", stack_name: str) -> Mapping[str, Any] | None:
    try:
        return cloudformation.describe_stacks(StackName=stack_name)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in error.response["Error"]["Message"]:
            return None
        raise


def _update(
    cloudformation: "CloudFormationClient",
    existing: Mapping[str, Any],
    given: Mapping[str, str],
    request: Mapping[str, Any],
) -> None:
    if existing["StackStatus"] == "ROLLBACK_COMPLETE":
        raise DeployFailed(
            f"stack {existing['StackName']!r} is the rest of a failed creation; delete it first"
        )
    kept = tuple(one["ParameterKey"] for one in existing.get("Parameters", []))
    cloudformation.update_stack(Parameters=_parameters(given, kept), **request)


def _wait(
    cloudformation: "CloudFormationClient",
    stack_name: str,
    token: str,
    *,
    poll_s: float,
    timeout_s: float,
) -> dict[str, str]:
    deadline_s = time.monotonic() + timeout_s
    while True:
        stack = _stack(cloudformation, stack_name)
        status = stack["StackStatus"] if stack is not None else "DELETE_COMPLETE"
        if stack is not None and status in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
            return outputs(stack)
        if status.endswith(("_COMPLETE", "_FAILED")) and "CLEANUP" not in status:
            reason = _first_failure(cloudformation, stack_name, token)
            raise DeployFailed(f"stack {stack_name!r} ended as {status}: {reason}")
        if time.monotonic() > deadline_s:
            raise DeployFailed(f"stack {stack_name!r} is still {status} after {timeout_s} s")
        time.sleep(poll_s)


def _first_failure(cloudformation: "CloudFormationClient", stack_name: str, token: str) -> str:
    failures = [
        f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
        for page in cloudformation.get_paginator("describe_stack_events").paginate(
            StackName=stack_name
        )
        for event in page["StackEvents"]
        if event["ResourceStatus"].endswith("_FAILED")
        and event.get("ClientRequestToken", token) == token
    ]
    # Newest first; the later ones are mostly cancellations that follow from the first.
    return failures[-1] if failures else "no resource says why"
