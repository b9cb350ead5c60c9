"""Adds a region to a stack, or removes it: observes, and takes the step that was decided."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.consumers.region_state import Phase, RegionState, RegionStateStore
from countledger.infra.deploy.deployment import Effect, parameters_in, tags_in
from countledger.infra.deploy.region_checks import (
    home_by_epoch,
    make_totals,
    prove_totals,
    refuse_changed,
    refuse_in_use,
    replicas_of,
    state_in,
    table_in,
    watch_quiet,
)
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.template import only_tables
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import BadInput, CountledgerError, WrongRegion
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.consumers.audit import Auditor
    from countledger.infra.deploy.deployment import Deployment, Proposal
    from countledger.infra.deploy.destruction import Destruction
    from countledger.ledger.connection import Connection


# Adding and removing a region: which step comes next, decided from what is observed. Pure.
#
# Nothing of a run is stored, except the state of the new region. So a run that failed, or was
# interrupted, after any step is continued by another one: it observes, and decides the same.


REPLICAS_MAX: Final = 4
# How long a replica may take.
REPLICA_TIMEOUT_S: Final = 6 * 3600
# The parameters of a stack that the commands for regions change.
OF_REGIONS: Final = ("HomeRegion", "ReplicaRegions", "RegionKmsKeyArns")
ACTIVE: Final = "ACTIVE"


class Step(StrEnum):
    """A step of adding or removing a region; its text is for people."""

    REPLICA = "add the replica of the ledger to the stack that owns it"
    WAIT = "wait until stacks and replicas are steady"
    COUNTERS = "make the table of the region's totals"
    MARK = "store that its totals are rebuilding"
    STACK = "deploy the region's stack around it"
    REPAIR = "make the totals from the ledger"
    VERIFY = "verify every total"
    READY = "store that the region is ready"
    QUIET = "watch for the replication bound that nobody records there"
    DESTROY = "delete the region's stack; its table of totals stays"
    UNPROTECT = "lift the deletion protection of the replica"
    DROP = "remove the replica from the stack that owns the ledger"


ADDING: Final = (
    Step.REPLICA,
    Step.WAIT,
    Step.COUNTERS,
    Step.MARK,
    Step.STACK,
    Step.REPAIR,
    Step.VERIFY,
    Step.READY,
)
REMOVING: Final = (Step.QUIET, Step.DESTROY, Step.UNPROTECT, Step.DROP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is there now.

    Attributes:
        owner: the region of the stack that owns the ledger.
        home: the home region that the owner's stack names.
        epoch_home: the home region that the ledger names.
        listed: the regions that the owner's stack names as replicas.
        replicas: the other regions of the table, each with the status of its replica.
        busy: the stack that is being changed now, and its status; empty: none is.
        counters: the region's table of totals; None: its stack has none yet, or there is no stack.
        done: the steps of this run that leave no trace to observe, under this very table and state.
    """

    region: str
    owner: str
    home: str
    epoch_home: str = ""
    listed: tuple[str, ...] = ()
    replicas: Mapping[str, str] = field(default_factory=dict)
    table_there: bool = False
    protected: bool = False
    busy: str = ""
    counters: str | None = None
    stack: bool = False
    complete: bool = False
    state: RegionState = field(default_factory=RegionState)
    done: frozenset[Step] = frozenset()


def next_of_adding(seen: Observed) -> Step | None:  # noqa: PLR0911 - one for each step
    """The step that brings a region nearer to ready; None: it is ready."""
    if seen.region == seen.owner:
        raise BadInput(f"{seen.region} is the region of the stack that owns the ledger")
    if seen.busy:
        return Step.WAIT
    if seen.region not in seen.listed:
        _refuse_replica(seen)
        unsteady = [one for one, status in seen.replicas.items() if status != ACTIVE]
        return Step.WAIT if unsteady else Step.REPLICA
    if seen.region not in seen.replicas:
        raise BadInput(
            f"the stack in {seen.owner} names a replica in {seen.region}, and the ledger has none: "
            f"it was deleted by hand; `countledger region remove {seen.region}` first"
        )
    if seen.replicas[seen.region] != ACTIVE:
        return Step.WAIT
    if seen.counters is None:
        return Step.COUNTERS
    if not seen.complete:
        return Step.STACK if seen.state.phase is Phase.REBUILDING else Step.MARK
    if seen.state.phase is not Phase.REBUILDING:
        return None
    waiting = (one for one in (Step.REPAIR, Step.VERIFY) if one not in seen.done)
    return next(waiting, Step.READY)


