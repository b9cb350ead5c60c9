"""Windows of namespaces are switched on and off, and those of a counter are read.

The windows as values, and their items, are in `ledger/windows.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from countledger.consumers.proof import waiting_since_ms
from countledger.consumers.record import LedgerStream
from countledger.consumers.totals import TotalsReader, freshness_of
from countledger.ledger import amount, keys
from countledger.ledger.attributes import decoded
from countledger.ledger.calendar import Per, Window, rules_of, rules_version, window_of, windows_in
from countledger.ledger.clock import show_duration, to_datetime, to_ms
from countledger.ledger.errors import (
    BadSetting,
    BadTime,
    NoWindows,
    Throttled,
    Unclear,
    shown,
)
from countledger.ledger.limits import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    WINDOW_SETTINGS_MAX,
    WINDOWS_KEPT_DEFAULT_MS,
    WINDOWS_LIFE_MS,
    WINDOWS_MAX,
    WINDOWS_SEND_MS,
)
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import AllOf, Between, Compare, Query
from countledger.ledger.recent import Recent
from countledger.ledger.records import Records, Replacement
from countledger.ledger.total import repaired_ms_of, windows_id_of
from countledger.ledger.windows import (
    FINEST,
    LATEST_MS,
    WindowSetting,
    decode_settings,
    encode_settings,
    item_name,
    slots_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.windows import Slot


# The windows of namespaces: users switch them on, change them, switch them off and list them.
#
# A change is effective a fixed time after it is written, so that every materializer knows it by
# then. Settings never change: the one before ends when the next one begins, each with items of its
# own.


_ID_LENGTH: Final = 8


def window_delay_ms(clock_skew_ms: int) -> int:
    """How long after its write a change of windows is known to every materializer."""
    return WINDOWS_SEND_MS + WINDOWS_LIFE_MS + clock_skew_ms


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The windows of the namespaces of one region.

    Attributes:
        connection: to the stack.
        at_once: whether a change is effective when it is written; only where no materializer can
            know other windows.
        namespaces: kind and horizon of each namespace.
    """

    connection: Connection
    at_once: bool = False
    namespaces: Namespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespaces", Namespaces(self.connection))

    @property
    def _delay_ms(self) -> int:
        return 0 if self.at_once else window_delay_ms(self.connection.clock_skew_ms)

    def enable(
        self,
        namespace: str,
        *,
        by: str,
        time_zone: str = "UTC",
        keep_ms: int = WINDOWS_KEPT_DEFAULT_MS,
        max_lateness_ms: int | None = None,
        ranked: int = 0,
        first: bool = False,
    ) -> WindowSetting:
        """Switch windows on, or change them: a read unit, and a write unit for each KB.

        Each event then costs more, by the items that a batch touches (docs/windows.md). What is
        recorded before the setting's `from_ms`, about a minute ahead, is in no window.
        Switching on again with the same values changes nothing, unless the installed `tzdata` has
        newer rules for the zone.

        Args:
            namespace: of kind `ledger`.
            by: the finest windows: `minute`, `hour` or `day`; the coarser ones come with them.
            time_zone: whose hours, days and months they are: a name of the IANA database. Windows
                of an earlier zone stay stored, but only those of the newest zone are read.
            keep_ms: for how long after their day minutes and hours are kept: an hour to ten years.
                Days and months are kept for ever.
            max_lateness_ms: what happened longer ago when it is recorded counts at the time of its
                recording, so that a window is final some time after its end. None: it counts when
                it happened, and no window is ever final.
            ranked: over how many partitions of the index the days are ranked, 1 to 100
                (`rankings.top(..., day=)`); each takes about 500 changed days a second. 0: they are
                not ranked, and cost nothing for it. Rankings are kept as long as hours.
            first: only if the namespace never had windows; else its newest setting stays.

        Raises:
            BadSetting: a value breaks its rule, or `tzdata` is older than the rules in use.
            NamespaceUnknown: the namespace does not exist.
            NoWindows: it holds strict counters or sequences, which have no entries.
            Throttled: other changes of the same namespace came first each time.
            Unclear: windows may lack entries (rebuild them), or others changed them (look at them).
        """
        found = self.namespaces.get(namespace := keys.check_namespace(namespace))
        _check_kind(namespace, found.kind)
        wanted = WindowSetting(
            id="",
            finest=_finest(by),
            zone=time_zone,
            rules=rules_of(time_zone),
            rules_version=rules_version(),
            keep_ms=keep_ms,
            max_lateness_ms=max_lateness_ms,
            horizon_ms=found.horizon_ms,
            skew_ms=self.connection.clock_skew_ms,
            replication_ms=self.connection.replication_ms,
            from_ms=0,
            ranked=ranked,
        )

        def decide(known: tuple[WindowSetting, ...], at_ms: int) -> tuple[WindowSetting, ...]:
            newest = known[-1] if known else None
            if first and newest is not None:
                return known
            _check_rules(wanted, known)
            if newest is not None and newest.ended_ms is None:
                if _means_the_same(wanted, newest):
                    return known
                known = (*known[:-1], replace(newest, ended_ms=max(at_ms, newest.from_ms)))
            begin_ms = at_ms if newest is None else max(at_ms, known[-1].ended_ms or 0)
            return (*known, replace(wanted, id=self._setting_id(at_ms), from_ms=begin_ms))

        return self._change(namespace, decide)[-1]

    def disable(self, namespace: str) -> WindowSetting | None:
        """Switch windows off, about a minute ahead: a read unit, and a write unit for each KB.

        What they have counted stays stored and can be read.

        Returns:
            The setting that ends; None: windows are off already.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            Throttled, Unclear: as `enable`.
        """
        namespace = keys.check_namespace(namespace)
        self.namespaces.get(namespace)
        before = self.of(namespace)
        if not before or before[-1].ended_ms is not None:
            return None

        def decide(known: tuple[WindowSetting, ...], at_ms: int) -> tuple[WindowSetting, ...]:
            if not known or known[-1].ended_ms is not None:
                return known
            return (*known[:-1], replace(known[-1], ended_ms=max(at_ms, known[-1].from_ms)))

        return self._change(namespace, decide)[-1]

    def of(self, namespace: str) -> tuple[WindowSetting, ...]:
        """The settings of a namespace, the oldest first, read consistently: one read unit.

        Raises:
            CorruptItem: one of them cannot be read.
        """
        namespace = keys.check_namespace(namespace)
        key, connection = keys.windows_key(namespace), self.connection
        stored = connection.retrying.get(connection.counters, key, consistent=True)
        return decode_settings(stored)

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> Iterator[tuple[str, WindowSetting]]:
        """The namespaces that ever had windows, each with its newest setting.

        Half a read unit for each namespace of the stack, and each 4 KB of settings.

        Args:
            on_corrupt: called with the error of each item that cannot be read; it is left out.

        Raises:
            CorruptItem: one cannot be read, and `on_corrupt` is not given.
        """
        names = sorted(one.name for one in self.namespaces.list(on_corrupt=on_corrupt))
        wanted = [keys.windows_key(name) for name in names]
        items = self.connection.retrying.get_many(self.connection.counters, wanted)
        there = {item["counter"]: item for item in items}
        for name in names:
            item = there.get(keys.windows_key(name)["counter"])
            for settings in decoded([item] if item else [], decode_settings, on_corrupt):
                if settings:
                    yield name, settings[-1]

    def _setting_id(self, at_ms: int) -> str:
        # The last digits of an id are random; the first ones are its time.
        new: str = self.connection.ids.new_id(at_ms)
        return new[-_ID_LENGTH:]

    def _change(
        self,
        namespace: str,
        decide: Callable[[tuple[WindowSetting, ...], int], tuple[WindowSetting, ...]],
    ) -> tuple[WindowSetting, ...]:
        """Write the settings that `decide` makes of the stored ones and an effective time."""
        connection = self.connection
        decided_ms: dict[tuple[WindowSetting, ...], int] = {}

        def replacement(there: Item | None) -> Replacement | None:
            at_ms = connection.clock.now_ms()
            known = decode_settings(there)
            wanted = decide(known, at_ms + self._delay_ms)
            if wanted == known:
                return None
            _check_number(namespace, wanted)
            decided_ms[wanted] = at_ms
            in_time = partial(self._refuse_late, namespace, at_ms)
            return Replacement(encode_settings(namespace, wanted), before_send=in_time)

        records = Records(connection, connection.counters, "windows of namespace", removable=False)
        steps = records.write(namespace, keys.windows_key(namespace), replacement)
        written = connection.run(steps)
        settings = decode_settings(written.item)
        now_ms = connection.clock.now_ms()
        if now_ms - decided_ms.get(settings, now_ms) > WINDOWS_SEND_MS:
            raise Unclear(
                f"windows of namespace {namespace!r} were changed, but too late for some "
                "materializers: windows of that time may be wrong until `countledger windows "
                f"rebuild --namespace {namespace}`"
            )
        return settings

    def _refuse_late(self, namespace: str, at_ms: int) -> None:
        late_ms = self.connection.clock.now_ms() - at_ms
        if late_ms > WINDOWS_SEND_MS:
            raise Throttled(
                f"windows of namespace {namespace!r}: this process was suspended for {late_ms} ms "
                "before the change was sent; nothing was written"
            )


