"""Windows: drawn for a namespace, written by the materializers, and counted again at the end.

Some seeds have them, drawn from a source of their own. Events are late then as those of a real
system: 56 % by more than an hour, 20 % by more than a day, some by more than hours are kept. The
recount has a calendar of its own, and reads no code of the product but the names of items.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from countledger.consumers.verify import Judgement
from countledger.consumers.window_audit import WindowRebuilder
from countledger.consumers.windows import window_delay_ms
from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.calendar import Per, rules_of, rules_version
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.windows import WindowSetting, encode_settings
from tests.simulation.client import Client, Memory
from tests.simulation.ledger_account import Identity
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS, LEDGER, OF_WINDOWS
from tests.simulation.sums import Wrong
from tests.simulation.world import World

Cells: TypeAlias = "Counter[tuple[str, str]]"
"""By the item's name and an attribute of it: a sum or a number of events."""

NAMESPACE: Final = "n"
# Where clocks do not change within the weeks that a simulation takes.
_ZONES: Final = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns")
_FEW: Final = 0.3


@dataclass
class WindowAccounts:
    """The entries that were written anywhere, with what their windows follow from.

    Attributes:
        settings: for each region, in turn; None: there are no windows in this simulation.
        entries: by counter and identity.
        edited: when windows of a counter were edited by hand in a region, until they are rebuilt.
        operators: how many work on windows now.
        random: draws what concerns windows alone.
    """

    settings: dict[str, tuple[WindowSetting, ...]] | None = None
    entries: dict[str, dict[Identity, Item]] = field(default_factory=dict)
    edited: dict[tuple[str, str], float] = field(default_factory=dict)
    operators: int = 0
    random: Random | None = None

    def changed(self, change: Change) -> None:
        """An entry was written."""
        counter, key = change.key
        if change.table.name == LEDGER and key.startswith(keys.ENTRY_PREFIX) and change.after:
            self.entries.setdefault(counter, {})[key, change.after["at"]] = change.after


def set_up(world: World, random: Random, focus: str | None) -> None:
    """Draw windows, and store the settings in every region before anything happens.

    Simulations of a focus that somebody named have none, but for those of windows.
    """
    if focus not in OF_WINDOWS and (focus is not None or random.random() > _FEW):
        return
    accounts = world.auditor.windows
    accounts.settings, accounts.random = {}, random
    for region in world.regions:
        _store(world, region, _drawn(world, random, region))


def joined(world: World, region: str) -> None:
    """A region that joins has windows from a moment of its own on, when all of it knows of them."""
    accounts = world.auditor.windows
    if accounts.settings is None or accounts.random is None:
        return
    from_ms = int(world.schedule.now_ms) + window_delay_ms(world.shape.skew_ms)
    _store(world, region, (_setting(world, accounts.random, region[0], from_ms, None),))


def _store(world: World, region: str, settings: tuple[WindowSetting, ...]) -> None:
    item = encode_settings(NAMESPACE, settings)
    known = world.auditor.windows.settings
    if known is not None:
        known[region] = settings
    zones = {one.id: one.zone for one in settings}
    alerts = world.auditor.alerts[region].windows
    alerts.zone_of = lambda windows: zones[windows.rpartition(".")[0]]
    by_id = {one.id: one for one in settings}
    alerts.has = lambda windows, per: by_id[windows.rpartition(".")[0]].has(Per(per))
    world.copies[region][COUNTERS].store((item["counter"], item["part"]), item)


def _drawn(world: World, random: Random, region: str) -> tuple[WindowSetting, ...]:
    """One setting from some moment on, or two of which the second follows the first."""
    begin_ms = int(world.schedule.now_ms) // MINUTE_MS * MINUTE_MS
    from_ms = begin_ms + random.choice([-DAY_MS, -DAY_MS, MINUTE_MS, 5 * MINUTE_MS])
    change_ms = from_ms + random.choice([DAY_MS + 2 * MINUTE_MS, 10 * MINUTE_MS, 3 * DAY_MS])
    ends = [(from_ms, change_ms), (change_ms, None)]
    periods = ends if random.random() < _FEW else [(from_ms, None)]
    return tuple(
        _setting(world, random, f"{region[0]}{number}", since_ms, until_ms)
        for number, (since_ms, until_ms) in enumerate(periods)
    )


