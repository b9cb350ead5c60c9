"""The lag of totals, from counts on one clock."""

from __future__ import annotations

import pytest

from countledger.infra.demo.lag import Lag


def test_nothing_missing_is_no_lag() -> None:
    """All acknowledged events materialized: zero, also before the first one."""
    lag = Lag()
    lag.materialized(0, 1.0)
    lag.acknowledged(5, 2.0)
    lag.materialized(5, 3.0)
    lag.materialized(7, 4.0)

    assert lag.p50_s == 0
    assert lag.max_s == 0


def test_lag_is_the_age_of_the_oldest_event_that_is_missing() -> None:
    """It grows while the materializer stands, and shrinks when it catches up."""
    lag = Lag()
    lag.acknowledged(5, 10.0)
    lag.acknowledged(9, 12.0)
    lag.materialized(4, 13.0)  # the fifth has waited since 10.0
    lag.materialized(5, 13.5)  # the sixth since 12.0
    lag.materialized(9, 14.0)

    assert lag.max_s == pytest.approx(3.0)
    assert lag.p50_s == pytest.approx(1.5)


def test_no_sample_is_no_lag() -> None:
    """A run that never looked has nothing to say."""
    assert Lag().p50_s == 0
    assert Lag().max_s == 0
