"""A process of an event loop that ends while a service is silent: nothing holds it up."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from countledger.ledger.settings import TRANSPORTS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
# The client would wait for an answer for longer than that.
_PATIENCE_S: Final = 40
_PROGRAM: Final = """
import asyncio, sys
from countledger import AsyncCountLedger, Settings
from countledger.ledger.errors import CallCancelled

settings = Settings(
    ledger_table="l", counters_table="c", home_region="us-east-1",
    read_timeout_ms=60_000,
)

async def tick():
    while True:
        await asyncio.sleep(0.05)

async def main():
    # Python runs the handler of a signal between two steps of the main thread, and nothing ends a
    # select() that began just after the signal, or whose thread did not take it.
    ticking = asyncio.create_task(tick())
    async with AsyncCountLedger(settings, endpoint_url=sys.argv[1]) as ledger:
        calls = [asyncio.create_task(ledger.total("n:c")) for _ in range(100)]
        while len(ledger._opened.get()._services) < 1:
            await asyncio.sleep(0.01)
        if sys.argv[2] == "cancelled":
            await asyncio.sleep(1)
            for call in calls:
                call.cancel()
            for call in calls:
                try:
                    await call
                except asyncio.CancelledError as error:
                    assert not CallCancelled.of(error).maybe_applied
        else:
            print("waits", flush=True)
            await asyncio.gather(*calls)

asyncio.run(main())
print("left", flush=True)
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def process(url: str, end: str, transport: str) -> subprocess.Popen[str]:
    """The program."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _PROGRAM, url, end],
        env={**os.environ, **keys, "COUNTLEDGER_TRANSPORT": transport},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancelled_calls_hold_up_neither_closing_nor_the_end(silent: str, transport: str) -> None:
    """A hundred of them, of which 64 have sent their request."""
    with process(silent, "cancelled", transport) as running:
        out, err = running.communicate(timeout=_PATIENCE_S)

    assert (out, err, running.returncode) == ("left\n", "", 0)


def test_an_interrupt_from_the_keyboard_ends_the_process(silent: str) -> None:
    """As without requests: the main task is cancelled, and Python ends by the interrupt."""
    with process(silent, "interrupted", "boto3") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "waits\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=_PATIENCE_S)

    assert out == ""
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Traceback" in err
    assert "never retrieved" not in err
