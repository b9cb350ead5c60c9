"""`countledger region add` and `remove`: a region of the ledger, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from countledger.consumers.assembly import auditor_of
from countledger.infra.cli.app import BadUsage, Options, Yes, confirm, parse_pairs, shared
from countledger.infra.cli.deploy import GivenParameters, RoleArn  # noqa: TC001 - Typer
from countledger.infra.cli.destroy import deployment_of, destruction_of, poll_s
from countledger.infra.cli.earlier_stack import NOBODY
from countledger.infra.cli.output import FINDINGS, notice, show
from countledger.infra.cli.packaging import Architecture, Bucket, BundleFile, content_of, place_of
from countledger.infra.deploy.change_set import refuse_unknown
from countledger.infra.deploy.region_change import Code, RegionChange
from countledger.infra.deploy.region_steps import (
    ADDING,
    REMOVING,
    Step,
    next_of_adding,
    next_of_dropping,
    next_of_removing,
)
from countledger.infra.template import load_template
from countledger.ledger.assembly import exact_of, namespaces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.consumers.audit import Auditor
    from countledger.infra.deploy.region_steps import Observed

OtherRegion = Annotated[str, typer.Argument(metavar="REGION", help="The region.")]
Plan = Annotated[bool, typer.Option("--plan", help="Show the steps that are left, and stop.")]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="ARN", help="A KMS key in that region; needed if the ledger has a key of yours."
    ),
]


@shared
def add(
    options: Options,
    name: OtherRegion,
    *,
    bucket: Bucket = None,
    architecture: Architecture = "arm64",
    bundle: BundleFile = None,
    parameter: GivenParameters = None,
    kms_key_arn: Key = None,
    role_arn: RoleArn = None,
    yes: Yes = False,
    plan: Plan = False,
) -> int:
    """Add a region: a replica of the ledger, a stack beside it, and its totals.

    Run it in the region of the stack that owns the ledger. Totals there cannot be read, and alerts
    are not evaluated, until every total is verified. The stack takes the parameters of the owner's,
    except names of things in a region (topics, keys, buckets). After a failure, or an
    interruption, run it again: it continues.

    Examples:
      countledger region add eu-west-1
      countledger region add eu-west-1 --plan                [dim]changes nothing[/dim]
      countledger region add eu-west-1 --parameter AuditSchedule='rate(1 day)' --yes

    Exit code 1: declined; with --plan: there are steps.
    """
    parameters = {
        "Architecture": architecture,
        **parse_pairs("--parameter", "KEY=VALUE", parameter, BadUsage),
    }
    refuse_unknown(parameters, load_template()["Parameters"])

    def code() -> Code:
        connection = options.connection().in_region(name)
        if connection.stays_here and bundle is None:
            from countledger.infra.local.region_stack import empty_bundle  # noqa: PLC0415 - an extra

            # Functions of this machine run from the installed package, as those of `up` do.
            content = empty_bundle()
        else:
            content = content_of(bundle, architecture)
        return Code(bucket=place_of(connection, bucket), bundle=content)

    change = change_of(
        options, name, code, parameters=parameters, role_arn=role_arn, key_arn=kms_key_arn
    )
    return _run(options, change, next_of_adding, ADDING, yes=yes, plan=plan)


@shared
def remove(
    options: Options,
    name: OtherRegion,
    *,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="It does not answer: take only its replica out of the table. Entries that it had "
            "not replicated are then in its table or backup alone.",
        ),
    ] = False,
    role_arn: RoleArn = None,
    yes: Yes = False,
    plan: Plan = False,
) -> int:
    """Remove a region: its stack and its replica of the ledger; no entry is lost.

    First stop who records there. The command watches the region's stream for the replication bound
    (COUNTLEDGER_REPLICATION_BOUND_MS): if an entry is recorded there meanwhile, nothing is removed.
    Then every entry is in the other regions. The table of the region's totals stays, with alert
    rules and groups of that region. After a failure, or an interruption, run it again.

    With --lost nothing is asked of the region. Then DynamoDB also deletes its table there, as soon
    as it can: `countledger region salvage` brings in from a backup what had not been replicated.

    Examples:
      countledger region remove eu-west-1
      countledger region remove eu-west-1 --plan             [dim]changes nothing[/dim]

    Exit code 1: declined; with --plan: there are steps.
    """

    def no_code() -> Code:
        raise BadUsage("no stack is deployed by a removal")

    change = change_of(options, name, no_code, role_arn=role_arn)
    if lost:
        change.lost = True
        return _run(options, change, next_of_dropping, (Step.DROP,), yes=yes, plan=plan)
    return _run(options, change, next_of_removing, REMOVING, yes=yes, plan=plan)


def change_of(
    options: Options,
    name: str,
    code: Callable[[], Code],
    *,
    parameters: Mapping[str, str] | None = None,
    role_arn: str | None = None,
    key_arn: str | None = None,
) -> RegionChange:
    """What adds or removes a region of the stack that the options name."""
    owner = options.connection()
    there = owner.in_region(name)

    def auditor() -> Auditor:
        # The outputs of the stack that is there now: the region may have left and joined again.
        now = owner.in_region(name)
        return auditor_of(now, exact_of(now), namespaces_of(now))

    deploy_there = deployment_of(there, role_arn)
    return RegionChange(
        region=name,
        owner=owner,
        deploy_owner=deployment_of(owner, role_arn),
        deploy_there=deploy_there,
        destroy_there=destruction_of(there, deploy_there.stack, role_arn),
        auditor=auditor,
        code=code,
        parameters=parameters or {},
        key_arn=key_arn,
        say=notice,
        poll_s=poll_s(owner),
    )


def _run(
    options: Options,
    change: RegionChange,
    decide: Callable[[Observed], Step | None],
    steps: Sequence[Step],
    *,
    yes: bool,
    plan: bool,
) -> int:
    """Show the steps that are left, ask, and take them."""
    first = decide(change.observe())
    left = [] if first is None else _left(first, steps)
    document = {"region": change.region, "steps": [one.name.lower() for one in left]}
    for one in left:
        notice(f"  {one.name.lower():<10} {one}")
    if not left:
        notice(f"{change.region}: nothing is left to do")
    agreed = bool(left) and not plan and (yes or confirm("Go on?", NOBODY))
    if not agreed:
        show(options, [], document)
        return FINDINGS if left else 0
    change.run(decide, lambda step: notice(f"{step.name.lower()}: {step}"))
    show(options, [], document)
    return 0


def _left(first: Step, steps: Sequence[Step]) -> list[Step]:
    """The steps from the first one on, in their order."""
    return list(steps[steps.index(first) :]) if first in steps else [first, *steps]
