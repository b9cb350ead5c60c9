"""Known wrong variants of windows, each of which must be caught."""

from collections.abc import Callable
from typing import Any, Final

from countledger.consumers import window_audit, window_writer
from countledger.consumers.total_writer import CounterChanges, TotalWriter
from countledger.consumers.window_verify import WindowVerifier
from countledger.consumers.window_writer import WindowChanges
from countledger.ledger import windows
from countledger.ledger.attributes import Item
from countledger.ledger.calendar import zone_of
from countledger.ledger.operations import Absent, Add, AssignOnce, Clause
from countledger.ledger.windows import WindowSetting
from tests.simulation.canary import Canary, little_but
from tests.simulation.shape import DELETED_WINDOWS, WINDOWS
from tests.switches import all_of, replaced, unconditional, wrapped


def _by_the_total(
    apply: Callable[..., tuple[int, Item]],
    writer: TotalWriter,
    counter: str,
    changes: CounterChanges,
    windowed: list[WindowChanges],
) -> tuple[int, Item]:
    """What the total contains counts as written everywhere."""
    applied, item = apply(writer, counter, changes, windowed)
    if not applied:
        windowed.clear()
    return applied, item


def _kept_for_ever(place_of: Callable[..., Any], setting: Any, minute: int) -> Any:  # noqa: ANN401
    """An hour that TTL has removed, or soon will, is written again."""
    place = place_of(setting, minute)
    setting._places[minute] = found = place._replace(kept_until_ms=float("inf"))
    return found


def _ranked_once(make: Callable[..., tuple[Clause, ...]], *given: object) -> tuple[Clause, ...]:
    """A late event does not move the rank of its day."""
    clauses = make(*given)
    return tuple(AssignOnce(c.name, c.value) if isinstance(c, Add) else c for c in clauses)


def _ranked_today(
    make: Callable[..., tuple[Clause, ...]],
    setting: WindowSetting,
    counter: str,
    item: str,
    total: Add,
) -> tuple[Clause, ...]:
    """The board is that of the day of arrival."""
    kind = item.partition("#")[0]
    return make(setting, counter, f"{kind}#2027-01-15", total)


_LITTLE: Final = little_but("remake", "split", "storm")

CANARIES: Final = [
    Canary(
        "windows have watermarks",
        unconditional(window_writer, "item_update_of"),
        WINDOWS,
        seed=5,
    ),
    Canary(
        "each window is decided by its own watermark",
        all_of(_LITTLE, wrapped(TotalWriter, "_apply", _by_the_total)),
        WINDOWS,
        seed=5,
    ),
    Canary(
        "expired windows are not brought back",
        wrapped(windows, "_place_of", _kept_for_ever),
        WINDOWS,
        seed=6,
        rare=True,
    ),
    Canary(
        "windows are those of a time zone",
        replaced(WindowSetting, "calendar", property(lambda _: zone_of("UTC"))),
        WINDOWS,
    ),
    Canary(
        "windows are those of business time",
        replaced(windows, "business_time_ms", lambda _setting, at_ms, _occurred_at_ms: at_ms),
        WINDOWS,
        seed=0,
    ),
    Canary(
        "days are ranked by their sums",
        wrapped(window_writer, "day_clauses", _ranked_once),
        WINDOWS,
    ),
    Canary(
        "days are ranked by business time",
        wrapped(window_writer, "day_clauses", _ranked_today),
        WINDOWS,
        seed=8,
    ),
    Canary(
        "a rebuild replaces what it has seen alone",
        replaced(window_audit, "unchanged", lambda *_: Absent("never")),
        WINDOWS,
        seed=37,
        rare=True,
    ),
    Canary(
        "a rebuild reads all entries, merged ones as well",
        replaced(WindowVerifier, "_merged", lambda *_: []),
        WINDOWS,
    ),
    Canary(
        "another total has other windows",
        replaced(window_writer, "new_windows_id", lambda setting_id, *_: setting_id),
        DELETED_WINDOWS,
        seed=27,
        rare=True,
    ),
]
