"""The run that releases every expired hold: what it releases, what it leaves, where it goes on."""

from datetime import timedelta
from threading import RLock
from typing import Any

from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import CorruptItem, Throttled
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from countledger.ledger.operations import Assign, Put, Update
from countledger.producers.strict.hold import HoldState
from countledger.producers.strict.outcome import Held, HoldExpired
from countledger.producers.strict.release import OverdueHolds
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import meanwhile, refuses
from tests.unit.strict.test_holds import HALL, Shop

LATE_MS = 11 * MINUTE_MS + 1


_TURN = RLock()


def _one_at_a_time(_kind: str, _what: object, request: Any) -> Any:  # noqa: ANN401 - of a plan
    with _TURN:
        return request()


class Releaser:
    """Runs over the table of a shop."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        # Its threads meet in tables that know of none.
        shop.dynamo.plans.append(_one_at_a_time)
        self.failures: list[tuple[Item, Exception]] = []
        connection = connection_on(shop.dynamo, shop.clock)
        self.holds = OverdueHolds(connection, lambda *failure: self.failures.append(failure))

    def run(self, time_ms: int = SECOND_MS) -> tuple[int, int, int]:
        """Released, overdue, and the age of the oldest."""
        done = self.holds.release(self.shop.clock.at_ms + time_ms)
        return done.released, done.overdue, done.oldest_ms


def _busy(counters: int = 3) -> Shop:
    shop = Shop()
    for number in range(counters):
        counter = f"tickets:{number}"
        shop.strict.create(counter, method="marker", lower=0, opening=10, bins=1 + 2 * (number % 2))
        for key in ("a", "b"):
            shop.strict.hold(counter, 2, key=key, expires_in=timedelta(minutes=10))
    return shop


def test_every_hold_whose_time_is_over_by_every_clock_is_released() -> None:
    shop = _busy()
    releaser = Releaser(shop)
    shop.clock.at_ms += LATE_MS - 1
    assert releaser.run() == (0, 0, 0)
    valid = shop.hold(3)

    shop.clock.at_ms += 1
    assert releaser.run() == (6, 0, 0)
    shown = [shop.strict.show(f"tickets:{number}") for number in range(3)]
    assert [(one.value, one.held) for one in shown] == [(10, 0)] * 3
    assert shop.state() == (10, 3, 7)
    assert [one.id for one in shop.strict.holds(HALL)] == [valid.id]
    assert releaser.run() == (0, 0, 0)
    shop.check()


def test_no_hold_is_released_while_a_restore_copies_items() -> None:
    """The copy meets each of its items again, if it is interrupted, and must find it as it was."""
    shop = _busy()
    shop.clock.at_ms += LATE_MS
    record = keys.restore_key()
    shop.dynamo.put(Put("counters", record))

    assert Releaser(shop).run()[:2] == (0, 6)

    shop.dynamo.put(Put("counters", {**record, "copied_at": shop.clock.at_ms}))
    assert Releaser(shop).run()[:2] == (6, 0)


def test_a_run_without_time_says_what_is_left_and_the_next_one_goes_on() -> None:
    shop = _busy()
    shop.clock.at_ms += LATE_MS + 5 * MINUTE_MS
    releaser = Releaser(shop)

    released, overdue, oldest_ms = releaser.run(time_ms=0)
    assert released == 0
    assert overdue >= 1  # one for each bucket
    assert oldest_ms == 5 * MINUTE_MS + 1
    assert releaser.run() == (6, 0, 0)


def test_a_hold_that_cannot_be_read_is_passed_over_and_reported() -> None:
    shop = _busy(1)
    held = shop.hold(1)
    place = next(iter(shop.strict.holds(HALL))).place
    shop.dynamo.update(Update("counters", place, (Assign("hold", "two"),)))
    shop.clock.at_ms += LATE_MS + MINUTE_MS
    releaser = Releaser(shop)

    assert releaser.run() == (2, 1, MINUTE_MS + 1)
    ((key, error),) = releaser.failures
    assert {name: key[name] for name in place} == place
    assert isinstance(error, CorruptItem)
    shop.dynamo.update(Update("counters", place, (Assign("hold", held.amount),)))
    assert releaser.run() == (1, 0, 0)


def test_a_counter_that_was_recreated_is_released_by_the_next_run() -> None:
    shop = Shop()
    releaser = Releaser(shop)
    shop.hold(1, "first")
    shop.clock.at_ms += LATE_MS
    assert releaser.run() == (1, 0, 0)
    shop.strict.delete(HALL)
    shop.strict.create(HALL, method="marker", lower=0, opening=10)
    assert isinstance(shop.hold(4), Held)
    shop.clock.at_ms += LATE_MS

    runs = [releaser.run(), releaser.run()]
    assert sum(released for released, _, _ in runs) == 1
    assert shop.state() == (10, 0, 10)


def test_a_throttled_release_is_left_for_the_next_run() -> None:
    shop = Shop()
    held = shop.hold(1)
    shop.clock.at_ms += LATE_MS
    shop.dynamo.plans.append(refuses(Throttled("slow down"), "get"))
    releaser = Releaser(shop)

    assert releaser.run()[:2] == (0, 1)
    assert shop.strict.show(HALL).held == 1
    assert releaser.run() == (1, 0, 0)
    assert isinstance(shop.strict.cancel(held.id), HoldExpired)


def test_two_runs_at_once_release_each_hold_once() -> None:
    shop = _busy()
    shop.clock.at_ms += LATE_MS
    other = Releaser(shop)
    shop.dynamo.plans.insert(0, meanwhile(other.run, "transact"))
    Releaser(shop).run()

    states = [one["state"] for one in shop.dynamo.items("counters") if "hold" in one]
    assert states == [str(HoldState.EXPIRED)] * 6
    shown = [shop.strict.show(f"tickets:{number}") for number in range(3)]
    assert [(one.value, one.held) for one in shown] == [(10, 0)] * 3
    shop.check()
