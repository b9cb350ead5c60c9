"""How often the pump asks a stream that is still."""

from __future__ import annotations

from itertools import accumulate, repeat

from countledger.infra.local.pump import FIRST_PAUSE_S, next_pause_s


def test_a_stream_that_is_still_is_asked_ever_less_often_down_to_four_times_a_second() -> None:
    """As Lambda asks, and never less often than that."""
    pauses = list(
        accumulate(repeat(True, 20), lambda s, idle: next_pause_s(s, idle=idle), initial=0.02)
    )

    assert pauses[:4] == [0.02, 0.04, 0.08, 0.16]
    assert set(pauses[4:]) == {0.25}


def test_a_stream_that_moves_is_asked_again_soon() -> None:
    """More often follows."""
    assert next_pause_s(0.25, idle=False) == FIRST_PAUSE_S
