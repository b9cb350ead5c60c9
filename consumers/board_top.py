"""The top of a board: read from each of its partitions as far as needed, and sorted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.ledger.amount import negated
from countledger.ledger.attributes import require, require_amount
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import TOP_MAX
from countledger.ledger.ranking import top_query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.ranking import Board

_TIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Ranked:
    """A counter's place in a ranking.

    Attributes:
        rank: 1 for the highest; equal totals have the same rank, and the next ones are left out.
        counter: its name.
        value: the total by which it is ranked.
    """

    rank: int
    counter: str
    value: Amount


def check_limit(limit: int) -> int:
    """Return the limit if it is in range.

    Raises:
        BadSetting: it is out of range.
    """
    if isinstance(limit, bool) or not 1 <= limit <= TOP_MAX:
        raise BadSetting(f"limit {limit!r} is out of range: give a number from 1 to {TOP_MAX}")
    return limit


def ranked(found: Iterable[tuple[str, Amount]], limit: int) -> list[Ranked]:
    """Counters and totals in their order: the highest first, equal ones by name. Pure."""
    ordered = sorted(found, key=lambda one: (negated(one[1]), one[0]))
    ranks: list[Ranked] = []
    for place, (counter, total) in enumerate(ordered[:limit], start=1):
        tied = bool(ranks) and ranks[-1].value == total
        ranks.append(Ranked(ranks[-1].rank if tied else place, counter, total))
    return ranks


def top_of(dynamo: DynamoClient, table: str, board: Board, limit: int) -> list[Ranked]:
    """The top of a board: half a read unit for each of its partitions, and each 4 KB read there."""
    found: list[tuple[str, Amount]] = []
    for bucket in board.buckets:
        found += _top_of_bucket(dynamo, table, board, bucket, limit)
    return ranked(found, limit)


def _top_of_bucket(
    dynamo: DynamoClient, table: str, board: Board, bucket: str, limit: int
) -> list[tuple[str, Amount]]:
    pages = dynamo.pages(top_query(table, board, bucket, limit + 1))
    items = (item for page in pages for item in page)
    found: list[tuple[str, Amount]] = []
    for item in islice(items, limit + _TIES_MAX):
        one = require(item, "counter", str), require_amount(item, "total")
        if len(found) >= limit and one[1] != found[-1][1]:
            break
        found.append(one)
    return found
