"""Handlers of botocore's events: which of them have boto3 make the call."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.shared.user_agent import inject_user_agent
from botocore.stub import Stubber
from moto import mock_aws

from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.operations import Absent, Put
from countledger.ledger.transport.client import Handlers
from tests.unit.ledger.transport.scripted import (
    CONSUMED,
    PUT,
    ScriptedServer,
    connection_to,
    dynamo_of,
)

LEAVING = "before-send.dynamodb.PutItem"
CHANGING = "before-call.dynamodb.PutItem"


class Meddling(Handlers):
    """Once it has looked, and before it notes what it found, another thread acts."""

    __slots__ = ("act", "at")
    act: Callable[[], object]
    at: str

    def _of(self, event: str, operation: str) -> Any:  # noqa: ANN401 - as the product's
        found = super()._of(event, operation)
        if self.at.startswith(event):
            act, self.act = self.act, lambda: None
            act()
        return found


@pytest.mark.parametrize("event", [LEAVING, CHANGING])
def test_a_handler_that_comes_during_a_look_is_not_missed(event: str) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1")
    handlers = Meddling(client)
    before = len(Handlers(client).before_send("PutItem"))

    def meanwhile() -> None:
        client.meta.events.register(event, lambda **_: None)
        look()

    def look() -> tuple[bool, int]:
        return handlers.allow("PutItem"), len(handlers.before_send("PutItem"))

    handlers.at, handlers.act = event, meanwhile
    look()

    assert look() == ((True, before + 1) if event == LEAVING else (False, before))


def test_a_mock_of_botocore_answers_for_the_service() -> None:
    """The decorator of moto: nothing is sent."""
    with mock_aws():
        client: Any = connection_to(None).dynamo("none").client
        client.create_table(
            TableName="t",
            KeySchema=[{"AttributeName": "counter", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "counter", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamo = DynamoClient(client)
        dynamo.put(Put("t", {"counter": "c", "mark": b"\x01"}, Absent("counter")))
        with pytest.raises(ConditionFailed) as failed:
            dynamo.put(Put("t", {"counter": "c"}, Absent("counter")))

        assert failed.value.item == {"counter": "c", "mark": b"\x01"}


def test_other_handlers_have_boto3_make_the_call(server: ScriptedServer) -> None:
    """They see and change what they always do; without them the fast transport is back."""
    dynamo = dynamo_of(server)
    events: Any = dynamo.client.meta.events

    def another_table(params: dict[str, Any], **_: object) -> dict[str, Any]:
        return {**params, "TableName": "other"}

    for event in ("provide-client-params.*.PutItem", "provide-client-params.dynamodb"):
        dynamo.put(PUT)
        events.register(event, another_table)
        dynamo.put(PUT)
        events.unregister(event, another_table)
    dynamo.put(PUT)

    assert [one.body["TableName"] for one in server.seen] == ["t", "other", "t", "other", "t"]
    by_boto3 = ["amz-sdk-invocation-id" in one.headers for one in server.seen]
    assert by_boto3 == [False, True, False, True, False]


def test_the_functions_use_the_fast_transport(server: ScriptedServer) -> None:
    """Powertools has a handler in every client that is made after it was loaded."""
    inject_user_agent()  # type: ignore[no-untyped-call]
    dynamo_of(server).put(PUT)

    assert "amz-sdk-invocation-id" not in server.seen[0].headers


def test_a_stubber_answers_for_the_service(server: ScriptedServer) -> None:
    """It is botocore's own, and its handlers are on request."""
    dynamo = dynamo_of(server)
    mine: Any = dynamo.client
    with Stubber(mine._client.get()._client) as stubber:
        stubber.add_response("get_item", {"ConsumedCapacity": CONSUMED, "Item": {"a": {"S": "x"}}})
        assert dynamo.get("t", {"counter": "c"}) == {"a": "x"}

    assert not server.seen


@pytest.mark.parametrize(
    "event",
    ["before-call", "request-created.dynamodb", "before-sign.*.*", "after-call.dynamodb.PutItem"],
)
def test_a_handler_of_the_session_is_heeded(server: ScriptedServer, event: str) -> None:
    """It was registered before the client was made."""
    called: list[str] = []
    connection = connection_to(server.url)
    connection.session.events.register(event, lambda **_: called.append(event))
    connection.dynamo("none").put(PUT)

    assert called == [event]
