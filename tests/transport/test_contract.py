"""The contract of a transport: operation by fault, what is raised and whether it was stored.

Two rules make the table. Only an error that proves that no byte of the request left is
`Unreachable`, `NoCredentials` or another error of set-up. Whatever is not an answer in the
service's own words is `Unclear`, with any status.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from time import sleep
from typing import Final
from uuid import uuid4

import boto3
import botocore.session
import pytest
from botocore.exceptions import NoCredentialsError

from countledger.ledger.connection import Connection
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    NoCredentials,
    Throttled,
    Unclear,
    Unreachable,
)
from countledger.ledger.operations import Put
from tests.engines.running import REGION
from tests.engines.store import Store
from tests.transport.server import Behaviour, HostileServer, listening
from tests.transport.transports import TRANSPORTS, WRITES, Call, Place, Transport, impatient

# botocore leaves the connection of an answer that broke off to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
# What each behaviour must come to: the error or none, and whether a write is stored.
OUTCOMES: Final[dict[Behaviour, tuple[type[CountledgerError] | None, bool]]] = {
    Behaviour.HONEST: (None, True),
    Behaviour.HONEST_CLOSED: (None, True),
    Behaviour.CHUNKED: (None, True),
    Behaviour.CONTINUED: (None, True),
    Behaviour.STORED_RESET: (Unclear, True),
    Behaviour.STORED_CLOSED: (Unclear, True),
    Behaviour.STORED_STALL: (Unclear, True),
    Behaviour.STORED_TRUNCATED: (Unclear, True),
    Behaviour.STORED_CUT: (Unclear, True),
    Behaviour.STORED_PLAINTEXT: (Unclear, True),
    Behaviour.STORED_500: (Unclear, True),
    Behaviour.STORED_504_PAGE: (Unclear, True),
    Behaviour.STORED_408_PAGE: (Unclear, True),
    Behaviour.RESET: (Unclear, False),
    Behaviour.PAGE: (Unclear, False),
    Behaviour.EMPTY: (Unclear, False),
    Behaviour.LIST: (Unclear, False),
    Behaviour.FORBIDDEN_PAGE: (Unclear, False),
    Behaviour.REDIRECT: (Unclear, False),
    Behaviour.REDIRECT_303: (Unclear, False),
    Behaviour.THROTTLED: (Throttled, False),
}
_RESET: Final = struct.pack("ii", 1, 0)


def place_in(store: Store) -> Place:
    """A counter of its own, with its one item."""
    place = Place(store.ledger, f"n:{uuid4().hex[:12]}")
    store._own_dynamo.put(Put(place.table, place.old | {"delta": 1}))
    return place


def is_stored(store: Store, operation: str, place: Place) -> bool:
    """Whether a write took effect."""
    old = store._own_dynamo.get(place.table, place.old, consistent=True)
    if operation == "delete":
        return old is None
    if operation == "update":
        return old is not None and old["delta"] == 3
    new = {name: place.new[name] for name in ("counter", "entry")}
    return store._own_dynamo.get(place.table, new, consistent=True) is not None


def outcome_of(call: Callable[[], object]) -> type[BaseException] | None:
    """What a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, the table says what it must be
        return type(error)
    return None


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, store: Store) -> Iterator[tuple[Transport, Call]]:
    """Each transport, open for the whole module."""
    one = TRANSPORTS[request.param]
    with one.calls(store.connection) as call:
        yield one, call


@pytest.mark.parametrize("behaviour", list(Behaviour), ids=lambda one: one.value)
def test_every_answer_means_the_same_to_every_transport(
    store: Store,
    server: HostileServer,
    transport: tuple[Transport, Call],
    behaviour: Behaviour,
) -> None:
    """For each operation: error or none, stored or not, and exactly one request."""
    error, stored = OUTCOMES[behaviour]
    one, call = transport
    places = {operation: place_in(store) for operation in one.operations}
    raised = {}
    with ExitStack() as stack:
        if behaviour is Behaviour.STORED_STALL:
            call = stack.enter_context(one.calls(impatient(store.connection)))
        server.seen.clear()
        for operation, place in places.items():
            server.plan[:] = [behaviour]
            server.closed.clear()
            raised[operation] = outcome_of(partial(call, operation, place))
            if behaviour is Behaviour.HONEST_CLOSED:
                # The end of the connection arrives while nobody uses it.
                assert server.closed.wait(30)
                sleep(0.02)  # a busy kernel delivers it a little later
    requests = len(server.seen)

    assert raised == dict.fromkeys(places, error)
    assert requests == len(places)
    written = {name: place for name, place in places.items() if name in WRITES}
    assert {name: is_stored(store, name, place) for name, place in written.items()} == (
        dict.fromkeys(written, stored)
    )