def next_of_removing(seen: Observed) -> Step | None:
    """The step that brings a region nearer to being gone; None: it is."""
    if seen.region == seen.owner:
        raise WrongRegion(
            f"{seen.region} owns the ledger and cannot be removed: `countledger destroy` removes a "
            "whole stack"
        )
    if seen.region in {seen.home, seen.epoch_home}:
        raise WrongRegion(
            f"{seen.region} is the home region: `countledger region promote` another one first"
        )
    if seen.busy:
        return Step.WAIT
    if seen.stack:
        return Step.DESTROY if Step.QUIET in seen.done or not seen.complete else Step.QUIET
    if seen.region not in seen.listed:
        if seen.region in seen.replicas:
            _refuse_replica(seen)
        return None
    if any(status != ACTIVE for status in seen.replicas.values()):
        return Step.WAIT
    if seen.protected:
        return Step.UNPROTECT
    return Step.DROP


def next_of_dropping(seen: Observed) -> Step | None:
    """The step that takes a lost region out of the table; None: it is no replica any more."""
    if seen.region == seen.owner:
        raise WrongRegion(f"{seen.region} owns the ledger, and answers: it is not lost")
    if seen.region == seen.home != seen.epoch_home:
        raise BadInput(
            f"{seen.region} is the home region by a parameter alone, and the ledger names "
            f"{seen.epoch_home or 'none'}: take it out of the table by `aws dynamodb update-table "
            "--table-name LEDGER --replica-updates "
            f'\'[{{"Delete": {{"RegionName": "{seen.region}"}}}}]\' --region {seen.owner}`, then '
            f"`countledger region promote {seen.owner} --lost {seen.region}`"
        )
    if seen.busy:
        return Step.WAIT
    return Step.DROP if seen.region in seen.listed else None


def _refuse_replica(seen: Observed) -> None:
    """Refuse what is in the way of a replica that the owner's stack does not name."""
    if seen.region in seen.replicas:
        raise BadInput(
            f"the ledger has a replica in {seen.region} ({seen.replicas[seen.region]}) that no "
            "stack manages: CloudFormation leaves it when an update that adds it is rolled back. "
            "Read why in the stack's events, delete the replica (`aws dynamodb update-table "
            "--table-name LEDGER --replica-updates "
            f'\'[{{"Delete": {{"RegionName": "{seen.region}"}}}}]\' --region {seen.owner}`), '
            "then run this again"
        )
    if seen.table_there:
        raise BadInput(
            f"{seen.region} has a table of the ledger's name that is no replica of it: delete it "
            "there, or choose another region"
        )
    if len(seen.listed) >= REPLICAS_MAX:
        raise BadInput(
            f"the ledger has {len(seen.listed)} replicas already ({', '.join(seen.listed)}), and "
            f"a stack names {REPLICAS_MAX} at most"
        )


def without(given: Mapping[str, str], region: str, owner: str) -> dict[str, str]:
    """The parameters of the owner's stack that change once a region is gone from them.

    A home that was lost is no region of the stack any more. The ledger still names it, so nobody
    merges until another one is promoted.
    """
    regions, keys = listed(given, "ReplicaRegions"), listed(given, "RegionKmsKeyArns")
    kept = [n for n, one in enumerate(regions) if one != region]
    return {
        "ReplicaRegions": ",".join(regions[n] for n in kept),
        "RegionKmsKeyArns": ",".join(keys[n] for n in kept if n < len(keys)),
        **({"HomeRegion": owner} if given.get("HomeRegion") == region else {}),
    }


# What a region has of its own, or what the home region alone has: it is not taken from the owner.
_ITS_OWN: Final = frozenset(
    {
        "AlarmTopicArn",
        "AlertBusName",
        "AlertTopicArns",
        "BackupCopyVaultArn",
        "BackupSchedule",
        "CodeBucket",
        "CodeKey",
        "HomeRegion",
        "HttpApi",
        "IngestStream",
        "KmsKeyArn",
        "LedgerStreamArn",
        "LedgerTableName",
        "RegionKmsKeyArns",
        "ReplicaRegions",
        "StrictRegions",
        "StrictTableName",
        "StrictWitnessRegion",
    }
)


def listed(parameters: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in parameters.get(name, "").split(",") if one.strip())


def parameters_of(
    owner: Mapping[str, str], region: str, key_arn: str | None, strict_table: str
) -> dict[str, str]:
    """What a new region's stack takes from the parameters of the owner's, and its keys."""
    keys = (owner.get("KmsKeyArn", ""), *listed(owner, "RegionKmsKeyArns"))
    return {
        **{name: value for name, value in owner.items() if name not in _ITS_OWN},
        "KmsKeyArn": key_arn or "",
        "RegionKmsKeyArns": ",".join(one for one in keys if one and one != key_arn),
        # The table has a replica only in the regions that it was made with.
        "StrictTableName": strict_table if region in listed(owner, "StrictRegions") else "",
    }


