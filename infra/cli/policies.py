"""`countledger policy`: the policies of those who deploy, as documents."""

from typing import Annotated

import typer

from countledger.infra.cli.deploy_options import RoleArn
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import show_json
from countledger.infra.cli.packaging import Bucket
from countledger.infra.deploy.code_bucket import default_bucket
from countledger.infra.deploy.deployer_policy import (
    Place,
    caller_policy,
    pass_role,
    resource_policy,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


OtherRegions = Annotated[
    str | None,
    typer.Option(
        metavar="REGION,...",
        help="Other regions that `countledger region add` and `region remove` may change.",
    ),
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
) -> None:
    """Print the policy of who deploys and destroys the stack.

    CloudFormation makes the resources with the permissions of its caller, so the policy has them
    all. With --role-arn it has only what the commands call themselves and the permission to give
    CloudFormation that role; `countledger policy role` prints the policy of the role.

    Examples:
      countledger policy deployer --stack-name shop > deployer.json
      countledger policy deployer --role-arn arn:aws:iam::123456789012:role/cloudformation
      countledger policy deployer --regions eu-west-1,ap-northeast-1
    """
    place = _place(options, bucket, regions)
    document = caller_policy(place)
    more = resource_policy(place)["Statement"] if role_arn is None else [pass_role(role_arn)]
    show_json({**document, "Statement": [*document["Statement"], *more]})


@app.command()
@shared
def role(options: Options, *, bucket: Bucket = None, regions: OtherRegions = None) -> None:
    """Print the policy of the role under which CloudFormation makes the resources.

    The role trusts cloudformation.amazonaws.com; `countledger deploy --role-arn` gives it.

    Examples:
      countledger policy role --stack-name shop > role.json
    """
    show_json(resource_policy(_place(options, bucket, regions)))


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
