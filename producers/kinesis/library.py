"""aws-kinesis-agg, as far as it can be trusted: the record format's own definitions.

Of the library only the protobuf messages and the two constants of the format are used. Its
aggregator sends records over the limit and counts full ones as two thirds full; its deaggregator
hands on what its checksum refuses as if it were a plain record, and drops the rest of a record
behind a bad index. tests/unit/producers/kinesis/test_library.py shows each defect, and that what
stands in its place here has it not.

The import itself puts the library's folder and its parent in front of `sys.path`, where its modules
would shadow an app's, and imports one of them as a top-level `config_pb2`: both is undone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import SetupError

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtobufMessage


class KinesisMissing(SetupError):
    """What packs and unpacks records is not installed."""


_path: Final = list(sys.path)
_SHADOW: Final = "config_pb2"
_shadowed: Final = sys.modules.pop(_SHADOW, None)
try:
    import aws_kinesis_agg
    from aws_kinesis_agg.aggregator import messages_pb2
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise KinesisMissing(
        f"Kinesis needs the extra of that name ({error}): pip install 'countledger[kinesis]'"
    ) from error
finally:
    sys.path[:] = _path
    sys.modules.pop(_SHADOW, None)
    if _shadowed is not None:
        sys.modules[_SHADOW] = _shadowed

# What a record begins with, and how long the checksum at its end is.
MAGIC: Final[bytes] = aws_kinesis_agg.MAGIC
DIGEST_SIZE: Final[int] = aws_kinesis_agg.DIGEST_SIZE

__all__ = ["DIGEST_SIZE", "MAGIC", "DecodeError", "KinesisMissing", "new_aggregate"]


def new_aggregate() -> Any:  # noqa: ANN401 - made of a descriptor, at run time
    """An empty protobuf message of an aggregated record."""
    aggregate: ProtobufMessage = messages_pb2.AggregatedRecord()
    return aggregate
