"""What a person does with the dashboard in a first minute, in a real browser."""

import re
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from countledger import CountLedger, outcomes
from countledger.infra.local.front import Front
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock
from countledger.ledger.quarantine import QuarantinedRecord, QuarantineSource, QuarantineStore
from tests.browser.conftest import PATIENCE_MS, Opener

expect.set_options(timeout=PATIENCE_MS)
HOSTILE = 'x:<img src=/ onerror="alert(1)">&/~%2f ab'


def _record(client: CountLedger, counter: str, *deltas: int, key: str | None = None) -> None:
    """Record events, and wait until the total includes them."""
    for delta in deltas:
        receipt = client.record(counter, delta, key=key)
    client.total(counter, after=receipt, timeout_s=PATIENCE_MS / 1000)


def _at(page: Page, part: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#/{part}")


def test_an_empty_stack_says_what_to_do_and_the_first_counter_appears_by_itself(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    """It is the first test: the stack is empty."""
    page = new_page(url)
    expect(page.get_by_text("Nothing has been counted yet.")).to_be_visible()
    expect(page.get_by_text("countledger emit likes:post-1 3")).to_be_visible()
    assert "token" not in page.url

    _record(client, "likes:post-1", 3)

    expect(page.get_by_role("link", name="likes:post-1")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("likes:post-1 3 .* ledger"))).to_be_visible()

    _record(client, "likes:post-9", 1)

    expect(page.get_by_role("link", name="likes:post-9")).to_be_visible()


def test_a_counter_is_found_opened_and_seen_to_move(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    _record(client, "likes:post-2", 1000, 234)
    _record(client, "views:home", 1)
    page = new_page(url)

    page.get_by_role("searchbox").fill("nothing")
    expect(page.get_by_text("No counter begins with nothing.")).to_be_visible()
    page.get_by_role("searchbox").fill("likes:post-2")
    expect(page.get_by_role("row")).to_have_count(2)  # with the headings
    page.get_by_role("link", name="likes:post-2").click()
    expect(page.locator("#value")).to_have_text("1\u202f234")

    _record(client, "likes:post-2", 66, key="more")

    expect(page.locator("#value")).to_have_text("1\u202f300")
    expect(page.get_by_text("+66", exact=True).first).to_be_visible()
    expect(page.get_by_role("cell", name="more")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="likes:post-2 is now")).to_be_attached()
    expect(page.get_by_role("heading", level=1)).to_have_text("likes:post-2")


def test_the_hours_of_a_counter_are_bars_and_a_table(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    """With windows those; without them the newest entries, and how to switch windows on."""
    client.namespaces.create("visits")
    client.window_settings.enable("visits", by="hour", time_zone="Europe/Berlin")
    _record(client, "visits:a", 2, 5)
    _record(client, "likes:post-3", 4)
    page = new_page(url)

    _at(page, "counter/visits%3Aa")
    chart = page.get_by_role(
        "img", name=re.compile("Sum per hour, last 48 hours, Europe.Berlin: 4[89] bars")
    )
    expect(chart).to_be_visible()
    page.get_by_role("button", name="Day").click()
    expect(page.get_by_role("img", name=re.compile("Sum per day"))).to_be_visible()
    page.get_by_text("The same as a table").click()
    expect(
        page.get_by_role("region", name="Sum per day, last 30 days, Europe/Berlin")
        .get_by_role("row")
        .first
    ).to_be_visible()

    _at(page, "counter/likes%3Apost-3")
    expect(page.get_by_role("img", name=re.compile("newest 1 entry, .* highest 4"))).to_be_visible()
    expect(page.get_by_text("countledger windows enable likes --by hour")).to_be_visible()


def test_the_bounds_and_holds_of_a_strict_counter_are_shown(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    client.strict.create("tickets:hall", method="marker", lower=0, upper=500, opening=500)
    held = client.strict.hold("tickets:hall", 12, expires_in=timedelta(hours=1), key="order-7")
    assert isinstance(held, outcomes.Held)
    page = new_page(url)

    _at(page, "counter/tickets%3Ahall")

    bounds = page.locator("section", has=page.get_by_role("heading", name="Bounds and holds"))
    expect(bounds.get_by_role("cell", name="order-7")).to_be_visible()
    expect(bounds).to_contain_text(re.compile("Upper bound.*500.*Held.*12.*Available.*488"))
    expect(page.get_by_role("heading", name="Per hour and day")).to_be_hidden()


def test_alerts_and_top_lists_are_shown(new_page: Opener, client: CountLedger, url: str) -> None:
    client.alerts.create("popular", now=True, prefix="posts:", threshold=10, direction="rising")
    _record(client, "posts:a", 30)
    client.groups.add("front-page", ["posts:a"])
    client.groups.switch_ranking("front-page", on=True)
    page = new_page(url)

    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_role("row", name=re.compile(r"posts:a popular 0 30"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"popular posts:\* 10 rising"))).to_be_visible()

    page.get_by_role("link", name="Top lists").click()
    expect(page.get_by_role("heading", name="front-page (group)")).to_be_visible()
    expect(page.get_by_role("row", name="1 posts:a 30")).to_be_visible()


def test_what_is_wrong_is_counted_on_every_page_and_says_what_to_do(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    page = new_page(url)
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_text("No action is required.")).to_be_visible()
    expect(page.get_by_text("Totals are up to date: they include every change.")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("shardId.* up to date"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("us-east-1 .home. up to date"))).to_be_visible()
    expect(page.get_by_text("No record is in quarantine.")).to_be_visible()

    connection, kept_at_ms = client.connection, SystemClock().now_ms()
    copy = QuarantinedRecord(
        place=keys.quarantine_place(kept_at_ms, "1"),
        source=QuarantineSource.LEDGER,
        where="label/shard",
        content=b"{}",
        counter="likes:post-1",
        kind="malformed",
        reason="its delta is a text",
        kept_at_ms=kept_at_ms,
    )
    QuarantineStore(connection).keep(copy)
    page.reload()

    expect(page.get_by_role("heading", name="quarantine of ledger")).to_be_visible()
    expect(page.get_by_text("What to do: ").first).to_be_visible()
    listed = page.get_by_role("row", name=re.compile("malformed, from the ledger.*its delta"))
    expect(listed).to_contain_text(copy.id)
    expect(listed.get_by_role("link", name="likes:post-1")).to_be_visible()
    for act in ("show", "resend", "discard"):
        expect(page.get_by_text(f"countledger quarantine {act} {copy.id}")).to_be_visible()
    expect(page.get_by_label("1 finding, action required")).to_be_visible()
    page.get_by_role("link", name="Counters", exact=True).click()
    expect(page.get_by_label("1 finding, action required")).to_be_visible()
    assert all(one.resolved for one in client.quarantine.discard([copy.id], by="ann"))


def test_a_hostile_name_is_a_name(new_page: Opener, client: CountLedger, url: str) -> None:
    _record(client, HOSTILE, 7)
    page = new_page(url)

    page.get_by_role("searchbox").fill("x:")
    page.get_by_role("link", name="onerror").click()

    expect(page.locator("#value")).to_have_text("7")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_the_keyboard_is_enough(new_page: Opener, client: CountLedger, url: str) -> None:
    _record(client, "likes:keys", 8)
    page = new_page(url)
    expect(page.get_by_role("searchbox")).to_be_visible()

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("likes:keys")
    page.keyboard.press("Enter")
    expect(page.locator("#value")).to_have_text("8")
    expect(page.locator("#main")).to_be_focused()

    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Day")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Day")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("img", name=re.compile("Sum per day"))).to_be_visible()
    summary = page.get_by_text("The same as a table")
    summary.focus()
    page.keyboard.press("Enter")
    _record(client, "likes:keys", 1)
    expect(page.get_by_role("cell", name="+9")).to_be_visible()
    expect(page.get_by_text("The same as a table")).to_be_focused()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(new_page: Opener, client: CountLedger, url: str, dark: bool) -> None:  # noqa: FBT001 - a parameter
    _record(client, "likes:axe", 8)
    page = new_page(url, dark=dark)

    for part in ("", "counter/likes%3Aaxe", "counter/tickets%3Ahall", "top", "alerts", "health"):
        _at(page, part)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Reading\u2026").locator("visible=true")).to_have_count(0)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_a_server_that_has_ended_is_said_and_what_was_shown_stays(
    new_page: Opener, client: CountLedger, stack: LocalStack
) -> None:
    _record(client, "likes:gone", 8)
    with Front(stack.environment()) as front:
        page = new_page(front.url)
        _at(page, "counter/likes%3Agone")
        expect(page.locator("#value")).to_have_text("8")

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server of this page has ended.")
    expect(alert).to_contain_text('eval "$(countledger up)"')
    expect(alert).to_contain_text("What is shown is from")
    expect(page.locator("#value")).to_have_text("8")
    expect(page.locator("#link")).to_have_text("no connection")


