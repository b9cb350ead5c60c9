"""S3, as one process reaches it: objects by name, stored whole or not at all."""

import base64
import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.process import Process
from tests.simulation.queue import as_client_error


@dataclass(eq=False)
class Bucket:
    """One bucket.

    Attributes:
        name: of the bucket.
        objects: by key, their content.
        failing: how many of the coming requests fail.
    """

    name: str = "archive"
    objects: dict[str, bytes] = field(default_factory=dict)
    failing: int = 0


@dataclass
class ObjectsClient:
    """S3.

    Attributes:
        bucket: the one that exists.
        process: whose calls they are, in a simulation; None: nothing else can happen to them.
    """

    bucket: Bucket
    process: Process | None = None

    def put_object(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - botocore's arguments
        """Store an object; a wrong checksum is refused."""

        def put() -> dict[str, Any]:
            body: bytes = request["Body"]
            digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
            if request["ChecksumSHA256"] != digest:
                raise _error("BadDigest", 400)
            self.bucket.objects[request["Key"]] = body
            return {}

        return self._call("PutObject", put, writes=True)

    def get_object(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - botocore's arguments
        """An object."""

        def get() -> dict[str, Any]:
            if request["Key"] not in self.bucket.objects:
                raise _error("NoSuchKey", 404)
            return {"Body": BytesIO(self.bucket.objects[request["Key"]])}

        return self._call("GetObject", get)

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - botocore's arguments
        """The keys that begin so."""

        def find() -> dict[str, Any]:
            found = sorted(key for key in self.bucket.objects if key.startswith(request["Prefix"]))
            return {"Contents": [{"Key": key} for key in found]}

        return self._call("ListObjectsV2", find)

    def _call(self, name: str, request: Any, *, writes: bool = False) -> dict[str, Any]:  # noqa: ANN401 - a function
        if self.bucket.failing:
            self.bucket.failing -= 1
            raise _error("ServiceUnavailable", 503)
        process = self.process
        if process is None:
            return dict(request())
        if writes:
            return dict(as_client_error(lambda: process.write(name, request, attempts=4)))
        return dict(as_client_error(lambda: process.read(name, request, attempts=4)))


def _error(code: str, status: int) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": code},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "S3")
