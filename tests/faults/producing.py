"""The operations of producers in the matrix: entries, strict counters, claims, sequences."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from countledger import Buffering
from countledger.ledger import keys
from countledger.ledger.amount import Amount
from countledger.ledger.clock import to_datetime
from countledger.ledger.connection import Retries
from countledger.ledger.errors import NoSuchCounter, Unacknowledged
from countledger.ledger.ids import IdempotencyKey, id_of_key, new_id
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Compare, Query
from countledger.producers import kinesis
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.settings import NotRecorded
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from countledger.producers.event import Event, make_entry
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.kinesis import KinesisProducer, pack
from countledger.producers.own_items import ItemChange, ItemDeletion, NewItem
from countledger.producers.recorder import Compensator, Correction, Recorder
from countledger.producers.sender import OutcomeList
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import Sequences
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import Method
from tests.engines.clock import HandClock
from tests.engines.numbering import own_table
from tests.faults.play import Begin, Play, World, done, fresh, handled
from tests.unit.producers.ingest.world import MemoryQuarantine
from tests.unit.producers.kinesis.streams import delivered

# ---- entries ----


def entries_of(world: World, counter: str, number: int) -> Callable[[], int]:
    """How often `number` entries of 7 are in the ledger."""

    def effect() -> int:
        exact = world.store.exact().read(counter)
        times, rest = divmod(exact.events, number)
        # Some of a batch are in: less than the whole effect.
        return times if exact.value == 7 * exact.events and not rest else -1

    return effect


def _sent_again(resend: Callable[[Any], object], told: object) -> Callable[[], list[object]] | None:
    """What sends the entries again that a call gave back; None: it gave none back."""
    if isinstance(told, NotRecorded):
        back = [one.entry for one in told.failures]
    else:
        outcomes = told if isinstance(told, list | OutcomeList) else [told]
        back = [one.entry for one in outcomes if isinstance(one, Unacknowledged)]
    return (lambda: [resend(entry) for entry in back]) if back else None


def recording(*wanted: str | None, timed: bool = False) -> Begin:
    """One event of 7 for each key; None: without a key."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        recorder, counter = world.recorder(retries), f"fl:{name}"
        at = to_datetime(recorder.connection.clock.now_ms())
        given = [IdempotencyKey(key, at) if timed and key else key for key in wanted]
        events = [Event(counter, 7, key) for key in given]

        def act() -> object:
            return recorder.record(events[0]) if len(events) == 1 else recorder.record_many(events)

        def again(told: object) -> Callable[[], object] | None:
            if wanted[0] is not None:
                return act
            # Another call without a key is another change: what came back is sent again.
            return _sent_again(recorder.resend, told)

        clients = (recorder.sender.dynamo.client,)
        return Play(act, entries_of(world, counter, len(events)), clients, again)

    return begin


