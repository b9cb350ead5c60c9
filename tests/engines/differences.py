"""What an engine does otherwise than DynamoDB documents: each difference has one name.

A test that meets a difference asserts what the engine does instead, so it fails on the day when the
engine is mended and the name can go. What cannot be shown at all on an engine is run elsewhere.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import boto3


class Difference(Enum):
    """A difference and what one sees of it."""

    SIZE_FAILS_ON_ABSENT = "size() of an attribute that is not there breaks in the engine"
    NO_OP_PUT_WRITES_A_RECORD = "an identical put over an item makes a MODIFY record"
    ADD_PASSES_38_DIGITS = "ADD does not refuse a sum of more than 38 digits"
    ADD_FAILS_ON_EXPONENTS = "ADD of a number spelled 1E-17 breaks in the engine"
    READ_UNITS_ALWAYS_ONE = "a read costs one unit (half, if eventual) whatever its size"
    UNITS_ARE_INVENTED = "whatever is written or read, a call reports one unit, or a half"
    NO_UNITS_FOR_BATCH_GET = "BatchGetItem reports no units"
    LOSES_UPDATES_UNDER_THREADS = "two threads at one item can lose an update"
    SHARDS_LOOK_CLOSED = "an open stream shard is described with an ending sequence number"
    QUERIES_TAKE_LONG = "a query takes 20 ms, so that what needs hundreds is run elsewhere"
    TRANSACTIONS_COPY_THEIR_TABLES = "a transaction takes longer the more items its tables hold"
    IGNORES_TOKENS = "a transaction is applied again under the same client request token"
    TRANSACT_GET_TAKES_25 = "TransactGetItems takes 25 items, and not 100"
    KEEPS_NUMBERS_AS_SENT = "a number is stored as it was spelled: 1.0 stays 1.0"
    HAS_NO_STREAMS = "a table has no stream, so that what needs one is run elsewhere"


# Where it is told what DynamoDB does: pages of its developer guide, or calls of its API reference.
_NUMBERS: Final = "HowItWorks.NamingRulesDataTypes: 38 digits, zeroes at either end are trimmed"
_UNITS: Final = "read-write-operations: a unit for each 4 KB read, half if eventual; 1 KB written"
SOURCES: Final = {
    Difference.SIZE_FAILS_ON_ABSENT: "Expressions.OperatorsAndFunctions: size of an attribute",
    Difference.NO_OP_PUT_WRITES_A_RECORD: "Streams: no record where a write changes nothing",
    Difference.ADD_PASSES_38_DIGITS: _NUMBERS,
    Difference.ADD_FAILS_ON_EXPONENTS: _NUMBERS,
    Difference.READ_UNITS_ALWAYS_ONE: _UNITS,
    Difference.UNITS_ARE_INVENTED: _UNITS,
    Difference.NO_UNITS_FOR_BATCH_GET: "API_BatchGetItem: ConsumedCapacity",
    Difference.LOSES_UPDATES_UNDER_THREADS: "WorkingWithItems: atomic counters",
    Difference.SHARDS_LOOK_CLOSED: "API_streams_SequenceNumberRange: an open shard has no end",
    Difference.QUERIES_TAKE_LONG: "measured by this suite",
    Difference.TRANSACTIONS_COPY_THEIR_TABLES: "measured by this suite",
    Difference.IGNORES_TOKENS: "API_TransactWriteItems: ClientRequestToken, for ten minutes",
    Difference.TRANSACT_GET_TAKES_25: "API_TransactGetItems: up to 100 items",
    Difference.KEEPS_NUMBERS_AS_SENT: _NUMBERS,
    Difference.HAS_NO_STREAMS: "Streams: each table can have one",
}


@dataclass(frozen=True)
class Engine:
    """One engine that runs, and what is different on it.

    Attributes:
        name: for the ids of tests.
        session: credentials and region.
        endpoint_url: where it answers; None: where the session's own environment says.
        differences: what it does otherwise than DynamoDB.
        met: those of them that tests have met so far.
    """

    name: str
    session: boto3.Session
    endpoint_url: str | None
    differences: frozenset[Difference]
    met: set[Difference] = field(default_factory=set, compare=False, repr=False)

    def has(self, difference: Difference) -> bool:
        """Whether this engine differs so."""
        if difference not in self.differences:
            return False
        self.met.add(difference)
        return True


MOTO: Final = frozenset(
    {
        Difference.SIZE_FAILS_ON_ABSENT,
        Difference.NO_OP_PUT_WRITES_A_RECORD,
        Difference.UNITS_ARE_INVENTED,
        Difference.LOSES_UPDATES_UNDER_THREADS,
        Difference.IGNORES_TOKENS,
        Difference.TRANSACTIONS_COPY_THEIR_TABLES,
        Difference.TRANSACT_GET_TAKES_25,
        Difference.KEEPS_NUMBERS_AS_SENT,
        Difference.QUERIES_TAKE_LONG,
        Difference.ADD_PASSES_38_DIGITS,
        Difference.ADD_FAILS_ON_EXPONENTS,
    }
)
# As `infra/local/engine.py` runs it, with its gaps patched.
MINISTACK: Final = frozenset({Difference.READ_UNITS_ALWAYS_ONE, Difference.NO_UNITS_FOR_BATCH_GET})
DYNOXIDE: Final = frozenset({Difference.NO_OP_PUT_WRITES_A_RECORD, Difference.SHARDS_LOOK_CLOSED})
# What `countledger.testing` runs on; what it refuses has names of its own (`Missing`).
MEMORY: Final[frozenset[Difference]] = frozenset()
# Commit 9a1a1a6, run by `make test-endpoint`.
EXTENDDB: Final = frozenset({Difference.NO_OP_PUT_WRITES_A_RECORD})
_DECLARED: Final = {"extenddb": EXTENDDB}


def declared(names: str) -> frozenset[Difference]:
    """What a list names: differences, and engines that stand for theirs (`extenddb`)."""
    found: frozenset[Difference] = frozenset()
    for name in filter(None, (part.strip() for part in names.split(","))):
        found |= _DECLARED.get(name) or frozenset({Difference[name]})
    return found
