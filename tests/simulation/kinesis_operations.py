"""Operations through Kinesis: send, send again, and work off what came too late."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random

from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    CountledgerError,
    NamespaceUnknown,
    ServiceFailed,
    Unacknowledged,
)
from countledger.ledger.ids import BARE_KEY_PREFIX, IdempotencyKey
from countledger.ledger.limits import SECOND_MS
from countledger.producers import kinesis
from countledger.producers.event import Event, Status
from countledger.producers.ingest.ingest import LateStatus
from countledger.producers.kinesis import KinesisProducer, Sent
from tests.simulation.client import Client
from tests.simulation.event_account import Fate
from tests.simulation.ingest import IngestWay
from tests.simulation.ledger_operations import draw_counter, draw_delta
from tests.simulation.sums import Wrong

# The operations that need the stream.
INGESTING = ("kinesis send", "kinesis resend", "kinesis forge", "kinesis junk", "ingest resend")
# A bare key is to be repeated soon: it counts as made when its record arrives.
_BARE_MS = 5 * SECOND_MS


def _producer(client: Client) -> KinesisProducer:
    way = _way(client)
    return way.producer(way.connection(client.process))


def send(client: Client) -> None:
    """A few events, packed into one record or several."""
    way, random = _way(client), client.random
    events: list[Event] = []
    for _ in range(random.randint(1, 5)):
        counter = draw_counter(client)
        delta = draw_delta(client, counter)
        if delta is None:
            continue
        name = f"key {client.memory.number()}"
        timed = IdempotencyKey(name, to_datetime(client.process.now_ms()))
        events.append(Event(counter, delta, random.choice([None, None, timed, name])))
        client.auditor.events.told(counter, delta, Fate.OFFERED)
    began_ms = client.process.now_ms()
    plain = iter([event.counter for event in events if event.key is None])

    def noted_id(at_ms: int) -> str:
        made = client.world.new_id(at_ms)
        client.memory.message_ids.append((next(plain), made))
        return made

    connection = way.connection(client.process)
    noting = replace(connection, ids=replace(connection.ids, new_id=noted_id))
    outcomes = way.producer(noting).send_many(events)
    for event, outcome in zip(events, outcomes, strict=True):
        _note(client, event.counter, int(event.delta), outcome)
        if isinstance(outcome, Unacknowledged):
            client.memory.streamed.append((outcome.entry, began_ms))


def send_again(client: Client) -> None:
    """What was not acknowledged, as it is."""
    now_ms = client.process.now_ms()
    mine = [
        entry
        for entry, at_ms in client.memory.streamed
        if not entry.id.startswith(BARE_KEY_PREFIX) or now_ms - at_ms < _BARE_MS
    ]
    if not mine:
        return
    entry = client.random.choice(mine)
    producer = _producer(client)
    outcome: Sent | CountledgerError
    try:
        outcome = producer.resend(entry)
    except ServiceFailed as error:
        outcome = error
    _note(client, entry.counter, int(entry.delta), outcome)


def forge(client: Client) -> None:
    """Somebody who may only send knows the id in a message, and sends another change under it."""
    if not client.memory.message_ids:
        return
    counter, message_id = client.random.choice(client.memory.message_ids[-10:])
    delta = draw_delta(client, counter)
    if delta is None:
        return
    client.auditor.events.told(counter, delta, Fate.OFFERED)
    made = Entry(
        counter=counter,
        id=message_id,
        delta=delta,
        at_ms=kinesis.created_ms(message_id),
        origin=client.region,
    )
    (outcome,) = _producer(client).sender.send_batch([kinesis.bound(made)])
    _note(client, counter, delta, outcome)


def send_junk(client: Client) -> None:
    """A record by somebody else's producer, which nobody can read."""
    way = _way(client)
    data = f'{{"v":1,"junk":{client.memory.number()}}}'.encode()
    way.junk.add(data)
    way.stream.put(data.decode(), data)


def work_off(client: Client) -> None:
    """A person has sent again what came too late and was never counted."""
    events = client.auditor.events
    for late in _way(client).expired(client.process).resend():
        entry = late.entry
        client.tell(f"late: {entry.counter} {entry.delta}: {late.status} {late.sent!r}")
        if late.status is LateStatus.REFUSED:
            raise Wrong(f"{entry} was refused, and nobody reused its key")
        if late.resolved:
            events.told(entry.counter, int(entry.delta), Fate.ACKNOWLEDGED)
        elif isinstance(late.sent, Status):
            raise Wrong(f"{late} was sent, and is not settled")


def _note(client: Client, counter: str, delta: int, outcome: Sent | CountledgerError) -> None:
    client.tell(f"sent {counter} {delta}: {type(outcome).__name__}")
    if isinstance(outcome, Sent):
        client.auditor.events.told(counter, delta, Fate.KEPT)
    elif not isinstance(outcome, (ServiceFailed, NamespaceUnknown)):
        raise Wrong(f"an event through Kinesis came to {outcome!r}")


def _way(client: Client) -> IngestWay:
    if client.world.ingest is None:
        raise AssertionError("there is no way through Kinesis here")
    return client.world.ingest


@contextmanager
def small_records(random: Random) -> Iterator[None]:
    """Let few events fill a record, so that a call carries several."""
    limit = random.choice([250, 600, kinesis.TARGET_BYTES])
    names = vars(kinesis)
    before, names["pack"] = names["pack"], partial(kinesis.pack, limit_bytes=limit)
    try:
        yield
    finally:
        names["pack"] = before
