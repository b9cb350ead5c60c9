"""The dashboard with 100,000 counters, and up to 1,000 updates a second, on a stack in memory."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Request, expect

from tests.browser.conftest import PATIENCE_MS, Opener
from tests.browser.in_memory import Served, served

expect.set_options(timeout=PATIENCE_MS)
COUNT = 100_000


@pytest.fixture(scope="module")
def many() -> Iterator[Served]:
    """Many counters, 100 of which move all the while."""
    with served() as found:
        found.fill(COUNT)
        with found.updates(1_000, 100):
            yield found


def _asked(page: Page, path: str) -> list[Request]:
    """The requests of a path from now on."""
    found: list[Request] = []
    page.on("request", lambda one: found.append(one) if path in one.url else None)
    return found


def test_a_whole_name_is_found_before_the_table_is_searched(new_page: Opener, many: Served) -> None:
    page = new_page(many.url)
    expect(page.get_by_role("row")).to_have_count(51)
    searched = _asked(page, "/v1/counters?")

    with page.expect_request("**/v1/totals?counter=stock**"):
        page.get_by_role("searchbox").fill("stock:item-099997")
    expect(page.get_by_role("link", name="stock:item-099997")).to_be_visible()
    expect(page.locator(".cost")).to_contain_text("1 counter, all of them.")
    expect(page.locator(".cost")).to_contain_text(
        re.compile("Read(?: so far)?: 100\u202f0.. items")
    )
    assert 5 <= len(searched) <= 120


def test_a_search_shows_what_it_has_read_and_can_be_stopped_and_continued(
    new_page: Opener, many: Served
) -> None:
    page = new_page(many.url)
    page.get_by_role("searchbox").fill("nothing")
    expect(page.locator(".cost")).to_contain_text(re.compile("0 found. Read so far: [1-9].* items"))
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".cost")).to_contain_text("the table has not been read to its end")
    searched = _asked(page, "/v1/counters?")
    page.wait_for_timeout(1_000)
    assert searched == []

    page.get_by_role("button", name="Search on").click()

    expect(page.get_by_text("No counter begins with nothing.")).to_be_visible()
    expect(page.locator(".cost")).to_contain_text(
        re.compile("Read(?: so far)?: 100\u202f0.. items")
    )


def test_a_list_is_read_page_by_page_and_its_values_move(new_page: Opener, many: Served) -> None:
    page = new_page(many.url)
    expect(page.get_by_role("row")).to_have_count(51)
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_role("row")).to_have_count(101)
    row = page.get_by_role("row", name=re.compile("likes:item-000000"))
    before = row.inner_text()
    listed = _asked(page, "/v1/counters?")

    expect(row).not_to_have_text(before)
    assert listed == []
    page.get_by_role("link", name="likes:item-000000").click()
    first = page.locator("#value").inner_text()
    expect(page.locator("#value")).not_to_have_text(first)


def test_another_search_ends_the_one_before(new_page: Opener, many: Served) -> None:
    """Its parts are not read to their end, and its answer is not shown."""
    page = new_page(many.url)
    field = page.get_by_role("searchbox")
    field.fill("none:a")
    expect(page.get_by_text("Searching for names that begin with none:a")).to_be_visible()
    field.fill("likes:item-00000")

    expect(page.get_by_role("row")).to_have_count(4)
    expect(page.locator(".cost")).to_contain_text("3 counters, all of them.")
