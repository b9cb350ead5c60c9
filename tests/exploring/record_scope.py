"""Records: the life cycle of every named setting, with every kind of decision.

The state of the model is the value of the record; nothing: no record has the key. A record of a
kind that is never removed is explored without removals, because its refusals rest on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger.errors import NoSuchQuota, QuotaExists
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.records import NotRead, Records, Replacement
from countledger.ledger.tombstones import present
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.client import CountLedger
    from countledger.ledger.attributes import Item
    from countledger.ledger.records import Decide, Seen
    from tests.exploring.world import Contents

_Value: TypeAlias = int | None

_NAME: Final = "r"
_KEY: Final = {"counter": "record#", "part": _NAME}
# What is expected by the first request of a call.
_EXPECTS_NOTHING: Final = ("create 5", "create 7", "ensure")


def _put(value: int) -> Replacement:
    return Replacement({**_KEY, "value": value})


def _create(value: int) -> Decide:
    def decide(there: Item | None) -> Replacement:
        if there is not None:
            raise QuotaExists(_NAME)
        return _put(value)

    return decide


def _existing(there: Item | None) -> int:
    if there is None:
        raise NoSuchQuota(_NAME)
    value: int = there["value"]
    return value


def _add(there: Item | None) -> Replacement:
    return _put(_existing(there) + 1)


def _remove(there: Item | None) -> Replacement:
    _existing(there)
    return Replacement(None)


def _ensure(there: Item | None) -> Replacement | None:
    return _put(3) if there is None else None


def _raise_to_5(there: Item | None) -> Replacement | None:
    return None if there is not None and there["value"] >= 5 else _put(5)


_DECIDE: Final[dict[str, Decide]] = {
    "create 5": _create(5),
    "create 7": _create(7),
    "add": _add,
    "remove": _remove,
    "ensure": _ensure,
    "raise to 5": _raise_to_5,
}


def _model(value: _Value, call: str) -> Iterator[Effect]:
    if call == "show":
        yield Effect(value, value)
    elif call.startswith("create"):
        wanted = int(call.removeprefix("create "))
        missing = value is None
        yield Effect(wanted, wanted) if missing else Effect(QuotaExists, value)
    elif call == "ensure":
        after = 3 if value is None else value
        yield Effect(after, after)
    elif call == "raise to 5":
        after = max(value or 0, 5)
        yield Effect(after, after)
    elif value is None:
        yield Effect(NoSuchQuota, None)
    else:
        after_change = value + 1 if call == "add" else None
        yield Effect(after_change, after_change)


def _agrees(value: _Value, contents: Contents) -> bool:
    item = contents.tables[COUNTERS].get((_KEY["counter"], _KEY["part"]))
    there = present(dict(item)) if item else None
    return (None if there is None else there["value"]) == value


def _written(call: str, *, removable: bool) -> Callable[[CountLedger], _Value]:
    def write(ledger: CountLedger) -> _Value:
        connection = ledger.connection
        records = Records(connection, connection.counters, "record", removable)
        seen: Seen = NotRead.EXPECT_NOTHING if call in _EXPECTS_NOTHING else NotRead.READ_IT
        item = connection.run(records.write(_NAME, _KEY, _DECIDE[call], seen=seen)).item
        return None if item is None else item["value"]

    return write


def _show(ledger: CountLedger) -> _Value:
    connection = ledger.connection
    item = present(connection.retrying.get(connection.counters, _KEY, consistent=True))
    return None if item is None else item["value"]


def _capability(name: str, *, removable: bool) -> Capability:
    create, remove = (_written(call, removable=removable) for call in ("create 5", "remove"))
    calls = {
        call: _written(call, removable=removable)
        for call in _DECIDE
        if removable or call != "remove"
    }
    again = [("remove", "create 7"), ("add", "remove")] if removable else [("create 5", "add")]
    return Capability(
        name=name,
        calls={**calls, "show": _show},
        scripts=(*((call,) for call in (*calls, "show")), *again),
        starts={
            "none": Beginnings(lambda _: None, None),
            "made": Beginnings(create, 5),
            **(
                {"removed": Beginnings(lambda ledger: (create(ledger), remove(ledger)), None)}
                if removable
                else {}
            ),
        },
        model=_model,
        agrees=_agrees,
        bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
    )


RECORDS_OF_KINDS: Final = (
    _capability("records", removable=True),
    _capability("records-kept", removable=False),
)
