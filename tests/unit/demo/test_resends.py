"""The schedule of second sendings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from countledger import Event
from countledger.infra.demo.run import with_resends

_STEPS = st.integers(0, 80).map(lambda count: [Event("c:x", 1, str(n)) for n in range(count)])


@given(_STEPS, st.integers(1, 12), st.integers(1, 30))
def test_every_event_is_sent_once_in_order_and_every_so_many_th_again(
    steps: list[Event], every: int, delay: int
) -> None:
    sendings = list(with_resends(steps, every=every, delay=delay))

    assert steps == [event for event, again in sendings if not again]
    assert steps[every - 1 :: every] == [event for event, again in sendings if again]


@given(_STEPS, st.integers(1, 12), st.integers(1, 30))
def test_a_second_sending_comes_after_the_delay_or_at_the_end(
    steps: list[Event], every: int, delay: int
) -> None:
    sendings = list(with_resends(steps, every=every, delay=delay))

    for place, (event, again) in enumerate(sendings):
        if again:
            first = sendings.index((event, False))
            between = [one for one in sendings[first + 1 : place] if not one[1]]
            rest = [one for one in sendings[place:] if not one[1]]
            assert len(between) == delay or not rest
