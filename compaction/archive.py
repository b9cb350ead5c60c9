"""The archive of merged entries: stored and recorded before the first of them is deleted.

A record beside the head says which generation was stored. Only the record proves it: a missing
entry proves nothing, a person may have deleted it. So it never goes back to an earlier head: a run
that read its head long ago finds the record of a later one, and replaces only what is older.

The archive in S3: one object for each generation, readable without this software.

An object holds one JSON line for each entry, `{"Item": {...}}` in DynamoDB's own notation, as a
table's export to S3 has it: other tools read it, and it can be imported into a table. The lines are
in the order of the sort keys, gzip stores no time, and the name has generation and checksum:

    s3://bucket/prefix/<counter>/<incarnation>/<generation>-<sha256 of the lines>.jsonl.gz

So storing again stores the same object under the same name. The incarnation of the head separates
the counters that used one name, each after the deletion of the one before: they have the same
generations.

The checksum is of the lines and not of the compressed bytes, because those differ from one release
of zlib to the next, and a run may be continued on another machine. How a line is written can never
change, for the same reason.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from countledger.compaction.report import Tampered
from countledger.ledger import keys
from countledger.ledger.attributes import decode, encode
from countledger.ledger.entry import decode_entry
from countledger.ledger.errors import (
    AccessDenied,
    ArchiveRefused,
    BadSetting,
    ConditionFailed,
    CorruptArchive,
    ServiceFailed,
)
from countledger.ledger.exact import ArchiveRef
from countledger.ledger.operations import Absent, AllOf, Compare, Delete, Put
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_s3 import S3Client

    from countledger.compaction.regions import Views
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.exact import Head


_LOCATION: Final = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>[\x20-\x7e]{0,512}))?"
)
_OBJECT: Final = re.compile(r"(?P<generation>[0-9]{12})-(?P<sha256>[0-9a-f]{64})\.jsonl\.gz")
# A key has 1,024 bytes: 512 of prefix, this, and 160 of checksums, incarnation and the rest.
_FOLDER_MAX: Final = 300
# The answers that are about the bucket, and not about this moment.
_REFUSALS: Final = ("NoSuchBucket:", "InvalidBucketName:", "PermanentRedirect:", "KMS.")


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """A bucket and a prefix in it, without a slash at either end; the prefix may be empty."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> ArchiveLocation:
        """The location in `s3://bucket/prefix`; BadSetting if the text has another form."""
        match = _LOCATION.fullmatch(text)
        if match is None:
            raise BadSetting(f"archive {text!r} is not a location in S3: give s3://bucket/prefix")
        return cls(match["bucket"], (match["prefix"] or "").strip("/"))

    def folder(self, counter: str, incarnation: str) -> str:
        """The beginning of the keys of all objects of one incarnation of a counter."""
        name = quote(counter, safe=":").replace("~", "%7E")
        if len(name) > _FOLDER_MAX:
            digest = hashlib.blake2b(counter.encode(), digest_size=16).hexdigest()
            name = f"{name[:_FOLDER_MAX]}~{digest}"
        own = f"{name}/{incarnation}/"
        return f"{self.prefix}/{own}" if self.prefix else own


