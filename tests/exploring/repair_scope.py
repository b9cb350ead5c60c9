"""Repair and verify, beside records, deliveries of the stream, and a total that is lost.

The state of the model is the sum of the ledger, and what the total lacks: nothing, or, once the
total was lost, an unknown number until a repair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from countledger.consumers.verify import Judgement, Remedy, Repairer, Verifier
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from tests.exploring.client import NO_ANSWER, Sending
from tests.exploring.ledger_scope import certainty_of_record, ledger_sum
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability, fewer_beside_more
from tests.exploring.search import Bounds, Fault
from tests.exploring.stream import let_streams_flow
from tests.exploring.streamed import deliver, total_after_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from tests.exploring.client import ActorConnection
    from tests.exploring.scope import Script
    from tests.exploring.world import Contents

# The sum of the ledger, and whether the total has all of it once everything is delivered.
_State: TypeAlias = tuple[int, bool]

_NAME: Final = "n:x"
_HEALED: Final = tuple(map(str, (Remedy.NONE, Remedy.REPAIRED, Remedy.MADE)))


def _model(state: _State, call: str) -> Iterator[Effect]:
    total, whole = state
    if call == "record":
        yield Effect("recorded", (total + 1, whole))
    elif call == "lose":
        yield Effect(None, (total, False))
    elif call == "verify":
        yield Effect(str(Judgement.BUSY), state)
        yield Effect(str(Judgement.EXACT), state)
        if not whole:
            yield Effect(str(Judgement.DRIFT), state)
    elif call == "repair":
        for healed in _HEALED[: 1 if whole else None]:
            yield Effect(healed, (total, True))
        yield Effect(str(Remedy.SKIPPED), state)
        yield Effect(str(Remedy.SKIPPED), (total, True))
    else:
        yield Effect(_is_text, state)


def _is_text(answer: object) -> bool:
    return isinstance(answer, str)


def _agrees(state: _State, contents: Contents) -> bool:
    total, whole = state
    if ledger_sum(contents, _NAME) != total:
        return False
    return not whole or total_after_all(contents, _NAME) == total


def _record(ledger: CountLedger, delta: int) -> str:
    return str(ledger.record(_NAME, delta).status)


def _verifier(ledger: CountLedger) -> Verifier:
    """Waits for no stream that is late."""
    return Verifier(ledger.connection, patience_ms=0)


def _repair(ledger: CountLedger) -> str:
    (done,) = Repairer(_verifier(ledger)).repair([_NAME])
    return str(done.remedy)


def _verify(ledger: CountLedger) -> str:
    (verdict,) = _verifier(ledger).verify([_NAME])
    return str(verdict.verdict)


def _lose(ledger: CountLedger) -> None:
    """By hand, with a clear answer: what a person does has no condition."""
    sender = cast("ActorConnection", ledger.connection).sender
    counters = sender.world.tables[COUNTERS]
    sender.send(
        Sending(
            "the total is lost",
            lambda: counters.store((_NAME, keys.TOTAL), None),
            writes=False,
            lost=NO_ANSWER,
        )
    )


def _delivered(ledger: CountLedger) -> None:
    _record(ledger, 5)
    deliver(ledger)
    ledger.connection.clock.sleep_ms(50 * MINUTE_MS)


def _behind(ledger: CountLedger) -> None:
    _delivered(ledger)
    ledger.connection.clock.sleep_ms(9 * MINUTE_MS + 50 * SECOND_MS)
    _record(ledger, 20)
    ledger.connection.clock.sleep_ms(SECOND_MS)
    _record(ledger, 300)


def _lost(ledger: CountLedger) -> None:
    _delivered(ledger)
    _lose(ledger)


# Each has half a million states with a fault.
_LARGEST: Final = {("deliver one", "deliver"), ("lose", "repair"), ("repair",), ("verify",)}


def _faults(scripts: tuple[Script, ...]) -> int | None:
    """Two of the largest scripts: without a fault; three calls: of which none is a comparison."""
    compares = sum(script in {("repair",), ("verify",)} for script in scripts)
    if len(scripts) == 3 and compares:
        return None
    return 0 if len(scripts) == 2 and set(scripts) <= _LARGEST else fewer_beside_more(scripts)


REPAIRS: Final = Capability(
    name="repairs",
    calls={
        "record": lambda ledger: _record(ledger, 1),
        "deliver": deliver,
        "deliver one": lambda ledger: deliver(ledger, most=1),
        "deliver again": lambda ledger: deliver(ledger, again=True),
        "repair": _repair,
        "verify": _verify,
        "lose": _lose,
    },
    scripts=(
        ("deliver",),
        ("deliver one", "deliver"),
        ("deliver again",),
        ("record",),
        ("repair",),
        ("verify",),
        ("lose", "repair"),
    ),
    starts={
        "behind": Beginnings(_behind, (325, True)),
        "lost": Beginnings(_lost, (5, False)),
    },
    model=_model,
    agrees=_agrees,
    certainty=certainty_of_record,
    prepare=lambda ledger: ledger.namespaces.get("n"),
    watch=let_streams_flow,
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,), kinds=frozenset({Fault.LATE, Fault.DEATH})),
    offsets_ms=(0, 1, 2),
    faults=_faults,
)
