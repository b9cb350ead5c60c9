"""Lists in pages: each item once, and a cursor that no page has given is refused."""

import pytest

from countledger.infra.calls.shapes import BadCursor, from_cursor, to_cursor
from tests.http.world import Api

_COUNT = 23


def _pages(api: Api, path: str) -> list[list[dict[str, object]]]:
    pages = []
    page = api.get(path).json()
    while True:
        pages.append(page["items"])
        if page["next"] is None:
            return pages
        page = api.get(f"{path}&cursor={page['next']}").json()


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_entries_in_pages_are_all_entries_newest_first(api: Api, limit: int) -> None:
    """Many of one millisecond: a page that ends among them hides none."""
    path = f"/v1/counters/pages:{limit}/entries"
    events = [{"counter": f"pages:{limit}", "delta": str(n + 1)} for n in range(_COUNT)]
    api.post("/v1/entries", {"events": events}, "k")
    pages = _pages(api, f"{path}?limit={limit}")
    found = [one for page in pages for one in page]

    assert sorted(int(str(one["delta"])) for one in found) == list(range(1, _COUNT + 1))
    assert [one["at"] for one in found] == sorted((str(one["at"]) for one in found), reverse=True)
    assert {len(page) for page in pages[:-1]} <= {limit}


def test_counters_in_pages_are_all_counters_with_the_prefix(api: Api) -> None:
    events = [{"counter": f"found:{n}", "delta": "1"} for n in range(_COUNT)]
    api.post("/v1/entries", {"events": events}, "k")
    api.materialize()
    pages = _pages(api, "/v1/counters?prefix=found:&limit=10")
    found = [str(one["counter"]) for page in pages for one in page]

    assert sorted(found) == sorted(f"found:{n}" for n in range(_COUNT))


@pytest.mark.parametrize("cursor", ["x", "W10", "WzFd", "é", "====", "bnVsbA", "W1tdXQ"])
def test_a_cursor_of_no_page_is_refused(api: Api, cursor: str) -> None:
    for path in ("/v1/counters?prefix=found:", "/v1/counters/pages:1/entries?limit=1"):
        assert api.get(f"{path}&cursor={cursor}").status_code == 422


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(BadCursor):
        from_cursor(to_cursor("a"), int)
    assert from_cursor(to_cursor("a", 1), str, int) == ("a", 1)


@pytest.mark.parametrize("limit", ["0", "1001", "1.0", " 1", "1_0", "-1", "x", ""])
def test_a_limit_that_is_no_number_of_items_is_refused(api: Api, limit: str) -> None:
    assert api.get(f"/v1/counters/pages:1/entries?limit={limit}").status_code == 422
