"""The event source mappings of the template that a pump plays: their filters and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from countledger.infra.template import TemplateUnsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class StreamMapping:
    """A mapping of a stream, and the outputs of the stack that name it.

    A stack without the output `id_output` has no such mapping.
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
Test: TypeAlias = Callable[[Any], bool]
_PREFIX: Final = "prefix"


def record_filter(patterns: tuple[str, ...]) -> Callable[[Mapping[str, Any]], bool]:
    """A test that passes the stream records which one of the patterns matches (no pattern: all).

    A pattern is a JSON object. A name leads to a nested object or to a list; of the list's values
    one must match: a string exactly, or `{"prefix": "..."}`.
    """
    tests = [_object_test(_parsed(pattern), pattern) for pattern in patterns]
    if not tests:
        return lambda _record: True
    return lambda record: any(test(record) for test in tests)


def _parsed(pattern: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(pattern)
    except ValueError as error:
        raise TemplateUnsupported(f"filter pattern {pattern!r} is not JSON: {error}") from error


def _object_test(pattern: Any, whole: str) -> Test:  # noqa: ANN401 - JSON
    if not isinstance(pattern, dict) or not pattern:
        raise TemplateUnsupported(f"filter pattern {whole!r}: {pattern!r} is no filled object")
    tests: dict[str, Test] = {}
    for name, below in pattern.items():
        if name.startswith("$"):
            raise TemplateUnsupported(f"filter pattern {whole!r}: the pump does not know {name!r}")
        tests[name] = (
            _values_test(below, whole) if isinstance(below, list) else _object_test(below, whole)
        )
    return lambda value: (
        isinstance(value, Mapping)
        and all(name in value and test(value[name]) for name, test in tests.items())
    )


def _values_test(allowed: list[Any], whole: str) -> Test:
    exact: set[str] = set()
    prefixes: list[str] = []
    for one in allowed:
        if isinstance(one, str):
            exact.add(one)
        elif isinstance(one, dict) and list(one) == [_PREFIX] and isinstance(one[_PREFIX], str):
            prefixes.append(one[_PREFIX])
        else:
            raise TemplateUnsupported(f"filter pattern {whole!r}: the pump does not know {one!r}")
    if not allowed:
        raise TemplateUnsupported(f"filter pattern {whole!r}: an empty list matches nothing")
    starts = tuple(prefixes)
    return lambda value: isinstance(value, str) and (value in exact or value.startswith(starts))


@dataclass
class Checkpoints:
    """How far a mapping of a kept stack has read its stream, by shard, as Lambda remembers it.

    It is an object in the bucket of the code, so it is saved together with what the functions
    wrote. A mapping that reads a stream from its start again changes no number. But a message of
    Kinesis that is older than the horizon by then would be refused as expired, although its entry
    was recorded.
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
