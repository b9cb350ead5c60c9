"""A browser, and the dashboard of a stack of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from countledger import CountLedger
from countledger.infra.local.front import Front
from countledger.infra.local.stack import LocalStack
from tests.browser.binary import chromium
from tests.e2e.world import client_of

# A machine that runs other tests as well is slow.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window.

    Its driver runs an event loop in this thread until the end: no other test may meet it.
    """
    path = chromium()
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    # The sandbox of Chromium refuses the root user, whom a container has.
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=path, args=options) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """A stack on which nothing has been counted yet."""
    with LocalStack(name="dashboard") as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: LocalStack) -> CountLedger:
    """A client of the stack that may do everything."""
    return client_of(stack)


@pytest.fixture(scope="module")
def url(stack: LocalStack) -> Iterator[str]:
    """The address of the stack's dashboard, with its token."""
    with Front(stack.environment()) as front:
        yield front.url


@dataclass
class Seen:
    """What a page asked for, and what went wrong in it.

    Attributes:
        addresses: of its requests.
        errors: exceptions of its scripts, and refusals of the content security policy.
    """

    addresses: list[str]
    errors: list[str]


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Opener]:
    """Opens pages; in the end none has loaded anything from elsewhere, or had an error."""
    opener = Opener(browser)
    yield opener
    opener.close()


class Opener:
    """Opens pages of one test, each in a context of its own."""

    def __init__(self, browser: Browser) -> None:
        """Open nothing yet."""
        self._browser = browser
        self._opened: list[tuple[str, Page, Seen]] = []

    def __call__(self, url: str, *, dark: bool = False, zone: str = "Europe/Berlin") -> Page:
        """Open an address with a token, which is kept in this context alone."""
        context = self._browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": 1100, "height": 900},
            locale="en-GB",
            timezone_id=zone,
        )
        context.set_default_timeout(PATIENCE_MS)
        page, seen = context.new_page(), Seen([], [])
        page.on("request", lambda request: seen.addresses.append(request.url))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on(
            "console", lambda said: seen.errors.append(said.text) if _blames(said.text) else None
        )
        page.goto(url)
        self._opened.append((url.partition("?")[0], page, seen))
        return page

    def close(self) -> None:
        """Close all of them, and check what they did."""
        for _, page, _ in self._opened:
            page.context.close()
        for origin, _, seen in self._opened:
            assert [one for one in seen.addresses if not one.startswith(origin)] == []
            assert seen.errors == []


def _blames(text: str) -> bool:
    return "Content Security Policy" in text or "TrustedHTML" in text
