"""Ranking the totals of a namespace: switching it on and off, and reading its top.

    rule     (`namespace#<ns>`, `ranking`): on or off; materializers see it within a minute
    sweep    totals that are there already get their place, or lose it, one by one

The rule comes first. A materializer that does not know it yet can make a total without a place
behind the sweep's back, so switching on waits until all know it before it sweeps. Any later update
of a total puts right what is left: it gives the place, or takes it, in the write that it makes in
any case. A crash leaves some totals without their place; switching on again goes on there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.consumers.leaders import check_limit, top_of
from countledger.consumers.names import counters_of
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, NotRanked
from countledger.ledger.expressions import Absent, AllOf, BeginsWith, Compare
from countledger.ledger.limits import RANK_SETTLES_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Put
from countledger.ledger.ranking import is_on, namespace_board, place_of, removal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.consumers.leaders import Ranked
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Condition
    from countledger.ledger.operations import Update

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