def nobody_listens() -> Iterator[str]:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    yield f"https://localhost:{port}"


def no_such_name() -> Iterator[str]:
    """A name that no resolver knows."""
    yield "https://dynamodb.invalid"


def resets_the_handshake() -> Iterator[str]:
    """A port whose server never speaks TLS, but ends each connection."""
    yield from _listening(
        lambda taken: taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    )


def speaks_plainly() -> Iterator[str]:
    """A port that answers a handshake with plain text."""
    yield from _listening(lambda taken: taken.sendall(b"HTTP/1.1 400 No\r\n\r\n"))


def says_nothing() -> Iterator[str]:
    """A port whose server takes connections and is silent."""
    held: list[socket.socket] = []
    yield from _listening(lambda taken: held.append(taken.dup()))
    for one in held:
        one.close()


def _listening(treat: Callable[[socket.socket], object]) -> Iterator[str]:
    with listening(treat) as port:
        yield f"https://localhost:{port}"


BEFORE_SENDING: Final = (
    nobody_listens,
    no_such_name,
    resets_the_handshake,
    speaks_plainly,
    says_nothing,
)


def outcomes_of(transport: Transport, connection: Connection) -> dict[str, object]:
    """What each operation raises by a client of its own."""
    place = Place(connection.setting("ledger_table"), "n:c")
    with transport.calls(connection) as call:
        return {name: outcome_of(partial(call, name, place)) for name in transport.operations}


@pytest.mark.parametrize("start", BEFORE_SENDING)
@pytest.mark.parametrize("name", TRANSPORTS)
def test_what_proves_that_nothing_was_sent_is_unreachable(
    store: Store, name: str, start: Callable[[], Iterator[str]]
) -> None:
    """The connection was never made: the caller may add the event again."""
    steps = start()
    connection = replace(impatient(store.connection), endpoint_url=next(steps))
    raised = outcomes_of(TRANSPORTS[name], connection)
    next(steps, None)

    assert raised == dict.fromkeys(raised, Unreachable)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_server_that_is_not_trusted_is_sent_nothing(
    store: Store, server: HostileServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is judged before the request."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    server.seen.clear()
    raised = outcomes_of(TRANSPORTS[name], store.connection)

    assert raised == dict.fromkeys(raised, Unreachable)
    assert not server.seen


@pytest.mark.parametrize("name", TRANSPORTS)
def test_without_credentials_nothing_is_sent(
    store: Store, server: HostileServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to sign with."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    session = boto3.Session(region_name=REGION, botocore_session=botocore.session.Session())
    connection = Connection(store.connection.settings, session, server.url)
    server.seen.clear()
    raised = outcomes_of(TRANSPORTS[name], connection)

    assert raised == dict.fromkeys(raised, NoCredentials)
    assert not server.seen


def test_of_several_attempts_each_needs_its_proof(store: Store, server: HostileServer) -> None:
    """The SDK tries again after a reset, and then nobody listens: the first try was stored."""

    def end(**_: object) -> None:
        if server.seen:
            raise NoCredentialsError

    dynamo = store.connection.dynamo("standard")
    place = place_in(store)
    dynamo.client.meta.events.register_first("before-sign", end)
    server.seen.clear()
    server.plan[:] = [Behaviour.STORED_RESET]
    raised = outcome_of(lambda: WRITES["put"](dynamo, place))

    assert raised is Unclear
    assert is_stored(store, "put", place)


@pytest.mark.parametrize("name", ["put", "update"])
@pytest.mark.parametrize(
    ("behaviours", "noted"),
    [([Behaviour.STORED_RESET], True), ([], False)],
    ids=["reset", "at once"],
)
@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_failed_condition_says_whether_an_earlier_attempt_got_no_answer(
    store: Store,
    server: HostileServer,
    transport: str,
    name: str,
    behaviours: list[Behaviour],
    *,
    noted: bool,
) -> None:
    connection = replace(
        store.connection, settings=replace(store.connection.settings, transport=transport)
    )
    dynamo, place = connection.dynamo("standard"), place_in(store)
    if not noted:
        WRITES[name](dynamo, place)
    server.plan[:] = behaviours
    with pytest.raises(ConditionFailed) as failed:
        WRITES[name](dynamo, place)

    assert failed.value.maybe_applied is noted