def buffering(*, coalesce: bool) -> Begin:
    """Five events added to a buffer that is flushed."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        recorder, counter = world.recorder(retries), f"fl:{name}"
        settings = Buffering(linger_ms=30_000, attempts=8, coalesce=coalesce)

        def act() -> object:
            producer = buffered_on(recorder, settings)
            pendings = [producer.add(counter, 7) for _ in range(5)]
            producer.close()
            return [pending.result() for pending in pendings]

        clients = (recorder.sender.dynamo.client,)
        again = partial(_sent_again, recorder.resend)
        return Play(act, entries_of(world, counter, 5), clients, again)

    return begin


def buffered_on(recorder: Recorder, settings: Buffering) -> BufferedProducer:
    """The buffered producer of a process, which waits for nothing between its attempts."""
    return BufferedProducer(recorder.connection, settings)


def first_use(world: World, name: str, retries: Retries) -> Play:
    """The first entry of a namespace makes the namespace."""
    del retries
    counter = f"n{name}:counter"
    knowing_nothing = replace(world.process("none"), retrying_client=world.none, _shared={})
    recorder = Recorder(knowing_nothing)

    def act() -> object:
        return recorder.record(Event(counter, 7, "key"))

    effect = entries_of(world, counter, 1)
    return Play.repeatable(act, effect, world.none)


def correcting(world: World, name: str, retries: Retries) -> Play:
    """A ledger counter of 3 is set to 10."""
    counter = f"fl:{name}"
    world.recorder().record(Event(counter, 3))
    compensator = Compensator(world.recorder(retries), world.store.exact())

    def act() -> object:
        done: Correction = compensator.set_value(counter, 10, "k", None)
        return str(done.became)

    def effect() -> int:
        return (int(world.store.exact().read(counter).value) - 3) // 7

    return Play.repeatable(act, effect, world.none)


def messages_of(clock: HandClock, counter: str, key: str | None) -> list[Any]:
    made = [
        kinesis.bound(
            make_entry(
                Event(counter, 7, key and f"{key}-{n}"),
                now_ms=clock.now_ms(),
                origin="here",
                new_id=new_id,
            )
        )
        for n in range(4)
    ]
    return [next(pack(made[start : start + 2])) for start in (0, 2)]


def ingesting(key: str | None) -> Begin:
    """Two records of Kinesis with two entries each."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        clock, counter = HandClock(), f"fl:{name}"
        recorder = world.recorder(retries, clock)
        records = [
            delivered(one.data, sequence=n, arrived_s=clock.now_ms() / 1_000)
            for n, one in enumerate(messages_of(clock, counter, key), start=1)
        ]
        ingest = Ingest(recorder.connection, MemoryQuarantine())

        def act() -> object:
            outcome = ingest.apply(records, stream="stream", shard="shard")
            assert not outcome.quarantined
            return handled(outcome)

        return Play.repeatable(act, entries_of(world, counter, 4), recorder.sender.dynamo)

    return begin


@contextmanager
def _kinesis(world: World) -> Iterator[tuple[Any, str]]:
    client: Any = world.store.connection.kinesis()
    stream = f"faults-{fresh()}"
    client.create_stream(StreamName=stream, ShardCount=1)
    client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})
    yield client, stream
    client.delete_stream(StreamName=stream)


def sending_to_kinesis(world: World, name: str, retries: Retries) -> Play:
    """Two events are sent into a stream; its records are ingested to see what counts."""
    del retries
    counter, (client, stream) = f"fl:{name}", world.shared(_kinesis)
    shard = {"StreamName": stream, "ShardId": "shardId-000000000000"}
    latest = client.get_shard_iterator(**shard, ShardIteratorType="LATEST")["ShardIterator"]
    connection = world.connection(
        HandClock(), clients={"kinesis": client}, ingest_stream_arn=stream
    )
    producer = KinesisProducer(connection)
    events = [Event(counter, 7), Event(counter, 7, "key")]

    def act() -> object:
        return producer.send_many(events)

    def effect() -> int:
        found = client.get_records(ShardIterator=latest)["Records"]
        ingest = Ingest(world.process("none"), MemoryQuarantine())
        records = [
            delivered(
                one["Data"], sequence=n, arrived_s=one["ApproximateArrivalTimestamp"].timestamp()
            )
            for n, one in enumerate(found, start=1)
        ]
        ingest.apply(records, stream="stream", shard="shard")
        return entries_of(world, counter, 2)()

    return Play(act, effect, [client], partial(_sent_again, producer.resend))


# ---- strict counters ----


def _strict(world: World, retries: Retries) -> StrictCounters:
    return StrictCounters(world.process(retries))


def is_so(act: Callable[[], object]) -> Callable[[], int]:
    """Whether something is so, as a number."""
    return lambda: int(bool(act()))


