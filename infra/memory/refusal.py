"""What a stack in memory does not have, by name; the guide for users lists each name."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NoReturn

from countledger.ledger.errors import SetupError

GUIDE: Final = "docs/testing-your-app.md"


class Missing(Enum):
    """What is refused, and what to use instead."""

    ARCHIVE = "an archive in S3: create the schedule without `archive`"
    ASYNC_BUFFER = "`buffered_async`, which needs a session of boto3: use `buffered`"
    CLIENT = "a client of boto3: requests end at countledger's own client"
    FUNCTIONS = "functions to invoke: `deliver`, `advance` and `compact` run the stack's own"
    KINESIS = "emission through Kinesis: test that code with `record` or `buffered`"
    METRICS = "metrics: use `freshness` and `audit`"
    REGIONS = "a second region, so no strict counters over regions either"
    SERVICE = "this service of AWS"
    STACK = "outputs of CloudFormation: the settings of its connection name everything"


class NotInMemory(SetupError):
    """A stack in memory does not have what was used."""

    def __init__(self, missing: Missing, detail: str = "") -> None:
        named = f" ({detail})" if detail else ""
        super().__init__(f"a stack in memory does not have {missing.value}{named}; see {GUIDE}")
        self.missing = missing


def refuse(missing: Missing, detail: str = "") -> NoReturn:
    """Refuse what a stack in memory does not have.

    Raises:
        NotInMemory: always.
    """
    raise NotInMemory(missing, detail)


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
