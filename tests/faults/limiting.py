"""The operations of quotas in the matrix: acquires, reservations, and the quotas themselves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from countledger.ledger.connection import Retries
from countledger.producers.quotas.quota import Admitted, Committed
from countledger.producers.quotas.quotas import Quotas
from tests.faults.play import Begin, Play, World

_AMOUNT = 7


def _quotas(world: World, retries: Retries) -> Quotas:
    """Of a new process, which has read no limit."""
    return Quotas(world.process(retries))


def _begun(world: World, name: str, retries: Retries, method: str = "marker") -> tuple[Quotas, str]:
    """A quota of a hundred a month, and one of its counters, whose limit is known."""
    quotas, counter = _quotas(world, retries), f"fl-{name}:a"
    quotas.create(f"fl-{name}:", limit=100, per="month", method=method)
    quotas.show(counter)
    return quotas, counter


def _said(outcome: object) -> object:
    if isinstance(outcome, Admitted | Committed) and outcome.duplicate:
        return "duplicate"
    return outcome


def acquiring(
    method: str = "marker", key: str | None = None, prefer: Literal["under", "over"] = "under"
) -> Begin:
    """Seven are acquired."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        quotas, counter = _begun(world, name, retries, method)

        def act() -> object:
            return _said(quotas.acquire(counter, _AMOUNT, key=key, prefer=prefer))

        def effect() -> int:
            return int(quotas.show(counter)[0].used / _AMOUNT)

        again = (lambda _told: act) if key else (lambda _told: None)
        return Play(act, effect, (quotas.connection.unretried.client,), again)

    return begin


def reserving(world: World, name: str, retries: Retries) -> Play:
    """Seven are reserved under a key."""
    quotas, counter = _begun(world, name, retries)

    def act() -> object:
        return _said(quotas.reserve(counter, _AMOUNT, key="k"))

    def effect() -> int:
        return int(quotas.show(counter)[0].used / _AMOUNT)

    return Play.repeatable(act, effect, quotas.connection.unretried)


def resolving(actual: int | None) -> Begin:
    """Of twenty-one, seven are reserved; they are committed with another amount, or released."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        quotas, counter = _begun(world, name, retries)
        quotas.acquire(counter, 2 * _AMOUNT)
        ticket: Any = quotas.reserve(counter, _AMOUNT)

        def act() -> object:
            if actual is None:
                return quotas.release(ticket)
            return _said(quotas.commit(ticket, actual))

        def effect() -> int:
            missing = 3 * _AMOUNT - quotas.show(counter)[0].used
            times, rest = divmod(missing, _AMOUNT - (actual or 0))
            return int(times) if not rest else -1

        return Play.repeatable(act, effect, quotas.connection.unretried)

    return begin


def committing_as_reserved(world: World, name: str, retries: Retries) -> Play:
    """Seven are reserved, and seven are used."""
    quotas, counter = _begun(world, name, retries)
    ticket: Any = quotas.reserve(counter, _AMOUNT)

    def act() -> object:
        return _said(quotas.commit(ticket))

    def effect() -> int:
        item = quotas.connection.retrying.get(
            quotas.connection.counters, ticket.ticket.marker_key, consistent=True
        )
        assert quotas.show(counter)[0].used == _AMOUNT
        return int((item or {})["state"] == "committed")

    return Play.repeatable(act, effect, quotas.connection.unretried)


def creating(world: World, name: str, retries: Retries) -> Play:
    """A quota that did not exist."""
    quotas, prefix = _quotas(world, retries), f"fl-{name}:"

    def act() -> object:
        return quotas.create(prefix, limit=1, per="day")

    def effect() -> int:
        return sum(one.prefix == prefix for one in quotas.list())

    return Play.repeatable(act, effect, quotas.connection.unretried)


def changing(change: Callable[[Quotas, str], None], expected: object) -> Begin:
    """A limit of a quota or of its counter `<prefix>a` becomes another one."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        quotas, counter = _begun(world, name, retries)
        prefix = counter.removesuffix("a")

        def act() -> object:
            change(quotas, prefix)
            return True

        def effect() -> int:
            found = [one for one in quotas.list() if one.prefix == prefix]
            limits = [(one.limit, quotas.overrides(one).get(counter)) for one in found]
            return int(limits == expected)

        quotas = replace(quotas)
        return Play.repeatable(act, effect, quotas.connection.unretried)

    return begin
