"""The regions' copies of a local stack's ledger, and the versions that travel between them.

The engine compares and writes in one step (`engine_replicas.py`).
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from countledger.infra.local.engine import ROOT_KEY, ROOT_SECRET
from countledger.infra.local.engine_guard import SECRET_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Key: TypeAlias = tuple[str, str]

# As `engine_replicas.py` marks them, which is never imported here.
REPLICATED: Final = "replicated-"
_SEQUENCE_DIGITS: Final = 10
_PAGE_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Version:
    """An item as one write left it; no image where the write deleted it.

    Attributes:
        written: milliseconds, region and number of the write; later ones win.
        key: the item's key.
        image: the item, as the service's JSON has it.
    """

    written: tuple[int, str, int]
    key: Key
    image: dict[str, Any] | None

    @property
    def document(self) -> dict[str, Any]:
        """It as the engine takes it."""
        key = {"counter": {"S": self.key[0]}, "entry": {"S": self.key[1]}}
        return {"Key": key, "Image": self.image, "Write": list(self.written)}


@dataclass
class Copy:
    """The table of one region, over the engine's own protocol: plain JSON, no SDK in between.

    Attributes:
        region: its name.
        url: of the engine.
        table: the table's name, the same everywhere.
        stream_arn: of its stream.
    """

    region: str
    url: str
    table: str
    stream_arn: str
    _iterator: str | None = None
    _last: str | None = None
    _connection: http.client.HTTPConnection | None = None

    def news(self) -> list[dict[str, Any]]:
        """The next stream records, up to a thousand; none if there is nothing new."""
        page = self._page()
        records: list[dict[str, Any]] = page["Records"]
        self._iterator = page.get("NextShardIterator")
        if records:
            self._last = records[-1]["dynamodb"]["SequenceNumber"]
        return records

    def everything(self) -> Iterator[dict[str, Any]]:
        """All records that the stream holds, whatever was read before."""
        again = Copy(self.region, self.url, self.table, self.stream_arn)
        try:
            while records := again.news():
                yield from records
        finally:
            again.close()

    def close(self) -> None:
        """Close the connection to the engine; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def arrive(self, versions: Iterable[Version]) -> None:
        """Write each version that is newer than what the region has."""
        documents = [one.document for one in versions]
        self._call(
            "DynamoDB_20120810.ReplicateItems", {"TableName": self.table, "Writes": documents}
        )

    def _page(self) -> dict[str, Any]:
        if self._iterator is not None:
            try:
                return self._records()
            except EngineRefused:
                # An iterator lives for some minutes, and this machine may have slept.
                self._iterator = None
        shard_id = self._stream("DescribeStream", {"StreamArn": self.stream_arn})[
            "StreamDescription"
        ]["Shards"][0]["ShardId"]
        start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if self._last is not None:
            start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self._last}
        asked = {"StreamArn": self.stream_arn, "ShardId": shard_id, **start}
        self._iterator = self._stream("GetShardIterator", asked)["ShardIterator"]
        return self._records()

    def _records(self) -> dict[str, Any]:
        return self._stream("GetRecords", {"ShardIterator": self._iterator, "Limit": _PAGE_RECORDS})

    def _stream(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call(f"DynamoDBStreams_20120810.{operation}", body)

    def _call(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        scope = f"Credential={ROOT_KEY}/20200101/{self.region}/dynamodb/aws4_request"
        headers = {
            "Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0",
            "Content-Type": "application/x-amz-json-1.0",
            SECRET_HEADER: ROOT_SECRET,
            "X-Amz-Target": target,
        }
        if self._connection is None:
            place = urlsplit(self.url)
            self._connection = http.client.HTTPConnection(str(place.hostname), place.port or 80)
        try:
            self._connection.request("POST", "/", json.dumps(body), headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if answer.status != http.client.OK:
            raise EngineRefused(f"{target} in {self.region}: {text.decode()}")
        found: dict[str, Any] = json.loads(text)
        return found


class EngineRefused(OSError):
    """The engine refused a request of the replicator; the message has its answer."""


def version_of(record: Mapping[str, Any], region: str) -> Version | None:
    """The version in a stream record; None if the write came from another region itself."""
    if record["eventID"].startswith(REPLICATED):
        return None
    change = record["dynamodb"]
    sequence, key = change["SequenceNumber"], change["Keys"]
    written = int(sequence[:-_SEQUENCE_DIGITS]), region, int(sequence[-_SEQUENCE_DIGITS:])
    place = key["counter"]["S"], key["entry"]["S"]
    return Version(written, place, change.get("NewImage"))
