"""Operations on ledger counters: entries of every kind, sent once, again, and too late."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    ClockSkew,
    CountledgerError,
    IdempotencyKeyReused,
    KeyExpired,
    NamespaceUnknown,
    ServiceFailed,
    Unacknowledged,
)
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.producers.event import Event, Receipt, make_entry
from tests.simulation.client import Client
from tests.simulation.ledger_account import STOCK, counted
from tests.simulation.sums import Wrong
from tests.simulation.window_account import occurred_at

ALLOWED = (KeyExpired, ClockSkew, NamespaceUnknown, ServiceFailed)


def record_plain(client: Client) -> None:
    """An entry without a key."""
    _send_new(client, None)


def record_keyed(client: Client) -> None:
    """An entry under a key with its time, made just now or a while ago."""
    ago_ms = client.random.choice([0, 0, 20_000, client.world.shape.horizon_ms + 1_000])
    at = to_datetime(client.process.now_ms()) - timedelta(milliseconds=ago_ms)
    _send_new(client, IdempotencyKey(f"key {client.memory.number()}", at))


def record_bare(client: Client) -> None:
    """An entry under a bare key, which others use as well, in this region only."""
    counter = draw_counter(client)
    known = client.memory.bare[counter]
    account = client.auditor.ledger.accounts[counter]
    spread = client.world.shape.spread
    # A delta can be told apart up to three times; under a bare key it may be made anew.
    often = Counter(key for key, _ in account.made)
    mine = [
        key
        for key, (_, region) in known.items()
        if region == client.region and often[keys.entry_key(id_of_key(key), spread)] < 2
    ]
    if mine:
        key = client.random.choice(mine)
        event = Event(counter, known[key][0], key, occurred_at(client))
        _send(client, _entry(client, event))


def record_batch(client: Client) -> None:
    """Several events at once, of several counters, with keys and without."""
    events = []
    for _ in range(client.random.randint(2, 6)):
        counter = draw_counter(client)
        delta = draw_delta(client, counter)
        if delta is not None:
            at = to_datetime(client.process.now_ms())
            key = IdempotencyKey(f"key {client.memory.number()}", at)
            key_or_none = client.random.choice([None, None, key])
            events.append(Event(counter, delta, key_or_none, occurred_at(client)))
    if keyed := [event for event in events if event.key is not None]:
        # The same event twice, as an app's own input has it.
        events += client.random.choice([[], keyed[:1]])
    outcomes = client.product.recorder.record_many(events)
    for event, outcome in zip(events, outcomes, strict=True):
        if isinstance(outcome, Receipt):
            _acknowledged(client, event.counter, outcome.id, event.delta)
        elif isinstance(outcome, Unacknowledged):
            client.memory.entries.append((outcome.entry, client.region))
        elif not isinstance(outcome, ALLOWED):
            raise Wrong(f"a batch answered {event} with {outcome!r}")
        client.tell(f"batch: {event.counter} {event.delta}: {_short(outcome)}")


def resend(client: Client) -> None:
    """An entry once more: any one, or the oldest that may still be sent; perhaps elsewhere."""
    entries = [
        (entry, region)
        for entry, region in client.memory.entries
        if entry.id[0] != "k" or region == client.region
    ]
    if not entries:
        return
    horizon_ms = client.world.shape.horizon_ms
    now_ms = client.process.now_ms()
    young = [one for one in entries if now_ms - one[0].at_ms <= horizon_ms]
    if young and client.random.random() < 0.5:
        entry = min(young, key=lambda one: one[0].at_ms)[0]
        if client.random.random() < 0.3:
            # Just before it may not be sent any more.
            wait_ms = entry.at_ms + horizon_ms - now_ms - client.random.randrange(500)
            client.world.schedule.pause(max(0, wait_ms))
    else:
        entry = client.random.choice(entries)[0]
    _send(client, entry)


def reuse(client: Client) -> None:
    """A key of an entry that is in, with another delta: refused, and nothing changes."""
    timed = [
        entry
        for entry, region in client.memory.entries
        if entry.key is not None and region == client.region and entry.id[0] != "k"
    ]
    if not timed:
        return
    horizon_ms = client.world.shape.horizon_ms
    young = [one for one in timed if client.process.now_ms() - one.at_ms <= horizon_ms]
    entry = client.random.choice(young or timed)
    account = client.auditor.ledger.accounts[entry.counter]
    spread = client.world.shape.spread
    shown = account.shown[client.region]
    there = (keys.entry_key(entry.id, spread), entry.at_ms) in shown
    if not there:
        return
    try:
        receipt = client.product.recorder.resend(replace(entry, delta=entry.delta * 2))
    except (IdempotencyKeyReused, *ALLOWED) as error:
        client.tell(f"reuse of {entry.key}: {type(error).__name__}")
    else:
        raise Wrong(f"{entry} was reused with twice its delta: {receipt}")


def read_exact(client: Client) -> None:
    """An exact sum: what was visible when it began is in it, and nothing twice."""
    counter = draw_counter(client)
    ledger = client.auditor.ledger
    required, began_ms = ledger.before_read(counter, client.region), client.world.schedule.now_ms
    exact = client.product.exact.read(counter)
    ledger.read(counter, required, int(exact.value), began_ms, region=client.region)
    client.tell(f"exact {counter}: generation {exact.generation}, {exact.entries} entries")


def read_total(client: Client) -> None:
    """A total: all is in it up to where all totals are said to be fresh.

    That it is never more than what was made, the auditor saw when it was written.
    """
    totals, counter = client.product.totals, draw_counter(client)
    began_ms = client.world.schedule.now_ms
    fresh = totals.freshness()
    total = totals.read(counter, consistent=True)
    client.tell(f"total {counter}: {total.entries} entries, fresh to {fresh.handled_through_ms}")
    account = client.auditor.ledger.accounts[counter]
    if fresh.idle or fresh.handled_through_ms is None or client.region in account.excused:
        return
    logs = client.world.streams[client.region].shards.values()
    handled = [
        record.after["delta"]
        for log in logs
        for record in log.records
        if record.key[0] == counter
        and record.before is None
        and record.after is not None
        and record.made_ms < fresh.handled_through_ms
        and client.auditor.ledger.is_entry(record.key[1])
        # Else it was deleted; under a bare key the same delta may have been recorded again.
        and (record.key[1], record.after["at"]) in account.made
    ]
    found, region = int(total.value), client.region
    client.auditor.ledger.read(
        counter, counted(handled), found, began_ms, region=region, is_total=True
    )


def send(client: Client, event: Event) -> None:
    """An event, whose entry may be sent again."""
    _send(client, _entry(client, event))


def send_new(client: Client, counter: str, free: list[int]) -> None:
    """An entry without a key, of a counter that the others leave alone."""
    if free:
        _send(client, _entry(client, Event(counter, 4 ** free.pop())), again=False)


def draw_counter(client: Client) -> str:
    """Any ledger counter whose deltas tell of themselves."""
    return client.random.choice(sorted(client.memory.free))


def draw_any(client: Client) -> str:
    """Any ledger counter."""
    others = [STOCK] if client.auditor.ledger.accounts[STOCK].made else []
    return client.random.choice(sorted(client.memory.free) + others)


def draw_delta(client: Client, counter: str) -> int | None:
    """A delta of it that nobody has used, if there is one left."""
    free = client.memory.free[counter]
    return 4 ** free.pop() if free else None


def _send_new(client: Client, key: IdempotencyKey | None) -> None:
    counter = draw_counter(client)
    delta = draw_delta(client, counter)
    if delta is not None:
        _send(client, _entry(client, Event(counter, delta, key, occurred_at(client))))


def _entry(client: Client, event: Event) -> Entry:
    return make_entry(
        event,
        now_ms=client.process.now_ms(),
        origin=client.region,
        new_id=client.world.new_id,
    )


def _send(client: Client, entry: Entry, *, again: bool = True) -> None:
    """Send an entry; whatever is heard, it may be sent again."""
    if again and not any(one is entry for one, _ in client.memory.entries):
        client.memory.entries.append((entry, client.region))
    try:
        receipt = client.product.recorder.resend(entry)
    except ALLOWED as error:
        client.tell(f"{entry.counter} {entry.id} {entry.delta}: {type(error).__name__}")
        if isinstance(error, KeyExpired):
            _refuse_early(client, entry)
    else:
        client.tell(f"{entry.counter} {entry.id} {entry.delta}: {receipt.status}")
        _acknowledged(client, entry.counter, entry.id, entry.delta)


def _refuse_early(client: Client, entry: Entry) -> None:
    """An entry within the horizon is not refused as expired."""
    shape = client.world.shape
    age_ms = client.world.schedule.now_ms - entry.at_ms
    if age_ms < shape.horizon_ms - shape.skew_ms:
        raise Wrong(f"{entry} was refused as expired after {age_ms:.0f} ms")


def _acknowledged(client: Client, counter: str, entry_id: str, delta: object) -> None:
    key = keys.entry_key(entry_id, client.world.shape.spread)
    client.auditor.ledger.acknowledge(counter, key, int(str(delta)))


def _short(outcome: Receipt | CountledgerError) -> str:
    return str(outcome.status) if isinstance(outcome, Receipt) else type(outcome).__name__
