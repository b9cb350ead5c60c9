"""What a stack in memory does not have, by name; the guide for users lists each name."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NoReturn

from countledger.ledger.errors import SetupError

GUIDE: Final = "docs/testing-your-app.md"


class Missing(Enum):
    """What is refused, and after a colon what to use instead."""

    ARCHIVE = "archives in S3: a schedule without `archive`"
    ASYNC_BUFFER = "a session of boto3, also for `buffered_async`: `buffered`"
    CLIENT = "a client of boto3: `MemoryStack.items` shows what is stored"
    FUNCTIONS = "functions to invoke: `deliver`, `advance` and `compact`, which run the stack's own"
    KINESIS = "emission through Kinesis: `record` or `buffered`"
    METRICS = "metrics: `freshness` and `audit`"
    REGIONS = "other regions, and strict counters over regions: a namespace of kind `strict`"
    SERVICE = "this service of AWS"
    STACK = "outputs of CloudFormation: the settings of its connection"


class NotInMemory(SetupError):
    """A stack in memory does not have what was used."""

    def __init__(self, message: str, missing: Missing | None = None) -> None:
        super().__init__(message)
        self.missing = missing


def refuse(missing: Missing, detail: str = "") -> NoReturn:
    """Refuse what a stack in memory does not have.

    Args:
        missing: its name.
        detail: what was used.

    Raises:
        NotInMemory: always.
    """
    raise NotInMemory(refusal(missing, detail), missing)


def refusal(missing: Missing, detail: str = "") -> str:
    """What the error says."""
    what, _, instead = missing.value.partition(": ")
    named = f" ({detail})" if detail else ""
    use = f": use {instead}" if instead else ""
    return f"a stack in memory does not have {what}{named}{use}; see {GUIDE}"


class RefusingClient:
    """In place of a client or session of boto3, from which a request would leave.

    Attributes:
        region_name: of the session.
    """

    def __init__(self, missing: Missing, region: str) -> None:
        """Refuse everything by this name."""
        self._missing = missing
        self.region_name = region

    def get_partition_for_region(self, _region: str) -> str:
        """The partition of the region."""
        return "aws"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never anything
        """Refuse everything else."""
        if name.startswith("_"):
            raise AttributeError(name)
        return refuse(self._missing, name)
