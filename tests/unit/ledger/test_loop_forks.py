"""A call of an event loop, in a child that goes on with the loop of its parent."""

from tests.unit.ledger.processes import FORKS, printed

FORKING = """
import asyncio, ctypes, os, signal, sys
import boto3
from countledger import AsyncCountLedger, Settings
from countledger.ledger.asynchronous.calls import running_call
from countledger.ledger.errors import LedgerNotOpen, Unreachable
from countledger.ledger.suspension import CallNotes

settings = Settings(
    ledger_table="l", counters_table="c", home_region="us-east-1", max_attempts=1
)
session = boto3.Session("x", "y", region_name="us-east-1")
url = "http://127.0.0.1:9"

async def main():
    fork = os.fork if sys.argv[1] == "os" else ctypes.PyDLL(None).fork
    async with AsyncCountLedger(settings, session=session, endpoint_url=url) as ledger:

        def later():
            read()
            running_call().sleep(0.2)
            read()

        def read():
            try:
                ledger._ledger.connection.dynamo("none").describe("l")
            except Unreachable:
                os.write(1, b"sent ")

        call = asyncio.create_task(ledger._opened.get().run(later, CallNotes()))
        while not ledger._opened.get()._services:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        threads = next(iter(ledger._opened.get()._services.values())).threads
        while not threads._started or threads._unfinished:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        child = fork()
        if child == 0:
            signal.alarm(20)
            asyncio._set_running_loop(asyncio.get_event_loop_policy().get_event_loop())
            try:
                await call
            except LedgerNotOpen:
                os.write(1, b"refused ")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        await call
        os.write(1, f"{code} ".encode())

asyncio.run(main())
"""


@FORKS
def test_a_call_that_is_suspended_as_its_process_forks_sends_nothing_in_the_child(
    fork: str,
) -> None:
    """The threads are the parent's; the child is told to open the object again."""
    words = printed(FORKING, fork)

    assert words == ["sent", "refused", "sent", "0"]
