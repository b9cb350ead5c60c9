"""Ranking the totals of a namespace: switching a ranking on and off, and reading its top.

    rule     (`namespace#<ns>`, `ranking`): on or off; materializers read it within a minute
    sweep    existing totals get their position, or lose it, one by one

The rule is written first. A materializer that has not read it yet can create a total without a
position that the sweep does not see. So switching on waits until all materializers have read the
rule, and sweeps then. Each later update of a total corrects what is left: it adds or removes the
position in the same write. After a crash some totals have no position; switching on again
completes them.

The top of a board is read from each of its partitions as far as needed, and sorted. Equal totals
are ordered by name. The index has no such order, so a partition is read until the total changes:
then each counter of a tie that could come first has been read. If more than a thousand counters are
tied at the end of the list, the index decides which are read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.totals import counters_of
from countledger.ledger import keys
from countledger.ledger.amount import negated
from countledger.ledger.attributes import require, require_amount
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import BadSetting, ConditionFailed, NotRanked
from countledger.ledger.expressions import Absent, AllOf, BeginsWith, Compare
from countledger.ledger.limits import RANK_SETTLES_MS, TOP_MAX
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Put
from countledger.ledger.ranking import is_on, namespace_board, place_of, removal_of, top_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Condition
    from countledger.ledger.operations import Update
    from countledger.ledger.ranking import Board

_TIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Ranked:
    """A counter's place in a ranking.

    Attributes:
        rank: 1 for the highest; equal totals have the same rank, and the next ones are left out.
        counter: its name.
        total: by what it is ranked.
    """

    rank: int
    counter: str
    total: Amount


def check_limit(limit: int) -> int:
    """How many to show, if it can be so many.

    Raises:
        BadSetting: it cannot.
    """
    if isinstance(limit, bool) or not 1 <= limit <= TOP_MAX:
        raise BadSetting(f"the top {limit!r}: give a number from 1 to {TOP_MAX}")
    return limit


def ranked(found: Iterable[tuple[str, Amount]], limit: int) -> list[Ranked]:
    """Counters and totals in their order: the highest first, equal ones by name. Pure."""
    ordered = sorted(found, key=lambda one: (negated(one[1]), one[0]))
    ranks: list[Ranked] = []
    for place, (counter, total) in enumerate(ordered[:limit], start=1):
        tied = bool(ranks) and ranks[-1].total == total
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


_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class Rankings:
    """The rankings of namespaces.

    Attributes:
        dynamo: a DynamoDB client; every write carries a condition or sets what is there, so the SDK
            may retry.
        table: the table `counters`.
        namespaces: tell which of them exist, and of what kind.
        clock: waits until every materializer knows the rule.
    """

    dynamo: DynamoClient
    table: str
    namespaces: Namespaces
    clock: Clock = field(default_factory=SystemClock)

    def switch_on(self, namespace: str, *, wait: bool = True) -> int:
        """Rank the totals of a namespace, those that come later as well.

        From then on an update that moves a total costs two write units more, and the first one of
        a counter one more. Now: one write unit, and for each total two; and half a read unit for
        each 4 KB of the table `counters`, all of which is looked through. Doing it again gives
        their place to totals that lack it.

        Args:
            namespace: of kind ledger or strict.
            wait: three minutes, until all materializers know of it. Without waiting, a total that
                is made in that time gets its place with its next update.

        Returns:
            How many totals got their place now.

        Raises:
            NamespaceUnknown: there is no such namespace.
            NotRanked: it holds sequences, which are not ranked.
        """
        kind = self.namespaces.get(keys.check_namespace(namespace)).kind
        if kind is Kind.SEQUENCE:
            raise NotRanked(f"namespace {namespace!r} holds sequences, which are not ranked")
        self._rule(namespace, on=True)
        if wait and kind is Kind.LEDGER:
            self.clock.sleep_ms(RANK_SETTLES_MS)
        board = namespace_board(namespace)

        def place(counter: str) -> Update:
            return place_of(self.table, board, counter, may_be_made=False)

        # One of zeros, made for a ranked group, gets its place with its first entry.
        recorded = Compare("version", ">", 0)
        lacking = AllOf(Absent(board.attribute), Absent("bins"), recorded)
        return self._sweep(namespace, lacking, place)

    def switch_off(self, namespace: str) -> int:
        """Rank a namespace's totals no more; they cost again what they did before.

        One write unit, two for each total, and the table `counters` looked through as above. A
        total that is updated by a materializer that does not know of it yet may be left; its next
        update takes it out.

        Returns:
            How many totals lost their place now.

        Raises:
            NamespaceUnknown: there is no such namespace.
        """
        self.namespaces.get(keys.check_namespace(namespace))
        self._rule(namespace, on=False)
        board = namespace_board(namespace)

        def remove(counter: str) -> Update:
            return removal_of(self.table, board, counter)

        return self._sweep(namespace, BeginsWith(board.attribute, board.name + "#"), remove)

    def is_on(self, namespace: str) -> bool:
        """Whether a namespace is ranked: half a read unit."""
        key = keys.ranking_key(keys.check_namespace(namespace))
        return bool(is_on(self.dynamo.get(self.table, key)))

    def top(self, namespace: str, limit: int = 10) -> list[Ranked]:
        """The highest totals of a namespace, equal ones by name.

        Half a read unit to see that it is ranked, one for each of the board's four partitions, and
        for each 4 KB more. The index is behind the totals by a moment.

        Args:
            namespace: a ranked one.
            limit: how many, up to 1,000.

        Raises:
            NotRanked: nobody has switched its ranking on.
            BadSetting: so many cannot be asked for.
        """
        check_limit(limit)
        if not self.is_on(namespace):
            raise NotRanked(
                f"namespace {namespace!r} is not ranked: `countledger namespace rank` switches it "
                "on, for two write units with each update that moves a total"
            )
        return top_of(self.dynamo, self.table, namespace_board(namespace), limit)

    def _rule(self, namespace: str, *, on: bool) -> None:
        self.dynamo.put(Put(self.table, {**keys.ranking_key(namespace), "on": on}))

    def _sweep(self, namespace: str, where: Condition, change: Callable[[str], Update]) -> int:
        def changed(counter: str) -> bool:
            try:
                self.dynamo.update(change(counter))
            except ConditionFailed:
                return False  # gone, or changed by an update meanwhile
            return True

        with ThreadPoolExecutor(_WRITERS, "countledger-ranker") as pool:
            found = counters_of(self.dynamo, self.table, namespace, where)
            return sum(sum(pool.map(changed, page)) for page in found)
