"""`countledger destroy`: remove a stack from an account; the tables stay unless they are named."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from countledger.infra.cli.app import BadUsage, Options, shared
from countledger.infra.cli.output import FINDINGS, notice, open_progress, show
from countledger.infra.deploy.deployment import Deployment
from countledger.infra.deploy.destruction import Destruction
from countledger.infra.deploy.region_checks import table_in
from countledger.infra.deploy.stack_operation import StackReader
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.limits import DAY_MS

if TYPE_CHECKING:
    from countledger.infra.cli.output import Row
    from countledger.infra.deploy.destruction import DestroyPlan
    from countledger.infra.deploy.stack_operation import StackEvent
    from countledger.ledger.connection import Connection


@shared
def destroy(
    options: Options,
    *,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete the tables as well, with all items.")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Take the stack's policies from those who have them."),
    ] = False,
    yes: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Do not ask: repeat the name of the stack."),
    ] = None,
    role_arn: Annotated[
        str | None,
        typer.Option(metavar="ARN", help="The role under which CloudFormation works."),
    ] = None,
) -> int:
    """Remove the stack from an AWS account; its tables and their items stay.

    It names who has the stack's policies, what is deleted and what is kept, and prompts for the
    name of the stack. Messages in its queues, records in its stream of Kinesis, and the triggers of
    schedules are deleted with it. The tables are kept unless --delete-data is given; `countledger
    deploy --adopt` creates a stack around them again. The bucket of the code stays: other stacks
    may use it. A table for strict counters over regions is kept in any case, since DynamoDB deletes
    no single replica of it. After an interruption or a failure run the same command again.

    Examples:
      countledger destroy --stack-name shop                  [dim]keeps the tables[/dim]
      countledger destroy --stack-name shop --delete-data --yes shop

    Exit code 1: declined, nothing was changed.
    """
    connection = options.connection()
    name = options.settings.stack_name
    destruction = destruction_of(connection, reader_of(connection), role_arn)
    plan = destruction.plan()
    if plan is None or (plan.status == "DELETE_COMPLETE" and not delete_data):
        notice(f"there is no stack {name} in {connection.region}")
        return _report(options, plan, deleted=False)
    _refuse(plan, name, detach=detach)
    if delete_data:
        _refuse_source(connection, plan)
    _describe(plan, name, delete_data=delete_data)
    if not _agreed(name, yes):
        notice("declined: nothing was changed")
        return FINDINGS
    for one in plan.attachments:
        destruction.detach(one)
    with open_progress() as bars:
        bar = bars.add("resources", plan.resources)

        def follow(event: StackEvent) -> None:
            if event.failed:
                bars.say(f"{event.resource}: {event.status} {event.reason}")
            elif event.status.startswith("DELETE") and not event.status.endswith("_IN_PROGRESS"):
                bar.advance()

        destruction.delete(plan, follow)
        if delete_data:
            destruction.delete_tables(plan)
    return _report(options, plan, deleted=delete_data)


def deployment_of(connection: Connection, role_arn: str | None) -> Deployment:
    reader = reader_of(connection)
    return Deployment(stack=reader, s3=connection.objects(), role_arn=role_arn)


def reader_of(connection: Connection) -> StackReader:
    return StackReader(
        cloudformation=connection.stacks(),
        name=connection.settings.stack_name,
        poll_s=poll_s(connection),
    )


def destruction_of(
    connection: Connection, reader: StackReader, role_arn: str | None
) -> Destruction:
    return Destruction(
        stack=reader,
        iam=connection.administration("iam"),
        dynamodb=connection.dynamo("standard").client,
        role_arn=role_arn,
    )


def poll_s(connection: Connection) -> float:
    """The pause between two looks at a stack: short where the engine is on this machine."""
    return 0.05 if connection.stays_here else 3.0


def _refuse(plan: DestroyPlan, name: str, *, detach: bool) -> None:
    if plan.protected:
        raise BadUsage(
            f"stack {name} has termination protection: nothing was changed; lift it by "
            "`countledger deploy --no-termination-protection`"
        )
    if plan.attachments and not detach:
        held = ", ".join(f"{one.policy} by {one.kind} {one.entity}" for one in plan.attachments)
        raise BadUsage(
            f"policies of stack {name} are in use: {held}; IAM deletes none of them: nothing was "
            "changed; detach them, or give --detach"
        )


def _refuse_source(connection: Connection, plan: DestroyPlan) -> None:
    """Refuse to delete a ledger that DynamoDB keeps: a replica was made from it within a day."""
    for ledger in (one.name for one in plan.tables if one.resource == "Ledger"):
        for replica in (table_in(connection, ledger) or {}).get("Replicas", []):
            region = replica["RegionName"]
            there = table_in(connection.in_region(region), ledger)
            if region == connection.region or there is None:
                continue
            ends_ms = to_ms(there["CreationDateTime"]) + DAY_MS
            if connection.clock.now_ms() < ends_ms:
                raise BadUsage(
                    f"table {ledger} has a replica in {region} that was made less than 24 hours "
                    "ago, and DynamoDB deletes no table within 24 hours after a replica was made "
                    f"from it: nothing was changed; run this after {to_datetime(ends_ms)}, or "
                    "without --delete-data"
                )


def _describe(plan: DestroyPlan, name: str, *, delete_data: bool) -> None:
    """What will happen, on stderr: what is lost in red, where there is colour."""
    notice(f"delete stack {name} ({plan.status}): {plan.resources} resources")
    for one in plan.attachments:
        notice(f"  detach       {one.policy} from {one.kind} {one.entity}")
    for table in plan.tables:
        what = "empty" if table.empty else "with all items"
        deleted = delete_data and not table.strong
        line = f"  {'delete' if deleted else 'keep':<12} table {table.name} ({what})"
        typer.secho(line, err=True, fg=typer.colors.RED if deleted else None)


def _agreed(name: str, yes: str | None) -> bool:
    if yes is None:
        if not sys.stdin.isatty():
            raise BadUsage(
                "stdin is not a terminal, so nobody can confirm; nothing was changed: give "
                f"--yes {name}"
            )
        yes = typer.prompt(f"Type {name!r} to continue", default="", show_default=False, err=True)
        return yes == name
    if yes != name:
        raise BadUsage(f"{yes!r} is not {name!r}: nothing was changed")
    return True


def _report(options: Options, plan: DestroyPlan | None, *, deleted: bool) -> int:
    tables = () if plan is None else plan.tables
    rows: list[Row] = [
        {
            "table": one.name,
            "resource": one.resource,
            "deleted": deleted and not one.strong,
            "empty": one.empty,
        }
        for one in tables
    ]
    for one in tables:
        if deleted and one.strong:
            notice(
                f"table {one.name} is in several regions at once and stays: `aws dynamodb "
                f"update-table --table-name {one.name}` with --replica-updates deletes its two "
                "other replicas in one call (or one, and the witness with "
                "--global-table-witness-updates), and leaves a table that can be deleted"
            )
    document = {"stack_name": options.settings.stack_name, "tables": rows}
    show(options, rows, document)
    return 0
