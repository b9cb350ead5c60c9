"""`countledger package`, and what `countledger deploy` shares with it: code and its bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import notice, show_json, show_text
from countledger.infra.deploy.bundle import LAMBDA, MAX_UNZIPPED_BYTES, build_bundle
from countledger.infra.deploy.cdk_construct import cdk_files
from countledger.infra.deploy.code_bucket import (
    default_bucket,
    make_bucket,
    packaged,
    take_bucket,
    upload,
)
from countledger.infra.deploy.terraform_module import terraform_files
from countledger.infra.template import parse_template, template_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    terraform: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Write a Terraform module to DIR."),
    ] = None,
    cdk: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Write a CDK construct to DIR."),
    ] = None,
) -> None:
    """Upload the functions' code, and print the template that uses it.

    The template is plain CloudFormation, needs CAPABILITY_IAM, and is larger than a request may
    be, so it goes by a bucket. With --json it is JSON. With --terraform or --cdk it is written with
    a module or a construct (Python) around it, and an example; a later call replaces these files.

    Examples:
      countledger package --bucket my-artifacts > countledger.yaml
      countledger package --terraform countledger-module
      countledger package --cdk countledger_cdk
    """
    connection = options.connection()
    bucket_name = place_of(connection, bucket)
    key = upload(connection.objects(), bucket_name, content_of(bundle, architecture), ".zip")
    text = packaged(template_text(), bucket_name, key, architecture)
    if terraform is not None:
        _write(terraform, terraform_files(text, bucket_name))
    if cdk is not None:
        _write(cdk, cdk_files(text))
    if terraform is not None or cdk is not None:
        return
    if options.json:
        show_json(parse_template(text))
    else:
        show_text(text.rstrip("\n"))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        show_text(str(path))


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
