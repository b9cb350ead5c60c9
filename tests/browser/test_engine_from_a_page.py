"""A page in a browser cannot make the engine of this machine do anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Final

from tests.browser.conftest import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from countledger.infra.local.stack import LocalStack

_FORM: Final = """
<form method="post" action="%(engine)s/?Action=CreateQueue&QueueName=%(queue)s"
 enctype="text/plain">
<input name="Action" value="CreateQueue"><button>go</button></form>
"""
_FETCH: Final = """
async ([engine, queue, mode]) => {
  try {
    const answer = await fetch(`${engine}/?Action=CreateQueue&QueueName=${queue}`,
      {method: "POST", mode, body: `Action=CreateQueue&QueueName=${queue}`,
       headers: {"Content-Type": "application/x-www-form-urlencoded"}});
    return answer.status;
  } catch (error) { return "no answer"; }
}
"""


@contextmanager
def _page(text: str) -> Iterator[str]:
    """Serve a page as another site does; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _queues(stack: LocalStack) -> list[str]:
    found: list[str] = (
        stack.client("sqs").list_queues(QueueNamePrefix="of-a-page").get("QueueUrls", [])
    )
    return found


def test_a_form_that_a_page_posts_is_refused(browser: Browser, stack: LocalStack) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    with _page(_FORM % {"engine": stack.url, "queue": "of-a-page-form"}) as url:
        page.goto(url)
        with page.expect_navigation() as answer:
            page.click("button")

    assert answer.value.status == 403
    assert "a browser sent it" in page.content()
    assert _queues(stack) == []
    page.context.close()


def test_fetch_of_a_page_is_refused_and_reads_nothing(browser: Browser, stack: LocalStack) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    with _page("<p>") as url:
        page.goto(url)
        found = [
            page.evaluate(_FETCH, [stack.url, f"of-a-page-{mode}", mode])
            for mode in ("cors", "no-cors")
        ]

    assert found == ["no answer", 0]
    assert _queues(stack) == []
    page.context.close()


def test_an_address_that_is_opened_is_refused(browser: Browser, stack: LocalStack) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)

    answer = page.goto(f"{stack.url}/?Action=CreateQueue&QueueName=of-a-page-address")

    assert answer is not None
    assert answer.status == 403
    assert _queues(stack) == []
    page.context.close()
