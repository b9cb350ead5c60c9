"""The client of the fast transport: what it sends, when, and what an answer means."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any, Final

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials

from countledger.ledger.attributes import encode
from countledger.ledger.connection import Connection
from countledger.ledger.departure import guarded
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.entry import Entry, PutBatch
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    KeyExpired,
    RequestRejected,
    SetupError,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.operations import Absent, Put, Query, Update
from countledger.ledger.settings import Settings
from countledger.ledger.transport import http as transport_http
from countledger.ledger.transport.client import OPERATIONS, FastClient
from tests.engines.running import REGION
from tests.unit.ledger.transport.scripted import (
    CONSUMED,
    PUT,
    WRITTEN,
    ScriptedServer,
    Seen,
    answered,
    dynamo_of,
    http,
    refused,
)

_ITEM: Final = {
    "counter": {"S": "c"},
    "total": {"N": "12345678901234567890123456789012345678"},
    "small": {"N": "1.5"},
    "mark": {"B": "AAEC/w=="},
    "map": {"M": {"b": {"B": "AA=="}, "l": {"L": [{"B": ""}, {"NULL": True}]}}},
}
_DECODED: Final = {
    "counter": "c",
    "total": 12345678901234567890123456789012345678,
    "small": Decimal("1.5"),
    "mark": b"\x00\x01\x02\xff",
    "map": {"b": b"\x00", "l": [b"", None]},
}


def test_a_client_has_the_calls_on_items_and_all_else_of_boto3(server: ScriptedServer) -> None:
    """Every operation of this table exists at boto3's client under both names."""
    client: Any = dynamo_of(server).client
    boto3s: Any = dynamo_of(server, "boto3").client

    assert isinstance(client._client.get(), FastClient)
    assert not isinstance(boto3s._client.get(), FastClient)
    assert {name: client.meta.method_to_api_mapping[name] for name in OPERATIONS} == OPERATIONS
    assert client.describe_table.__self__ is client._client.get()._client


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_an_item_is_read_as_boto3_reads_it(server: ScriptedServer, transport: str) -> None:
    """Numbers to the last digit, binaries as bytes, at any depth."""
    dynamo = dynamo_of(server, transport)
    consumed = {"ConsumedCapacity": CONSUMED}
    server.script[:] = [
        answered({**consumed, "Item": _ITEM}),
        answered({**consumed, "Item": None}),
        answered({**consumed, "Attributes": _ITEM}),
        answered({**consumed, "Items": [_ITEM], "Count": 1, "LastEvaluatedKey": None}),
    ]

    assert dynamo.get("t", {"counter": "c"}) == _DECODED
    assert dynamo.get("t", {"counter": "c"}) is None
    assert dynamo.update(Update("t", {"counter": "c"}, (), returning="ALL_NEW")) == _DECODED
    page = dynamo.page(Query("t", Absent("x")))
    assert (page.items, page.after) == ([_DECODED], None)


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_an_answer_may_leave_out_what_is_empty(server: ScriptedServer, transport: str) -> None:
    """ExtendDB names no unprocessed items or keys where there are none."""
    dynamo = dynamo_of(server, transport)
    server.script[:] = [
        answered({"ConsumedCapacity": [CONSUMED]}),
        answered({"ConsumedCapacity": [CONSUMED], "Responses": {"t": [_ITEM]}}),
    ]

    assert dynamo.put_batch("t", [{"counter": "c"}]) == []
    assert dynamo.get_many("t", [{"counter": "c"}]) == [_DECODED]