def _check_kind(namespace: str, kind: Kind) -> None:
    if kind is not Kind.LEDGER:
        raise NoWindows(
            f"namespace {namespace!r} is of kind {kind}: only entries of a ledger have times from "
            "which windows can be counted and verified; record what windows are wanted of in a "
            "ledger counter as well"
        )


def _finest(by: str) -> Per:
    if by not in list(FINEST):
        raise BadSetting(f"windows by {shown(str(by))} do not exist: give {', '.join(FINEST)}")
    return Per(by)


def _check_rules(wanted: WindowSetting, known: tuple[WindowSetting, ...]) -> None:
    """Refuse rules of the zone that are older than those by which its windows are counted."""
    of_zone = [one for one in known if one.zone == wanted.zone]
    if not of_zone or wanted.rules == of_zone[-1].rules:
        return
    stored = of_zone[-1].rules_version
    if wanted.rules_version < stored and not _means_the_same(wanted, known[-1]):
        raise BadSetting(
            f"the package tzdata installed here has rules of {wanted.zone} of "
            f"{wanted.rules_version}, and its windows are counted by those of {stored}: rules only "
            "move forward; install a newer tzdata, then try again"
        )


def _means_the_same(wanted: WindowSetting, newest: WindowSetting) -> bool:
    """Whether a setting would change nothing; rules older than the stored ones never do."""
    older = wanted.rules_version <= newest.rules_version
    same = replace(wanted, id=newest.id, from_ms=newest.from_ms, rules_version=newest.rules_version)
    return (replace(same, rules=newest.rules) if older else same) == newest