_REVIEWED: Final = "REVIEW_IN_PROGRESS"  # the empty stack of a change set
_GONE: Final = frozenset({"DELETE_COMPLETE", _REVIEWED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    bucket: str
    bundle: bytes


@dataclass(slots=True, kw_only=True)
class RegionChange:
    """Adds or removes one region.

    The owner is the stack that owns the ledger; `parameters` come on top of those that the region's
    stack takes from it. Nothing is asked of a region that is `lost`. `timeout_s` bounds how long a
    replica may take.
    """

    region: str
    owner: Connection
    deploy_owner: Deployment
    deploy_there: Deployment
    destroy_there: Destruction
    auditor: Callable[[], Auditor]
    code: Callable[[], Code]
    parameters: Mapping[str, str] = field(default_factory=dict)
    key_arn: str | None = None
    lost: bool = False
    say: Callable[[str], None] = lambda _: None
    poll_s: float = 3.0
    timeout_s: float = REPLICA_TIMEOUT_S
    clock: Clock = field(default_factory=SystemClock)
    _done: set[tuple[str | None, RegionState, Step]] = field(default_factory=set)

    def observe(self) -> Observed:
        """What is there now: some ten calls."""
        stack = self.deploy_owner.stack.describe()
        if stack is None:
            raise DeployFailed(f"there is no stack in {self.owner.region}: `countledger deploy` it")
        given = parameters_in(stack)
        if given.get("LedgerStreamArn"):
            raise WrongRegion(
                f"the stack in {self.owner.region} does not own the ledger: give the region of the "
                "stack that does (--region or AWS_REGION); `countledger region list` names all"
            )
        there = None if self.lost else self.deploy_there.stack.describe()
        status = "" if there is None or there["StackStatus"] in _GONE else there["StackStatus"]
        resources = self.deploy_there.stack.resources() if status else {}
        counters = resources.get("Counters", ("", ""))[1] or None
        busy = [
            f"{one['StackName']} ({one['StackStatus']})"
            for one in (stack, there)
            if one is not None
            and one["StackStatus"].endswith("_IN_PROGRESS")
            and one["StackStatus"] != _REVIEWED
        ]
        state = state_in(self._there, counters) if counters and not busy else RegionState()
        ledger = self.owner.setting("ledger_table")
        table = None if self.lost else table_in(self._there, ledger)
        homes = [home_by_epoch(self.owner, ledger)]
        homes += [home_by_epoch(self._there, ledger)] if table else []
        return Observed(
            region=self.region,
            owner=self.owner.region,
            home=self.owner.setting("home_region"),
            # A promotion writes in the region that is to be home, and arrives elsewhere later.
            epoch_home=self.region if self.region in homes else homes[0],
            listed=listed(given, "ReplicaRegions"),
            replicas={n: s for n, s in replicas_of(self.owner).items() if n != self.owner.region},
            table_there=table is not None,
            protected=bool((table or {}).get("DeletionProtectionEnabled")),
            busy=", ".join(busy),
            counters=counters,
            stack=bool(status),
            complete="MaterializerMapping" in resources,
            state=state,
            done=frozenset(step for *of, step in self._done if of == [counters, state]),
        )

    def run(
        self,
        decide: Callable[[Observed], Step | None],
        on_step: Callable[[Step], None] = lambda _: None,
    ) -> None:
        """Take steps until none is left; if one fails, another run continues with it."""
        while (step := decide(seen := self.observe())) is not None:
            on_step(step)
            self.take(step, seen, lambda: refuse_changed(step, decide(self.observe()), self.region))
            self._done.add((seen.counters, seen.state, step))

    def take(self, step: Step, seen: Observed, check: Callable[[], None]) -> None:
        """Take one step, which was decided from what was seen; each of them can be repeated.

        `check` raises if another step is next by now. What takes a region away calls it once its
        request names what it changes: a stack by its id, or a change set, which CloudFormation
        drops at the next change. So it never meets a region that left meanwhile and joined again.
        """
        steps: dict[Step, Callable[[], object]] = {
            Step.REPLICA: self._add_replica,
            Step.WAIT: self._wait,
            Step.COUNTERS: lambda: self._deploy(json.dumps(only_tables())),
            Step.MARK: lambda: self._write(Phase.REBUILDING, seen),
            Step.STACK: lambda: self._deploy(None),
            Step.REPAIR: lambda: make_totals(self.auditor(), self.say),
            Step.VERIFY: lambda: prove_totals(self.auditor(), self.say),
            Step.READY: lambda: self._write(Phase.READY, seen),
            Step.QUIET: lambda: watch_quiet(self._there, self.say, self.clock, self.poll_s),
            Step.DESTROY: lambda: self._destroy(check),
            Step.UNPROTECT: lambda: self._unprotect(check),
            Step.DROP: lambda: self._drop(check),
        }
        steps[step]()

    @property
    def _there(self) -> Connection:
        return self.owner.in_region(self.region)

    def _write(self, phase: Phase, seen: Observed) -> None:
        store = RegionStateStore(self._there.with_counters(str(seen.counters)))
        # Else another run stored a state meanwhile: the next step is decided from that.
        store.write(phase, seen.state)

    # ---- the owner's stack ----

    def _add_replica(self) -> None:
        given = parameters_in(self.deploy_owner.stack.describe() or {})
        regions, keys = listed(given, "ReplicaRegions"), listed(given, "RegionKmsKeyArns")
        if bool(given.get("KmsKeyArn")) != bool(self.key_arn):
            raise DeployFailed(
                "the ledger has a KMS key of yours, and a replica needs one of its own region: "
                "give it with --kms-key-arn"
                if given.get("KmsKeyArn")
                else "the ledger has no KMS key of yours, so a replica can have none either"
            )
        self._change_owner(
            {
                "ReplicaRegions": ",".join((*regions, self.region)),
                "RegionKmsKeyArns": ",".join((*keys, *filter(None, [self.key_arn]))),
            }
        )

    def _drop(self, check: Callable[[], None]) -> None:
        given = parameters_in(self.deploy_owner.stack.describe() or {})
        self._change_owner(without(given, self.region, self.owner.region), check)

    def _change_owner(
        self, parameters: Mapping[str, str], check: Callable[[], None] = lambda: None
    ) -> None:
        """Change parameters of the owner's stack, and nothing that loses data."""
        proposal = self.deploy_owner.propose_parameters(parameters)
        if proposal is None:
            return
        lost = [one.resource for one in proposal.changes if one.loses_data]
        try:
            if lost:
                raise DeployFailed(f"this would lose {', '.join(lost)}: nothing was changed")
            check()
        except CountledgerError:
            self.deploy_owner.discard(proposal)
            raise
        self._execute(self.deploy_owner, proposal)

    def _execute(self, deployment: Deployment, proposal: Proposal) -> dict[str, str]:
        self.say(
            f"stack in {deployment.stack.cloudformation.meta.region_name}: {_summary(proposal)}"
        )
        patient = replace(deployment.stack, timeout_s=self.timeout_s)
        return replace(deployment, stack=patient).execute(proposal)

    def _wait(self) -> None:
        """Wait until no stack is being changed and every replica is active."""
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            seen = self.observe()
            unsteady = [f"{n} ({s})" for n, s in seen.replicas.items() if s != "ACTIVE"]
            if not seen.busy and not unsteady:
                return
            waiting = seen.busy or ", ".join(unsteady)
            if time.monotonic() > deadline_s:
                raise DeployFailed(f"{waiting} is not steady after {self.timeout_s:.0f} s")
            self.say(f"waiting for {waiting}")
            time.sleep(self.poll_s)

    # ---- the region's stack ----

    def _deploy(self, template: str | None) -> None:
        owner = self.deploy_owner.stack.describe() or {}
        given = parameters_in(owner)
        table = table_in(self._there, self.owner.setting("ledger_table")) or {}
        code = self.code()
        strict = self.owner.outputs.get("StrictTableName", "")
        parameters = parameters_of(given, self.region, self.key_arn, strict) | {
            "HomeRegion": self.owner.setting("home_region"),
            "LedgerTableName": self.owner.setting("ledger_table"),
            "LedgerStreamArn": str(table["LatestStreamArn"]),
            **self.parameters,
        }
        proposal = self.deploy_there.propose(
            bucket=code.bucket,
            bundle=code.bundle,
            parameters=parameters,
            tags=tags_in(owner),
            template=template,
        )
        if proposal is not None:
            self._execute(self.deploy_there, proposal)

    def _destroy(self, check: Callable[[], None]) -> None:
        plan = self.destroy_there.plan()
        if plan is None:
            return
        refuse_in_use(plan, self.region)
        for table in plan.tables:
            self.say(f"table {table.name} in {self.region} stays; delete it when nobody needs it")
        check()
        self.destroy_there.delete(plan)

    def _unprotect(self, check: Callable[[], None]) -> None:
        client = self._there.dynamo("standard").client
        check()
        with translated(f"UpdateTable in {self.region}"):
            client.update_table(
                TableName=self.owner.setting("ledger_table"), DeletionProtectionEnabled=False
            )


def _summary(proposal: Proposal) -> str:
    added = sum(one.effect is Effect.ADD for one in proposal.changes)
    return f"{len(proposal.changes)} resources, {added} of them new"
