"""`countledger deploy`: the stack into an account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from countledger.infra.cli.arguments import parse_pairs
<<<<<<< HEAD
from countledger.infra.cli.options import BadUsage, Options, Yes, confirm, shared
from countledger.infra.cli.output import FINDINGS, notice, show, show_json, show_text
from countledger.infra.cli.progress import open_progress
from countledger.infra.deploy.bundle import LAMBDA, MAX_UNZIPPED_BYTES, build_bundle
from countledger.infra.deploy.cdk_construct import cdk_files
from countledger.infra.deploy.change_set import refuse_unknown, tag_table
from countledger.infra.deploy.code_bucket import (
    default_bucket,
    make_bucket,
    packaged,
    take_bucket,
    upload,
=======
from countledger.infra.cli.deploy_options import (
    ALARMS,
    Adopt,
    AllowReplace,
    GivenParameters,
    GivenTags,
    PlanOnly,
    RemoveFailed,
    RoleArn,
    RollbackMinutes,
    TerminationProtection,
>>>>>>> main
)
from countledger.infra.cli.destroy import poll_s
from countledger.infra.cli.earlier_stack import NOBODY, EarlierStack, two_tables
from countledger.infra.cli.options import BadUsage, Options, Yes, confirm, shared
from countledger.infra.cli.output import FINDINGS, notice, show
from countledger.infra.cli.packaging import Architecture, Bucket, BundleFile, content_of, place_of
from countledger.infra.cli.progress import open_progress
from countledger.infra.deploy.change_set import Watched, refuse_unknown, tag_table
from countledger.infra.deploy.deployment import Deployment
<<<<<<< HEAD
from countledger.infra.deploy.terraform_module import terraform_files
from countledger.infra.template import load_template, parse_template, template_text
=======
from countledger.infra.template import load_template
>>>>>>> main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.infra.deploy.change_set import Proposal, ResourceChange
    from countledger.infra.deploy.stack_operation import StackEvent
    from countledger.ledger.connection import Connection


@shared
def deploy(
    options: Options,
    *,
    bucket: Bucket = None,
    architecture: Architecture = "arm64",
    bundle: BundleFile = None,
    parameter: GivenParameters = None,
    tag: GivenTags = None,
    role_arn: RoleArn = None,
    yes: Yes = False,
    plan: PlanOnly = False,
    allow_replace: AllowReplace = False,
    rollback_minutes: RollbackMinutes = None,
    termination_protection: TerminationProtection = None,
    remove_failed: RemoveFailed = False,
    adopt: Adopt = None,
) -> int:
    """Create the stack in an AWS account, or update it to this release.

    It shows the changes and asks before it makes them. Nothing is deleted or replaced without
    --allow-replace. Tables and their items, stream positions, settings and schedules stay.

    Examples:
      countledger deploy                                     [dim]the stack countledger[/dim]
      countledger deploy --stack-name shop --tag team=web --yes
      countledger deploy --parameter AlarmTopicArn=arn:aws:sns:eu-west-1:123456789012:ops
      countledger deploy --plan                              [dim]changes nothing[/dim]

    Exit code 1: declined, nothing was changed; with --plan: there are changes.
    """
    if plan and (remove_failed or adopt):
        raise BadUsage("--plan changes nothing, and --remove-failed and --adopt do: leave one out")
    parameters = {
        "Architecture": architecture,
        **parse_pairs("--parameter", "KEY=VALUE", parameter, BadUsage),
    }
    tags = parse_pairs("--tag", "KEY=VALUE", tag, BadUsage)
    refuse_unknown(parameters, load_template()["Parameters"])
    connection = options.connection()
    place = place_of(connection, bucket)
    deployment = Deployment(
        cloudformation=connection.stacks(),
        s3=connection.objects(),
        stack_name=options.settings.stack_name,
        role_arn=role_arn,
        poll_s=poll_s(connection),
    )
<<<<<<< HEAD
    content = _content(bundle, architecture)
    proposal = deployment.propose(bucket=place, bundle=content, parameters=parameters, tags=tags)
    if proposal is None:
        notice(f"stack {deployment.stack_name} is up to date")
        outputs = _tagged(connection, deployment, deployment.outputs())
        return _report(options, deployment, (), outputs, deployed=False)
    _describe(proposal, deployment.stack_name)
    agreed = False
    try:
        agreed = _agreed(proposal, yes=yes, allow_replace=allow_replace)
    finally:
        if not agreed:
            deployment.discard(proposal)
    if not agreed:
        notice("declined: nothing was changed")
        return FINDINGS
    outputs = _tagged(connection, deployment, _execute(deployment, proposal))
    return _report(options, deployment, proposal.changes, outputs, deployed=True)


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
    place = _place(connection, bucket)
    key = upload(connection.objects(), place, _content(bundle, architecture), ".zip")
    text = packaged(template_text(), place, key, architecture)
    if terraform is not None:
        _write(terraform, terraform_files(text, place))
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


def poll_s(connection: Connection) -> float:
    """The pause between two looks at a stack: short where the engine is on this machine."""
    return 0.05 if connection.stays_here else 3.0


def _place(connection: Connection, bucket: str | None) -> str:
    """The bucket for code and template, which exists then."""
    s3, account = connection.objects(), connection.account()
    if bucket is not None:
        take_bucket(s3, bucket, account, connection.region)
        return bucket
    name = default_bucket(account, connection.region)
    if make_bucket(s3, name, account, connection.region):
        notice(f"made bucket {name}")
    return name


def _content(bundle: Path | None, architecture: str) -> bytes:
    if bundle is None:
        notice(f"building the functions for {architecture}")
        return build_bundle(LAMBDA[architecture]).content
    if bundle.stat().st_size > MAX_UNZIPPED_BYTES:
        raise BadUsage(f"--bundle {bundle} is larger than Lambda takes")
    return bundle.read_bytes()


def _describe(proposal: Proposal, stack_name: str) -> None:
    """What would change, on stderr: what is lost in red, where there is colour."""
    verb = "make" if proposal.creating else "change"
    notice(f"{verb} stack {stack_name}: {len(proposal.changes)} resources")
    for change in proposal.changes:
        causes = f"  ({', '.join(change.causes)})" if change.causes else ""
        line = f"  {change.effect:<12} {change.resource}  {change.kind}{causes}"
        typer.secho(line, err=True, fg=typer.colors.RED if change.dangerous else None)


def _agreed(proposal: Proposal, *, yes: bool, allow_replace: bool) -> bool:
    dangerous = [f"{one.resource} ({one.effect})" for one in proposal.changes if one.dangerous]
    if dangerous and not allow_replace:
        raise BadUsage(
            f"this would delete or replace {', '.join(dangerous)}: nothing was changed; give "
            "--allow-replace if that is meant"
        )
    return yes or confirm(
        "Go on?", "stdin is not a terminal, so nobody can confirm; nothing was changed: give --yes"
=======
    earlier = EarlierStack(connection, deployment, yes)
    run = _Run(options, connection, deployment, yes, allow_replace)
    content = content_of(bundle, architecture)
    if remove_failed:
        earlier.remove_failed(adopted=two_tables(adopt))
    if adopt:
        earlier.adopt(two_tables(adopt), bucket=place, parameters=parameters, tags=tags)
    earlier.name_what_is_left()
    proposal = deployment.propose(
        bucket=place,
        bundle=content,
        parameters=parameters,
        tags=tags,
        watched=run.watched(rollback_minutes),
>>>>>>> main
    )
    code = run.plan(proposal) if plan else run.carry_out(proposal)
    if termination_protection is not None and not plan and code == 0:
        deployment.protect(on=termination_protection)
    return code


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the command: what its steps share."""

    options: Options
    connection: Connection
    deployment: Deployment
    yes: bool
    allow_replace: bool

    def watched(self, minutes: int | None) -> Watched | None:
        """The alarms that take an update back; None: as at the last change, or nothing exists."""
        if minutes is None or self.deployment.stack.describe() is None:
            return None
        if minutes == 0:
            return Watched((), 0)
        made = self.deployment.stack.resources()
        at = f"{self.connection.region}:{self.connection.account()}"
        prefix = f"arn:{self.connection.partition}:cloudwatch:{at}:alarm:"
        return Watched(tuple(prefix + made[one][1] for one in ALARMS if one in made), minutes)

    def plan(self, proposal: Proposal | None) -> int:
        """Show what would change, and forget it."""
        if proposal is None:
            return self._report((), self.deployment.outputs(), deployed=False)
        self.deployment.discard(proposal)
        self._describe(proposal)
        self._report(proposal.changes, self.deployment.outputs(), deployed=False)
        return FINDINGS

    def carry_out(self, proposal: Proposal | None) -> int:
        """Show what would change, ask, and let it happen."""
        if proposal is None:
            notice(f"stack {self._name} is up to date")
            return self._report((), self._tagged(self.deployment.outputs()), deployed=False)
        self._describe(proposal)
        agreed = False
        try:
            agreed = self._agreed(proposal)
        finally:
            if not agreed:
                self.deployment.discard(proposal)
        if not agreed:
            notice("declined: nothing was changed")
            return FINDINGS
        outputs = self._tagged(_execute(self.deployment, proposal))
        return self._report(proposal.changes, outputs, deployed=True)

    @property
    def _name(self) -> str:
        return self.deployment.stack_name

    def _describe(self, proposal: Proposal) -> None:
        """What would change, on stderr: what is lost in red, where there is colour."""
        verb = "make" if proposal.creating else "change"
        notice(f"{verb} stack {self._name}: {len(proposal.changes)} resources")
        for change in proposal.changes:
            causes = f"  ({', '.join(change.causes)})" if change.causes else ""
            line = f"  {change.effect:<12} {change.resource}  {change.kind}{causes}"
            typer.secho(line, err=True, fg=typer.colors.RED if change.dangerous else None)

    def _agreed(self, proposal: Proposal) -> bool:
        dangerous = [f"{one.resource} ({one.effect})" for one in proposal.changes if one.dangerous]
        if dangerous and not self.allow_replace:
            raise BadUsage(
                f"this would delete or replace {', '.join(dangerous)}: nothing was changed; give "
                "--allow-replace if that is meant"
            )
        return self.yes or confirm("Go on?", NOBODY)

    def _tagged(self, outputs: dict[str, str]) -> dict[str, str]:
        """The outputs of a stack, whose tables have its tags then."""
        client = self.connection.dynamo("standard").client
        for table in ("LedgerTableName", "CountersTableName"):
            tag_table(client, outputs[table], self.deployment.tags())
        return outputs

    def _report(
        self, changes: Sequence[ResourceChange], outputs: dict[str, str], *, deployed: bool
    ) -> int:
        document: dict[str, Any] = {
            "stack_name": self._name,
            "deployed": deployed,
            "changes": [
                {"effect": str(one.effect), "resource": one.resource, "type": one.kind}
                for one in changes
            ],
            "outputs": outputs,
        }
        rows = [{"output": name, "value": value} for name, value in sorted(outputs.items())]
        show(self.options, rows, document)
        return 0


def _execute(deployment: Deployment, proposal: Proposal) -> dict[str, str]:
    with open_progress() as bars:
        bar = bars.add("resources", len(proposal.changes))
        done: set[str] = set()

        def follow(event: StackEvent) -> None:
            if event.failed:
                bars.say(f"{event.resource}: {event.status} {event.reason}")
            elif event.status.endswith("_COMPLETE"):
                done.add(event.resource)
                bar.set(min(len(done), len(proposal.changes)))

        return deployment.execute(proposal, follow)
