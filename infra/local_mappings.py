"""The event source mappings of the template that a pump plays on this machine."""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class StreamMapping:
    """A mapping of a stream, and the stack's outputs that tell of it.

    Attributes:
        logical_id: the mapping in the template.
        id_output: the output with its id; a stack without that output has no such mapping.
        stream_output: the output with the ARN of the stream that it reads.
        function_output: the output with the name of the function that it invokes.
        service: whose stream it is.
    """

    logical_id: str
    id_output: str
    stream_output: str
    function_output: str
    service: Literal["dynamodb", "kinesis"] = "dynamodb"


MATERIALIZER: Final = StreamMapping(
    "MaterializerMapping",
    "MaterializerMappingId",
    "LedgerStreamArn",
    "MaterializerFunctionName",
)

EVALUATOR: Final = StreamMapping(
    "EvaluatorMapping",
    "EvaluatorMappingId",
    "CountersStreamArn",
    "EvaluatorFunctionName",
)

INGEST: Final = StreamMapping(
    "IngestMapping",
    "IngestMappingId",
    "IngestStreamArn",
    "IngestFunctionName",
    "kinesis",
)

MAPPINGS: Final = (MATERIALIZER, EVALUATOR, INGEST)

# A stack with this tag has its mappings disabled on purpose: the tag names those that pumps play.
PUMPED_TAG: Final = "countledger-pumped"
