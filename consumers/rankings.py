"""Ranking the totals of a namespace: switching a ranking on and off, and reading its top.

    setting  (`namespace#<ns>`, `ranking`), a record (`ledger/records.py`): on or off, and how many
             partitions; in the code its `rule`. Materializers read it within a minute
    sweep    existing totals get their position, or lose it, one by one

The setting is written first. A materializer that has not read it yet can create a total without a
position that the sweep does not see. So switching on waits until all materializers have read the
setting, and sweeps then. Each later update of a total corrects what is left: it adds or removes the
position in the same write. After a crash some totals have no position; switching on again
completes them.

A call that has swept reads the setting again; if another call has replaced it, it sweeps by that
one. So the call that writes last finds what the others wrote. Each write of a sweep gives the total
an id (`swept`), and is conditional on the one that was seen: none that is applied late undoes a
later sweep.

The top of a board is read from each of its partitions as far as needed, and sorted. Equal totals
are ordered by name. The index has no such order, so a partition is read until the total changes:
then each counter of a tie that could come first has been read. If more than a thousand counters are
tied at the end of the list, the index decides which are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.consumers.totals import totals_of
from countledger.consumers.windows import no_windows, of_the_zone
from countledger.ledger import keys
from countledger.ledger.amount import negated
from countledger.ledger.attempts import (
    Again,
    Done,
    Send,
    attempt,
    otherwise,
    raise_exhausted,
)
from countledger.ledger.attributes import require, require_amount
from countledger.ledger.calendar import Per, Window, window_of, window_on
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import (
    BadSetting,
    BadTime,
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NotRanked,
    Throttled,
    shown,
)
from countledger.ledger.indexes import (
    PARTITIONS_MAX,
    SWEPT,
    Board,
    after_sweep,
    day_board,
    is_on,
    kept_partitions,
    move_of,
    namespace_board,
    partitions_of,
    place_of,
    top_query,
    unrank_of,
)
from countledger.ledger.limits import RANK_SETTLES_MS, SECOND_MS, TOP_MAX
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Absent, AllOf, BeginsWith, Compare
from countledger.ledger.records import Records, Replacement, write_of
from countledger.ledger.windows import decode_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from countledger.consumers.region_state import RegionStateStore
    from countledger.ledger.amount import Amount
    from countledger.ledger.attempts import Exhausted, Reply, Verdict
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition, Update
    from countledger.ledger.windows import WindowSetting


# The top of a board: read from each of its partitions as far as needed, and sorted.
#
# And which board is that of a day. The items of the counters' windows of a day are in the index of
# its ranking, sorted by their sums. Each setting has boards of its own. So a day is ranked if the
# newest setting alone has counted it: then its ranking has the sums that `windows` reads.


_TIES_MAX: Final = 1_000
_READERS: Final = 8
TODAY: Final = "today"


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
    if isinstance(limit, bool) or not 1 <= limit <= TOP_MAX:
        raise BadSetting(f"limit {shown(limit)} is out of range: give a number from 1 to {TOP_MAX}")
    return limit


def ranked(found: Iterable[tuple[str, Amount]], limit: int) -> list[Ranked]:
    """Counters and totals in their order: the highest first, equal ones by name. Pure."""
    ordered = sorted(found, key=lambda one: (negated(one[1]), one[0]))
    ranks: list[Ranked] = []
    for place, (counter, total) in enumerate(ordered[:limit], start=1):
        tied = bool(ranks) and ranks[-1].value == total
        ranks.append(Ranked(ranks[-1].rank if tied else place, counter, total))
    return ranks


def top_of(connection: Connection, board: Board, limit: int) -> list[Ranked]:
    """The top of a board, its partitions read up to eight at a time.

    Half a read unit for each of its partitions, and each 4 KB read there.
    """
    dynamo, table = connection.retrying, connection.counters

    def read(bucket: str) -> list[tuple[str, Amount]]:
        return _top_of_bucket(dynamo, table, board, bucket, limit)

    with dynamo.workers(_READERS, "countledger-top") as pool:
        return ranked(chain.from_iterable(pool.map(read, board.buckets)), limit)


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


def board_of_day(
    namespace: str, settings: Sequence[WindowSetting], day: date | str, now_ms: int
) -> Board:
    """The board of a day: a date in the time zone of the windows, also as text; or `today`.

    `NotRanked`: days are not ranked, or an earlier setting has counted a part of this one.
    `BadTime`: the time zone has no such day, or its ranking is no longer kept.
    """
    if not settings:
        raise no_windows(namespace)
    newest = settings[-1]
    if not newest.ranked:
        raise NotRanked(
            f"days of namespace {namespace!r} are not ranked: `countledger windows enable "
            f"{namespace} --by {newest.finest} --rank` ranks them, for what is recorded from then "
            "on"
        )
    window = _named(newest, day, now_ms)
    for one in of_the_zone(settings)[:-1]:
        if (one.ended_ms or 0) + one.skew_ms > window.start_ms:
            changed = to_datetime(newest.from_ms).isoformat(" ", "minutes")
            raise NotRanked(
                f"windows of namespace {namespace!r} were changed at {changed}: what was counted "
                f"before is not in the ranking of {window.name}; give a later day, or read windows"
            )
    if window.end_ms + newest.keep_ms <= now_ms:
        raise BadTime(
            f"rankings of days are kept for {show_duration(newest.keep_ms)} after their day, and "
            f"that of {window.name} no longer: give a later day"
        )
    return day_board(namespace, newest, window.name)


def _named(setting: WindowSetting, day: date | str, now_ms: int) -> Window:
    if day == TODAY:
        return window_of(now_ms, Per.DAY, setting.calendar)
    try:
        wanted = date.fromisoformat(day) if isinstance(day, str) else day
        return window_on(wanted, Per.DAY, setting.calendar)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadTime(
            f"day {shown(str(day))}: {error}; give a date such as 2026-11-22, or {TODAY}"
        ) from error


_WRITERS: Final = 8
_RULES: Final = 5  # how often other calls may switch the ranking meanwhile
_ADVICE: Final = "switch the ranking again, which completes it"


@dataclass(frozen=True, slots=True)
class Rankings:
    """The rankings of namespaces.

    Attributes:
        connection: to the stack.
        region: the state of this region, which must be ready for `top`; None: it always is.
        namespaces: the namespaces, which say of what kind each is.
    """

    connection: Connection
    region: RegionStateStore | None = None
    namespaces: Namespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespaces", Namespaces(self.connection))

    def switch_on(
        self,
        namespace: str,
        *,
        wait: bool = True,
        partitions: int | None = None,
        on_wait: Callable[[int, int], object] | None = None,
    ) -> int:
        """Rank the totals of a namespace, later ones included.

        Each later change of a total costs two write units more, and the first update of a counter
        one more. This call costs one write unit, and two for each total; two read units, and half
        of one for each 4 KB of the table `counters`, which is scanned. A second call adds totals
        that lack their position.

        Args:
            namespace: of kind ledger or strict.
            partitions: how many partitions of the index hold the ranking, 1 to 100; None: four, or
                as many as it has. Each takes about 500 changed totals a second, and costs `top`
                half a read unit. The number can only grow; a total moves to its new partition with
                its next update. Strict counters move in this call, if the number is given: two
                write units each, or one if a counter is in its partition already.
            wait: wait three minutes, until all materializers have read the rule. Otherwise a total
                that is created in that time gets its position with its next update.
            on_wait: called about once a second while it waits, with the milliseconds that are over
                and those that it waits in total.

        Returns:
            The number of totals that got their position.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            NotRanked: it holds sequences, or strict counters over regions: they are not ranked.
            BadSetting: the number of partitions is out of range, or lower than it was.
            CorruptItem: the stored number is corrupt. Give a number: this call then writes it, and
                moves each total to its partition.
        """
        if partitions is not None and (
            type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX
        ):
            raise BadSetting(
                f"partitions {shown(partitions)}: a ranking has 1 to {PARTITIONS_MAX}; give an int"
            )
        namespace = keys.check_namespace(namespace)
        kind = self.namespaces.get(namespace).kind
        if kind in {Kind.SEQUENCE, Kind.STRICT_REGIONS}:
            raise NotRanked(f"namespace {namespace!r} is of kind {kind}, which is not ranked")
        rule, repaired = self._write_rule(namespace, partitions, on=True)
        if wait and kind is Kind.LEDGER:
            self._wait(on_wait)
        # A change of a strict counter does not write its position. And by a corrupt rule nobody
        # knows which partitions hold totals.
        moves = repaired or (kind is Kind.STRICT and partitions is not None)
        return self._sweep_until_agreed(namespace, rule, moves=moves)

    def _wait(self, on_wait: Callable[[int, int], object] | None) -> None:
        step_ms = RANK_SETTLES_MS if on_wait is None else SECOND_MS
        for over_ms in range(0, RANK_SETTLES_MS, step_ms):
            if on_wait is not None:
                on_wait(over_ms, RANK_SETTLES_MS)
            self.connection.clock.sleep_ms(min(step_ms, RANK_SETTLES_MS - over_ms))

    def switch_off(self, namespace: str) -> int:
        """Stop ranking a namespace's totals; their updates cost the same as before.

        One write unit, two for each total, and a scan of the table `counters` as above. A total
        may stay on the board if a materializer that has not read the rule yet updates it; its next
        update takes it off.

        Returns:
            The number of totals that lost their position.

        Raises:
            NamespaceUnknown: the namespace does not exist.
        """
        namespace = keys.check_namespace(namespace)
        self.namespaces.get(namespace)
        return self._sweep_until_agreed(namespace, self._write_rule(namespace, None, on=False)[0])

    def is_on(self, namespace: str) -> bool:
        """Whether a namespace is ranked: half a read unit."""
        return bool(partitions_of(self._rule_of(namespace)))

    def top(
        self, namespace: str, limit: int = 10, *, day: date | str | None = None
    ) -> list[Ranked]:
        """The highest totals of a namespace, or sums of a day, equal ones by name.

        Half a read unit to see that it is ranked, half of one for each partition of the board (four
        unless `switch_on` was given another number), and for each 4 KB more. The index is updated
        with a short delay.

        Args:
            namespace: a ranked namespace.
            limit: the maximum number, 1 to 1,000.
            day: the sums of that day instead, in the time zone of the namespace's windows: a date,
                also as text, or `today` (`window_settings.enable(..., ranked=4)` ranks days).

        Raises:
            NotRanked: its ranking is not switched on; or earlier windows counted a part of the day.
            NoWindows: a day of a namespace without windows.
            BadTime: there is no such day, or its ranking is no longer kept.
            BadSetting: the limit is out of range.
            RegionRebuilding: the totals of this region are incomplete.
        """
        check_limit(limit)
        namespace = keys.check_namespace(namespace)
        if self.region is not None:
            self.region.check()
        if day is not None:
            settings = self._get(keys.windows_key(namespace))
            board = board_of_day(
                namespace, decode_settings(settings), day, self.connection.clock.now_ms()
            )
            return top_of(self.connection, board, limit)
        partitions = partitions_of(self._rule_of(namespace))
        if not partitions:
            raise NotRanked(
                f"namespace {namespace!r} is not ranked: `countledger namespace rank` switches it "
                "on, for two write units with each change of a total"
            )
        return top_of(self.connection, namespace_board(namespace, partitions), limit)

    def _rule_of(self, namespace: str, *, consistent: bool = False) -> Item | None:
        namespace = keys.check_namespace(namespace)
        return self._get(keys.ranking_key(namespace), consistent=consistent)

    def _get(self, key: Key, *, consistent: bool = False) -> Item | None:
        return self.connection.retrying.get(self.connection.counters, key, consistent=consistent)

    def _write_rule(self, namespace: str, partitions: int | None, *, on: bool) -> tuple[Item, bool]:
        """Replace the rule: no call at the same time lowers the number of partitions.

        The answer says as well whether that number was corrupt before; then one must be given.
        """
        key, corrupt = keys.ranking_key(namespace), [False]

        def decide(rule: Item | None) -> Replacement:
            try:
                before, corrupt[0] = kept_partitions(rule), False
            except CorruptItem:
                if partitions is None:
                    raise
                before, corrupt[0] = partitions, True
            if rule is not None and partitions is not None and partitions < before:
                raise BadSetting(
                    f"{partitions} partitions: namespace {namespace!r} has {before} already, and "
                    "totals in the others would be missed: give as many or more"
                )
            return Replacement({**key, "on": on, "partitions": partitions or before})

        to, seen = self.connection, self._rule_of(namespace)
        records = Records(to, to.counters, "ranking of namespace", removable=False)
        written = to.run(records.write(namespace, key, decide, seen=seen))
        return written.item or {}, corrupt[0]

    def _sweep_until_agreed(self, namespace: str, rule: Item, *, moves: bool = False) -> int:
        """Sweep by the rule that is stored, as it is when the sweep has ended."""
        swept = self._sweep_by(namespace, rule, moves=moves)
        for _ in range(_RULES):
            now = self._rule_of(namespace, consistent=True)
            if now is None or write_of(now) == write_of(rule):
                return swept
            rule = now
            self._sweep_by(namespace, rule, moves=moves)
        raise Throttled(f"the ranking of namespace {namespace!r} kept being switched; try again")

    def _sweep_by(self, namespace: str, rule: Item, *, moves: bool) -> int:
        table, board = self.connection.counters, namespace_board(namespace, kept_partitions(rule))
        there = BeginsWith(board.attribute, board.name + "#")
        if not is_on(rule):
            return self._sweep(namespace, there, partial(unrank_of, table, board))
        # A total of zeros, created for a ranked group, gets its position with its first entry.
        recorded = Compare("version", ">", 0)
        lacking = AllOf(Absent(board.attribute), Absent("bins"), recorded)
        place = partial(place_of, table, board, may_be_made=False)
        placed = self._sweep(namespace, lacking, place)
        if moves:
            self._sweep(namespace, there, partial(move_of, table, board))
        return placed

    def _sweep(self, namespace: str, where: Condition, change: Callable[[str], Update]) -> int:
        dynamo, table = self.connection.retrying, self.connection.counters
        with dynamo.workers(_WRITERS, "countledger-ranker") as pool:
            found = totals_of(dynamo, table, namespace, where, (SWEPT,))
            changed = partial(self._changed, change)
            return sum(sum(pool.map(changed, page)) for page in found)

    def _changed(self, change: Callable[[str], Update], seen: Item) -> bool:
        """Change a total, unless it is gone, or so already: whether this call did."""
        connection, own = self.connection, self.connection.ids.unique_id()
        update = change(seen["counter"])

        def request(seen: Item) -> Send:
            return Send(after_sweep(update, seen, own))

        def interpret(reply: Reply[Item]) -> Verdict[Item, bool]:
            match reply.answer:
                case ConditionFailed(item=met):
                    found = met or {}
                    if found.get(SWEPT) == own:
                        return Done(value=True)  # by an attempt that got no answer
                    if found.get(SWEPT) == reply.state.get(SWEPT):
                        return Done(value=False)
                    # What the scan showed was older. It is safe also if an attempt was applied
                    # before that sweep: the rule is read again after this one.
                    return Again(found, CountledgerError("other calls sweep it as well"))
                case CountledgerError():
                    return otherwise(reply)
            return Done(value=True)

        def give_up(exhausted: Exhausted[Item]) -> NoReturn:
            raise_exhausted(exhausted, f"to rank {seen['counter']!r}", _ADVICE)

        attempts = connection.attempts()
        return connection.run(attempt(seen, request, interpret, give_up, attempts))
