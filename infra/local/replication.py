"""Replication between the regions of a local stack: what a global table does, with its faults.

Every write of a region becomes a version of its item. Each version travels to each other region on
its own: late, before or after others, or not at all while the way is cut. Versions of one item that
travel at the same time may be merged, so that a region never sees those in between. A version that
arrives after a newer one has no effect: the last writer wins, deletions included, and of two
writes of the same millisecond that of the region whose name is later in the alphabet. (AWS
documents no rule for equal times.)
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from countledger.infra.local.engine import ROOT_KEY, ROOT_SECRET
from countledger.infra.local.following import SECRET_HEADER
from countledger.infra.local.pump import FIRST_PAUSE_S, next_pause_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


# The regions' copies of a local stack's ledger, and the versions that travel between them.
#
# The engine compares and writes in one step (`engine_patches.py`).


Key: TypeAlias = tuple[str, str]

# As `engine_patches.py` marks them, which is never imported here.
REPLICATED: Final = "replicated-"
_SEQUENCE_DIGITS: Final = 10
_PAGE_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Version:
    """An item as one write left it; no image where the write deleted it.

    `written` is milliseconds, region and number of the write; later ones win.
    """

    written: tuple[int, str, int]
    key: Key
    image: dict[str, Any] | None

    @property
    def document(self) -> dict[str, Any]:
        key = {"counter": {"S": self.key[0]}, "entry": {"S": self.key[1]}}
        return {"Key": key, "Image": self.image, "Write": list(self.written)}


@dataclass
class Copy:
    """The table of one region, over the engine's own protocol: plain JSON, no SDK in between."""

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


Way: TypeAlias = tuple[str, str]

_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 500
# How much of what may arrive does so in a round, and how often versions of an item are merged.
_ARRIVES: Final = 0.5
_IS_MERGED: Final = 0.3


@dataclass
class Replicator:
    """Carries versions between regions, step by step, or in the background: `start`.

    Attributes:
        under_way: for each way the versions that have not arrived.
        read_cut: says in the background which ways are cut, if another process decides that.
    """

    copies: dict[str, Copy]
    random: Random = field(default_factory=Random)
    cut: set[Way] = field(default_factory=set)
    under_way: dict[Way, list[Version]] = field(default_factory=lambda: defaultdict(list))
    on_records: Callable[[str, list[dict[str, Any]]], None] = lambda _region, _records: None
    read_cut: Callable[[], set[Way]] | None = None
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    # ---- driven ----

    def note(self, region: str) -> None:
        """Take up what was written in a region since the last time."""
        while records := self.copies[region].news():
            versions = [version for one in records if (version := version_of(one, region))]
            for other in self.copies:
                if other != region:
                    self.under_way[region, other] += versions
            self.on_records(region, records)

    def step(self) -> bool:
        """Let one version arrive somewhere; whether there was one."""
        ways = self._open()
        if not ways:
            return False
        way = self.random.choice(sorted(ways))
        waiting = self.under_way[way]
        version = waiting.pop(self.random.randrange(len(waiting)))
        if self.random.random() < _IS_MERGED:
            version = _merged(waiting, version)
        self._arrive(way[1], [version])
        return True

    def catch_up(self) -> None:
        """Let everything arrive that a way is open for."""
        while self.step():
            pass

    @property
    def settled(self) -> bool:
        return not any(self.under_way.values())

    def cut_off(self, region: str, *, one_way: bool = False) -> None:
        """Cut a region off from all others; one way: only what is written there stays there."""
        with self._one_at_a_time:
            self.cut |= ways_of(region, self.copies, one_way=one_way)

    def heal(self, region: str | None = None) -> None:
        """Open the ways from and to a region, or all."""
        with self._one_at_a_time:
            self.cut = {way for way in self.cut if region is not None and region not in way}

    def join(self, copy: Copy) -> None:
        """Another region: everything that the others' streams hold travels there."""
        with self._one_at_a_time:
            for region, other in self.copies.items():
                found = (version_of(one, region) for one in other.everything())
                self.under_way[region, copy.region] += [one for one in found if one]
            self.copies[copy.region] = copy

    def leave(self, region: str) -> None:
        """A region is no replica any more: nothing goes there, nothing comes from there."""
        with self._one_at_a_time:
            self.copies.pop(region).close()
            for way in [way for way in self.under_way if region in way]:
                del self.under_way[way]

    # ---- running ----

    def start(self) -> None:
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="replicator", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the replication in the background, after the round that is under way."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping.set()
            thread.join()
        for copy in self.copies.values():
            copy.close()

    def drain(self) -> None:
        """Return once everything has arrived that was written so far and has an open way."""
        with self._one_at_a_time:
            self._note_all()
            self._follow_cut()
            while self._open():
                self._round(arrives=1.0)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.wait(pause_s):
            try:
                with self._one_at_a_time:
                    self._note_all()
                    # After the notes: what was written once a way was cut does not pass it.
                    self._follow_cut()
                    pause_s = next_pause_s(pause_s, idle=not self._open())
                    self._round(_ARRIVES)
            except (OSError, http.client.HTTPException):
                # The engine may be on its way down; what has not arrived stays under way.
                _LOG.warning("the replicator could not read or write", exc_info=True)

    def _follow_cut(self) -> None:
        if self.read_cut is not None:
            self.cut = self.read_cut()

    def _note_all(self) -> None:
        for region in list(self.copies):
            self.note(region)

    def _round(self, arrives: float) -> None:
        """Let some of the versions arrive that may, in any order."""
        for way in self._open():
            waiting = self.under_way[way]
            self.random.shuffle(waiting)
            chosen = max(1, round(len(waiting) * arrives))
            moving, rest = waiting[:chosen], waiting[chosen:]
            newest = newest_of(moving) if self.random.random() < _IS_MERGED else moving
            for at in range(0, len(newest), _AT_ONCE):
                self._arrive(way[1], newest[at : at + _AT_ONCE])
            self.under_way[way] = rest

    def _open(self) -> list[Way]:
        return [way for way, waiting in self.under_way.items() if waiting and way not in self.cut]

    def _arrive(self, region: str, versions: list[Version]) -> None:
        self.copies[region].arrive(versions)


def ways_of(region: str, regions: Iterable[str], *, one_way: bool = False) -> set[Way]:
    """The ways from a region to the others, and back unless one way alone is meant."""
    others = [other for other in regions if other != region]
    out = {(region, other) for other in others}
    return out if one_way else out | {(other, region) for other in others}


def newest_of(versions: Iterable[Version]) -> list[Version]:
    """Of each item the last version: those before it never arrive."""
    found: dict[Key, Version] = {}
    for one in versions:
        if one.key not in found or found[one.key].written < one.written:
            found[one.key] = one
    return list(found.values())


def _merged(waiting: list[Version], version: Version) -> Version:
    """The last of the versions of an item that travel together; the others never arrive."""
    same = [one for one in waiting if one.key == version.key]
    for one in same:
        waiting.remove(one)
    return newest_of([version, *same])[0]
