"""The definitions of the record format in aws-kinesis-agg: its protobuf messages and constants.

Nothing else of the library is used. Its aggregator sends records over the limit and counts full
records as two thirds full. Its deaggregator returns a record with a wrong checksum as a plain
record, and drops the rest of a record after a bad index.

The import puts the folder of the library and its parent first in `sys.path`, where its modules
would shadow those of an app. It also imports one of them as a top-level `config_pb2`. Both are
undone here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtobufMessage


class KinesisMissing(SetupError):
    """The library that packs and unpacks records is not installed."""


_path: Final = list(sys.path)
_SHADOW: Final = "config_pb2"
_shadowed: Final = sys.modules.pop(_SHADOW, None)
try:
    import aws_kinesis_agg
    from aws_kinesis_agg.aggregator import messages_pb2
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise KinesisMissing(
        f"Kinesis needs the extra `kinesis` ({error}): pip install 'countledger[kinesis]'"
    ) from error
finally:
    sys.path[:] = _path
    sys.modules.pop(_SHADOW, None)
    if _shadowed is not None:
        sys.modules[_SHADOW] = _shadowed

# The first bytes of a record, and the length of the checksum at its end.
MAGIC: Final[bytes] = aws_kinesis_agg.MAGIC
DIGEST_SIZE: Final[int] = aws_kinesis_agg.DIGEST_SIZE

__all__ = ["DIGEST_SIZE", "MAGIC", "DecodeError", "KinesisMissing", "new_aggregate"]


def new_aggregate() -> Any:  # noqa: ANN401 - created from a descriptor at run time
    """An empty protobuf message of an aggregated record."""
    aggregate: ProtobufMessage = messages_pb2.AggregatedRecord()
    return aggregate
