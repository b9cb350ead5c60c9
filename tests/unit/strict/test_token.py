"""Method `request_token`: what a token that is already taken says of a refused change."""

from random import Random

import pytest

from countledger.ledger.attempts import Send, Step, run
from countledger.ledger.attributes import Item
from countledger.ledger.errors import TokenMismatch
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Transact
from countledger.producers.strict.change import make_change
from countledger.producers.strict.context import MethodContext
from countledger.producers.strict.definition import define
from countledger.producers.strict.outcome import Applied, BoundReached, Unknown
from countledger.producers.strict.token import RequestTokenChange
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

COUNTER = "n:c"


@pytest.mark.parametrize(("key", "expected"), [(None, Applied), ("order-1", Unknown)])
def test_with_bins_only_a_call_without_a_key_owns_the_token_that_is_taken(
    key: str | None, expected: type
) -> None:
    client = MemoryClient()
    context = MethodContext(client, client, "t", ManualClock(), Random(1))  # noqa: S311 - jitter
    definition = define(COUNTER, "i-1", "request_token", bins=2)
    change = make_change(COUNTER, 2, key, None, now_ms=NOW_MS, new_id=new_id)
    pending = RequestTokenChange.begin(context, definition, change)
    pending.attempts.maybe_applied = True

    def perform(step: Step) -> Item:
        assert isinstance(step, Send)
        if isinstance(step.operation, Transact):
            raise TokenMismatch("the token is taken")
        return {"incarnation": "i-1"}

    refused = BoundReached(COUNTER, 9, "upper", 10, 2)
    assert type(run(pending.confirm_refusal(refused), perform)) is expected
