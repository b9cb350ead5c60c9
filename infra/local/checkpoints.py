"""How far the mappings of a kept stack have read their streams, as Lambda remembers it.

It is an object in the bucket of the code, so it is saved together with what the functions wrote. A
mapping that reads a stream from its start again changes no number. But a message of Kinesis that is
older than the horizon by then would be refused as expired, although its entry was recorded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass
class Checkpoints:
    """Those of one mapping, by shard.

    Attributes:
        s3: the client to the bucket.
        bucket: an existing one.
        key: of the object.
    """

    s3: S3Client
    bucket: str
    key: str
    _known: dict[str, str] | None = field(default=None)

    def read(self, shard_id: str) -> str | None:
        """The last sequence number that was handled; None: none was. One request at first."""
        if self._known is None:
            self._known = self._stored()
        return self._known.get(shard_id)

    def note(self, shard_id: str, sequence: str) -> None:
        """Remember that a shard was handled up to a sequence number. One request if it is new."""
        if self.read(shard_id) != sequence and self._known is not None:
            self._known[shard_id] = sequence
            self.s3.put_object(Bucket=self.bucket, Key=self.key, Body=json.dumps(self._known))

    def _stored(self) -> dict[str, str]:
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=self.key)
        except self.s3.exceptions.NoSuchKey:
            return {}
        stored: dict[str, str] = json.loads(answer["Body"].read())
        return stored