def _setting(
    world: World, random: Random, name: str, from_ms: int, ended_ms: int | None
) -> WindowSetting:
    zone = random.choice(_ZONES)
    return WindowSetting(
        id=name,
        finest=random.choice([Per.DAY, Per.HOUR, Per.MINUTE]),
        zone=zone,
        rules=rules_of(zone),
        rules_version=rules_version(),
        keep_ms=random.choice([HOUR_MS, DAY_MS, 30 * DAY_MS]),
        max_lateness_ms=random.choice([None, None, 2 * HOUR_MS]),
        horizon_ms=world.shape.horizon_ms,
        skew_ms=world.shape.skew_ms,
        replication_ms=world.shape.replication_ms,
        from_ms=from_ms,
        ended_ms=ended_ms,
        # Drawn last, and of few values: what is drawn before stays what it was.
        ranked=random.choice([0, 1, 4]),
    )


def occurred_at(client: Client) -> datetime | None:
    """The business time of a new event; None: it has none."""
    if client.auditor.windows.settings is None:
        return None
    random = client.random
    draw = random.random()
    least_ms, most_ms = 0, HOUR_MS
    if draw < 0.2:
        least_ms, most_ms = DAY_MS, 40 * DAY_MS
    elif draw < 0.56:
        least_ms, most_ms = HOUR_MS, DAY_MS
    elif draw < 0.7:
        return None
    elif draw < 0.75:
        least_ms, most_ms = -HOUR_MS, 0
    late = timedelta(milliseconds=random.randrange(least_ms, most_ms))
    return to_datetime(client.process.now_ms()) - late


def check_windows(world: World, memory: Memory) -> None:
    """Every window of every region equals a recount from the entries."""
    for region, settings in (world.auditor.windows.settings or {}).items():
        if region not in world.regions:
            continue
        for counter in sorted(memory.free):
            if keys.namespace_of(counter) == NAMESPACE and _is_sure(world, region, counter):
                for setting in settings:
                    _check(world, region, counter, setting)


def _is_sure(world: World, region: str, counter: str) -> bool:
    """Whether windows must be right; they are rebuilt first, where they need not be."""
    product = Product(world.process(region, "the last to verify windows"))
    windows = product.windows
    edited = world.auditor.windows.edited
    if (region, counter) in edited or world.auditor.ledger.accounts[counter].excused.unsure(region):
        done = next(WindowRebuilder(windows).rebuild([counter]))
        world.tell(f"rebuild windows of {counter} in {region}: {done.remedy} {done.reason}")
        if not done.healthy and "cannot be counted" not in done.reason:
            raise Wrong(f"windows of {counter} in {region} cannot be rebuilt: {done}")
        if not done.healthy or not isinstance(done.verdict.exact, int):
            return False
        edited.pop((region, counter), None)
        return True
    verdict = next(windows.verify([counter]))
    if verdict.verdict is not Judgement.EXACT:
        raise Wrong(f"windows of {counter} in {region}: {verdict}")
    return True


def _check(world: World, region: str, counter: str, setting: WindowSetting) -> None:
    made = world.auditor.ledger.accounts[counter].made
    known = world.auditor.windows.entries.get(counter, {})
    entries = [known[one] for one in made if _belongs(setting, known[one])]
    items = world.copies[region][COUNTERS].items
    total = items.get((counter, keys.TOTAL), {})
    sums = total.get(f"windowed#{setting.id}", 0), total.get(f"windowed_events#{setting.id}", 0)
    if sums != (sum(e["delta"] for e in entries), sum(e.get("events", 1) for e in entries)):
        raise Wrong(f"{counter} in {region}: {sums} are windowed, of {entries}")
    expected = _recounted(setting, entries)
    found = _found(items, counter, total.get(f"windows#{setting.id}"), world.schedule.now_ms)
    _check_ranked(items, counter, str(total.get(f"windows#{setting.id}")), setting)
    gone_ms = world.schedule.now_ms - setting.keep_ms - DAY_MS
    for cell in expected.keys() | found.keys():
        if found[cell] != expected[cell] and (cell in found or not _is_gone(cell[0], gone_ms)):
            text = f"{counter} in {region}: {cell} is {found[cell]}, not {expected[cell]}"
            raise Wrong(f"{text}, under {setting}: {entries}")


