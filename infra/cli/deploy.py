"""`countledger deploy`: the stack into an account. Other commands share its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from countledger.infra.cli.app import BadUsage, Options, Yes, confirm, parse_pairs, shared
from countledger.infra.cli.destroy import deployment_of, destruction_of
from countledger.infra.cli.output import FINDINGS, notice, open_progress, show, show_json, show_text
from countledger.infra.deploy.account_limits import (
    read_quotas,
    refuse_beyond,
    refuse_lowered,
    warnings,
)
from countledger.infra.deploy.bundle import (
    LAMBDA,
    MAX_UNZIPPED_BYTES,
    build_bundle,
    default_bucket,
    make_bucket,
    packaged,
    take_bucket,
    upload,
)
from countledger.infra.deploy.deployment import (
    FAILED_CREATION,
    Watched,
    parameters_in,
    refuse_unknown,
    tag_table,
)
from countledger.infra.deploy.wrappers import cdk_files, terraform_files
from countledger.infra.template import TABLES, load_template, parse_template, template_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.infra.deploy.deployment import Deployment, Proposal, ResourceChange
    from countledger.infra.deploy.destruction import RetainedTable
    from countledger.infra.deploy.stack_operation import StackEvent
    from countledger.ledger.connection import Connection


# What an earlier stack left: removed, adopted or named by `countledger deploy`.


NOBODY: Final = "stdin is not a terminal, so nobody can confirm; nothing was changed: give --yes"


@dataclass(frozen=True, slots=True)
class EarlierStack:
    """What is left of an earlier stack of the same name."""

    connection: Connection
    deployment: Deployment
    yes: bool

    def remove_failed(self, *, adopted: Mapping[str, str]) -> None:
        """Delete what a failed creation left; the tables that are adopted stay."""
        destruction = destruction_of(self.connection, self.deployment.stack, None)
        left = destruction.plan()
        if left is None or left.status == "DELETE_COMPLETE":
            return  # removed by an earlier call
        if left.status not in FAILED_CREATION:
            raise BadUsage(f"stack {self._name} is {left.status}: no creation of it failed")
        gone = tuple(one for one in left.tables if one.name not in adopted.values())
        full = [one for one in gone if not one.empty]
        if full:
            raise BadUsage(
                f"{_named(full)} has items: nothing was deleted; give --adopt with both tables to "
                "keep them, or use `countledger destroy --delete-data`"
            )
        notice(f"delete stack {self._name} ({left.status}) and {_named(gone) or 'no table'}")
        self._confirm()
        destruction.delete(left)
        destruction.delete_tables(replace(left, tables=gone))

    def adopt(
        self,
        tables: Mapping[str, str],
        *,
        bucket: str,
        parameters: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        stack = self.deployment.stack.describe()
        if stack is not None and stack["StackStatus"] == "IMPORT_COMPLETE":
            return  # by an earlier call, which did not come to the rest
        if stack is not None and stack["StackStatus"] != "REVIEW_IN_PROGRESS":
            raise BadUsage(
                f"stack {self._name} exists ({stack['StackStatus']}): only a new one can adopt "
                "tables; a failed one goes by --remove-failed"
            )
        notice(f"make stack {self._name} around {' and '.join(tables.values())}")
        self._confirm()
        self.deployment.adopt(tables, bucket=bucket, parameters=parameters, tags=tags)

    def name_what_is_left(self) -> None:
        """Say so if a new stack will have new tables beside those of a deleted one."""
        if self.deployment.stack.describe() is not None:
            return
        left = destruction_of(self.connection, self.deployment.stack, None).plan()
        if left is not None:
            names = ",".join(one.name for one in left.tables)
            notice(
                f"{_named(left.tables)} of the deleted stack {self._name} still exist: this makes "
                f"new, empty ones; --adopt {names} would use them"
            )

    @property
    def _name(self) -> str:
        return self.deployment.stack.name

    def _confirm(self) -> None:
        if not (self.yes or confirm("Go on?", NOBODY)):
            raise typer.Exit(FINDINGS)


def two_tables(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    names = [one.strip() for one in text.split(",")]
    if len(names) != len(TABLES) or not all(names):
        raise BadUsage(f"--adopt {text!r} is not LEDGER,COUNTERS: the names of two tables")
    return dict(zip(TABLES, names, strict=True))


def _named(tables: Sequence[RetainedTable]) -> str:
    return " and ".join(f"table {one.name}" for one in tables)


# `countledger package`, and what `countledger deploy` shares with it: code and its bucket.


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


# CloudFormation watches five alarms at most: those that a bad release sets off first.
ALARMS: Final = (
    "ErrorAlarm",
    "EvaluatorErrorAlarm",
    "QuarantineAlarm",
    "DispatcherErrorAlarm",
    "IngestErrorAlarm",
)

GivenParameters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A parameter of the template; repeatable. A parameter that is left out keeps its "
        "value, or has its default.",
    ),
]
GivenTags = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A tag of the stack and its resources; repeatable."),
]
RoleArn = Annotated[
    str | None,
    typer.Option(
        metavar="ARN",
        help="The role under which CloudFormation works. [dim]By default that of the last change, "
        "or your own[/dim]",
    ),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Show the changes and stop; exit code 1 if any.")
]
AllowReplace = Annotated[
    bool, typer.Option("--allow-replace", help="Allow that resources are deleted or replaced.")
]
RollbackMinutes = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=180,
        help="Watch the alarms during updates and for so long after, and take the update back if "
        "one goes off; 0: no longer. [dim]By default as at the last change[/dim]",
    ),
]
TerminationProtection = Annotated[
    bool | None, typer.Option(help="Whether CloudFormation refuses to delete the stack.")
]
RemoveFailed = Annotated[
    bool,
    typer.Option(
        "--remove-failed",
        help="First delete what a failed creation left: the stack, and its tables if empty.",
    ),
]
Adopt = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER,COUNTERS",
        help="Create the stack around these tables of a deleted stack, with their items.",
    ),
]


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
    deployment = deployment_of(connection, role_arn)
    earlier = EarlierStack(connection, deployment, yes)
    run = _Run(options, connection, deployment, yes, allow_replace)
    run.check_account(parameters)
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
    )
    code = run.plan(proposal) if plan else run.carry_out(proposal)
    if termination_protection is not None and not plan and code == 0:
        deployment.protect(on=termination_protection)
    return code


@dataclass(frozen=True, slots=True)
class _Run:
    options: Options
    connection: Connection
    deployment: Deployment
    yes: bool
    allow_replace: bool

    def check_account(self, parameters: Mapping[str, str]) -> None:
        """Refuse what the account cannot serve; name what may be too little, or is unknown."""
        now = parameters_in(self.deployment.stack.describe() or {})
        quotas = read_quotas(self.connection)
        wanted = {**now, **parameters}
        refuse_beyond(quotas, wanted, now)
        refuse_lowered(wanted, now, self._warm_units)
        for text in warnings(quotas, wanted):
            notice(text)
        if quotas.unread:
            notice(
                f"quotas that could not be read, and are not checked: {', '.join(quotas.unread)}"
            )

    def _warm_units(self, output: str) -> int:
        """The write units a second that a table takes at once; 0: the engine does not say."""
        table = self.deployment.outputs().get(output)
        if table is None:
            return 0
        described = self.connection.dynamo("standard").describe(table)
        return int(described.get("WarmThroughput", {}).get("WriteUnitsPerSecond", 0))

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
        if proposal is None:
            return self._report((), self.deployment.outputs(), deployed=False)
        self.deployment.discard(proposal)
        self._describe(proposal)
        self._report(proposal.changes, self.deployment.outputs(), deployed=False)
        return FINDINGS

    def carry_out(self, proposal: Proposal | None) -> int:
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
        return self.deployment.stack.name

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
