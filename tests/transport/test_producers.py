"""What a producer makes of a write that was stored and not acknowledged, by every transport."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from countledger import Buffering, CountLedger, Receipt, Status
from countledger.ledger.errors import Unacknowledged, Unclear
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.settings import TRANSPORTS
from tests.engines.store import Store
from tests.transport.server import Behaviour, HostileServer
from tests.transport.transports import impatient

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Begin: TypeAlias = Callable[[], None]
Produce: TypeAlias = Callable[[CountLedger, str, str | None, Begin], Receipt]


def recorded(ledger: CountLedger, counter: str, key: str | None, begin: Begin) -> Receipt:
    """One event, at once."""
    begin()
    return ledger.record(counter, 1, key=key)


def buffered(ledger: CountLedger, counter: str, key: str | None, begin: Begin) -> Receipt:
    """One event, by threads."""
    with ledger.buffered(Buffering(attempts=2)) as producer:
        producer.add("warm", 1)
        producer.flush(30)
        begin()
        return producer.add(counter, 1, key=key).result(30)


PRODUCERS = pytest.mark.parametrize("produce", [recorded, buffered])
KEYS = pytest.mark.parametrize("key", [None, "k"])


TRANSPORT = pytest.mark.parametrize("transport", TRANSPORTS)


def ledger_at(store: Store, transport: str) -> CountLedger:
    """A client of a new process that knows the namespace `default` already."""
    settings = replace(store.connection.settings, transport=transport)
    session = store.engine.session
    ledger = CountLedger(settings, session=session, endpoint_url=store.engine.endpoint_url)
    ledger.record("warm", 1)
    return ledger


def sum_of(store: Store, counter: str) -> int:
    """The sum of what is stored."""
    condition = AllOf(Compare("counter", "=", counter), BeginsWith("entry", "e#"))
    page = store._own_dynamo.page(Query(store.ledger, condition, consistent=True))
    return sum(item["delta"] for item in page.items)


@TRANSPORT
@KEYS
@PRODUCERS
def test_a_write_that_was_stored_and_reset_is_recorded(
    store: Store,
    server: HostileServer,
    produce: Produce,
    key: str | None,
    transport: str,
) -> None:
    """It does not take its own first write for somebody else's."""
    ledger = ledger_at(store, transport)
    counter = f"{produce.__name__}-once-{key}-{transport}"
    receipt = produce(ledger, counter, key, lambda: server.plan.append(Behaviour.STORED_RESET))

    assert not server.plan
    assert receipt.status is Status.RECORDED
    assert sum_of(store, counter) == 1


@TRANSPORT
@KEYS
@PRODUCERS
def test_whoever_gives_up_after_a_reset_hands_the_entry_back(
    store: Store,
    server: HostileServer,
    produce: Produce,
    key: str | None,
    transport: str,
) -> None:
    """Sent again it counts once; without its entry the caller would add the event once more."""
    ledger = ledger_at(store, transport)
    counter = f"{produce.__name__}-never-{key}-{transport}"
    with pytest.raises(Unacknowledged) as raised:
        produce(ledger, counter, key, lambda: server.plan.extend([Behaviour.STORED_RESET] * 12))
    server.plan.clear()
    ledger.resend(raised.value.entry)

    assert sum_of(store, counter) == 1


def silent(ledger: CountLedger, server: HostileServer, limits: tuple[int, int]) -> CountLedger:
    """The same client, with limits in milliseconds and attempts, before a server that is silent."""
    connection = impatient(ledger.connection, *limits)
    session, url = connection.session, connection.endpoint_url
    made = CountLedger(connection.settings, session=session, endpoint_url=url)
    made.record("warm", 1)
    server.seen.clear()
    server.plan[:] = [Behaviour.STORED_STALL] * 12
    return made


@TRANSPORT
@pytest.mark.parametrize(("limits", "requests"), [((30_000, 1), 1), ((350, 100), 2)])
def test_a_silent_server_holds_a_change_no_longer_than_the_limits(
    store: Store, server: HostileServer, transport: str, limits: tuple[int, int], requests: int
) -> None:
    """One attempt alone; or those that begin within the time. The entry comes back."""
    ledger = silent(ledger_at(store, transport), server, limits)
    with pytest.raises(Unacknowledged) as raised:
        ledger.record(f"silent-{transport}", 1)

    assert len(server.seen) <= requests
    server.plan.clear()
    assert ledger.resend(raised.value.entry).status is Status.DUPLICATE


@TRANSPORT
@pytest.mark.parametrize(("limits", "requests"), [((30_000, 1), 1), ((350, 100), 2)])
def test_a_silent_server_holds_a_read_no_longer_and_it_is_called_a_read(
    store: Store, server: HostileServer, transport: str, limits: tuple[int, int], requests: int
) -> None:
    """The SDK tries reads again: no longer than the call may take."""
    ledger = silent(ledger_at(store, transport), server, limits)
    with pytest.raises(Unclear, match="this was a read and changed nothing"):
        ledger.exact("warm")

    assert len(server.seen) <= requests