def _check_number(namespace: str, settings: tuple[WindowSetting, ...]) -> None:
    if len(settings) > WINDOW_SETTINGS_MAX:
        raise BadSetting(
            f"windows of namespace {namespace!r} were changed {len(settings) - 1} times, which is "
            "the most: record in a namespace of another name"
        )


# The windows of a counter, added up from their items, and what is known of each. Pure.


_LENGTH_MS: Final = {
    Per.MINUTE: MINUTE_MS,
    Per.HOUR: HOUR_MS,
    Per.DAY: DAY_MS,
    Per.MONTH: 30 * DAY_MS,
}


@dataclass(frozen=True, slots=True)
class WindowSum:
    """What a counter's entries of one window come to.

    Attributes:
        name: of the window, as `2026-11-22` or `2026-11-22T13+01:00`.
        start: its first moment, in its time zone.
        end: the first moment after it.
        value: the sum of the deltas of its entries.
        events: how many events they carried.
        complete: whether everything that was recorded before its end is in it: the stream has been
            handled past its end, windows were on all that time, the rules of the zone were the same
            for all of it, and the total was not repaired since. Later entries may still be of this
            window.
        final: whether no later entry can be of it: `max_lateness` after its end has passed, and
            the time in which an entry of then could still arrive.
        zone: the name of its time zone.
    """

    name: str
    start: datetime
    end: datetime
    value: Amount
    events: int
    complete: bool
    final: bool
    zone: str


