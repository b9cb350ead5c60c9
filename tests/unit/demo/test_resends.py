"""The schedule of second sendings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from countledger import Event
from countledger.infra.demo.run import with_resends

_STEPS = st.integers(0, 80).map(lambda count: [Event("c:x", 1, str(n)) for n in range(count)])


@given(_STEPS, st.integers(1, 12), st.integers(1, 4))
def test_every_event_is_sent_once_in_order_and_every_so_many_th_again_later(
    steps: list[Event], every: int, times: int
) -> None:
    of = every * times

    sendings = list(with_resends(steps, every=every, of=of))

    assert steps == [event for event, again in sendings if not again]
    assert steps[every - 1 :: every] == [event for event, again in sendings if again]
    for place, (event, again) in enumerate(sendings):
        assert again == ((event, False) in sendings[:place])