def test_a_request_is_the_one_that_boto3_sends(server: ScriptedServer) -> None:
    """Its body, target, type and length; binaries and long numbers in it."""
    item = {"counter": "c", "entry": "ä\u2028", "mark": b"\x00\xff", "n": 10**37, "s": {b"a", b"b"}}
    for transport in ("boto3", "fast"):
        dynamo_of(server, transport).put(Put("t", item, Absent("entry")))
    boto3s, ours = server.seen

    assert ours.body == boto3s.body
    for name in ("x-amz-target", "content-type", "host", "accept-encoding"):
        assert ours.headers[name] == boto3s.headers[name]
    # Powertools adds its own, where it was loaded.
    assert boto3s.headers["user-agent"].startswith(ours.headers["user-agent"])


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_text_that_is_no_unicode_is_for_the_service_to_refuse(
    server: ScriptedServer, transport: str
) -> None:
    """It is not an error of Python's."""
    server.script[:] = [refused("SerializationException")]
    with pytest.raises(RequestRejected):
        dynamo_of(server, transport).put(Put("t", {"counter": "\ud800", "entry": "e"}))

    assert server.seen[0].body["Item"]["counter"] == {"S": "\ud800"}


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_refusal_brings_the_item_that_it_met(server: ScriptedServer, transport: str) -> None:
    """Of one write and of each write of a transaction."""
    dynamo = dynamo_of(server, transport)
    reasons = [
        {"Code": "None", "Message": None},
        {"Code": "ConditionalCheckFailed", "Item": _ITEM, "Message": "no"},
    ]
    server.script[:] = [
        refused("ConditionalCheckFailedException", Item=_ITEM),
        refused("TransactionCanceledException", CancellationReasons=reasons),
    ]
    with pytest.raises(ConditionFailed) as failed:
        dynamo.put(PUT)
    with pytest.raises(TransactionCancelled) as cancelled:
        dynamo.transact([PUT], "token")

    assert failed.value.item == _DECODED
    assert [(one.code, one.item) for one in cancelled.value.reasons] == [
        ("None", None),
        ("ConditionalCheckFailed", _DECODED),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        refused("ValidationException"),
        refused("ThrottlingException"),
        refused("SomethingNewException"),
        refused("InternalServerError", 500),
        http(b'{"__type":"ResourceNotFoundException:x","Message":"upper case"}', 400),
        http(b"<html>", 403),
        http(b"<html>no</html>", 503),
        http(b"", 502),
        http(b'"text"', 400),
        http(b"\xff", 400),
        http(b"{}", 418),
        http(b"{}", 301, "Location: http://127.0.0.1:9/"),
        http(b"{}", 200),
        http(b"[]", 200),
        http(b'{"ConsumedCapacity": {"Capac', 200),
        http(b"", 200),
        http(b"\xff\xfe", 200),
    ],
)
def test_an_answer_means_what_it_means_by_boto3(server: ScriptedServer, answer: bytes) -> None:
    """The same error with the same message."""
    raised = []
    for transport in ("boto3", "fast"):
        server.script[:] = [answer]
        with pytest.raises(CountledgerError) as error:
            dynamo_of(server, transport).put(PUT)
        raised.append(error.value)
    boto3s, ours = raised

    assert type(ours) is type(boto3s)
    if not isinstance(ours, Unclear):
        assert str(ours) == str(boto3s)


@pytest.mark.parametrize("answer", [http(b"{}", 201), http(b'{"a": 1}', 299), http(b"", 204)])
def test_another_status_of_success_is_not_the_services(
    server: ScriptedServer, answer: bytes
) -> None:
    """It acknowledges nothing."""
    server.script[:] = [answer]
    with pytest.raises(Unclear):
        dynamo_of(server).put(PUT)


def test_an_error_names_the_request(server: ScriptedServer) -> None:
    """By the id that AWS's support asks for."""
    server.script[:] = [refused("ValidationException")]
    with pytest.raises(RequestRejected) as error:
        dynamo_of(server).put(PUT)
    cause: Any = error.value.__cause__

    assert cause.response["ResponseMetadata"]["RequestId"] == "REQUEST1"
    assert cause.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_body_that_was_damaged_on_its_way_is_no_answer(server: ScriptedServer) -> None:
    """The service sends a checksum of it."""
    dynamo = dynamo_of(server)
    server.script[:] = [WRITTEN.replace(b'"CapacityUnits": 1.0', b'"CapacityUnits": 9.0')]
    with pytest.raises(Unclear, match="crc32"):
        dynamo.put(PUT)
    dynamo.put(PUT)

    assert dynamo.meter.write_units == 1


