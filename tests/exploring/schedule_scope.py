"""Schedules with their triggers: create, change, delete, and ticks of every trigger that exists.

EventBridge Scheduler has no conditional writes. The state of the model is the expression of the
schedule; empty: there is none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.compaction.dispatcher import BACKLOG_MAX, Dispatcher, WorkQueue
from countledger.compaction.schedule import revision_of, schedule_in
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.errors import NoSuchSchedule, ScheduleExists, Unclear
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.tombstones import present
from tests.exploring.client import ActorConnection, Sending
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds
from tests.exploring.world import SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.client import CountLedger
    from countledger.compaction.dispatcher import Work
    from countledger.ledger.attributes import Item
    from tests.exploring.search import Situation
    from tests.exploring.world import Contents

_NAME: Final = "n"
_KEY: Final = keys.schedule_key(_NAME)
_HOURLY, _DAILY, _MINUTELY = "rate(1 hour)", "rate(1 day)", "rate(1 minute)"
_CREATED: Final = {"create hourly": _HOURLY, "create daily": _DAILY}


def _model(expression: str, call: str) -> Iterator[Effect]:
    if call == "tick":
        yield Effect(None, expression)
    elif call == "get":
        yield Effect(expression or NoSuchSchedule, expression)
    elif call in _CREATED:
        wanted = _CREATED[call]
        yield (
            Effect(wanted, wanted)
            if expression in {"", wanted}
            else Effect(ScheduleExists, expression)
        )
    elif not expression:
        yield Effect(False if call == "delete" else NoSuchSchedule, "")
    elif call == "delete":
        yield Effect(True, "")
    else:
        yield Effect(_MINUTELY, _MINUTELY)


def _stored(contents: Contents) -> Item | None:
    item = contents.tables[COUNTERS].get((_KEY["counter"], _KEY["part"]))
    return present(None if item is None else dict(item))


def _agrees(expression: str, contents: Contents) -> bool:
    schedule = schedule_in(_stored(contents))
    return ("" if schedule is None else schedule.expression) == expression


def _holds(state: Situation) -> bool:
    """A trigger runs as its schedule says; if all calls were answered, it is the only one.

    As long as a schedule is stored, a trigger exists: that of its revision, or of one before.
    """
    item, triggers = _stored(state.contents), state.contents.tables[SCHEDULER].values()
    own = [one for one in triggers if json.loads(one["Target"]["Input"]) == _input(item)]
    schedule = schedule_in(item)
    if schedule is not None and any(
        one["ScheduleExpression"] != schedule.expression for one in own
    ):
        return False
    if not triggers and all(_stored(one.contents) is not None for one in state.path()):
        return False
    answers = [told.answer for place in state.places for told in place.told]
    if any(state.dead) or any(isinstance(one, Unclear) for one in answers):
        return True
    return len(triggers) == len(own) == (item is not None)


def _input(item: Item | None) -> dict[str, Any]:
    return {"namespace": _NAME, "revision": revision_of(item)}


class _FullQueue(WorkQueue):
    """A queue with so much work that a tick sends none: what it would send is not explored."""

    def send(self, batch: Sequence[Work]) -> int:
        return len(batch)

    def backlog(self) -> int:
        return BACKLOG_MAX + 1


def _tick(ledger: CountLedger) -> None:
    """Every trigger that exists invokes the dispatcher."""
    connection = cast("ActorConnection", ledger.connection)
    actor = connection.actor
    if actor is None:
        raise AssertionError("the connection is of no actor")
    table = actor.world.tables[SCHEDULER]

    def listed() -> list[str]:
        return [one["Target"]["Input"] for _, one in sorted(table.items.items())]

    lost = Unclear("no answer")
    for found in actor.send(Sending("ListTriggers", listed, writes=False, lost=lost)):
        Dispatcher(connection, _FullQueue(connection)).dispatch(**json.loads(found))


def _create(ledger: CountLedger, every_ms: int) -> str:
    return ledger.schedules.create(_NAME, every_ms=every_ms).expression


def _without(ledger: CountLedger) -> None:
    ledger.namespaces.create(_NAME)


def _with(ledger: CountLedger) -> None:
    _without(ledger)
    _create(ledger, HOUR_MS)


def _deleted(ledger: CountLedger) -> None:
    _with(ledger)
    ledger.schedules.delete(_NAME)


SCHEDULES: Final = Capability(
    name="schedules",
    calls={
        "create hourly": lambda ledger: _create(ledger, HOUR_MS),
        "create daily": lambda ledger: _create(ledger, DAY_MS),
        "set": lambda ledger: ledger.schedules.set(_NAME, every_ms=MINUTE_MS).expression,
        "delete": lambda ledger: ledger.schedules.delete(_NAME),
        "get": lambda ledger: ledger.schedules.get(_NAME).expression,
        "tick": _tick,
    },
    scripts=(
        ("create hourly",),
        ("create daily",),
        ("set",),
        ("delete",),
        ("get",),
        ("tick",),
        ("delete", "create daily"),
        ("create hourly", "delete"),
    ),
    starts={
        "none": Beginnings(_without, ""),
        "hourly": Beginnings(_with, _HOURLY),
        "deleted": Beginnings(_deleted, ""),
    },
    model=_model,
    agrees=_agrees,
    holds=_holds,
    prepare=lambda ledger: ledger.namespaces.get(_NAME),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
    # A deletion a moment ago: its tombstone is there.
    setup_before_ms=MINUTE_MS,
)
