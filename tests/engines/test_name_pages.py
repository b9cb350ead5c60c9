"""The names of counters in parts: each once, whatever the size of a part."""

import pytest

from countledger.consumers.totals import NamesPage, names_page
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.operations import Put
from tests.engines.store import Store

COUNT = 25


def _page(store: Store, prefix: str, after: str | None = None, limit: int = 100) -> NamesPage:
    return names_page(store.process(), prefix, after, limit)


@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_parts_together_are_all_names_with_the_prefix(
    store: Store, namespace: str, limit: int
) -> None:
    names = {f"{namespace}:{number}" for number in range(COUNT)}
    for name in (*names, f"{namespace}x:other"):
        item = {**keys.total_key(name), "total": 1}
        store.dynamo().put(Put(store.counters, item))
    found: list[str] = []
    part = _page(store, f"{namespace}:", limit=limit)
    while part.after is not None:
        found += part.names
        part = _page(store, f"{namespace}:", part.after, limit)
        assert len(part.names) <= limit
    found += part.names

    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("limit", [0, 1_001, True])
def test_a_limit_out_of_range_is_refused(store: Store, limit: int) -> None:
    with pytest.raises(BadSetting, match="limit"):
        _page(store, "", limit=limit)


@pytest.mark.parametrize(
    "after",
    ["", "x", "[]", "[1]", '[0, "a"]', '[0, "", "total"]', '[0, "a", ""]', "[[[["]
    + [f'[0, "{"a" * name}", "{"a" * part}"]' for name, part in ((2_049, 1), (1, 1_025))],
)
def test_a_place_that_no_part_has_named_is_refused(store: Store, after: str) -> None:
    with pytest.raises(BadSetting, match="place"):
        _page(store, "", after)


def test_a_part_says_how_many_items_were_read_for_it(store: Store, namespace: str) -> None:
    """Also those without the prefix; so together the parts have read the whole table."""
    for number in range(COUNT):
        item = {**keys.total_key(f"{namespace}:{number}"), "total": 1}
        store.dynamo().put(Put(store.counters, item))
    part = _page(store, f"{namespace}:none")

    assert part.names == ()
    assert part.after is None
    assert part.items_read >= COUNT
