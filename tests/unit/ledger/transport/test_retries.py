"""Which calls a client of the fast transport repeats."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from countledger.ledger.departure import guarded
from countledger.ledger.errors import CountledgerError, LeaseEnded, Throttled, Unclear
from countledger.ledger.transport import client
from tests.unit.ledger.transport.scripted import PUT, ScriptedServer, dynamo_of, http, refused


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (refused("InternalServerError", 500), Unclear),
        (refused("ProvisionedThroughputExceededException"), Throttled),
        (None, Unclear),
    ],
)
def test_only_a_client_that_retries_repeats_a_call(
    server: ScriptedServer,
    answer: bytes | None,
    raised: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to four attempts, as boto3 makes; the waits in between grow."""
    waits: list[float] = []
    # Not `time.sleep` itself, by which threads that earlier tests left may wait.
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=waits.append))
    monkeypatch.setattr(client, "random", lambda: 1.0)
    dynamo = dynamo_of(server, retries="standard")
    server.script[:] = [answer]
    with pytest.raises(raised):
        dynamo_of(server).put(PUT)
    server.script[:] = [answer] * 3
    dynamo.put(PUT)
    server.script[:] = [answer] * 5
    with pytest.raises(raised):
        dynamo.put(PUT)

    assert len(server.seen) == 1 + 4 + 4
    assert waits == [1, 2, 4] * 2


@pytest.mark.parametrize(
    "answer",
    [
        *(
            refused(code)
            for code in (
                "ProvisionedThroughputExceededException",
                "ThrottlingException",
                "RequestLimitExceeded",
                "TransactionConflictException",
                "TransactionInProgressException",
                "ReplicatedWriteConflictException",
                "ValidationException",
                "AccessDeniedException",
                "ItemCollectionSizeLimitExceededException",
            )
        ),
        *(refused("InternalServerError", status) for status in (500, 502, 503, 504, 501, 400)),
        *(http(b"<html>", status) for status in (307, 403, 408, 429, 500, 504)),
        http(b"[]", 200),
        None,
    ],
)
def test_boto3_repeats_the_same_calls(
    server: ScriptedServer, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often, after the same answers."""
    for module in ("botocore.endpoint", "countledger.ledger.transport.client"):
        monkeypatch.setattr(f"{module}.time.sleep", lambda _: None)
    requests = []
    for transport in ("boto3", "fast"):
        server.seen.clear()
        server.script[:] = [answer] * 5
        with pytest.raises(CountledgerError):
            dynamo_of(server, transport, "standard").put(PUT)
        requests.append(len(server.seen))

    assert requests[0] == requests[1]


def test_what_was_sent_before_a_repeat_may_have_been_applied(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeat ends without credentials; that proves nothing of the first attempt."""
    dynamo = dynamo_of(server, retries="standard")
    server.script[:] = [None]

    def end_after(real: Any) -> Any:  # noqa: ANN401 - a method
        def attempt(*arguments: Any) -> Any:  # noqa: ANN401
            if server.seen:
                raise NoCredentialsError
            return real(*arguments)

        return attempt

    monkeypatch.setattr("countledger.ledger.transport.client.time.sleep", lambda _: None)
    monkeypatch.setattr(client.FastClient, "_attempt", end_after(client.FastClient._attempt))
    with pytest.raises(Unclear):
        dynamo.put(PUT)


def test_a_repeat_that_the_lease_forbids_says_nothing_of_what_was_sent_before(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamo = dynamo_of(server, retries="standard")
    server.script[:] = [None]

    def look() -> None:
        if server.seen:
            raise LeaseEnded("the lease has ended")

    monkeypatch.setattr("countledger.ledger.transport.client.time.sleep", lambda _: None)
    with pytest.raises(Unclear), guarded(look):
        dynamo.put(PUT)
    with pytest.raises(LeaseEnded), guarded(look):
        dynamo.put(PUT)
