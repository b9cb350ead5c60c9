"""The windows of namespaces: users switch them on, change them, switch them off and list them.

A change is effective a fixed time after it is written, so that every materializer knows it by then.
Settings never change: the one before ends when the next one begins, each with items of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import decoded, optional
from countledger.ledger.calendar import Per, rules_of, rules_version
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    NoWindows,
    Throttled,
    Unclear,
    shown,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    REPLICATION_BOUND_DEFAULT_MS,
    WINDOW_SETTINGS_MAX,
    WINDOWS_KEPT_DEFAULT_MS,
    WINDOWS_LIFE_MS,
    WINDOWS_SEND_MS,
)
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put, unchanged
from countledger.ledger.windows import FINEST, WindowSetting, decode_settings, encode_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.namespace import Namespaces

# Only another change of the same namespace at the same time defeats an attempt.
_BACKOFF: Final = Backoff(attempts=6, base_ms=50, cap_ms=800)
_ID_LENGTH: Final = 8


def window_delay_ms(clock_skew_ms: int) -> int:
    """How long after its write a change of windows is known to every materializer."""
    return WINDOWS_SEND_MS + WINDOWS_LIFE_MS + clock_skew_ms


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """The windows of the namespaces of one region.

    Attributes:
        dynamo: a DynamoDB client; every write here carries a condition.
        table: the table `counters`.
        namespaces: kind and horizon of each namespace.
        clock_skew_ms: by how much clocks may differ.
        replication_ms: the longest time in which an entry reaches every region.
        delay_ms: how long after its write a change is effective.
        clock: for that time.
        new_id: makes ids.
        random: for the jitter of waits.
    """

    dynamo: DynamoClient
    table: str
    namespaces: Namespaces
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    replication_ms: int = REPLICATION_BOUND_DEFAULT_MS
    delay_ms: int = window_delay_ms(CLOCK_SKEW_DEFAULT_MS)
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[int], str] = new_id
    random: Random = field(default_factory=Random)

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
            skew_ms=self.clock_skew_ms,
            replication_ms=self.replication_ms,
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
        return decode_settings(self._item(namespace))

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> Iterator[tuple[str, WindowSetting]]:
        """The namespaces that ever had windows, each with its newest setting.

        Half a read unit for each namespace of the stack, and each 4 KB of settings.

        Args:
            on_corrupt: called with the error of each item that cannot be read; it is left out.

        Raises:
            CorruptItem: one cannot be read, and `on_corrupt` is not given.
        """
        names = sorted(one.name for one in self.namespaces.list(on_corrupt=on_corrupt))
        items = self.dynamo.get_many(self.table, [keys.windows_key(name) for name in names])
        there = {item["counter"]: item for item in items}
        for name in names:
            item = there.get(keys.windows_key(name)["counter"])
            for settings in decoded([item] if item else [], decode_settings, on_corrupt):
                if settings:
                    yield name, settings[-1]

    def _item(self, namespace: str) -> Item | None:
        return self.dynamo.get(self.table, keys.windows_key(namespace), consistent=True)

    def _setting_id(self, at_ms: int) -> str:
        # The last digits of an id are random; the first ones are its time.
        return self.new_id(at_ms)[-_ID_LENGTH:]

    def _change(
        self,
        namespace: str,
        decide: Callable[[tuple[WindowSetting, ...], int], tuple[WindowSetting, ...]],
    ) -> tuple[WindowSetting, ...]:
        """Write the settings that `decide` makes of the stored ones and an effective time.

        After an attempt without an answer nothing is decided again: what it wrote may have been
        effective, and another call has changed it since.
        """
        for _ in _BACKOFF.tries(self.clock, self.random):
            item = self._item(namespace)
            known = decode_settings(item)
            revision = None if item is None else optional(item, "revision", str)
            at_ms = self.clock.now_ms()
            wanted = decide(known, at_ms + self.delay_ms)
            if wanted == known:
                return known
            _check_number(namespace, wanted)
            own = self.new_id(at_ms)
            item = encode_settings(namespace, wanted, own)
            put = Put(self.table, item, unchanged("revision", revision))
            try:
                with guarded(partial(self._refuse_late, namespace, at_ms)):
                    self.dynamo.put(put)
            except Throttled:
                continue
            except ConditionFailed as failed:
                if failed.item is None or failed.item.get("revision") != own:
                    if failed.maybe_applied:
                        raise Unclear(
                            f"windows of namespace {namespace!r} were changed by another call, "
                            "after an attempt of this one that got no answer: look at them, and "
                            "call again"
                        ) from None
                    continue  # another change came first
            if self.clock.now_ms() - at_ms > WINDOWS_SEND_MS:
                raise Unclear(
                    f"windows of namespace {namespace!r} were changed, but too late for some "
                    "materializers: windows of that time may be wrong until `countledger windows "
                    f"rebuild --namespace {namespace}`"
                )
            return wanted
        raise Throttled(f"windows of namespace {namespace!r} kept being changed; try again")

    def _refuse_late(self, namespace: str, at_ms: int) -> None:
        late_ms = self.clock.now_ms() - at_ms
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
    """Refuse rules of the zone that are older than those by which its windows are counted.

    Raises:
        BadSetting: naming both versions.
    """
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
