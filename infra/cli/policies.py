"""`countledger policy`: the policies of those who deploy, as documents."""

from typing import Annotated, Any

import typer

from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.deploy import Bucket, RoleArn
from countledger.infra.cli.output import show_json
from countledger.infra.deploy.bundle import default_bucket
from countledger.infra.deploy.deployer_policy import (
    Place,
    caller_policy,
    key_policy,
    parts_of,
    pass_role,
    resource_policy,
)
from countledger.infra.deploy.template_limits import POLICY_MAX

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


OtherRegions = Annotated[
    str | None,
    typer.Option(
        metavar="REGION,...",
        help="Other regions that `countledger region add` and `region remove` may change, and "
        "those of StrictRegions with the witness.",
    ),
]

Part = Annotated[
    int | None, typer.Option(min=1, help="Which part of a policy that is too long for one.")
]


@app.callback()
@shared
def policy(_options: Options) -> None:
    """Policies of those who deploy, as documents for IAM.

    The policies of apps and operators are part of the stack; its outputs name them.
    """


@app.command()
@shared
def deployer(
    options: Options,
    *,
    bucket: Bucket = None,
    role_arn: RoleArn = None,
    regions: OtherRegions = None,
    part: Part = None,
) -> None:
    """Print the policy of who deploys and destroys the stack.

    CloudFormation makes the resources with the permissions of its caller, so the policy has them
    all. With --role-arn it has only what the commands call themselves and the permission to give
    CloudFormation that role; `countledger policy role` prints the policy of the role.

    IAM takes 6,144 characters for a managed policy. A longer one is printed in parts, each a policy
    of its own: --part 1, --part 2.

    Examples:
      countledger policy deployer --stack-name shop > deployer.json
      countledger policy deployer --role-arn arn:aws:iam::123456789012:role/cloudformation
      countledger policy deployer --regions eu-west-1,ap-northeast-1
    """
    place = _place(options, bucket, regions)
    document = caller_policy(place)
    more = resource_policy(place)["Statement"] if role_arn is None else [pass_role(role_arn)]
    _show({**document, "Statement": [*document["Statement"], *more]}, part)


@app.command()
@shared
def role(
    options: Options, *, bucket: Bucket = None, regions: OtherRegions = None, part: Part = None
) -> None:
    """Print the policy of the role under which CloudFormation makes the resources.

    The role trusts cloudformation.amazonaws.com; `countledger deploy --role-arn` gives it.

    Examples:
      countledger policy role --stack-name shop > role.json
    """
    _show(resource_policy(_place(options, bucket, regions)), part)


@app.command()
@shared
def key(
    options: Options,
    *,
    principal_arn: Annotated[
        str,
        typer.Option(
            metavar="ARN",
            help="Who deploys: a role or user, or the role of CloudFormation (--role-arn).",
        ),
    ],
) -> None:
    """Print the policy of a key that encrypts the stack (parameter KmsKeyArn).

    It lets the IAM policies of the account decide, as the policy of a new key does: the functions
    and operators use the key by theirs. Besides, it allows --principal-arn what CloudFormation does
    with a key, and the logs service to encrypt the log groups of the stack. In another region it is
    another one: each region's log groups have a service of their own.

    Examples:
      countledger policy key --principal-arn arn:aws:iam::123456789012:role/deployer > key.json
    """
    _show(key_policy(_place(options, None, None), principal_arn), None)


def _show(document: dict[str, Any], part: int | None) -> None:
    """Print a policy, or one of its parts."""
    parts = parts_of(document)
    if part is None and len(parts) > 1:
        raise BadUsage(
            f"the policy is longer than the {POLICY_MAX:,} characters that IAM takes, so it has "
            f"{len(parts)} parts, each a managed policy: --part 1 to --part {len(parts)}"
        )
    if part is not None and part > len(parts):
        raise BadUsage(f"--part {part}: the policy has {len(parts)}")
    show_json(parts[(part or 1) - 1])


def _place(options: Options, bucket: str | None, regions: str | None) -> Place:
    connection = options.connection()
    account = connection.account()
    others = [one.strip() for one in (regions or "").split(",") if one.strip()]
    return Place(
        options.settings.stack_name,
        connection.partition,
        connection.region,
        account,
        bucket or default_bucket(account, connection.region),
        tuple((one, default_bucket(account, one)) for one in others),
    )
