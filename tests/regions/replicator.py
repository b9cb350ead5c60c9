"""What a global table does between its regions, at the test's pace and in any order.

Every write of a region becomes a version of its item, numbered in the order in which the writes
happened. To each other region it travels on its own: as late as the test likes, before or behind
others, or not at all for as long as the way is cut. What arrives is compared with what the region
has: the last writer wins, deletions included. Versions of one item that travel at the same time may
be merged, so that a region never sees those in between.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Key: TypeAlias = tuple[str, str]
Image: TypeAlias = "dict[str, Any] | None"


@dataclass(frozen=True)
class Version:
    """An item as one write left it; no image where the write deleted it."""

    number: int
    key: Key
    image: Image


@dataclass
class Copy:
    """One region's table.

    Attributes:
        region: its name.
        client: of DynamoDB there, whose calls nobody watches.
        streams: of its streams.
        table: the table's name, the same everywhere.
        stream_arn: of its stream.
        newest: per item the number of the version that lies there, or of its deletion.
        records: its stream's records, in order.
    """

    region: str
    client: Any
    streams: Any
    table: str
    stream_arn: str
    newest: dict[Key, int] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    iterators: dict[str, str] = field(default_factory=dict)

    def news(self) -> list[dict[str, Any]]:
        """The records since the last time."""
        if not self.iterators:
            shards = self.streams.describe_stream(StreamArn=self.stream_arn)
            for shard in shards["StreamDescription"]["Shards"]:
                self.iterators[shard["ShardId"]] = self.streams.get_shard_iterator(
                    StreamArn=self.stream_arn,
                    ShardId=shard["ShardId"],
                    ShardIteratorType="TRIM_HORIZON",
                )["ShardIterator"]
        found: list[dict[str, Any]] = []
        for shard_id, iterator in self.iterators.items():
            page = self.streams.get_records(ShardIterator=iterator)
            self.iterators[shard_id] = page["NextShardIterator"]
            found += page["Records"]
        self.records += found
        return found


@dataclass
class Replicator:
    """Carries versions between regions.

    Attributes:
        copies: by region.
        random: what travels next, and what is merged.
        cut: ways that nothing passes: from, to.
        under_way: per way the versions that have not arrived.
    """

    copies: Mapping[str, Copy]
    random: Random = field(default_factory=lambda: Random(0))  # noqa: S311 - a test's
    cut: set[tuple[str, str]] = field(default_factory=set)
    under_way: dict[tuple[str, str], list[Version]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _numbers: int = 0

    def note(self, region: str) -> None:
        """Take up what was written in a region just now."""
        here = self.copies[region]
        for record in here.news():
            self._numbers += 1
            version = Version(self._numbers, _key(record), record["dynamodb"].get("NewImage"))
            here.newest[version.key] = version.number
            for other in self.copies:
                if other != region:
                    self.under_way[region, other].append(version)

    def step(self) -> bool:
        """Let one version arrive somewhere; whether there was one."""
        ways = [way for way, waiting in self.under_way.items() if waiting and way not in self.cut]
        if not ways:
            return False
        way = self.random.choice(sorted(ways))
        waiting = self.under_way[way]
        version = waiting.pop(self.random.randrange(len(waiting)))
        if self.random.random() < 0.3:
            version = self._merged(waiting, version)
        self._arrive(self.copies[way[1]], version)
        return True

    def catch_up(self) -> None:
        """Let all arrive that a way is open for."""
        while self.step():
            pass

    @property
    def settled(self) -> bool:
        """Whether nothing is under way."""
        return not any(self.under_way.values())

    def _merged(self, waiting: list[Version], version: Version) -> Version:
        """The last of the versions of an item that travel together; the others never arrive."""
        same = [one for one in waiting if one.key == version.key]
        for one in same:
            waiting.remove(one)
        return max([version, *same], key=lambda one: one.number)

    def _arrive(self, copy: Copy, version: Version) -> None:
        """The last writer wins."""
        if version.number < copy.newest.get(version.key, 0):
            return
        copy.newest[version.key] = version.number
        if version.image is None:
            key = {"counter": {"S": version.key[0]}, "entry": {"S": version.key[1]}}
            copy.client.delete_item(TableName=copy.table, Key=key)
        else:
            copy.client.put_item(TableName=copy.table, Item=version.image)
        copy.news()  # our own write, which is no news to anybody


def _key(record: dict[str, Any]) -> Key:
    key = record["dynamodb"]["Keys"]
    return key["counter"]["S"], key["entry"]["S"]
