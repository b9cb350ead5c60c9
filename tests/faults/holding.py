"""The operations of holds in the matrix: place, confirm, cancel."""

from collections.abc import Callable
from datetime import timedelta

from countledger.ledger.connection import Retries
from countledger.ledger.ids import id_of_key
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.hold import hold_id
from tests.faults.play import Begin, Play, World

_HELD = 3
_TAKEN = 2
_OPENING = 10


def _begun(world: World, name: str, retries: Retries, bins: int) -> tuple[StrictCounters, str]:
    """Of a new process: a counter of ten."""
    own, counter = StrictCounters(world.process(retries)), f"fh-{name}:a"
    own.create(counter, method="marker", lower=0, opening=_OPENING, bins=bins)
    return own, counter


def _place(strict: StrictCounters, counter: str) -> object:
    return strict.hold(counter, _HELD, key="k", expires_in=timedelta(minutes=10))


def placing(bins: int = 1) -> Begin:
    """Three of ten are held."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        strict, counter = _begun(world, name, retries, bins)
        return Play.repeatable(
            lambda: _place(strict, counter),
            lambda: int(strict.show(counter).held) // _HELD,
            strict.connection.unretried,
        )

    return begin


def _ending(act: Callable[[StrictCounters, str], object], value: int, bins: int) -> Begin:
    """Three of ten are held; then the hold is confirmed or cancelled, which leaves that value."""

    def begin(world: World, name: str, retries: Retries) -> Play:
        strict, counter = _begun(world, name, retries, bins)
        _place(strict, counter)
        hold = hold_id(counter, id_of_key("k"))

        def effect() -> int:
            shown = strict.show(counter)
            ended = (shown.value, shown.held) == (value, 0)
            assert ended or (shown.value, shown.held) == (_OPENING, _HELD)
            return int(ended)

        return Play.repeatable(lambda: act(strict, hold), effect, strict.connection.unretried)

    return begin


def confirming(bins: int = 1) -> Begin:
    """Two of the three are taken."""
    taken = _OPENING - _TAKEN
    return _ending(lambda strict, hold: strict.confirm(hold, _TAKEN), taken, bins)


def cancelling(bins: int = 1) -> Begin:
    """None of the three is taken."""
    return _ending(lambda strict, hold: strict.cancel(hold), _OPENING, bins)
