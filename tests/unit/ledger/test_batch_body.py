"""The body of a batch write is what botocore would have written."""

import json
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.attributes import encode, encode_value
from countledger.ledger.batch_body import spell
from tests.engines.running import local_session

_VALUES = st.recursive(
    st.one_of(
        st.text(),
        st.integers(-(10**38) + 1, 10**38 - 1),
        st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=9),
        st.binary(),
        st.booleans(),
        st.none(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_ITEMS = st.lists(st.dictionaries(st.text(min_size=1), _VALUES, max_size=5), max_size=4)


class _Left(Exception):
    """A request left; nothing answers it."""


def _client() -> Any:  # noqa: ANN401 - a client of DynamoDB
    session = local_session(validate_parameters=False)
    return session.client("dynamodb", endpoint_url="http://127.0.0.1:1")


def _body_that_leaves(client: Any, items: list[dict[str, Any]]) -> bytes:  # noqa: ANN401
    bodies: list[bytes] = []

    def look(request: Any, **_: object) -> None:  # noqa: ANN401 - botocore's own
        bodies.append(request.body)
        assert int(request.headers["Content-Length"]) == len(request.body)
        raise _Left

    client.meta.events.register("before-send.dynamodb", look)
    requests = [{"PutRequest": {"Item": encode(item)}} for item in items]
    with pytest.raises(_Left):
        client.batch_write_item(RequestItems={"t": requests}, ReturnConsumedCapacity="TOTAL")
    client.meta.events.unregister("before-send.dynamodb", look)
    return bodies[0]


@pytest.fixture(scope="module")
def botocores() -> Any:  # noqa: ANN401 - a client of DynamoDB
    """A client as boto3 makes it."""
    return _client()


@pytest.fixture(scope="module")
def ours() -> Any:  # noqa: ANN401 - a client of DynamoDB
    """A client whose batches have their body from us."""
    client = _client()
    spell(client)
    return client


@given(_ITEMS)
def test_a_batch_leaves_with_the_body_that_botocore_would_write(
    botocores: Any,  # noqa: ANN401
    ours: Any,  # noqa: ANN401
    items: list[dict[str, Any]],
) -> None:
    """Whatever is in the items: binaries and maps as well."""
    assert json.loads(_body_that_leaves(ours, items)) == json.loads(
        _body_that_leaves(botocores, items)
    )


def test_who_changes_a_batch_before_is_heeded(ours: Any) -> None:  # noqa: ANN401
    """The batch is put aside behind everybody who looks at its parameters."""

    def drop_the_last(params: dict[str, Any], **_: object) -> dict[str, Any]:
        return {**params, "RequestItems": {"t": params["RequestItems"]["t"][:-1]}}

    event = "provide-client-params.dynamodb.BatchWriteItem"
    ours.meta.events.register(event, drop_the_last)
    body = json.loads(_body_that_leaves(ours, [{"a": 1}, {"a": 2}]))
    ours.meta.events.unregister(event, drop_the_last)

    assert body["RequestItems"] == {"t": [{"PutRequest": {"Item": {"a": {"N": "1"}}}}]}


def test_the_callers_own_batch_stays_as_it_is(ours: Any) -> None:  # noqa: ANN401
    batch: dict[str, Any] = {"t": [{"PutRequest": {"Item": {"a": {"N": "1"}}}}]}

    def refuse(**_: object) -> None:
        raise _Left

    ours.meta.events.register("before-send.dynamodb", refuse)
    with pytest.raises(_Left):
        ours.batch_write_item(RequestItems=batch)
    ours.meta.events.unregister("before-send.dynamodb", refuse)

    assert batch == {"t": [{"PutRequest": {"Item": {"a": {"N": "1"}}}}]}


@given(st.one_of(st.text(), st.integers(-(10**40), 10**40), st.booleans()))
def test_texts_and_integers_are_spelled_as_boto3_does(value: object) -> None:
    serialize = TypeSerializer().serialize
    try:
        expected: object = serialize(value)
    except ArithmeticError as error:
        with pytest.raises(type(error)):
            encode_value(value)
    else:
        assert encode_value(value) == expected