def test_a_stack_that_is_gone_is_said_with_what_to_do(new_page: Opener, stack: LocalStack) -> None:
    nowhere = stack.environment() | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    with Front(nowhere) as front:
        page = new_page(front.url)

        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The stack does not answer.")
        expect(alert).to_contain_text("countledger doctor")


def test_a_browser_that_is_not_signed_in_any_more_is_told(new_page: Opener, url: str) -> None:
    page = new_page(url)
    expect(page.locator("#link")).to_have_text("live")

    page.evaluate("localStorage.clear()")

    expect(page.get_by_role("alert")).to_contain_text("Open the whole address again")


def test_no_other_port_of_this_machine_gets_the_token(new_page: Opener, url: str) -> None:
    """Another user's server there: a cookie would be sent to it."""
    page = new_page(url)
    expect(page.locator("#link")).to_have_text("live")

    assert page.context.cookies() == []
    assert "token" not in page.url
    page.reload()
    expect(page.locator("#link")).to_have_text("live")


def test_an_address_that_names_no_page_shows_the_counters(new_page: Opener, url: str) -> None:
    """Also one with a broken escape, or with a name that every object has."""
    page = new_page(url)
    for part in ("constructor", "counter/%E0%A4%A", "__proto__/x"):
        _at(page, part)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("#link")).to_have_text("live")


def test_the_runs_of_a_schedule_are_said_in_words(
    new_page: Opener, client: CountLedger, url: str
) -> None:
    _record(client, "runs:a", 1)
    client.schedules.create("runs", every_ms=3_600_000)
    page = new_page(url)

    _at(page, "health")

    row = page.get_by_role("row", name=re.compile(r"runs rate\(1 hour\)"))
    expect(row).to_contain_text("within 1 hour")


@pytest.mark.parametrize("part", ["", "counter/likes%3Awide", "health", "top", "alerts"])
def test_a_narrow_screen_shows_all_without_scrolling_sideways(
    new_page: Opener, client: CountLedger, url: str, part: str
) -> None:
    """375 pixels; the same as 200 % of zoom on 750. Tables scroll inside of their place."""
    client.record("likes:wide", 12_345_678_901_234_567_890, key="wide")
    page = new_page(url)
    page.set_viewport_size({"width": 375, "height": 700})

    _at(page, part)

    expect(page.get_by_text("Reading\u2026").locator("visible=true")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
