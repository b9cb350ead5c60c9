"""Replicas of global tables, with replication in the hands of the replicator.

Imported by the engine's process alone; it imports nothing of countledger.
MiniStack 1.5.33 makes no replicas of a template's table, and writes into every replica at once. On
AWS a write arrives later in the other regions, in any order, and the last writer wins. So here:
the template's replicas are made, a write stays in its region, each item remembers which write it
shows, and the call `ReplicateItems` brings the writes of another region. A table of multi-region
strong consistency keeps MiniStack's way.
"""

import copy
import json
from typing import Any, Final

from ministack.core.responses import get_region
from ministack.services import dynamodb
from ministack.services.cloudformation import provisioners

# Marks a stream record of a write that came from another region.
REPLICATED: Final = "replicated-"
_TARGET: Final = ".ReplicateItems"
_NEWEST: Final = "countledger newest writes"
_STRONG: Final = "STRONG"


def patch_replicas_are_made() -> None:
    """The replicas of a global table of a template are made, changed and deleted with it."""
    handlers = provisioners._RESOURCE_HANDLERS["AWS::DynamoDB::GlobalTable"]  # noqa: SLF001 - it has no seam
    create, update, delete = handlers["create"], handlers["update"], handlers["delete"]

    def created(logical_id: str, properties: dict[str, Any], stack: str) -> Any:  # noqa: ANN401 - its own
        made = create(logical_id, properties, stack)
        _have_replicas(made[0], properties)
        return made

    def updated(name: str, old: dict[str, Any], new: dict[str, Any], *rest: Any) -> Any:  # noqa: ANN401 - its own
        # Without a name of its own MiniStack derives another one from the table's, and replaces it.
        named = {"TableName": name}
        made = update(name, {**old, **named}, {**new, **named}, *rest)
        _have_replicas(made[0], new)
        return made

    def deleted(name: str, properties: dict[str, Any]) -> Any:  # noqa: ANN401 - its own
        _have_replicas(name, {})
        return delete(name, properties)

    handlers.update(create=created, update=updated, delete=deleted)


def _have_replicas(name: str, properties: dict[str, Any]) -> None:
    """Make the replicas that a table should have, and delete the others."""
    table = dynamodb._tables.get(name)  # noqa: SLF001 - as above
    if table is None:
        return
    consistency = properties.get("MultiRegionConsistency")
    if consistency:
        table["MultiRegionConsistency"] = consistency
    wanted = {one["Region"] for one in properties.get("Replicas") or ()} - {get_region()}
    there = set(dynamodb._replica_group(table)) - {get_region()}  # noqa: SLF001 - as above
    updates = [{"Create": {"RegionName": region}} for region in sorted(wanted - there)]
    updates += [{"Delete": {"RegionName": region}} for region in sorted(there - wanted)]
    if updates:
        refused = dynamodb._apply_replica_updates(name, table, updates)  # noqa: SLF001 - as above
        if refused:
            raise ValueError(str(refused[2]))


def patch_consistency_is_described() -> None:
    """A description of a table says which consistency its replicas have."""
    plain = dynamodb._table_description  # noqa: SLF001 - as above

    def description(name: str, *rest: Any) -> Any:  # noqa: ANN401 - its own
        found = plain(name, *rest)
        known = dynamodb._tables[name].get("MultiRegionConsistency")  # noqa: SLF001 - as above
        return {**found, "MultiRegionConsistency": known} if known else found

    dynamodb._table_description = description  # noqa: SLF001 - as above


def patch_writes_stay_in_their_region() -> None:
    """A write goes into no other region at once, unless the table is strongly consistent."""
    plain = dynamodb._replicate_write  # noqa: SLF001 - as above

    def replicate(table: dict[str, Any], *rest: Any) -> None:  # noqa: ANN401 - its own
        if table.get("MultiRegionConsistency") == _STRONG:
            plain(table, *rest)

    dynamodb._replicate_write = replicate  # noqa: SLF001 - as above


def patch_items_know_their_write() -> None:
    """Each item remembers the write that it shows, or that deleted it: `[ms, region, number]`."""
    plain = dynamodb._build_change_record  # noqa: SLF001 - as above

    def record_of(table: dict[str, Any], *rest: Any) -> dict[str, Any]:  # noqa: ANN401 - its own
        record: dict[str, Any] = plain(table, *rest)
        change = record["dynamodb"]
        sequence = change["SequenceNumber"]
        write = [int(sequence[:-10]), get_region(), int(sequence[-10:])]
        table.setdefault(_NEWEST, {})[_place(table, change["Keys"])] = write
        return record

    dynamodb._build_change_record = record_of  # noqa: SLF001 - as above


def _place(table: dict[str, Any], key: dict[str, Any]) -> tuple[str, str]:
    extract = dynamodb._extract_key_val  # noqa: SLF001 - as above
    sort = table["sk_name"]
    return extract(key[table["pk_name"]]), extract(key[sort]) if sort else "__no_sort__"


def patch_replicate_items() -> None:
    """A call of our own, `ReplicateItems`, writes what another region wrote; last writer wins."""
    plain = dynamodb.handle_request

    async def handle(method: str, path: str, headers: dict[str, str], *rest: Any) -> Any:  # noqa: ANN401 - its own
        if not headers.get("x-amz-target", "").endswith(_TARGET):
            return await plain(method, path, headers, *rest)
        asked = json.loads(rest[0])
        applied = sum(_arrive(asked["TableName"], one) for one in asked["Writes"])
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps({"Applied": applied})

    dynamodb.handle_request = handle


def _arrive(name: str, one: dict[str, Any]) -> bool:
    """Write it unless the item shows a later write; whether it was written."""
    table = dynamodb._tables.get(name)  # noqa: SLF001 - as above
    if table is None:
        return False
    place, image = _place(table, one["Key"]), one.get("Image")
    newest = table.setdefault(_NEWEST, {})
    if newest.get(place, []) >= one["Write"]:
        return False
    before = table["items"].get(place[0], {}).get(place[1])
    if image is None:
        dynamodb._remove_item(table, *place)  # noqa: SLF001 - as above
    else:
        dynamodb._set_item(table, *place, image)  # noqa: SLF001 - as above
    if before is not None or image is not None:
        kind = "REMOVE" if image is None else "MODIFY" if before is not None else "INSERT"
        last = _last_record(name)
        dynamodb._emit_stream_event(name, kind, before, copy.deepcopy(image), replicate=False)  # noqa: SLF001 - as above
        record = _last_record(name)
        if record is not None and record is not last:
            record["eventID"] = REPLICATED + record["eventID"]
    # The record has put down a write of now.
    newest[place] = one["Write"]
    return True


def _last_record(name: str) -> dict[str, Any] | None:
    records = dynamodb._stream_records.get(name)  # noqa: SLF001 - as above
    return records[-1] if records else None


REPLICA_PATCHES: Final = (
    patch_replicas_are_made,
    patch_consistency_is_described,
    patch_writes_stay_in_their_region,
    patch_items_know_their_write,
    patch_replicate_items,
)