def _check_ranked(
    items: Mapping[tuple[str, str], Item], counter: str, windows: str, setting: WindowSetting
) -> None:
    """Each day is on its own board, if days are ranked."""
    prefix = f"w#{windows}#day#"
    for (name, part), item in items.items():
        if name == counter and part.startswith(prefix):
            board = f"day#{NAMESPACE}#{setting.id}#{part.removeprefix(prefix)}#"
            if str(item.get("ranked", "")).startswith(board) != bool(setting.ranked):
                raise Wrong(f"{item} is not on its board, under {setting}")


def _belongs(setting: WindowSetting, entry: Item) -> bool:
    at_ms = entry["at"]
    return setting.from_ms <= at_ms and (setting.ended_ms is None or at_ms < setting.ended_ms)


def _recounted(setting: WindowSetting, entries: list[Item]) -> Cells:
    found: Cells = Counter()
    for entry in entries:
        for item, cell in _cells(setting, entry):
            found[item, f"s{cell}"] += entry["delta"]
            found[item, f"n{cell}"] += entry.get("events", 1)
    return found


def _cells(setting: WindowSetting, entry: Item) -> Iterator[tuple[str, str]]:
    """The calendar once more, as plainly as it can be said."""
    at_ms = entry["at"]
    when_ms: Any = entry.get("occurred_at", at_ms)
    longest_ms = setting.max_lateness_ms
    early = longest_ms is not None and when_ms < at_ms - longest_ms
    if early or when_ms > at_ms + setting.skew_ms:
        when_ms = at_ms
    local = to_datetime(when_ms).astimezone(ZoneInfo(setting.zone))
    yield f"month#{local:%Y-%m}", f"{local:%d}"
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if at_ms > midnight.timestamp() * 1_000 + setting.keep_ms:
        return
    if setting.finest is not Per.DAY:
        yield f"day#{local:%Y-%m-%d}", f"{local:%H}"
    elif setting.ranked:
        yield f"day#{local:%Y-%m-%d}", "00"
    if setting.finest is Per.MINUTE:
        here = local.astimezone(UTC)
        yield f"hour#{here:%Y-%m-%dT%H}:{here.minute // 30 * 30:02d}", f"{here:%M}"


def _found(
    items: Mapping[tuple[str, str], Item], counter: str, windows: str | None, now_ms: float
) -> Cells:
    """What readers may see: an item whose time has come counts as gone."""
    found: Cells = Counter()
    prefix = f"w#{windows}#"
    for (name, part), item in items.items():
        if name == counter and part.startswith(prefix):
            if item.get("expires_at", now_ms) * 1_000 <= now_ms:
                continue
            cells = {n: v for n, v in item.items() if n[:1] in "sn" and n[1:].isdigit()}
            for kind, whole in (("s", "sum"), ("n", "events")):
                if sum(v for n, v in cells.items() if n.startswith(kind)) != item[whole]:
                    raise Wrong(f"{whole} of {item} is not that of its cells")
            if "ranked" in item and item.get("total") != item["sum"]:
                raise Wrong(f"{item} is ranked by another number than its sum")
            for attribute, value in cells.items():
                found[part.removeprefix(prefix), attribute] = value
    return found


def _is_gone(item: str, before_ms: float) -> bool:
    """Whether an item of hours or minutes may be gone by its time."""
    kind, _, name = item.partition("#")
    begin = datetime.fromisoformat(name[:10] if kind != "month" else f"{name}-01")
    return kind != "month" and begin.replace(tzinfo=UTC).timestamp() * 1_000 < before_ms
