"""A page that is open for hours: it keeps no more than at its beginning, and asks no more."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Opener
from tests.browser.in_memory import Served, served

expect.set_options(timeout=PATIENCE_MS)
POLLS = 120
# A view may keep a few more for a moment.
MORE = 40
COLLECTIONS = 5


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    """A stack with a few counters."""
    with served() as found:
        found.fill(8)
        yield found


def _kept(page: Page) -> dict[str, int]:
    """What the page has in memory, after its garbage was collected."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return {metric["name"]: int(metric["value"]) for metric in metrics}


def _poll(page: Page, path: str, times: int) -> None:
    """Let so many polls of a path pass, each as soon as the one before was answered."""
    for _ in range(times):
        with page.expect_response(lambda one: path in one.url) as answer:
            while not answer.is_done():
                page.clock.run_for(2_000)


@pytest.mark.parametrize(
    ("part", "path"),
    [("counter/likes%3Aitem-000000", "/v1/counters/likes%3Aitem-000000"), ("", "/v1/counters?")],
)
def test_polls_leave_nothing_behind(new_page: Opener, one: Served, part: str, path: str) -> None:
    page = new_page(one.url)
    page.clock.install()
    page.goto(f"{page.url.partition('#')[0]}#/{part}")
    page.reload()
    expect(page.get_by_text("item-000000").first).to_be_visible()
    _poll(page, path, 40)
    before = _kept(page)

    _poll(page, path, POLLS)

    # One collection does not find all that is garbage; what leaks is found by none.
    counts = [_kept(page) for _ in range(COLLECTIONS)]
    for name in ("JSEventListeners", "Nodes"):
        after = min(one[name] for one in counts)
        assert after <= before[name] + MORE, (name, before[name], after)


def test_a_slow_server_gets_one_request_at_a_time(new_page: Opener, one: Served) -> None:
    """A request that is not answered is waited for: none is sent beside it."""
    page = new_page(one.url)
    page.clock.install()
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    asked: list[str] = []
    held = "**/v1/counters/likes*"
    page.route(held, lambda route: asked.append(route.request.url))

    page.goto(f"{page.url.partition('#')[0]}#/counter/likes%3Aitem-000000")
    for _ in range(20):
        page.clock.run_for(1_000)

    expect(page.locator("#link")).to_have_text("waiting")
    assert len(asked) == 1
    page.unroute(held)
    page.get_by_role("link", name="Counters", exact=True).click()
    expect(page.locator("#link")).to_have_text("live")