@dataclass(frozen=True, slots=True)
class S3Archive:
    """Keeps the entries of generations in S3; the SDK may retry: the same is stored again."""

    client: S3Client
    place: ArchiveLocation

    @classmethod
    def at(cls, connection: Connection, place: str) -> S3Archive:
        """The archive at `s3://bucket/prefix`; it need not be in a schedule."""
        return cls(connection.objects(), ArchiveLocation.parse(place))

    def seal(
        self, counter: str, generation: int, incarnation: str, entries: Sequence[Item]
    ) -> ArchiveRef:
        sha256 = checksum(lines_of(entries))
        folder = self.place.folder(counter, incarnation)
        key = f"{folder}{generation:012d}-{sha256}.jsonl.gz"
        return ArchiveRef(f"s3://{self.place.bucket}/{key}", sha256)

    def store(self, counter: str, ref: ArchiveRef, entries: Sequence[Item]) -> None:
        """Store the entries that a head covers, under the name in the head: one PutObject.

        That name may be in another bucket than this archive's: a schedule may have been changed
        between two runs, and the objects of one archive belong together.

        CorruptArchive: the entries do not have the head's checksum. ArchiveRefused: the bucket does
        not exist, or refuses.
        """
        lines = lines_of(entries)
        if checksum(lines) != ref.sha256:
            raise CorruptArchive(
                f"counter {counter!r}: the entries to be archived as {ref.key!r} do not have its "
                "checksum: one was changed by hand; nothing is deleted. Write it back as it was, "
                "or archive the entries as they are: "
                "`countledger compact COUNTER --archive-as-found`"
            )
        bucket, _, key = ref.key.removeprefix("s3://").partition("/")
        body = gzip.compress(lines, mtime=0)
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        with _answers(f"PutObject to {ref.key}"):
            self.client.put_object(
                Bucket=bucket,
                Key=key,
                Body=body,
                ContentType="application/gzip",
                ChecksumSHA256=digest,
            )

    def entries(self, counter: str, incarnation: str) -> Iterator[Entry]:
        """The archived entries of a counter, the last generation first, each verified.

        Those of a deleted counter that had the name before have another incarnation. A generation
        has two objects if all entries were stored, not recorded as stored, and then archived as
        they were found; an entry in both is returned once.

        CorruptArchive: an object does not have the checksum in its name. ArchiveRefused: as of
        `store`.
        """
        names = sorted(self._keys(counter, incarnation), reverse=True)
        for _, objects in groupby(names, key=_generation_of):
            items = (item for key in objects for item in self._items(key))
            found = {item["entry"]: item for item in items}
            entries = map(decode_entry, found.values())
            yield from sorted(entries, key=lambda entry: entry.at_ms, reverse=True)

    def _keys(self, counter: str, incarnation: str) -> list[str]:
        folder = self.place.folder(counter, incarnation)
        where = f"s3://{self.place.bucket}/{folder}"
        arguments: dict[str, Any] = {"Bucket": self.place.bucket, "Prefix": folder}
        found: list[str] = []
        while True:
            with _answers(f"ListObjectsV2 of {where}"):
                answer = self.client.list_objects_v2(**arguments)
            found += [one["Key"] for one in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return [key for key in found if _OBJECT.fullmatch(key.removeprefix(folder))]
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _items(self, key: str) -> list[Item]:
        name = f"s3://{self.place.bucket}/{key}"
        with _answers(f"GetObject of {name}"):
            body = self.client.get_object(Bucket=self.place.bucket, Key=key)["Body"].read()
        try:
            lines = gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise CorruptArchive(f"{name} cannot be unpacked: {error}") from error
        match = _OBJECT.search(key)
        if match is None or checksum(lines) != match["sha256"]:
            raise CorruptArchive(f"{name} does not have the checksum in its name")
        return items_in(lines, name)


def _generation_of(key: str) -> str:
    return key.rpartition("/")[2].partition("-")[0]


@contextmanager
def _answers(what: str) -> Iterator[None]:
    """Translate errors as for every service; a bucket that refuses is a matter of its operator."""
    try:
        with translated(what):
            yield
    except AccessDenied as error:
        raise ArchiveRefused(
            f"{what}: access denied; name the bucket in the stack's parameter ArchiveBucketArn, "
            "and let its own policy admit this identity"
        ) from error
    except ServiceFailed as error:
        if not any(word in str(error) for word in _REFUSALS):
            raise
        raise ArchiveRefused(f"{error}; make the bucket, or name another one") from error


def lines_of(items: Iterable[Item]) -> bytes:
    """The lines of these items, the same in whatever order they are given."""
    ordered = sorted(items, key=lambda item: str(item["entry"]))
    return b"".join(_line(item) for item in ordered)


def checksum(lines: bytes) -> str:
    return hashlib.sha256(lines).hexdigest()


def items_in(lines: bytes, name: str) -> list[Item]:
    try:
        return [decode(_binaries(json.loads(line)["Item"])) for line in lines.splitlines()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptArchive(f"{name} has a line that is not an item: {error}") from error


def _line(item: Item) -> bytes:
    text = json.dumps(
        {"Item": _sorted(encode(item))}, sort_keys=True, separators=(",", ":"), default=_base64
    )
    return text.encode("ascii") + b"\n"


def _base64(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{value!r} is not a value of an item")


def _sorted(value: Any) -> Any:  # noqa: ANN401 - of any depth
    """The same with the members of sets in one order; a list keeps its own."""
    if isinstance(value, dict):
        return {
            name: sorted(inner)
            if name in ("SS", "NS", "BS") and isinstance(inner, list)
            else _sorted(inner)
            for name, inner in value.items()
        }
    return [_sorted(inner) for inner in value] if isinstance(value, list) else value


def _binaries(value: Any) -> Any:  # noqa: ANN401 - of any depth
    if isinstance(value, list):
        return [_binaries(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("B"), str) and len(value) == 1:
        return {"B": base64.b64decode(value["B"], validate=True)}
    if isinstance(value.get("BS"), list) and len(value) == 1:
        return {"BS": [base64.b64decode(one, validate=True) for one in value["BS"]]}
    return {name: _binaries(inner) for name, inner in value.items()}


# How many of the missing entries an error names.
_NAMED: Final = 5


class Archive(Protocol):
    """Stores the entries of a generation before they are deleted.

    The same entries always give the same bytes, in whatever order they are given: a run that
    continues after a crash stores them again under the name in the head.
    """

    def seal(
        self, counter: str, generation: int, incarnation: str, entries: Sequence[Item]
    ) -> ArchiveRef:
        """Name and checksum of what `store` will store; nothing is stored yet."""

    def store(self, counter: str, ref: ArchiveRef, entries: Sequence[Item]) -> None:
        """Store the entries that a head covers, under the name that `seal` gave them.

        Called after the head was published and before any of them is deleted; perhaps repeatedly.
        After any error nothing is deleted, and the sums stay right.
        """


@dataclass(frozen=True, slots=True)
class GenerationArchiver:
    """Archives the generations of one counter in one run; without an archive, nowhere."""

    archive: Archive | None
    as_found: bool
    views: Views
    counter: str

    def recorded(self) -> Item | None:
        """The record of the last archived generation: a read unit."""
        key, table = keys.archived_key(self.counter), self.views.regions.table
        return self.views.home.get(table, key, consistent=True)

    def owes(self, head: Head, record: Item | None) -> bool:
        return not is_archived(head, record)

    def keep(self, head: Head, items: Sequence[Item], record: Item | None) -> bool:
        """Store the entries that a head covers, and record it: one PutObject, one write unit.

        False if another run has replaced the head. The record that was read is replaced, if it is
        of no later head. Tampered: entries were deleted before a record said that they are
        archived. BadSetting: this run has no archive.
        """
        missing = head.covers.keys() - {item["entry"] for item in items}
        if missing or not is_before(head, record):
            now = self.views.head(self.counter)
            if (now.generation, now.run) != (head.generation, head.run):
                return False
        if missing:
            self._refuse_missing(head, sorted(missing))
        ref = head.archive
        if self.archive is None or ref is None:
            raise BadSetting(
                f"counter {self.counter!r}: generation {head.generation} must be archived as "
                f"{ref.key if ref else None!r} before its entries are deleted: run with that "
                "archive"
            )
        if self.as_found:
            ref = self.archive.seal(self.counter, head.generation, head.incarnation, items)
        self.archive.store(self.counter, ref, items)
        return self._record(head, ref.key, record)

    def _refuse_missing(self, head: Head, missing: list[str]) -> None:
        if self.as_found or head.archive is None:
            return
        raise Tampered(
            f"counter {self.counter!r}: {len(missing)} of the {len(head.covers)} entries of "
            f"generation {head.generation} were deleted by hand before they were archived as "
            f"{head.archive.key!r}: {', '.join(missing[:_NAMED])}; nothing more is deleted. Write "
            "them back as they were, or archive the others alone: "
            "`countledger compact COUNTER --archive-as-found`"
        )

    def _record(self, head: Head, name: str, seen: Item | None) -> bool:
        table = self.views.regions.table
        try:
            self.views.home.put(archived_of(table, self.counter, head, name, seen))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            return is_archived(head, failed.item)
        return True


def archived_of(table: str, counter: str, head: Head, name: str, seen: Item | None) -> Put:
    """The record that the entries which a head covers are archived: one write unit.

    It replaces the record that was seen. A late request finds another one, and never replaces the
    record of a later head, of any incarnation.
    """
    item = {
        **keys.archived_key(counter),
        "generation": head.generation,
        "run": head.run,
        "incarnation": head.incarnation,
        "name": name,
    }
    if seen is None:
        return Put(table, item, Absent("entry"))
    same = (Compare(name, "=", seen.get(name)) for name in ("generation", "run"))
    return Put(table, item, AllOf(*same))


def unarchived_of(table: str, counter: str, incarnation: str) -> Delete:
    """Delete that record with its counter: one write unit.

    `incarnation` is of the head that was emptied; a record of another one belongs to a counter that
    uses the name again.
    """
    same = Compare("incarnation", "=", incarnation)
    return Delete(table, keys.archived_key(counter), same)


def is_before(head: Head, record: Item | None) -> bool:
    """Whether the record is certainly of an earlier head; if not, read the head again."""
    if record is None:
        return True
    return (
        record.get("incarnation") == head.incarnation
        and record.get("generation", head.generation) < head.generation
    )


def is_archived(head: Head, record: Item | None) -> bool:
    """Whether the record says that the entries which this head covers are archived."""
    recorded = (record or {}).get("generation"), (record or {}).get("run")
    return recorded == (head.generation, head.run)
