"""A number of so many digits that Python does not write it out is refused like any other."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from countledger.compaction.schedule import Schedule
from countledger.consumers.alerts.delivery import AlertLog
from countledger.consumers.audit import start
from countledger.consumers.rankings import check_limit
from countledger.ledger.errors import BadSetting
from countledger.ledger.exact import newest_first
from countledger.ledger.quarantine import QuarantineService
from countledger.producers.strict.definition import define

_HUGE: Final = 10**5_000


def _scheduled(number: int) -> Schedule:
    return Schedule(namespace="a", expression="rate(1 day)", region="r", min_entries=number)


@pytest.mark.parametrize("number", [_HUGE, -_HUGE], ids=["huge", "below zero"])
@pytest.mark.parametrize(
    "call",
    [
        lambda number: define("a:b", "i", "marker", bins=number),
        lambda number: define("a:b", "i", "marker", window_ms=number),
        lambda number: define("a:b", "i", "history", history=number),
        check_limit,
        start,
        _scheduled,
    ],
)
def test_a_huge_number_is_refused_by_its_own_error(
    call: Callable[[int], object], number: int
) -> None:
    with pytest.raises(BadSetting, match="huge int"):
        call(number)


@pytest.mark.parametrize(
    "read",
    [
        lambda nothing, limit: AlertLog(nothing).newest(limit=limit),
        lambda nothing, limit: QuarantineService(nothing, {}).list(limit=limit),
        lambda nothing, limit: newest_first(nothing, "t", "a:b", 1, limit, head=nothing),
    ],
)
def test_a_huge_limit_is_refused_by_its_own_error(
    read: Callable[[None, int], Iterator[object]],
) -> None:
    with pytest.raises(BadSetting, match="huge int"):
        next(read(None, -_HUGE))
