"""Wrong variants of holds, each of which the simulation catches."""

from collections.abc import Callable
from typing import Final

from countledger.ledger.attempts import Steps
from countledger.ledger.connection import Connection
from countledger.ledger.operations import Write
from countledger.producers.strict import hold
from countledger.producers.strict.hold import Hold, lapsed_before
from countledger.producers.strict.holds import HoldChange
from countledger.producers.strict.release import Releases
from tests.simulation.canary import Canary, all_of, bare, replaced, unconditional, wrapped


def _bare_hold(writes: Callable[..., list[Write]], *given: object) -> list[Write]:
    own, *others = writes(*given)
    return [bare(own), *others]


def _lapsed_here(hold: Hold, connection: Connection) -> bool:
    return hold.lapses_at_ms < connection.clock.now_ms()


def _never(*_: object) -> Steps[bool]:
    yield from ()
    return False


CANARIES: Final = (
    Canary(
        "hold: confirmed in time",
        all_of(
            replaced(hold, "_may_confirm", lambda *_: True),
            replaced(hold, "confirmed_before", lambda _now_ms: None),
        ),
        "holds",
        seed=3,
    ),
    Canary(
        "hold: released after the skew",
        all_of(
            replaced(hold, "_may_release", _lapsed_here),
            replaced(hold, "lapsed_before", lambda now_ms, _skew: lapsed_before(now_ms, 0)),
        ),
        "holds",
        seed=27,
    ),
    Canary("hold: released for a sale", replaced(Releases, "for_refused", _never), "holds", seed=2),
    Canary("hold: its marker", wrapped(HoldChange, "writes", _bare_hold), "holds", seed=2),
    Canary("hold: ends once", unconditional(hold, "plan_end"), "holds", seed=4),
)