def changing(method: Method, prefer: str | None = None, delta: int = 1, bins: int = 1) -> Begin:
    """A counter of 40 between 0 and 100 is changed; a key where the method takes one."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        seller, counter = _strict(world, retries), f"fs:{name}"
        seller.create(counter, method=method, lower=0, upper=100, opening=40, bins=bins)
        key = None if method is Method.ATOMIC else "order-1"

        def act() -> object:
            return seller.change(counter, delta, key=key, prefer=prefer)

        def effect() -> int:
            return int((seller.show(counter).value - 40) / delta)

        again = (lambda _told: act) if key else (lambda _told: None)
        clients = (seller.connection.unretried.client,)
        return Play(act, effect, clients, again)

    return begin


def _value_of(seller: StrictCounters, counter: str) -> Amount | None:
    try:
        return seller.show(counter).value
    except NoSuchCounter:
        return None


def creating(bins: int) -> Begin:
    """A strict counter is created."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        seller, counter = _strict(world, retries), f"fs:{name}"
        seller.tables.namespaces.create("fs", kind=Kind.STRICT)

        return Play.repeatable(
            done(lambda: seller.create(counter, method="atomic", opening=5, bins=bins)),
            is_so(lambda: _value_of(seller, counter) == 5),
            seller.connection.unretried,
        )

    return begin


def bounding(bins: int) -> Begin:
    """The upper bound of a counter is moved."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        seller, counter = _strict(world, retries), f"fs:{name}"
        seller.create(counter, method="atomic", upper=9, bins=bins)

        return Play.repeatable(
            done(lambda: seller.set_bounds(counter, upper=50)),
            is_so(lambda: seller.show(counter).upper == 50),
            seller.connection.unretried,
        )

    return begin


def deleting(world: World, name: str, retries: Retries) -> Play:
    """A strict counter is deleted."""
    seller, counter = _strict(world, retries), f"fs:{name}"
    seller.create(counter, method="atomic", bins=2)

    return Play.repeatable(
        done(lambda: seller.delete(counter)),
        is_so(lambda: _value_of(seller, counter) is None),
        seller.connection.unretried,
    )


def withdrawing(method: Method) -> Begin:
    """A key that was not used is withdrawn; a change under it counts no more."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        seller, counter = _strict(world, retries), f"fs:{name}"
        seller.create(counter, method=method)

        def stored() -> bool:
            if method is Method.SET:
                return seller.show(counter).remembered == 1
            table = world.store.counters
            incarnation = keys.marker_key(counter, 1, id_of_key("order-1"))
            return world.store.item(table, incarnation) is not None

        def act() -> object:
            return seller.withdraw(counter, "order-1")

        return Play.repeatable(act, is_so(stored), seller.connection.unretried)

    return begin


def _pair(seller: StrictCounters, name: str) -> tuple[str, str]:
    source, target = f"fs:{name}-a", f"fs:{name}-b"
    seller.create(source, method="atomic", lower=0, opening=5)
    seller.create(target, method="occ", upper=5)
    return source, target


def transferring(world: World, name: str, retries: Retries) -> Play:
    """Two are moved from one counter to another."""
    seller = _strict(world, retries)
    source, target = _pair(seller, name)

    def act() -> object:
        return seller.transactions.transfer(source, target, 2, key=f"t {name}")

    def effect() -> int:
        values = [int(seller.show(one).value) for one in (source, target)]
        return values[1] // 2 if sum(values) == 5 else -1

    return Play.repeatable(act, effect, seller.connection.unretried)


