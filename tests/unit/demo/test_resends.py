"""The schedule of second sendings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.demo.history import Step
from countledger.infra.demo.resends import Resend, with_resends

_STEPS = st.integers(0, 80).map(lambda count: [Step("c:x", 1, str(n)) for n in range(count)])


@given(_STEPS, st.integers(1, 12), st.integers(1, 30))
def test_every_event_is_sent_once_in_order_and_every_so_many_th_again(
    steps: list[Step], every: int, delay: int
) -> None:
    """First sendings are the history itself; second ones are each n-th of it."""
    sendings = list(with_resends(steps, every=every, delay=delay))

    assert steps == [sending.step for sending in sendings if not sending.again]
    assert steps[every - 1 :: every] == [sending.step for sending in sendings if sending.again]


@given(_STEPS, st.integers(1, 12), st.integers(1, 30))
def test_a_second_sending_comes_after_the_delay_or_at_the_end(
    steps: list[Step], every: int, delay: int
) -> None:
    """So many first sendings lie between, unless the history ends before."""
    sendings = list(with_resends(steps, every=every, delay=delay))

    for place, sending in enumerate(sendings):
        if sending.again:
            first = sendings.index(Resend(sending.step, again=False))
            between = [one for one in sendings[first + 1 : place] if not one.again]
            rest = [one for one in sendings[place:] if not one.again]
            assert len(between) == delay or not rest
