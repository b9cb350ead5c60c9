"""Credentials of the clients of event loops: those of the session, whatever their source."""

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.credentials import (
    Credentials,
    DeferredRefreshableCredentials,
    RefreshableCredentials,
)

from countledger import AsyncCountLedger, Settings
from countledger.ledger.errors import AccessDenied, NoCredentials
from countledger.ledger.settings import TRANSPORTS

SETTINGS = Settings(ledger_table="l", counters_table="c", home_region="us-east-1")


@dataclass
class Source:
    """Gives credentials that live for a while, as a role does.

    Attributes:
        life: for how long.
        threads: those that asked, in turn.
    """

    life: timedelta
    threads: list[str] = field(default_factory=list)

    def __call__(self) -> dict[str, str]:
        """New credentials, numbered."""
        self.threads.append(threading.current_thread().name)
        return {
            "access_key": f"key-{len(self.threads)}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": (datetime.now(UTC) + self.life).isoformat(),
        }


def session_of(credentials: Any) -> boto3.Session:  # noqa: ANN401 - of several classes
    """A session with credentials of some kind, that signs for a region."""
    core = botocore.session.Session()
    core._credentials = credentials  # type: ignore[attr-defined]
    return boto3.Session(botocore_session=core, region_name="us-east-1")


async def signed_by(ledger: AsyncCountLedger) -> str:
    """The key that a request is signed with."""
    found: list[str] = []

    def look(request: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        found.append(str(request.headers["Authorization"]).partition("Credential=")[2])
        raise AccessDenied("it has been seen")

    connection: Any = ledger._ledger.connection
    service = ledger._opened.get().service(connection, ("dynamodb", "standard", "us-east-1"))
    client = await asyncio.to_thread(lambda: service.client)
    client.meta.events.register_first("before-send", look)
    with pytest.raises(AccessDenied):
        await ledger.exact("n:c")
    client.meta.events.unregister("before-send", look)
    return found[0].partition("/")[0]


def key_of(session: boto3.Session) -> list[str]:
    """The keys of two requests."""

    async def work() -> list[str]:
        ledger = AsyncCountLedger(SETTINGS, session=session, endpoint_url="http://127.0.0.1:9")
        async with ledger:
            return [await signed_by(ledger) for _ in range(2)]

    return asyncio.run(work())


def test_keys_that_do_not_end_are_used_as_they_are() -> None:
    assert key_of(session_of(Credentials("one", "secret"))) == ["one", "one"]


def test_credentials_that_end_are_refreshed_in_the_thread_of_the_request() -> None:
    """A role, single sign-on, or a function of the caller: the loop does not wait for it."""
    source = Source(timedelta(minutes=1))
    made = RefreshableCredentials.create_from_metadata(source(), source, "own")

    first, second = key_of(session_of(made))

    assert "key-1" < first < second <= f"key-{len(source.threads)}"
    assert all(name == "countledger request" for name in source.threads[2:])


def test_credentials_that_nobody_has_used_yet_are_fetched_once() -> None:
    source = Source(timedelta(hours=6))

    assert key_of(session_of(DeferredRefreshableCredentials(source, "own"))) == ["key-1", "key-1"]
    assert len(source.threads) == 1


def test_without_credentials_the_signer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look for others than those of the session."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(NoCredentials):
        key_of(boto3.Session(region_name="us-east-1", botocore_session=botocore.session.Session()))


_FIRST_CALL = """
import asyncio, sys, threading
from countledger import AsyncCountLedger, Settings
from countledger.ledger.errors import Unreachable

def note(event, arguments):
    if event == "open" and ("botocore" in str(arguments[0]) or "boto3" in str(arguments[0])):
        print(threading.current_thread() is threading.main_thread(), arguments[0])

async def main():
    tables = {"ledger_table": "l", "counters_table": "c", "home_region": "us-east-1"}
    settings = Settings(**tables, max_attempts=1)
    async with AsyncCountLedger(settings, endpoint_url="http://127.0.0.1:9") as ledger:
        sys.addaudithook(note)
        try:
            await ledger.record("n:c", 1)
        except Unreachable:
            print("called")

asyncio.run(main())
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_nothing_of_the_sdk_is_read_in_the_thread_of_the_loop(transport: str) -> None:
    """Reading it takes a second or two, in which no other task of the loop could go on."""
    variables = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_REGION": "us-east-1",
        "COUNTLEDGER_TRANSPORT": transport,
    }
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_CALL],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )

    *read, called = done.stdout.splitlines()
    assert called == "called"
    assert any("dynamodb" in line for line in read)
    assert [line for line in read if not line.startswith("False")] == []