@dataclass(slots=True)
class WindowSums:
    """Adds up what items say about windows that follow each other.

    At `repaired_ms` the total was last repaired without a rebuild of its windows since: what was
    recorded before may be missing from them.
    """

    windows: Sequence[Window]
    per: Per
    repaired_ms: int | None = None
    sums: list[Amount] = field(init=False)
    events: list[int] = field(init=False)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sums, self.events = [0] * len(self.windows), [0] * len(self.windows)
        self._starts = [window.start_ms for window in self.windows]

    def add(self, slots: Iterable[Slot]) -> None:
        """Add what is in an item. A month is added up from its days.

        What was counted under other rules of the zone may have other bounds: it is added to the
        window in which its middle is, so a day stays the day of its date.
        """
        for slot in slots:
            middle_ms = _middle_ms(slot.window)
            place = bisect_right(self._starts, middle_ms) - 1
            if place < 0 or middle_ms >= self.windows[place].end_ms:
                continue
            self.sums[place] = amount.add(self.sums[place], slot.sum)
            self.events[place] += slot.events

    def read(self, settings: Sequence[WindowSetting], through_ms: int) -> list[WindowSum]:
        """The windows, with what is known of each; settings are of one zone, the oldest first."""
        with_kind = [one for one in settings if one.has(self.per)]
        found: list[WindowSum] = []
        for place, window in enumerate(self.windows):
            complete = (
                through_ms >= window.end_ms
                and covered(window, with_kind)
                and not is_torn(window, self.per, settings)
                and not self._is_doubtful(window, with_kind)
            )
            found.append(
                WindowSum(
                    window.name,
                    _local(window.start_ms, settings[-1]),
                    _local(window.end_ms, settings[-1]),
                    self.sums[place],
                    self.events[place],
                    complete,
                    final=complete and final_from_ms(window, settings) <= through_ms,
                    zone=settings[-1].zone,
                )
            )
        return found

    def _is_doubtful(self, window: Window, settings: Sequence[WindowSetting]) -> bool:
        """Whether something of a window may have been recorded before the total was repaired."""
        if self.repaired_ms is None:
            return False
        return any(
            max(one.from_ms, window.start_ms - one.skew_ms) <= self.repaired_ms + one.skew_ms
            for one in settings
        )


def no_windows(namespace: str) -> NoWindows:
    return NoWindows(
        f"namespace {namespace!r} has no windows: `countledger windows enable {namespace} --by "
        "day` switches them on, for what is recorded from then on"
    )


def of_the_zone(settings: Sequence[WindowSetting]) -> list[WindowSetting]:
    """The settings whose windows are those of the newest one: of the same time zone."""
    return [one for one in settings if one.zone == settings[-1].zone]


def check_per(per: str, namespace: str, settings: Sequence[WindowSetting]) -> Per:
    """The kind of windows of that name, if a namespace has them, and not only coarser ones."""
    if per not in list(Per):
        raise BadSetting(f"windows by {shown(str(per))} do not exist: give {', '.join(Per)}")
    if not any(one.has(Per(per)) for one in settings):
        raise BadSetting(
            f"namespace {namespace!r} has windows by {settings[-1].finest}, not by {per}: "
            f"`countledger windows enable {namespace} --by {per}` adds them, for what is recorded "
            "from then on"
        )
    return Per(per)


def check_range(per: Per, start_ms: int, end_ms: int) -> None:
    """Refuse a range that is empty, or has too many windows for one call."""
    if not 0 <= start_ms < end_ms <= LATEST_MS:
        raise BadTime(
            f"windows since {to_datetime(start_ms).isoformat()} until "
            f"{to_datetime(end_ms).isoformat()}: give a time from 1970 on, and a later one, up to "
            f"{to_datetime(LATEST_MS).isoformat()}"
        )
    count = (end_ms - start_ms) // _LENGTH_MS[per]
    if count > WINDOWS_MAX:
        coarser = list(Per)[list(Per).index(per) + 1] if per is not Per.MONTH else per
        raise BadTime(
            f"{show_duration(end_ms - start_ms)} has about {count} windows by {per}; one call "
            f"reads up to {WINDOWS_MAX}: give a shorter time, or windows by {coarser}"
        )


def check_kept(per: Per, first: Window, settings: Sequence[WindowSetting], now_ms: int) -> None:
    """Refuse minutes and hours that may have been deleted."""
    for one in _adding(settings, first):
        day = window_of(first.start_ms, Per.DAY, one.calendar)
        if day.end_ms + one.keep_ms <= now_ms:
            raise BadTime(
                f"windows by {per} are kept for {show_duration(one.keep_ms)} after their day, and "
                f"those of {day.name} no longer: give a later time, or windows by day"
            )


