"""`countledger package`, and what `countledger deploy` shares with it: code and its bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from countledger.infra.cli.options import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json, show_text
from countledger.infra.deploy.bundle import LAMBDA, MAX_UNZIPPED_BYTES, build_bundle
from countledger.infra.deploy.code_bucket import (
    default_bucket,
    make_bucket,
    packaged,
    take_bucket,
    upload,
)
from countledger.infra.template import parse_template, template_text

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection

Bucket = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A bucket of yours for the functions' code. [dim]By default one is made for the "
        "account and region[/dim]",
    ),
]
Architecture = Annotated[
    Literal["arm64", "x86_64"], typer.Option(help="The processor that the functions run on.")
]
BundleFile = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="A bundle built before, as by `make bundle`. [dim]By default one is built[/dim]",
    ),
]


@shared
def package(
    options: Options,
    *,
    bucket: Bucket = None,
    architecture: Architecture = "arm64",
    bundle: BundleFile = None,
) -> None:
    """Upload the functions' code, and print the template that uses it.

    For those who deploy by a pipeline, CDK (CfnInclude) or Terraform (aws_cloudformation_stack):
    the template is plain CloudFormation, needs CAPABILITY_IAM, and is larger than a request may
    be, so it goes by a bucket. With --json it is JSON.

    Examples:
      countledger package --bucket my-artifacts > countledger.yaml
    """
    connection = options.connection()
    bucket_name = place_of(connection, bucket)
    key = upload(connection.objects(), bucket_name, content_of(bundle, architecture), ".zip")
    text = packaged(template_text(), bucket_name, key)
    if architecture != "arm64":
        notice(f"give the stack the parameter Architecture={architecture}")
    if options.json:
        show_json(parse_template(text))
    else:
        show_text(text.rstrip("\n"))


def place_of(connection: Connection, bucket: str | None) -> str:
    """The bucket for code and template, which exists then."""
    s3, account = connection.objects(), connection.account()
    if bucket is not None:
        take_bucket(s3, bucket, account, connection.region)
        return bucket
    name = default_bucket(account, connection.region)
    if make_bucket(s3, name, account, connection.region):
        notice(f"made bucket {name}")
    return name


def content_of(bundle: Path | None, architecture: str) -> bytes:
    if bundle is None:
        notice(f"building the functions for {architecture}")
        return build_bundle(LAMBDA[architecture]).content
    if bundle.stat().st_size > MAX_UNZIPPED_BYTES:
        raise BadUsage(f"--bundle {bundle} is larger than Lambda takes")
    return bundle.read_bytes()
