"""The service, in this process: moto answers the JSON protocol as DynamoDB and Kinesis do."""

from collections.abc import Mapping
from threading import Lock
from typing import Final

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber

_MOTO: Final = BotocoreStubber()
_ONE_AT_A_TIME: Final = Lock()  # moto is made for one thread


def answer_of(headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """Carry a request out; the status and the body of the answer."""
    service = headers["x-amz-target"].partition("_")[0].lower()
    request = AWSPreparedRequest(
        method="POST",
        url=f"https://{service}.{_region(headers)}.amazonaws.com/",
        headers=HTTPHeaders.from_dict(headers),
        body=body,
        stream_output=False,
    )
    with _ONE_AT_A_TIME:
        answer = _MOTO.process_request(request)
    if answer is None:
        raise ValueError(f"moto has no service {service!r}")
    status, _, told = answer
    return status, told if isinstance(told, bytes) else told.encode()


def _region(headers: Mapping[str, str]) -> str:
    """Where a request is signed for: the third part of its credential's scope."""
    return headers["authorization"].partition("Credential=")[2].split("/")[2]