def check_counted(
    per: Per, windows: Iterable[Window], settings: Sequence[WindowSetting], namespace: str
) -> None:
    """Refuse windows in whose time only coarser ones were counted."""
    coarser = [one for one in settings if not one.has(per)]
    for window in windows if coarser else ():
        if _is_within(window.start_ms, window.end_ms, coarser):
            by = next(one.finest for one in coarser if one.holds_at(window.start_ms))
            raise BadTime(
                f"windows by {per} of namespace {namespace!r} were not counted in {window.name}, "
                f"but windows by {by}: read those, or another time"
            )


def _adding(settings: Sequence[WindowSetting], window: Window) -> list[WindowSetting]:
    """The settings whose entries may be of a window: not those that ended before it began.

    What is recorded up to the clock skew before a window may be dated in it.
    """
    found = [one for one in settings if _may_add(one, window)]
    return found or [settings[-1]]


def _may_add(setting: WindowSetting, window: Window) -> bool:
    return setting.ended_ms is None or setting.ended_ms + setting.skew_ms > window.start_ms


def covered(window: Window, settings: Sequence[WindowSetting]) -> bool:
    """Whether windows of this kind were on while anything was recorded that may be of a window.

    That is from the clock skew before its beginning, when it may have been dated ahead, to its end.
    """
    skew_ms = max((one.skew_ms for one in settings if _may_add(one, window)), default=0)
    return _is_within(window.start_ms - skew_ms, window.end_ms, settings)


def is_torn(window: Window, per: Per, settings: Sequence[WindowSetting]) -> bool:
    """Whether a setting with other rules may have counted a part of it elsewhere, or more in it.

    The window has the bounds of the newest setting; the settings are of one zone, the oldest first.
    """
    for one in settings[:-1]:
        if one.rules == settings[-1].rules or not one.has(per):
            continue
        counted_ms = (one.ended_ms or 0) + one.skew_ms
        for other in windows_in(window.start_ms, window.end_ms, per, one.calendar):
            until_ms = min(other.end_ms, counted_ms)
            if other.start_ms >= until_ms:
                continue  # it has counted nothing there
            if window.start_ms <= _middle_ms(other) < window.end_ms:
                is_right = window.start_ms <= other.start_ms and until_ms <= window.end_ms
            else:
                is_right = window.end_ms <= other.start_ms or until_ms <= window.start_ms
            if not is_right:
                return True
    return False


def _middle_ms(window: Window) -> int:
    """What was counted under other bounds is of the window in which its middle is."""
    return (window.start_ms + window.end_ms) // 2


def _is_within(start_ms: int, end_ms: int, settings: Sequence[WindowSetting]) -> bool:
    """Whether settings hold for the whole of a time, one after the other."""
    reached_ms = start_ms
    for one in settings:
        if one.holds_at(reached_ms):
            if one.ended_ms is None or one.ended_ms >= end_ms:
                return True
            reached_ms = one.ended_ms
    return False


def final_from_ms(window: Window, settings: Sequence[WindowSetting]) -> float:
    """When no entry can be of a window any more; infinity: at no time."""
    latest_ms = 0
    for one in _adding(settings, window):
        if one.max_lateness_ms is None:
            return inf
        latest_ms = max(latest_ms, window.end_ms + one.max_lateness_ms + one.late_entry_ms)
    return latest_ms


def _local(at_ms: int, setting: WindowSetting) -> datetime:
    """A moment with the offset of the zone then.

    Times of one `ZoneInfo` are compared and subtracted by what the clocks show, which is wrong
    where clocks go back; times with offsets are compared by the moment.
    """
    local = to_datetime(at_ms).astimezone(setting.calendar)
    return local.astimezone(timezone(local.utcoffset() or timedelta(0)))


# In an item of this kind are the windows of each kind.
_ITEM_OF: Final = {
    Per.MONTH: Per.MONTH,
    Per.DAY: Per.MONTH,
    Per.HOUR: Per.DAY,
    Per.MINUTE: Per.HOUR,
}
# For so long a process does not look again how far the stream has been handled.
_PROGRESS_LIFE_MS: Final = WINDOWS_LIFE_MS


