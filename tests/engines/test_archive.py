"""The archive: merging costs nobody their audit trail."""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from uuid import uuid4

import pytest

from countledger.compaction.archive import ArchiveLocation, S3Archive
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.entry import Entry
from countledger.ledger.errors import ArchiveRefused, CorruptArchive
from countledger.ledger.exact import decode_head, newest_first
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines import in_memory
from tests.engines.compacting import compactor, fill
from tests.engines.store import Store
from tests.faults.injection import Fault, Kind, faults

COUNT = 12


@pytest.fixture
def store(store: Store) -> Store:
    """The store, where there is an S3."""
    if store.engine.name not in {in_memory.NAME, "ministack"}:
        pytest.skip("this engine has no S3 beside its tables")
    return store


@pytest.fixture
def archive(store: Store) -> S3Archive:
    """A bucket of this test alone."""
    bucket = f"archive-{uuid4().hex[:12]}"
    client = store.connection.objects()
    client.create_bucket(Bucket=bucket)
    return S3Archive(client, ArchiveLocation.parse(f"s3://{bucket}/some/where/"))


def _entries(store: Store, archive: S3Archive, counter: str) -> Iterator[Entry]:
    """What is archived of the counter that uses the name now."""
    head = decode_head(store.item(store.ledger, keys.head_key(counter)))
    return archive.entries(counter, head.incarnation)


def _objects(archive: S3Archive) -> dict[str, bytes]:
    client, bucket = archive.client, archive.place.bucket
    found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {
        one["Key"]: client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found
    }


def test_what_is_merged_can_be_read_back(store: Store, counter: str, archive: S3Archive) -> None:
    """Every entry as it was, with key, note and exact amount."""
    recorder = store.recorder()
    for n in range(COUNT):
        delta = Decimal(f"{n}.5")
        recorder.record(Event(counter, delta, f"key {n}", note={"SS": "ü", "B": "x"}))
    namespace = store.namespaces().get(counter.partition(":")[0])
    before = list(newest_first(store.dynamo(), store.ledger, counter, namespace.spread))

    report = compactor(store, archive=archive).compact(counter)

    assert (report.outcome, report.merged) == (RunOutcome.MERGED, COUNT)
    found = list(_entries(store, archive, counter))
    assert sorted(found, key=repr) == sorted(before, key=repr)
    assert store.entry_items(counter) == []
    objects = _objects(archive)
    assert len(objects) == 3
    for key, content in objects.items():
        assert key.startswith(f"some/where/{counter}/")
        assert key.rpartition("/")[2].startswith("00000000000")
        lines = [json.loads(line) for line in gzip.decompress(content).splitlines()]
        assert all(line["Item"]["counter"] == {"S": counter} for line in lines)
        assert content[4:8] == b"\0\0\0\0"


def test_an_archive_that_refuses_stops_the_retire_and_not_the_counts(
    store: Store, counter: str, archive: S3Archive
) -> None:
    fill(store, counter, COUNT)
    missing = f"missing-{uuid4().hex[:12]}"
    gone = S3Archive(archive.client, ArchiveLocation(missing, ""))

    report = compactor(store, archive=gone).compact(counter)
    again = compactor(store, archive=gone).compact(counter)

    for one in (report, again):
        assert one.outcome is RunOutcome.FAILED
        assert isinstance(one.error, ArchiveRefused)
        assert missing in one.detail
    assert len(store.entry_items(counter)) == COUNT
    assert store.exact().read(counter).value == COUNT * (COUNT + 1) // 2

    # The name was published: it is made good where it was promised.
    archive.client.create_bucket(Bucket=missing)
    assert compactor(store, archive=archive).compact(counter).outcome is RunOutcome.MERGED
    assert len(list(_entries(store, gone, counter))) == 5
    assert len(list(_entries(store, archive, counter))) == COUNT - 5


def test_without_its_archive_a_promised_generation_is_not_deleted(
    store: Store, counter: str, archive: S3Archive
) -> None:
    fill(store, counter, COUNT)
    client = archive.client
    with faults(client, at="PutObject", plan=[Fault(Kind.REJECT)]):
        assert compactor(store, archive=archive).compact(counter).outcome is RunOutcome.FAILED

    assert compactor(store).compact(counter).outcome is RunOutcome.FAILED

    assert len(store.entry_items(counter)) == COUNT
    assert compactor(store, archive=archive).compact(counter).outcome is RunOutcome.MERGED
    assert len(list(_entries(store, archive, counter))) == COUNT


def test_an_entry_changed_by_hand_is_never_archived_as_another(
    store: Store, counter: str, archive: S3Archive
) -> None:
    """What was sealed is what was summed; the note counts as well."""
    fill(store, counter, 3)
    with faults(archive.client, at="PutObject", plan=[Fault(Kind.REJECT)]):
        compactor(store, archive=archive).compact(counter)
    item = store.entry_items(counter)[0]
    store.dynamo().put(Put(store.ledger, {**item, "note": {"by": "hand"}}))

    report = compactor(store, archive=archive).compact(counter)

    assert report.outcome is RunOutcome.FAILED
    assert isinstance(report.error, CorruptArchive)
    assert len(store.entry_items(counter)) == 3
    assert store.exact().read(counter).value == 6


@pytest.mark.parametrize(
    "corrupt",
    [b"", b"nonsense", gzip.compress(b'{"Item": {}}\n')],
    ids=["empty", "no gzip", "other lines"],
)
def test_a_corrupt_object_is_told(
    store: Store, counter: str, archive: S3Archive, corrupt: bytes
) -> None:
    """Its name says what it must hold."""
    fill(store, counter, 3)
    compactor(store, archive=archive).compact(counter)
    ((key, _),) = _objects(archive).items()
    archive.client.put_object(Bucket=archive.place.bucket, Key=key, Body=corrupt)

    with pytest.raises(CorruptArchive, match="some/where"):
        list(_entries(store, archive, counter))


def test_counters_do_not_see_each_others_archive(
    store: Store, namespace: str, archive: S3Archive
) -> None:
    names = [f"{namespace}:{rest}" for rest in ("a", "a/b", "a~", "é" * 250, "é" * 249 + "x")]
    for number, name in enumerate(names):
        fill(store, name, number + 1)
        compactor(store, archive=archive).compact(name)

    found = [len(list(_entries(store, archive, name))) for name in names]

    assert found == [1, 2, 3, 4, 5]
    assert all(len(key.encode()) <= 1_024 for key in _objects(archive))
