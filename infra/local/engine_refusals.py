"""What AWS refuses and MiniStack's CloudFormation does not: patched, so that refusals are tested.

Imported by the engine's process alone; it imports nothing of countledger.
MiniStack itself refuses a bucket of another region, and the deletion of a policy by IAM's own call.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from ministack.core import iam_actions
from ministack.services import dynamodb, iam
from ministack.services.cloudformation import provisioners

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
