"""One item that cannot be read, and every command that reads many: the others are all shown.

All items of this file are corrupt at once. A command must show what it can, name what it cannot,
and end with 1; whatever is corrupt, it never ends with a traceback or with 3.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest

from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.operations import Assign, Drop, Put, Update
from tests.e2e.command import Command
from tests.e2e.world import client_of, record_all

_GOOD: Final = ("likes:good-1", "likes:good-2")
# What is corrupt of an entry of a counter that has a good one as well.
_ENTRIES: Final[dict[str, Item]] = {
    "garbage-key": {"entry": "e#garbage", "delta": 1, "at": 1, "origin": "here"},
    "newer-entry": {"entry": "e#01900000-0000-7000-8000-000000000001", "v": 99},
    "no-delta": {"entry": "e#01900000-0000-7000-8000-000000000002", "at": 1, "origin": "here"},
    "text-delta": {
        "entry": "e#01900000-0000-7000-8000-000000000003",
        "delta": "x" * 50_000,
        "at": 1,
        "origin": "here",
    },
    "far-time": {
        "entry": "e#01900000-0000-7000-8000-000000000004",
        "delta": 1,
        "at": (1 << 48) - 1,
        "origin": "here",
    },
    "overflow": {
        "entry": "e#01900000-0000-7000-8000-000000000005",
        "delta": Decimal("1E40"),
        "at": 1,
        "origin": "here",
    },
    "newer-head": {"entry": keys.HEAD, "v": 99},
    "odd-head": {"entry": keys.HEAD, "generation": "1", "covers": 5},
}
_TOTALS: Final[dict[str, Item]] = {
    "newer-total": {"v": 99},
    "text-events": {"events": "many"},
    "far-update": {"updated_at": 10**30},
    "odd-bins": {"method": "atomic", "bins": 10**9},
}
_NAMESPACES: Final[dict[str, Item]] = {
    "newer": {"v": 99},
    "odd-spread": {"spread": 7},
    "text-horizon": {"horizon_ms": "long"},
    "no-kind": {"kind": None},
}
_STRICT: Final[dict[str, Item]] = {
    "newer": {"v": 99},
    "odd-method": {"method": "none of ours"},
    "no-making": {"incarnation": None},
    "odd-tags": {"tag": 7},
    "odd-bins": {"bins": 10**9},
    "far-update": {"updated_at": 10**30},
}


class Corrupt:
    """A stack with all of that in it.

    Attributes:
        client: of it.
        command: the command line.
    """

    def __init__(self, stack: LocalStack) -> None:
        self.client = client_of(stack)
        self.command = Command(stack.environment())
        self.dynamo = self.client.connection.dynamo("standard")
        self.ledger = self.client.connection.setting("ledger_table")
        self.counters = self.client.connection.setting("counters_table")

    def change(self, table: str, key: Item, corrupt: Item) -> None:
        """Edit an item by hand."""
        clauses = tuple(
            Drop(name) if value is None else Assign(name, value) for name, value in corrupt.items()
        )
        self.dynamo.update(Update(table, key, clauses))

    def put(self, table: str, item: Item) -> None:
        """Write an item by hand."""
        self.dynamo.put(Put(table, item))


@pytest.fixture(scope="module")
def corrupt() -> Iterator[Corrupt]:
    with LocalStack(name="countledger-corrupt") as stack:
        made = Corrupt(stack)
        client = made.client
        names = [*_GOOD, *(f"likes:{name}" for name in (*_ENTRIES, *_TOTALS))]
        names += [f"{name}:x" for name in _NAMESPACES]
        record_all(client, names, 2)
        for name in ("hall", *_STRICT):
            client.strict.create(f"seats:{name}", method="occ", upper=100, opening=40)
        client.groups.add("board", [n for n in names if n.startswith("likes:")])
        client.groups.add("odd", _GOOD)
        client.schedules.create("likes", every_ms=3_600_000)
        client.schedules.create("odd-spread", every_ms=3_600_000)
        stack.pump.drain()
        for name, item in _ENTRIES.items():
            made.put(made.ledger, {"counter": f"likes:{name}", **item})
        stack.pump.drain()
        for name, item in _TOTALS.items():
            made.change(made.counters, dict(keys.total_key(f"likes:{name}")), item)
        for name, item in _STRICT.items():
            made.change(made.counters, dict(keys.total_key(f"seats:{name}")), item)
        for name, item in _NAMESPACES.items():
            made.change(made.ledger, dict(keys.namespace_key(name)), item)
        made.change(made.counters, dict(keys.group_key("odd")), {"on": "maybe"})
        made.change(made.counters, dict(keys.schedule_key("odd-spread")), {"region": 5})
        made.put(
            made.counters, {**keys.quarantine_key("ledger", "1700000000000-" + "0" * 16), "kind": 7}
        )
        log = {"counter": keys.ALERT_LOG, "part": "01700000000000#x"}
        made.put(made.counters, {**log, "firing": "none"})
        made.put(made.counters, {**keys.rule_key("odd"), "revisions": 7})
        yield made


# Each command, and what it must show all the same.
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "export": (*_GOOD, "seats:hall"),
    "export --namespace likes": _GOOD,
    "verify --all --json": ("unreadable",),
    "repair --all --dry-run --json": ("skipped",),
    "namespace list": ("likes", "seats"),
    "namespace list --json": ("likes", "seats", "unreadable"),
    "namespace counters likes": _GOOD,
    "namespace counters likes --json": (*_GOOD, "unreadable"),
    "namespace counters seats": ("seats:hall",),
    "strict list seats": ("seats:hall",),
    "strict list seats --json": ("seats:hall", "unreadable"),
    "group list": ("board",),
    "group show board": _GOOD,
    "group top board": _GOOD,
    "schedule list": ("likes",),
    "schedule list --json": ("likes", "unreadable"),
    "compact --due": (),
    "compact --namespace likes": _GOOD,
    "compact --namespace likes --dry-run": _GOOD,
    "alert list": (),
    "alert list --json": ("odd",),
    "alert log --json": ("unreadable",),
    "quarantine list": (),
    "quarantine list --json": ("unreadable",),
    "entries likes:garbage-key": ("2",),
    "entries likes:far-time --json": ("unreadable",),
    "total likes:good-1 likes:text-events likes:good-2": _GOOD,
    "total likes:good-1 likes:no-delta likes:good-2 --exact --json": (*_GOOD, "unreadable"),
    "status": (),
}


@pytest.mark.parametrize("line", _COMMANDS)
def test_what_can_be_read_is_shown_and_the_rest_is_named(corrupt: Corrupt, line: str) -> None:
    done = corrupt.command(*line.split())

    assert done.code == 1, (done.code, done.err)
    assert [name for name in _COMMANDS[line] if name not in done.out] == []
    assert max(map(len, done.err.splitlines()), default=0) < 1_500
    assert "unexpected" not in done.out + done.err
