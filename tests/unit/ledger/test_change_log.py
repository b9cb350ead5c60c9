"""The change log: what it costs, and how much of it can be asked for."""

import pytest

from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadSetting
from countledger.ledger.exact import newest_first
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Put
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

TABLE = "ledger"
COUNTER = "a:b"


@pytest.mark.parametrize("spread", [1, 16, 256])
def test_each_prefix_is_asked_twice_at_most(spread: int) -> None:
    dynamo = MemoryClient()
    for at_ms in range(NOW_MS, NOW_MS + 50):
        entry = Entry(counter=COUNTER, id=new_id(at_ms), delta=1, at_ms=at_ms, origin="r")
        dynamo.put(Put(TABLE, encode_entry(entry, spread)))

    assert len(list(newest_first(dynamo, TABLE, COUNTER, spread, 5))) == 5
    assert dynamo.calls.count("query") == 2 * spread


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    """The message says what to give."""
    with pytest.raises(BadSetting, match=r"limit .* is not a number of entries"):
        newest_first(MemoryClient(), TABLE, COUNTER, 1, limit)
