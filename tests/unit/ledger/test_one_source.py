"""Time, ids, jitter and workers of everything that is put together come from its connection."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from countledger.client import CountLedger
from countledger.infra.memory.stack import MemoryConnection
from countledger.infra.memory.tables import MemoryClock, MemoryTables
from countledger.ledger import ids
from countledger.ledger.clock import SystemClock
from countledger.ledger.ids import Ids
from countledger.ledger.suspension import workers

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICES: Final = (
    "_recorder",
    "strict",
    "sequences",
    "claims",
    "quotas",
    "groups",
    "rankings",
    "window_settings",
    "schedules",
    "alerts",
    "_windows",
    "_exact",
    "audit",
    "window_audit",
    "deletions",
    "compactor",
)


class _Zero(Random):
    """Draws the first of everything."""


def _parts(one: object) -> Iterator[object]:
    """What an object of the product is made of, however deep."""
    seen: set[int] = set()
    left = [one]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        left += [cell.cell_contents for cell in getattr(part, "__closure__", None) or ()]
        if isinstance(part, partial):
            left += [part.func, *part.args]
        if not type(part).__module__.startswith("countledger.") or isinstance(part, MemoryClock):
            continue
        names = [*getattr(part, "__dict__", {}), *getattr(type(part), "__slots__", ())]
        left += [getattr(part, name) for name in names if hasattr(part, name)]


@pytest.mark.parametrize("service", _SERVICES)
def test_a_service_takes_time_ids_jitter_and_workers_from_its_connection(service: str) -> None:
    memory = MemoryTables()
    given = Ids(lambda _: "an id", lambda _, count: ["an id"] * count, lambda: "an id")
    plain: Any = MemoryConnection.to(memory)
    ledger = CountLedger(plain.settings, session=plain.session)
    ledger.connection = replace(plain, ids=given, random=_Zero(), workers=lambda *_: workers(1, ""))

    made = getattr(ledger, service)
    found = list(_parts(made() if service == "compactor" else made))

    sources = (ids.new_id, ids.new_ids, ids.unique_id, workers)
    assert len(found) > 1
    assert [one for one in found if one in sources or type(one) is Random] == []
    assert [one for one in found if isinstance(one, SystemClock)] == []
