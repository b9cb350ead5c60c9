"""P8: what a caller gets wrong is refused with an error of its own, and nothing is written.

In memory: no engine judges the input.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pytest

from countledger import Claim, CountLedger, IdempotencyKey
from countledger.ledger import errors
from countledger.ledger.namespace import Kind
from tests.engines.in_memory import memory_store
from tests.engines.numbering import all_items
from tests.engines.store import Store

Call: TypeAlias = Callable[[CountLedger], object]
# A call, its error, and what the error says at least.
Case: TypeAlias = "tuple[Call, type[errors.CountledgerError], str]"


def _id(case: Case) -> str:
    return case[1].__name__


def _named(counter: str) -> list[Case]:
    """A name that no counter has, by whichever call."""
    return [
        (lambda a: a.record(counter, 1), errors.BadCounterName, ""),
        (lambda a: a.total(counter), errors.BadCounterName, ""),
        (lambda a: a.totals([counter]), errors.BadCounterName, ""),
    ]


def _namespace(name: str = "n", **more: Any) -> Call:  # noqa: ANN401 - wrong ones
    return lambda a: a.namespaces.create(name, **more)


def _create(method: str = "atomic", **more: Any) -> Call:  # noqa: ANN401 - wrong ones
    return lambda a: a.strict.create("stock:x", method=method, **more)


def _change(counter: str, delta: Any, **more: Any) -> Call:  # noqa: ANN401 - wrong ones
    return lambda a: a.strict.change(counter, delta, **more)


def _together(changes: dict[str, int], key: str | IdempotencyKey = "t") -> Call:
    return lambda a: a.strict.transactions.change(changes, key=key)


def _transfer(to: str, delta: int) -> Call:
    return lambda a: a.strict.transactions.transfer("stock:is", to, delta, key="t")


def _add(group: str, counter: str) -> Call:
    return lambda a: a.groups.add(group, [counter])


def _rank(partitions: Any) -> Call:  # noqa: ANN401 - wrong ones
    return lambda a: a.rankings.switch_on("likes", partitions=partitions)


_SEAT: Final = Claim("seat", "a", "u")
_OLD: Final = IdempotencyKey("t", datetime(2026, 1, 1, tzinfo=UTC))
# Refused before any request.
_AT_ONCE: Final[list[Case]] = [
    *(case for counter in ("", "a#1", "a:", "\x00") for case in _named(counter)),
    (lambda a: a.record("x" * 513, 1), errors.BadCounterName, "513 bytes long; at most 512 fit"),
    (lambda a: a.record("a", 1, key="k" * 1_025), errors.BadKey, "1025 bytes long; at most 1024"),
    (lambda a: a.record("a", 1, note={"n": "v" * 1_024}), errors.BadNote, "1025 bytes long; at mo"),
    (_namespace(spread=2), errors.BadSetting, ""),
    (_namespace(horizon_ms=1), errors.BadSetting, ""),
    (_namespace("a:b"), errors.BadSetting, ""),
    (_namespace(""), errors.BadSetting, ""),
    (_namespace(description="x" * 2_000), errors.BadSetting, ""),
    (lambda a: a.claims.take(), errors.BadClaim, ""),
    (lambda a: a.claims.change(_SEAT, "a"), errors.BadClaim, ""),
    (lambda a: a.claims.take(_SEAT, _SEAT), errors.BadItem, ""),
    (
        lambda a: a.claims.take(*(Claim("seat", str(n), "u") for n in range(101))),
        errors.BadItem,
        "",
    ),
]
_STRICT: Final[list[Case]] = [
    (_create("best"), errors.BadSetting, ""),
    (_create(lower=1, upper=0), errors.BadBounds, ""),
    (_create(lower=1, upper=1), errors.BadBounds, ""),
    (_create(upper=float("nan")), errors.BadBounds, ""),
    (_create(upper=Decimal("NaN")), errors.BadBounds, ""),
    (_create(upper=10**20), errors.BadBounds, ""),
    (_create(lower=0, opening=-1), errors.BadBounds, ""),
    (_create(lower=0, opening=Decimal("1E-10")), errors.BadBounds, ""),
    (_create("occ", bins=2), errors.BadSetting, ""),
    (_create(bins=99), errors.BadSetting, ""),
    (_create(bins=0), errors.BadSetting, ""),
    (_create("set", max_tokens=1_639), errors.BadSetting, ""),
    (_create("occ", history=5), errors.BadSetting, ""),
    (_create("history", history=1), errors.BadSetting, ""),
    (_create("marker", window_ms=1), errors.BadSetting, ""),
    (lambda a: a.strict.create("a#b", method="atomic"), errors.BadCounterName, ""),
    (lambda a: a.strict.create("stock:is", method="atomic"), errors.CounterExists, ""),
    (_change("stock:is", 0), errors.BadDelta, ""),
    (_change("stock:is", 1.5), errors.BadDelta, ""),
    (_change("stock:is", 1, key="k"), errors.BadKey, ""),
    (_change("stock:marked", 1, key="k" * 1_025), errors.BadKey, ""),
    (_change("stock:marked", 1, prefer="under"), errors.BadSetting, ""),
    (_change("stock:is", 1, prefer="both"), errors.BadSetting, ""),
    (_change("stock:is", 1, note={"a": "b"}), errors.BadNote, ""),
    (_change("stock:set", 2), errors.BadDelta, ""),
    (_change("stock:x", 1), errors.NoSuchCounter, ""),
    (_change("nowhere-at-all:x", 1), errors.NamespaceUnknown, ""),
    (lambda a: a.strict.show("stock:x"), errors.NoSuchCounter, ""),
    (lambda a: a.strict.delete("stock:x"), errors.NoSuchCounter, ""),
    (lambda a: a.strict.set_bounds("stock:x", upper=1), errors.NoSuchCounter, ""),
    (lambda a: a.strict.set_bounds("stock:is"), errors.BadSetting, ""),
    (lambda a: a.strict.set_bounds("stock:is", lower=3, upper=2), errors.BadBounds, ""),
    (lambda a: a.strict.withdraw("stock:x", "k"), errors.NoSuchCounter, ""),
    (lambda a: a.strict.withdraw("stock:is", "k"), errors.BadSetting, ""),
    (lambda a: list(a.strict.list("nowhere-at-all")), errors.NamespaceUnknown, ""),
]
# Several strict counters at once, and one set exactly.
_TOGETHER: Final[list[Case]] = [
    (_together({}), errors.TooManyCounters, ""),
    (_together({f"stock:{n}": 1 for n in range(100)}), errors.TooManyCounters, ""),
    (_together({"stock:is": 1, "stock:set": 1}), errors.BadSetting, ""),
    (_together({"stock:is": 1, "stock:x": 1}), errors.NoSuchCounter, ""),
    (_together({"stock:is": 0}), errors.BadDelta, ""),
    (_together({"stock:is": 1}, ""), errors.BadKey, ""),
    (_together({"stock:is": 1}, _OLD), errors.KeyExpired, ""),
    (_together({"stock:is": 1, "likes:a": 1}), errors.WrongKind, ""),
    (_transfer("stock:marked", -1), errors.BadDelta, "below zero"),
    (_transfer("stock:is", 1), errors.BadSetting, "itself"),
    (
        lambda a: a.strict.transactions.set_value("stock:is", 10**20, key="t"),
        errors.BadBounds,
        "more than 20 digits",
    ),
]
_GROUPS: Final[list[Case]] = [
    (_add("", "a"), errors.BadGroupName, "group name"),
    (_add("a#b", "a"), errors.BadGroupName, "group name"),
    (_add("x" * 513, "a"), errors.BadGroupName, "group name"),
    (_add("board", "a#b"), errors.BadCounterName, ""),
    (_add("board", "stock:bins"), errors.NotRanked, ""),
    (_add("board", "stock:x"), errors.NoSuchCounter, ""),
    (_add("board", "nowhere-at-all:c"), errors.NamespaceUnknown, ""),
    (lambda a: a.groups.get("none"), errors.NoSuchGroup, ""),
    (lambda a: a.groups.show("none"), errors.NoSuchGroup, ""),
    (lambda a: a.groups.top("none"), errors.NoSuchGroup, ""),
    (lambda a: a.groups.delete("none"), errors.NoSuchGroup, ""),
    (lambda a: a.groups.top("board", 0), errors.BadSetting, ""),
    *((_rank(partitions), errors.BadSetting, "1 to 100") for partitions in (0, 101, True, 4.5)),
]
# Two regions would give out the same number, value or headroom twice.
_ABROAD: Final[list[Case]] = [
    (_create(), errors.WrongRegion, "eu-west-1"),
    (_change("stock:is", 1), errors.WrongRegion, "eu-west-1"),
    (_together({"stock:is": 1}), errors.WrongRegion, "eu-west-1"),
    (lambda a: a.strict.show("stock:is"), errors.WrongRegion, "eu-west-1"),
    (lambda a: a.strict.delete("stock:is"), errors.WrongRegion, "eu-west-1"),
    (lambda a: a.strict.list("stock"), errors.WrongRegion, "eu-west-1"),
    (lambda a: a.claims.take(_SEAT), errors.WrongRegion, "home region"),
    (lambda a: a.claims.owner("seat", "a"), errors.WrongRegion, "home region"),
    (lambda a: a.sequences.draw("bills:a"), errors.WrongRegion, "home region"),
    (lambda a: a.sequences.draw_expected("bills:a"), errors.WrongRegion, "home region"),
    (lambda a: a.sequences.show("bills:a"), errors.WrongRegion, "home region"),
    (lambda a: a.sequences.create("bills:a"), errors.WrongRegion, "home region"),
]


@pytest.fixture(scope="module")
def tables() -> Iterator[Store]:
    """Tables with a strict counter of some methods, a ledger, and a group that is ranked."""
    with memory_store() as store:
        app = store.app()
        for name, method in (("is", "atomic"), ("marked", "marker"), ("set", "set")):
            app.strict.create(f"stock:{name}", method=method)
        app.strict.create("stock:bins", method="atomic", bins=2)
        app.namespaces.create("likes")
        app.namespaces.create("bills", kind=Kind.SEQUENCE)
        app.groups.add("board", [])
        app.groups.switch_ranking("board", on=True)
        yield store


def _refused(tables: Store, app: CountLedger, case: Case) -> None:
    call, error, says = case
    before = _everything(tables)

    with pytest.raises(error) as raised:
        call(app)

    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2
    assert _everything(tables) == before


def _everything(tables: Store) -> list[Any]:
    """All items; a membership that was taken back leaves a tombstone, and no membership."""
    items = (one for table in (tables.ledger, tables.counters) for one in all_items(tables, table))
    return [item for item in items if "removed" not in item]


@pytest.mark.parametrize("case", [*_STRICT, *_TOGETHER, *_GROUPS], ids=_id)
def test_p8_bad_input_is_refused_and_changes_nothing(tables: Store, case: Case) -> None:
    _refused(tables, tables.app(), case)


@pytest.mark.parametrize("case", _AT_ONCE, ids=_id)
def test_p8_what_can_be_judged_without_a_request_makes_none(tables: Store, case: Case) -> None:
    app = tables.app()

    _refused(tables, app, case)

    assert (app.write_units, app.read_units) == (0, 0)


@pytest.mark.parametrize("case", _ABROAD, ids=_id)
def test_p8_what_lives_in_the_home_region_is_refused_elsewhere(tables: Store, case: Case) -> None:
    app = tables.app()
    settings = replace(tables.connection.settings, home_region="eu-west-1")
    abroad = CountLedger(
        settings, session=app.connection.session, endpoint_url=tables.connection.endpoint_url
    )

    _refused(tables, abroad, case)
