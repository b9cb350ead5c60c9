"""How old an entry must be: the sum of all that may delay a retry."""

import pytest

from countledger.compaction.plan import AgeLimit, limits_by
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.namespace import Namespace
from countledger.ledger.settings import Settings

LIMIT = AgeLimit(24 * HOUR_MS, 15 * MINUTE_MS, MINUTE_MS)


def test_the_limit_is_the_sum_of_all_delays() -> None:
    """Horizon, replication, clocks, and a request that was signed at the last moment."""
    assert LIMIT.age_ms == 24 * HOUR_MS + 31 * MINUTE_MS
    assert LIMIT.cutoff_ms(LIMIT.age_ms + 5) == 5


def test_a_larger_age_replaces_the_limit() -> None:
    """What a schedule asks for counts."""
    assert LIMIT.with_min_age(48 * HOUR_MS).age_ms == 48 * HOUR_MS


def test_an_age_below_the_limit_is_refused_with_the_arithmetic() -> None:
    """A late retry would count twice; every term is named."""
    with pytest.raises(BadSetting) as refused:
        LIMIT.with_min_age(24 * HOUR_MS)

    assert str(refused.value) == (
        "a minimum age of 24 h is less than 24 h 31 min = horizon 24 h + replication bound 15 min "
        "+ clock skew 1 min + life of a signed request 15 min: a late retry of a merged entry "
        "would count twice"
    )
    assert LIMIT.with_min_age(LIMIT.age_ms).age_ms == LIMIT.age_ms


def test_the_limit_of_a_namespace_follows_its_horizon_and_the_settings() -> None:
    """A shorter horizon, a narrower bound: a lower limit."""
    settings = Settings(replication_bound_ms=MINUTE_MS, clock_skew_ms=1_000)

    limit = limits_by(settings)(Namespace("n", horizon_ms=HOUR_MS))

    assert limit.age_ms == HOUR_MS + MINUTE_MS + 1_000 + 15 * MINUTE_MS
