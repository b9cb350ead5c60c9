"""Windows are shown in their own time zone to readers of every zone."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_MS, Opener
from tests.browser.in_memory import served

expect.set_options(timeout=PATIENCE_MS)
_ZONE = "Asia/Kolkata"


@pytest.mark.parametrize("reader", ["America/Los_Angeles", "Pacific/Kiritimati"])
def test_the_axis_of_a_chart_is_in_the_zone_of_the_windows_and_names_it(
    new_page: Opener, reader: str
) -> None:
    with served() as found:
        ledger = found.stack.ledger
        ledger.namespaces.create("visits")
        ledger.window_settings.enable("visits", by="hour", time_zone=_ZONE)
        ledger.record("visits:a", 3)
        page = new_page(found.url, zone=reader)
        page.goto(f"{found.url.partition('?')[0]}#/counter/visits%3Aa")

        hours = page.get_by_role("img", name=f"last 48 hours, {_ZONE}")
        expect(hours).to_be_visible()
        first = page.locator("figure.chart svg text").nth(1)
        expect(first).to_have_text(re.compile(r"^\d\d:00$"))
        page.get_by_role("button", name="Day").click()
        expect(page.get_by_role("img", name=f"last 30 days, {_ZONE}")).to_be_visible()
        page.get_by_text("The same as a table").click()
        rows = page.get_by_role("region", name="Sum per day").get_by_role("row")
        oldest = rows.last.get_by_role("cell").first.inner_text()
        day = datetime.fromisoformat(oldest).replace(tzinfo=ZoneInfo(_ZONE))
        expect(first).to_have_text(f"{day:%-d %b}")