def test_an_answer_in_chunks_counts_as_one_with_a_length(server: ScriptedServer) -> None:
    """Some engines and proxies answer so; the connection is not used again."""
    body = b'{"ConsumedCapacity": {"TableName": "t", "CapacityUnits": 2.0}}'
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    server.script[:] = [chunked % (len(body), body)]
    dynamo = dynamo_of(server)
    dynamo.put(PUT)
    dynamo.put(PUT)

    assert dynamo.meter.write_units == 3
    assert server.connections == 2


def test_a_connection_is_used_again_unless_bytes_are_left_in_it(server: ScriptedServer) -> None:
    """What is left would be read as the answer to the next request."""
    dynamo = dynamo_of(server)
    lie = answered({"ConsumedCapacity": CONSUMED | {"CapacityUnits": 100.0}})
    for answer in (WRITTEN, WRITTEN, WRITTEN + lie, WRITTEN, None):
        server.script[:] = [answer]
        if answer is None:
            with pytest.raises(Unclear):
                dynamo.put(PUT)
        else:
            dynamo.put(PUT)
    dynamo.put(PUT)

    assert [one.connection for one in server.seen] == [1, 1, 1, 2, 2, 3]
    assert dynamo.meter.write_units == 5


class _Interrupted(BaseException):
    """As Ctrl-C, or the time-out of a green thread."""


