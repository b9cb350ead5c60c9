"""A stream shard's one name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShardName:
    """A stream shard, known together with its stream: a re-created stream numbers anew.

    Attributes:
        stream: the stream's label, the last part of its ARN.
        id: the shard's id within it.
    """

    stream: str
    id: str

    def __str__(self) -> str:
        """The name under which watermarks and progress are kept."""
        return f"{self.stream}/{self.id}"


def label_of(stream_arn: str) -> str:
    """A stream's label: what tells it from an earlier stream of the same table."""
    return stream_arn.rpartition("/")[2]
