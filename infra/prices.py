"""List prices, and what a million events cost each way until their totals are right. Pure.

Prices are of us-east-1, on demand, table class Standard, in US dollars, by
https://aws.amazon.com/dynamodb/pricing/on-demand/, https://aws.amazon.com/lambda/pricing/,
https://aws.amazon.com/kinesis/data-streams/pricing/ and
https://aws.amazon.com/api-gateway/pricing/. A write that is replicated costs as much in each region
as a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# When they were looked up; those of DynamoDB have been these since 2024-11-01.
AS_OF: Final = "2026-11-21"
MILLION: Final = 1_000_000
WRITE_UNITS_MILLION: Final = 0.625
READ_UNITS_MILLION: Final = 0.125
STORAGE_GB_MONTH: Final = 0.25
WRITE_CAPACITY_HOUR: Final = 0.00065
READ_CAPACITY_HOUR: Final = 0.00013
LAMBDA_REQUEST: Final = 0.20 / MILLION
LAMBDA_GB_SECOND: Final = 0.0000133334
# For one request of an HTTP API of API Gateway: of the first so many in a month, and of the others.
_GATEWAY_FIRST: Final = 300 * MILLION
_GATEWAY_REQUEST: Final = 1.00 / MILLION
_GATEWAY_FURTHER_REQUEST: Final = 0.90 / MILLION
# An assumption: 30 ms at 1,024 MB, the default of HttpMemoryMb.
_HTTP_GB_SECONDS: Final = 0.030
_SHARD_HOUR: Final = 0.015
_SHARD_BYTES_AN_HOUR: Final = 3_600 * 1_000_000
_PUT_UNITS_MILLION: Final = 0.014
_PUT_UNIT_BYTES: Final = 25_000
# A batch of the materializer as a test has it: 1,000 records of 64 counters cost 65 units.
BATCH_RECORDS: Final = 1_000
BATCH_UNITS: Final = 65
# Lambda gives a whole processor for 1,769 MB, and a part of it for a part of that.
WHOLE_PROCESSOR_MB: Final = 1_769
BATCH_GB_SECONDS: Final = WHOLE_PROCESSOR_MB / 1_024 * 0.060
# To merge an entry later, with its share of the heads, by each way to retire it.
BY_DELETES: Final = 1.06
BY_TRANSACTIONS: Final = 2.06
# What an event takes in an aggregated record, with a short name and no note.
KINESIS_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Price:
    """What events cost one way.

    Attributes:
        way: its name.
        entries: how many entries, or other writes of one unit, an event takes.
        totals: write units for each event, for totals and the progress of the shard.
        rest: dollars for a million events that are not for write units: Kinesis and Lambda.
        merges: whether its entries are compacted at some time.
    """

    way: str
    entries: float
    totals: float = 0.0
    rest: float = 0.0
    merges: bool = False

    @property
    def units(self) -> float:
        """Write units for each event until its total is right."""
        return self.entries + self.totals

    @property
    def dollars(self) -> float:
        """For a million events until their totals are right."""
        return self.units * WRITE_UNITS_MILLION + self.rest

    def compacted(self, units: float) -> float | None:
        """The same, and for merging their entries later at so many units each."""
        if not self.merges:
            return None
        return self.dollars + self.entries * units * WRITE_UNITS_MILLION


def price_of(way: str, entries: float, *, streamed: bool = False) -> Price:
    """One of our ways.

    Args:
        way: its name.
        entries: how many entries an event takes.
        streamed: whether events come through Kinesis, over shards that are kept full.
    """
    invocations = MILLION * entries / BATCH_RECORDS * (2 if streamed else 1)
    lambda_ = invocations * (LAMBDA_REQUEST + BATCH_GB_SECONDS * LAMBDA_GB_SECOND)
    kinesis = kinesis_dollars() if streamed else 0.0
    totals = entries * BATCH_UNITS / BATCH_RECORDS
    return Price(way, entries, totals, rest=lambda_ + kinesis, merges=True)


def kinesis_dollars() -> float:
    """What a stream of Kinesis takes for a million events, over shards that are kept full."""
    sent = MILLION * KINESIS_BYTES
    hours, put_units = sent / _SHARD_BYTES_AN_HOUR, sent / _PUT_UNIT_BYTES
    return hours * _SHARD_HOUR + put_units / MILLION * _PUT_UNITS_MILLION


def prices(uniform: float, zipf: float) -> list[Price]:
    """Every way, and two usual ones beside them.

    Args:
        uniform: entries for each event, coalesced, of counters that are all as likely.
        zipf: the same, Zipf-distributed.
    """
    return [
        Price("an atomic counter (a retry counts twice)", 1.0),
        Price("a marker and a counter in one transaction", 4.0),
        price_of("`record`, `record_many`, buffered", 1.0),
        price_of("through Kinesis", 1.0, streamed=True),
        price_of("buffered, coalescing, uniform", uniform),
        price_of("buffered, coalescing, Zipf", zipf),
    ]


def http_dollars(requests: float) -> float:
    """What so many requests to the HTTP API take in a month, without their units of DynamoDB."""
    first = min(requests, _GATEWAY_FIRST)
    gateway = first * _GATEWAY_REQUEST + (requests - first) * _GATEWAY_FURTHER_REQUEST
    return gateway + requests * (LAMBDA_REQUEST + _HTTP_GB_SECONDS * LAMBDA_GB_SECOND)