def test_an_interrupted_call_leaves_no_answer_to_the_next(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may still come on that connection."""
    dynamo = dynamo_of(server)
    dynamo.put(PUT)

    def interrupt(*_: object) -> None:
        raise _Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(transport_http.AnswerParser, "feed", interrupt)
        with pytest.raises(_Interrupted):
            dynamo.put(PUT)
    dynamo.put(PUT)

    assert [one.connection for one in server.seen] == [1, 1, 2]


def test_threads_get_their_own_answers(server: ScriptedServer) -> None:
    """Sixteen of them, of one client."""

    def of_key(request: Seen) -> bytes:
        return answered({"ConsumedCapacity": CONSUMED, "Item": request.body["Key"]})

    server.otherwise = of_key
    dynamo = dynamo_of(server)

    def ask(number: int) -> bool:
        return dynamo.get("t", {"counter": f"c{number}"}) == {"counter": f"c{number}"}

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))
    assert server.connections <= 16


def test_all_operations_share_the_connections_of_an_endpoint(server: ScriptedServer) -> None:
    dynamo = dynamo_of(server)
    server.otherwise = lambda _: answered({"ConsumedCapacity": CONSUMED})

    dynamo.put(PUT)
    dynamo.get("other", {"counter": "c"})

    assert (len(server.seen), server.connections) == (2, 1)


def test_as_many_connections_stay_open_as_the_pool_may_have(server: ScriptedServer) -> None:
    """Until the client is closed."""
    dynamo = dynamo_of(server)
    client: Any = dynamo.client
    size = client.meta.config.max_pool_connections
    at_once = Barrier(size + 2)

    def together(_: Seen) -> bytes:
        at_once.wait(10)
        return WRITTEN

    server.otherwise = together
    with ThreadPoolExecutor(size + 2) as pool:
        [*pool.map(dynamo.put, [PUT] * (size + 2))]
    (route,) = client._client.get()._routes._known.values()
    idle = [*route.connections._idle]
    assert (server.connections, len(idle)) == (size + 2, size)

    client.close()
    assert all(one.is_closed for one in idle)


@pytest.mark.parametrize("known", [False, True])
def test_a_request_is_checked_as_it_leaves(server: ScriptedServer, known: bool) -> None:  # noqa: FBT001
    """After signing; and once more after the connection was made, which may take seconds."""
    dynamo = dynamo_of(server)
    if known:
        dynamo.put(PUT)
        server.seen.clear()
    looks: list[int] = []

    def look() -> None:
        looks.append(server.connections)
        if len(looks) == (1 if known else 2):
            raise KeyExpired("too late")

    with pytest.raises(KeyExpired), guarded(look):
        dynamo.put(PUT)

    assert len(looks) == (1 if known else 2)
    assert not server.seen


def test_a_client_of_another_process_sends_nothing(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are the other one's too."""
    client: Any = dynamo_of(server).client
    mine = client._client.get()
    monkeypatch.setattr("countledger.ledger.departure.this_process", lambda: (0, 7))
    with pytest.raises(SetupError, match="forked"):
        DynamoClient(mine).put(PUT)

    assert not server.seen


def test_credentials_that_expire_are_refreshed(server: ScriptedServer) -> None:
    """Before the request; it is signed with the new ones."""
    made: list[str] = []

    def refresh() -> dict[str, str]:
        made.append(f"KEY{len(made)}")
        soon = datetime.now(UTC) + timedelta(seconds=0 if len(made) == 1 else 3_600)
        return {
            "access_key": made[-1],
            "secret_key": "s",
            "token": f"token-of-{made[-1]}",
            "expiry_time": soon.isoformat(),
        }

    core: Any = botocore.session.Session()
    core._credentials = RefreshableCredentials.create_from_metadata(refresh(), refresh, "by-hand")
    session = boto3.Session(region_name=REGION, botocore_session=core)
    dynamo = Connection(Settings(transport="fast"), session, server.url).dynamo("none")
    dynamo.put(PUT)
    dynamo.put(PUT)

    assert made == ["KEY0", "KEY1"]
    assert [one.headers["x-amz-security-token"] for one in server.seen] == ["token-of-KEY1"] * 2
    assert all("Credential=KEY1/" in one.headers["authorization"] for one in server.seen)


def test_silence_ends_after_the_time_of_the_configuration(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same settings as boto3's."""
    monkeypatch.setenv("COUNTLEDGER_READ_TIMEOUT_MS", "200")
    server.script[:] = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"]
    with pytest.raises(Unclear, match="Read timeout"):
        dynamo_of(server).put(PUT)


@pytest.mark.parametrize("name", ["AWS_LAMBDA_FUNCTION_NAME", "ANOTHER_NAME"])
def test_only_a_function_passes_on_the_trace_of_its_invocation(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As boto3 does."""
    monkeypatch.setenv(name, "f")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-5759e988;Parent=53995c3f;Sampled=1\u00e4\n")
    for transport in ("boto3", "fast"):
        dynamo_of(server, transport).put(PUT)
    boto3s, ours = (one.headers.get("x-amzn-trace-id") for one in server.seen)
    assert (ours, ours is None) == (boto3s, name == "ANOTHER_NAME")


def test_a_batch_of_entries_is_the_same_by_either_transport(server: ScriptedServer) -> None:
    """The fast transport takes their JSON; where boto3 makes the call, it gets items."""
    dynamo = dynamo_of(server)
    entries = [Entry(counter=one, id="x", delta=1, at_ms=5, origin="r") for one in ('a:"b"', "c")]
    batch = PutBatch("t", entries, [16, 16])
    seen: list[Any] = []
    server.script[:] = [answered({"ConsumedCapacity": [CONSUMED], "UnprocessedItems": {}})] * 2

    def look(params: dict[str, Any], **_: object) -> None:
        seen.append(params["RequestItems"])

    dynamo.put_entries(batch)
    events: Any = dynamo.client.meta.events
    events.register("provide-client-params.dynamodb.BatchWriteItem", look)
    dynamo.put_entries(batch)

    wanted = {"t": [{"PutRequest": {"Item": encode(one)}} for one in batch.items]}
    assert [one.body["RequestItems"] for one in server.seen] == [wanted, wanted]
    assert seen == [wanted]
