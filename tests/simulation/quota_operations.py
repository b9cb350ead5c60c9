"""Operations on quotas: acquires, reservations, limits that change, quotas that are made again."""

from collections import Counter
from typing import Final

from countledger.ledger.calendar import Per, window_of, zone_of
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    KeyExpired,
    NoSuchQuota,
    QuotaExists,
    Throttled,
    TicketExpired,
    TicketResolved,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.quotas.plan import counted_in_of
from countledger.producers.quotas.quota import Admitted, Denied
from tests.simulation.client import Client, Memory
from tests.simulation.quota_account import QuotaCall
from tests.simulation.sums import Wrong
from tests.simulation.world import World

_QUOTA: Final = "spent:"
_COUNTERS: Final = ("spent:a", "spent:b")
# Of every call, which counters; some under a second quota as well.
_CHOICES: Final = (("spent:a",), ("spent:b",), ("spent:a", "spent:b"))
_LIMITS: Final = (0, 6, 9, 12, 20)
# Of the quota of all counters, a window that a call may not see the end of; of some, a second one.
_PER: Final = Per.MINUTE
_SECOND: Final = "spent:b"
_SECOND_PER: Final = Per.HOUR


def acquire(client: Client) -> None:
    """Without a key: counted once in every window, or perhaps, if nobody was told."""
    counters, amount = client.random.choice(_CHOICES), client.random.randint(1, 3)
    accounts, now_ms = client.auditor.quotas, client.process.now_ms()
    windows = [window_of(now_ms, per, zone_of("UTC")).name for per in (_PER, _SECOND_PER)]
    # Whether the second quota is there is not known.
    places = [(counter, name) for counter in counters for name in windows]
    for place in places:
        accounts.open[place] += amount
    try:
        outcome = client.product.quotas.acquire(counters, amount)
    except NoSuchQuota:
        _count(accounts.open, places, -amount)
        _create(client)
        return
    except Throttled:
        _count(accounts.open, places, -amount)
        raise
    client.tell(f"acquired: {outcome}")
    _count(accounts.open, places, -amount)
    if isinstance(outcome, Admitted):
        told = [(one.counter, one.window) for one in outcome.limits]
        _count(accounts.told, told, amount)


def _count(sums: Counter[tuple[str, str]], places: list[tuple[str, str]], amount: int) -> None:
    for place in places:
        sums[place] += amount


def acquire_keyed(client: Client) -> None:
    """Under a key, a new one or one of before: counted once."""
    _call(client, reserve=False)


def reserve(client: Client) -> None:
    """The same; somebody will commit or release it, or nobody."""
    _call(client, reserve=True)


def _call(client: Client, *, reserve: bool) -> None:
    known = [one for one in client.memory.acquires if one.reserve is reserve]
    if known and client.random.random() < 0.5:
        call = client.random.choice(known)
    else:
        key = IdempotencyKey(f"key {client.memory.number()}", to_datetime(client.process.now_ms()))
        counters, amount = client.random.choice(_CHOICES), client.random.randint(1, 3)
        call = QuotaCall(counters, amount, key, reserve)
        client.memory.acquires.append(call)
    quotas = client.product.quotas
    act = quotas.reserve if reserve else quotas.acquire
    try:
        outcome = act(call.counters, call.amount, key=call.key)
    except NoSuchQuota:
        _create(client)
    except (KeyExpired, TicketResolved) as error:
        client.tell(f"{call}: {error}")
    else:
        client.tell(f"{call}: {outcome}")
        _check_told(client, call, outcome)


def _check_told(client: Client, call: QuotaCall, outcome: Admitted | Denied) -> None:
    """What is admitted is in the window that was told, under one marker."""
    if not isinstance(outcome, Admitted):
        return
    markers = client.auditor.quotas.markers.values()
    told = {(one.counter, one.window) for one in outcome.limits}
    mine = [
        {(place.counter, place.window) for place in counted_in_of(one)}
        for one in markers
        if one.get("key") == call.key.key
    ]
    if told not in mine:
        raise Wrong(f"{call} was told to be in {told}: {mine}")
    if outcome.ticket is not None:
        client.memory.tickets.append(outcome.ticket)


def resolve(client: Client) -> None:
    """A reservation is committed or released: soon or late, again, or in another way."""
    if not client.memory.tickets:
        return
    ticket = client.random.choice(client.memory.tickets)
    actual = client.random.choice([None, 0, 1, int(ticket.amount), int(ticket.amount) + 2])
    quotas = client.product.quotas
    try:
        done = quotas.release(ticket) if actual is None else quotas.commit(ticket, actual)
    except (TicketExpired, TicketResolved) as error:
        client.tell(f"resolve {ticket}: {error}")
        return
    client.tell(f"resolved {ticket} with {actual}: {done}")
    key = ticket.marker_key["counter"], ticket.marker_key["part"]
    marker = client.auditor.quotas.markers[key]
    wanted = ("released", 0) if actual is None else ("committed", actual)
    if (marker["state"], marker["actual"]) != wanted:
        raise Wrong(f"{ticket} was told to be {wanted}, and is {marker}")


def limit(client: Client) -> None:
    """The limit of the quota, or of one counter, is changed while it is used."""
    amount = client.random.choice(_LIMITS)
    quotas = client.product.quotas
    try:
        if client.random.random() < 0.5:
            quotas.set_limit(_QUOTA, amount)
        else:
            own = None if client.random.random() < 0.4 else amount
            quotas.override(client.random.choice(_COUNTERS), own, per=_PER)
    except NoSuchQuota:
        _create(client)


def remake(client: Client) -> None:
    """A quota is deleted while others use it, and made again under its name."""
    prefix, per = client.random.choice([(_QUOTA, _PER), (_SECOND, _SECOND_PER)])
    try:
        client.product.quotas.delete(prefix, per=per)
    except NoSuchQuota:
        client.tell(f"{prefix} is gone")
    _create(client)


def _create(client: Client) -> None:
    for prefix, per in ((_QUOTA, _PER), (_SECOND, _SECOND_PER)):
        limit = client.random.choice(_LIMITS)
        if prefix == _SECOND and client.random.random() < 0.5:
            continue
        try:
            client.product.quotas.create(prefix, limit=limit, per=per)
        except QuotaExists as error:
            client.tell(str(error))


def check_quotas(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Every window has used what was admitted, committed and not released."""
    world.auditor.quotas.check()
