"""Sessions and clients: what is settled before the first call."""

from dataclasses import replace
from typing import Any

import boto3
import pytest

from countledger.ledger.connection import Connection
from countledger.ledger.errors import WrongRegion
from countledger.ledger.settings import Settings
from countledger.producers.buffer import settings
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient


def _proxies(endpoint_url: str | None) -> object:
    session = boto3.Session(
        aws_access_key_id="a",
        aws_secret_access_key="b",  # noqa: S106 - no call is made
        region_name="eu-west-1",
    )
    connection = Connection(Settings(), session, endpoint_url)
    config: Any = connection.dynamo("none").client.meta.config
    return config.proxies


@pytest.mark.parametrize("url", ["http://127.0.0.1:1234", "http://localhost:1", "http://[::1]:9"])
def test_loopback_is_not_asked_through_a_proxy(url: str) -> None:
    assert _proxies(url) == {}


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"])
def test_loopback_is_seen_in_the_environment(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1234")

    assert _proxies(None) == {}


def test_every_sender_of_a_buffer_keeps_its_connection() -> None:
    """One beyond them would connect again for each request, and botocore warn of each."""
    session = boto3.Session("a", "b", region_name="eu-west-1")
    config: Any = Connection(Settings(), session).dynamo("none").client.meta.config

    assert config.max_pool_connections >= settings._SENDERS_MAX


def test_other_endpoints_keep_the_users_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)

    assert _proxies("https://dynamodb.example") is None
    assert _proxies(None) is None


def test_a_call_elsewhere_is_refused_with_the_home_region() -> None:
    home = connection_on(MemoryClient())
    home.refuse_elsewhere("'llm:': quotas are changed")

    elsewhere = connection_on(MemoryClient(), region="us-east-1")
    with pytest.raises(WrongRegion, match=r"home region eu-west-1 only.* this is us-east-1: call"):
        elsewhere.refuse_elsewhere("'llm:': quotas are changed")


def test_services_of_a_process_share_what_it_knows_and_other_regions_do_not() -> None:
    connection = connection_on(MemoryClient())

    assert connection.shared(dict) is connection.shared(dict)
    assert connection.in_region("us-east-1").shared(dict) is not connection.shared(dict)


def test_the_table_over_regions_takes_the_place_of_the_counters() -> None:
    connection = connection_on(MemoryClient(), strict_table="strict")

    assert connection.counters == "counters"
    assert replace(connection, over_regions=True).counters == "strict"