@dataclass(frozen=True, slots=True)
class WindowsReader:
    connection: Connection
    totals: TotalsReader = field(init=False, repr=False)
    stream: LedgerStream = field(init=False, repr=False)
    _settings: Recent[str, tuple[WindowSetting, ...]] = field(
        default_factory=lambda: Recent(WINDOWS_LIFE_MS), init=False, repr=False
    )
    _through: Recent[str, int] = field(
        default_factory=lambda: Recent(_PROGRESS_LIFE_MS), init=False, repr=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", TotalsReader(self.connection))
        object.__setattr__(self, "stream", LedgerStream(self.connection))

    def read(
        self,
        counter: str,
        per: str,
        since: datetime,
        until: datetime | None = None,
        *,
        prove: bool = False,
    ) -> list[WindowSum]:
        """As `CountLedger.windows`."""
        now_ms = self.connection.clock.now_ms()
        start_ms = to_ms(since)
        end_ms = now_ms if until is None else to_ms(until)
        counter = keys.check_counter(counter)
        namespace = keys.namespace_of(counter)
        self.totals.check_region()
        known = self._settings.of(namespace, now_ms, self._read_settings)
        settings = of_the_zone(known)
        if not settings:
            raise no_windows(namespace)
        kind = check_per(per, namespace, settings)
        check_range(kind, start_ms, end_ms)
        windows = [*windows_in(start_ms, end_ms, kind, settings[-1].calendar)]
        with_kind = [one for one in settings if one.has(kind)]
        if kind in {Per.MINUTE, Per.HOUR}:
            check_counted(kind, windows, settings, namespace)
            check_kept(kind, windows[0], with_kind, now_ms)
        to = self.connection
        total = to.retrying.get(to.counters, keys.total_key(counter)) or {}
        sums = WindowSums(windows, kind, repaired_ms_of(total))
        for setting in with_kind:
            windows_id = windows_id_of(total, setting.id)
            if windows_id is None:
                continue
            for item in self._items(counter, windows_id, setting, kind, windows):
                sums.add(slots_of(setting, item))
        ended = [window.end_ms for window in windows if window.end_ms <= now_ms]
        through_ms = self._handled_through_ms(now_ms, max(ended), prove=prove) if ended else 0
        return sums.read(settings, through_ms)

    def _read_settings(self, namespace: str) -> tuple[WindowSetting, ...]:
        to = self.connection
        return decode_settings(to.retrying.get(to.counters, keys.windows_key(namespace)))

    def _items(
        self,
        counter: str,
        windows_id: str,
        setting: WindowSetting,
        per: Per,
        windows: Sequence[Window],
    ) -> Iterator[Item]:
        kind = _ITEM_OF[per]
        first, last = (
            keys.window_part(windows_id, f"{kind}#{item_name(setting, kind, at_ms)}")
            for at_ms in (windows[0].start_ms, windows[-1].end_ms - 1)
        )
        to = self.connection
        where = AllOf(Compare("counter", "=", counter), Between("part", first, last))
        for page in to.retrying.pages(Query(to.counters, where)):
            yield from page

    def _handled_through_ms(self, now_ms: int, wanted_ms: int, *, prove: bool) -> int:
        """Up to when the stream is known to be handled: not looked at again for a few seconds.

        A shard without records never makes progress, so only the stream itself can show that
        nothing is left in it.
        """
        through_ms = self._through.of("progress", now_ms, lambda _: self._by_progress())
        if through_ms >= wanted_ms or not prove:
            return through_ms
        return max(through_ms, self._through.of("proof", now_ms, lambda _: self._by_stream(now_ms)))

    def _by_progress(self) -> int:
        shards = self.stream.shards()
        found = freshness_of(shards, self.totals.progress(str(one.shard) for one in shards))
        # The stream shows whole seconds, and more records may come of the last one.
        return 0 if found.idle else (found.handled_through_ms or 0) - SECOND_MS

    def _by_stream(self, now_ms: int) -> int:
        shards = self.stream.shards()
        progress = self.totals.progress(str(one.shard) for one in shards)
        waiting_ms = waiting_since_ms(self.stream, shards, progress)
        # The stream shows a record a little after it was written.
        seen_ms = now_ms - self.connection.clock_skew_ms
        return seen_ms if waiting_ms is None else min(waiting_ms - SECOND_MS, seen_ms)
