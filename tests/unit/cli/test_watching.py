"""What a watcher of totals sees, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from countledger import Amount, Total
from countledger.consumers.alerts.delivery import LoggedAlert
from countledger.consumers.alerts.message import Alert
from countledger.consumers.alerts.rule import Direction
from countledger.infra.cli.watch import (
    WatchedCounter,
    WatchState,
    alert_line,
    follow,
    signed,
    table_of,
)
from countledger.ledger.errors import Throttled
from tests.unit.ledger.clocks import ManualClock


def _total(value: Amount, counter: str = "a:1") -> dict[str, Total]:
    return {counter: Total(counter, value, version=1, updated_at_ms=1_900_000_000_000)}


def _alert(version: int, counter: str = "a:1", reason: str | None = None) -> LoggedAlert:
    alert = Alert(
        rule="busy",
        revision="r1",
        counter=counter,
        direction=Direction.RISING,
        threshold=1000,
        old=990,
        new=1010,
        version=version,
        region="eu",
        at_ms=1_900_000_000_000,
    )
    return LoggedAlert(alert, 1_900_000_001_000, reason)


def test_the_first_look_shows_all_and_the_next_ones_what_changed() -> None:
    watching = WatchState()

    first = watching.look(_total(5) | _total(7, "a:2"), 0)
    second = watching.look(_total(5) | _total(4, "a:2"), 1_000)
    third = watching.look(_total(5) | _total(4, "a:2"), 2_000)

    assert [(seen.total.counter, seen.change) for seen in first] == [("a:1", None), ("a:2", None)]
    assert [(seen.total.counter, seen.change) for seen in second] == [("a:2", -3)]
    assert third == []
    assert watching.seen["a:2"].since_start == -3


def test_changes_of_long_numbers_are_exact() -> None:
    watching = WatchState()
    watching.look(_total(Decimal("0.1")), 0)

    (seen,) = watching.look(_total(10**37), 1_000)

    assert seen.change == Decimal("9" * 37 + ".9")


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    watching = WatchState()
    watching.look(_total(0), 0)
    assert watching.seen["a:1"].per_second is None
    watching.look(_total(1_000), 1_000)
    assert watching.seen["a:1"].per_second == pytest.approx(1_000)

    for second in range(2, 20):
        watching.look(_total(1_000 + 5 * second), 1_000 * second)

    assert watching.seen["a:1"].per_second == pytest.approx(5)


def test_looks_at_one_moment_have_no_rate() -> None:
    watching = WatchState()
    watching.look(_total(0), 1_000)
    watching.look(_total(10), 1_000)
    assert watching.seen["a:1"].per_second is None
    watching.look(_total(20), 500)
    assert watching.seen["a:1"].per_second is None


def test_alerts_that_lay_there_are_not_news() -> None:
    watching = WatchState()
    watching.look(_total(5), 0)

    old, one, two, other = _alert(1), _alert(2), _alert(3), _alert(4, "a:2")

    assert watching.hear([old]) == []
    assert watching.hear([two, one, other, old]) == [one, two]
    assert watching.hear([two, one, old]) == []
    assert list(watching.alerts) == [one, two]


class Looked:
    """A stack with one counter that grows; its alert log fails as often as it is told to."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.looks = 0

    @property
    def alerts(self) -> Looked:
        """Its log."""
        return self

    def totals(self, _names: list[str]) -> dict[str, Total]:
        """Ten more each time."""
        self.looks += 1
        return _total(10 * self.looks)

    def log(self, *, limit: int) -> Iterator[LoggedAlert]:
        """Nothing, or no answer."""
        assert limit > 0
        if self.looks > 1 and self.fails:
            self.fails -= 1
            raise Throttled("slow down")
        return iter(())


def test_a_look_that_fails_half_way_loses_no_change() -> None:
    """What it did not show, the next one does: whoever adds up the changes has the total."""
    client: Any = Looked(fails=1)
    shown: list[tuple[Amount, Amount | None]] = []

    def note(
        _watching: WatchState, changed: list[WatchedCounter], _heard: list[LoggedAlert]
    ) -> None:
        shown.extend((seen.total.value, seen.change) for seen in changed)

    follow(client, ["a:1"], note, 1_000, 2_500, ManualClock())

    assert shown == [(10, None), (30, 20), (40, 10)]


def test_the_table_holds_every_counter_and_the_alerts_below() -> None:
    watching = WatchState()
    watching.hear([])
    watching.look(_total(5, "a:[bold]"), 0)
    watching.look(_total(15, "a:[bold]"), 1_000)
    watching.hear([_alert(1, "a:[bold]")])
    console = Console(width=120)

    with console.capture() as captured:
        console.print(table_of(watching))

    assert [line.split() for line in captured.get().splitlines()] == [
        ["counter", "value", "since", "start", "each", "second", "updated"],
        ["a:[bold]", "15", "+10", "+10.0", "2030-03-17T17:46:40Z"],
        alert_line(_alert(1, "a:[bold]")).split(),
    ]


def test_an_alert_is_one_line() -> None:
    assert alert_line(_alert(1)) == (
        "2030-03-17T17:46:40Z alert busy: a:1 rising through 1000, from 990 to 1010"
    )
    assert alert_line(_alert(1, reason="it is away")).endswith("; not taken: it is away")


@pytest.mark.parametrize(("change", "text"), [(5, "+5"), (-5, "-5"), (0, "0")])
def test_a_change_shows_its_sign(change: int, text: str) -> None:
    assert signed(change) == text
