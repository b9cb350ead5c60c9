"""Telemetry costs nothing where nobody requests it, and uses the names of the conventions."""

import subprocess
import sys

import pytest

from countledger import CountLedger, Event
from countledger.ledger.errors import Unacknowledged
from countledger.ledger.settings import Settings
from tests.engines.running import REGION, local_session
from tests.unit.ledger.transport.scripted import (
    CONSUMED,
    WRITTEN,
    Seen,
    answered,
    refused,
    scripted_server,
)

WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import countledger
client = countledger.CountLedger(session=__import__("boto3").Session(region_name="eu-west-1"))
assert type(client.connection).__name__ == "Connection"
assert not [name for name in sys.modules if name.startswith(("opentelemetry.", "countledger.tele"))]
try:
    import countledger.telemetry
except ImportError as error:
    print(error)
"""


def test_without_the_extra_the_client_works_and_the_error_names_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "pip install 'countledger[otel]'" in done.stdout


def test_the_names_are_those_of_the_stable_conventions() -> None:
    """They are written once, in `telemetry`, under the version that made them stable."""
    attributes = pytest.importorskip("opentelemetry.semconv.attributes.db_attributes")
    errors = pytest.importorskip("opentelemetry.semconv.attributes.error_attributes")
    metrics = pytest.importorskip("opentelemetry.semconv.metrics.db_metrics")
    schemas = pytest.importorskip("opentelemetry.semconv.schemas")
    aws = pytest.importorskip("opentelemetry.semconv._incubating.attributes.aws_attributes")
    systems = pytest.importorskip("opentelemetry.semconv._incubating.attributes.db_attributes")
    telemetry = pytest.importorskip("countledger.telemetry")

    assert attributes.DB_SYSTEM_NAME == telemetry.SYSTEM
    assert attributes.DB_OPERATION_NAME == telemetry.OPERATION
    assert attributes.DB_COLLECTION_NAME == telemetry.COLLECTION
    assert attributes.DB_OPERATION_BATCH_SIZE == telemetry.BATCH_SIZE
    assert attributes.DB_RESPONSE_STATUS_CODE == telemetry.STATUS_CODE
    assert errors.ERROR_TYPE == telemetry.ERROR_TYPE
    assert metrics.DB_CLIENT_OPERATION_DURATION == telemetry.DURATION
    assert aws.AWS_DYNAMODB_CONSUMED_CAPACITY == telemetry.CONSUMED
    assert systems.DbSystemNameValues.AWS_DYNAMODB.value == telemetry.DYNAMODB
    assert schemas.Schemas.V1_33_0.value == telemetry.SCHEMA_URL


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_batch_is_traced_by_either_transport(transport: str) -> None:
    """Its size is read from what is handed to the transport."""
    telemetry = pytest.importorskip("countledger.telemetry")
    settings = Settings(ledger_table="l", home_region=REGION, transport=transport)
    batch = answered({"ConsumedCapacity": [CONSUMED], "UnprocessedItems": {}})
    with scripted_server() as server:
        server.otherwise = lambda seen: batch if "RequestItems" in seen.body else WRITTEN
        plain = CountLedger(settings, session=local_session(), endpoint_url=server.url)
        telemetry.traced(plain).record_many([Event("a:one", 1), Event("a:two", 2)])

    assert len(server.seen[-1].body["RequestItems"]["l"]) == 2


def test_a_traced_call_ends_at_the_limits_of_the_settings() -> None:
    telemetry = pytest.importorskip("countledger.telemetry")
    settings = Settings(ledger_table="l", home_region=REGION, max_attempts=1)
    with scripted_server() as server:
        server.otherwise = lambda seen: (
            refused("ThrottlingException") if _is_entry(seen) else WRITTEN
        )
        plain = CountLedger(settings, session=local_session(), endpoint_url=server.url)
        for client in (plain, telemetry.traced(plain)):
            with pytest.raises(Unacknowledged):
                client.record("a:one", 1)

    assert sum(map(_is_entry, server.seen)) == 2, "one attempt of each client"


def _is_entry(seen: Seen) -> bool:
    return "delta" in seen.body.get("Item", ())
