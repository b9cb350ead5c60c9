"""Adding and removing a region: which step comes next, decided from what is observed. Pure.

Nothing of a run is stored, except the state of the new region. So a run that failed, or was
interrupted, after any step is continued by another one: it observes, and decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from countledger.consumers.over_regions import Phase, RegionState
from countledger.ledger.errors import BadInput, WrongRegion

if TYPE_CHECKING:
    from collections.abc import Mapping

REPLICAS_MAX: Final = 4
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
        region: the region to add or remove.
        owner: the region of the stack that owns the ledger.
        home: the home region that the owner's stack names.
        epoch_home: the home region that the ledger names.
        listed: the regions that the owner's stack names as replicas.
        replicas: the other regions of the table, each with the status of its replica.
        table_there: whether the region has a table of the ledger's name.
        protected: whether its deletion protection is on.
        busy: the stack that is being changed now, and its status; empty: none is.
        counters: the region's table of totals; None: its stack has none yet, or there is no stack.
        stack: whether the region has a stack.
        complete: whether that stack has its functions.
        state: the stored state of the region; without a time where none is stored.
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
    """The step that brings a region nearer to ready; None: it is ready.

    Raises:
        BadInput: somebody has to act first.
    """
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
    """The step that brings a region nearer to being gone; None: it is.

    Raises:
        WrongRegion: it owns the ledger, or is the home region.
        BadInput: somebody has to act first.
    """
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
    """The step that takes a lost region out of the table; None: it is no replica any more.

    Raises:
        WrongRegion: it owns the ledger.
    """
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
    """A parameter that is a list, as one."""
    return tuple(one.strip() for one in parameters.get(name, "").split(",") if one.strip())


def parameters_of(
    owner: Mapping[str, str], region: str, key_arn: str | None, strict_table: str
) -> dict[str, str]:
    """What a new region's stack takes from the parameters of the owner's, and its keys.

    Args:
        owner: the parameters of the stack that owns the ledger.
        region: the new region.
        key_arn: the KMS key of the new region; None: it has none.
        strict_table: the table of strict counters over regions; empty: the owner has none.
    """
    keys = (owner.get("KmsKeyArn", ""), *listed(owner, "RegionKmsKeyArns"))
    return {
        **{name: value for name, value in owner.items() if name not in _ITS_OWN},
        "KmsKeyArn": key_arn or "",
        "RegionKmsKeyArns": ",".join(one for one in keys if one and one != key_arn),
        # The table has a replica only in the regions that it was made with.
        "StrictTableName": strict_table if region in listed(owner, "StrictRegions") else "",
    }