def setting(bins: int) -> Begin:
    """A strict counter is set to a value."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        seller, counter = _strict(world, retries), f"fs:{name}"
        seller.create(counter, method="marker", opening=5, bins=bins)

        def act() -> object:
            return seller.transactions.set_value(counter, 2, key=f"s {name}")

        effect = is_so(lambda: seller.show(counter).value == 2)
        return Play.repeatable(act, effect, seller.connection.unretried)

    return begin


def withdrawing_all(world: World, name: str, retries: Retries) -> Play:
    """A key of several changes is withdrawn."""
    seller = _strict(world, retries)
    place = keys.keyed_key(id_of_key(f"w {name}"))

    def act() -> object:
        return seller.transactions.withdraw(f"w {name}")

    effect = is_so(lambda: world.store.item(world.store.counters, place))
    return Play.repeatable(act, effect, seller.connection.unretried)


# ---- claims ----


@contextmanager
def _users(world: World) -> Iterator[str]:
    with own_table(world.store) as table:
        yield table


def claiming(what: str, *, own: bool) -> Begin:
    """A value is taken, changed or released by its owner, with an item of the app's own or not."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        claims = Claims(world.process(retries))
        users, key = world.shared(_users), {"id": name}
        old, scope = Claim(f"s-{name}", "old", name), f"s-{name}"
        items: dict[str, Any] = {
            "take": NewItem(users, {**key, "mail": "old"}, ("id",)),
            "change": ItemChange(users, key, {"mail": "new"}, {"mail": "old"}),
            "release": ItemDeletion(users, key),
        }
        mine = [items[what]] if own else []
        if what != "take":
            claims.take(old, own=[items["take"]] if own else [])
        ways: dict[str, Callable[[], bool]] = {
            "take": lambda: claims.take(old, own=mine),
            "change": lambda: claims.change(old, "new", own=mine),
            "release": lambda: claims.release(old, own=mine),
        }
        before = (None, None, None) if what == "take" else (name, None, "old" if own else None)
        after = {
            "take": (name, None, "old" if own else None),
            "change": (None, name, "new" if own else None),
            "release": (None, None, None),
        }[what]

        def effect() -> int:
            mail = (world.store.item(users, key) or {}).get("mail")
            found = (claims.owner(scope, "old"), claims.owner(scope, "new"), mail)
            return [before, after].index(found)  # a half of it is no number

        return Play.repeatable(ways[what], effect, claims.connection.unretried)

    return begin


# ---- sequences ----


def _sequences(world: World, retries: Retries) -> Sequences:
    return Sequences(world.process(retries))


def drawing(draw: Callable[[Sequences, str], object], size: int = 1) -> Begin:
    """Numbers are drawn from a sequence; its effect is how many blocks were."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        sequences, sequence = _sequences(world, retries), f"fq:{name}"
        sequences.draw(sequence)

        def effect() -> int:
            return (sequences.show(sequence).last - 1) // size

        clients = (sequences.connection.unretried.client,)
        return Play(lambda: draw(sequences, sequence), effect, clients)

    return begin


def making_a_sequence(world: World, name: str, retries: Retries) -> Play:
    """A sequence that begins at 10."""
    sequences, sequence = _sequences(world, retries), f"fq:{name}"
    sequences.draw(f"fq:{name}-other")

    return Play.repeatable(
        done(lambda: sequences.create(sequence, first=10)),
        is_so(lambda: sequences.show(sequence).last == 9),
        sequences.connection.unretried,
    )


@contextmanager
def _posts(world: World) -> Iterator[str]:
    with own_table(world.store, "S") as table:
        yield table


def appending(world: World, name: str, retries: Retries) -> Play:
    """An item gets the next number of a collection; what stays unclear is resumed."""
    sequences, table = _sequences(world, retries), world.shared(_posts)
    collection = Collection(table, ("post", name), "place", prefix="c#", digits=3)
    sequences.append(collection, {"text": "first"})

    def act() -> object:
        return sequences.append(collection, {"text": "second"}).number

    def effect() -> int:
        items = Query(table, Compare("post", "=", name), consistent=True)
        texts = [one["text"] for page in world.reads.pages(items) for one in page]
        return texts.count("second")

    def again(told: object) -> Callable[[], object] | None:
        pending = getattr(told, "pending", None)
        return (lambda: sequences.resume(pending).number) if pending else None

    return Play(act, effect, [sequences.connection.unretried.client], again)
