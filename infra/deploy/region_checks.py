"""What is seen, made and checked of regions: replicas, totals, that nobody records any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from countledger.compaction.lease import decode_shown
from countledger.consumers.record import LedgerStream, counts, made_at_ms
from countledger.consumers.region_state import RegionState, RegionStateStore
from countledger.consumers.totals import TotalsReader
from countledger.consumers.verify import Judgement
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.ledger import keys
from countledger.ledger.errors import Refused, TableNotFound
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import AllOf, AnyOf, BeginsWith, Compare, Query, Scan
from countledger.ledger.tombstones import NOT_REMOVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.consumers.audit import Auditor
    from countledger.infra.deploy.destruction import DestroyPlan
    from countledger.infra.deploy.region_change import Step
    from countledger.ledger.clock import Clock
    from countledger.ledger.connection import Connection


# So often totals that were busy are repaired and verified.
_ROUNDS: Final = 5
_NAMED: Final = 3
_STAYING_KINDS: Final = (Kind.STRICT, Kind.SEQUENCE)
_STAYING_ITEMS: Final = {
    keys.CLAIM_PREFIX: "unique claims",
    keys.QUOTA_PREFIX: "quotas",
}


class StillRecorded(Refused):
    """Somebody still records entries in the region that is to be removed."""


class NotVerified(DeployFailed):
    """A total of the new region could not be proven."""


def refuse_in_use(plan: DestroyPlan, region: str) -> None:
    """Refuse to delete a stack that is protected, or whose policies somebody has."""
    if plan.protected:
        raise DeployFailed(f"the stack in {region} has termination protection: lift it")
    if plan.attachments:
        held = ", ".join(f"{one.policy} by {one.kind} {one.entity}" for one in plan.attachments)
        raise DeployFailed(
            f"policies of the stack in {region} are in use: {held}; detach them there, which also "
            "stops who records, then run this again"
        )


def refuse_changed(step: Step, now: Step | None, region: str) -> None:
    """Refuse a step that is not next any more."""
    if now is not step:
        raise DeployFailed(
            f"another run has changed {region} meanwhile: this step was not taken; see "
            "`countledger region list`, and run this again if the region is still to be removed"
        )


def replicas_of(connection: Connection) -> dict[str, str]:
    """The regions that have the ledger, with the status of each replica; this one first."""
    described = connection.dynamo("standard").describe(connection.setting("ledger_table"))
    found = {connection.region: str(described.get("TableStatus", "ACTIVE"))}
    listed = described.get("Replicas", [])
    for one in sorted(listed, key=lambda one: one["RegionName"]):
        found.setdefault(one["RegionName"], one.get("ReplicaStatus", "ACTIVE"))
    return found


def state_in(connection: Connection, counters: str) -> RegionState:
    """The state of a region, by its table of totals; that of none if the table is gone."""
    try:
        return RegionStateStore(connection.with_counters(counters)).read()
    except TableNotFound:
        return RegionState()


def table_in(connection: Connection, table: str) -> Mapping[str, Any] | None:
    try:
        return connection.dynamo("standard").describe(table)
    except TableNotFound:
        return None


def home_by_epoch(connection: Connection, table: str) -> str:
    """The home region that a region's copy of the ledger names; empty: none was promoted."""
    query = Query(table, Compare("counter", "=", keys.REGION_HOME), consistent=True)
    pages = connection.dynamo("standard").pages(query)
    epoch = decode_shown(item for page in pages for item in page).epoch
    return "" if epoch is None else epoch.home


def make_totals(auditor: Auditor, say: Callable[[str], None]) -> None:
    """Make the totals of a region from its ledger: scans both tables, a write for each total."""
    number = sum(1 for _ in auditor.repair_all())
    say(f"{number} counters were compared with the ledger and repaired")


def prove_totals(auditor: Auditor, say: Callable[[str], None]) -> None:
    """Verify every total of a region; what was busy is repaired, and all verified again."""
    found: list[str] = []
    for number in range(_ROUNDS):
        if number:
            say(f"{len(found)} totals are not proven exact: round {number + 1} of {_ROUNDS}")
            make_totals(auditor, say)
        found = [
            f"{one.counter} ({one.verdict})"
            for one in auditor.verify_all()
            if one.verdict is not Judgement.EXACT
        ]
        if not found:
            return
    raise NotVerified(
        f"{len(found)} totals in {auditor.connection.region} are not proven exact, as "
        f"{', '.join(found[:_NAMED])}: the region stays rebuilding; `countledger verify` there "
        "shows the reasons; then run this again"
    )


def staying_in(connection: Connection) -> list[str]:
    """What a region has that does not move when another one becomes home, for people.

    Reads the whole table `counters`, half a read unit for each 4 KB: claims have no index.
    """
    kinds: dict[str, list[str]] = {str(one): [] for one in _STAYING_KINDS}
    for namespace in Namespaces(connection).list():
        if namespace.kind in _STAYING_KINDS:
            kinds[str(namespace.kind)].append(namespace.name)
    found = [
        f"namespaces of kind {kind}: {', '.join(names[:_NAMED])}"
        for kind, names in kinds.items()
        if names
    ]
    missing = dict(_STAYING_ITEMS)
    there = AnyOf(*(BeginsWith("counter", prefix) for prefix in missing))
    where = AllOf(there, NOT_REMOVED)
    for page in connection.dynamo("standard").pages(
        Scan(connection.setting("counters_table"), where, ("counter",))
    ):
        for item in page:
            prefix = next((one for one in missing if str(item["counter"]).startswith(one)), None)
            if prefix is not None:
                found.append(missing.pop(prefix))
        if not missing:
            break
    return found


def watch_quiet(
    connection: Connection, say: Callable[[str], None], clock: Clock, poll_s: float
) -> None:
    """Watch a region for the replication bound: nobody may record there meanwhile.

    An entry names the region where it was made, so replicated ones do not count. After that time
    every entry that was made there is in the other regions. It reads the stream from where the
    materializer is; one read unit for each shard.
    """
    bound_ms = connection.settings.replication_bound_ms
    stream = LedgerStream(connection)
    opened = TotalsReader(connection).progress(str(one.shard) for one in stream.shards())
    positions = {name: one.sequence for name, one in opened.items()}
    begun_ms = clock.now_ms()
    say(f"nobody may record in {connection.region} for {bound_ms // SECOND_MS} s")
    while True:
        ended = clock.now_ms() - begun_ms >= bound_ms
        for counter, made_ms in _recorded(stream, connection.region, positions):
            # The stream's times are whole seconds.
            if made_ms >= begun_ms - SECOND_MS:
                raise StillRecorded(
                    f"counter {counter!r} was recorded in {connection.region} while this watched: "
                    "stop who records there, then run it again"
                )
        if ended:
            return
        clock.sleep_ms(min(poll_s * SECOND_MS, bound_ms))


def _recorded(
    stream: LedgerStream, region: str, positions: dict[str, str]
) -> Iterator[tuple[str, float]]:
    """The entries made in the region that the stream shows after the positions, which move."""
    for one in stream.shards():
        name = str(one.shard)
        for record in stream.after(one.shard, positions.get(name)):
            positions[name] = record["dynamodb"]["SequenceNumber"]
            image = record["dynamodb"].get("NewImage", {})
            if counts(record) and image.get("origin", {}).get("S") == region:
                yield image["counter"]["S"], made_at_ms(record)
