"""Settings from the environment."""

from dataclasses import asdict

import pytest

from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, HOUR_MS
from countledger.ledger.settings import Settings

_FIELDS = {
    "COUNTLEDGER_STACK_NAME": "stage-2",
    "COUNTLEDGER_LEDGER_TABLE": "l",
    "COUNTLEDGER_COUNTERS_TABLE": "c",
    "COUNTLEDGER_STRICT_TABLE": "s",
    "COUNTLEDGER_LEDGER_STREAM_ARN": "arn",
    "COUNTLEDGER_QUARANTINE_QUEUE_URL": "https://q",
    "COUNTLEDGER_COMPACTION_QUEUE_URL": "https://c",
    "COUNTLEDGER_DISPATCHER_ARN": "arn:dispatcher",
    "COUNTLEDGER_SCHEDULE_GROUP": "group",
    "COUNTLEDGER_SCHEDULER_ROLE_ARN": "arn:role",
    "COUNTLEDGER_HOME_REGION": "eu-west-1",
    "COUNTLEDGER_COUNTERS_STREAM_ARN": "arn:counters",
    "COUNTLEDGER_ALERT_BUS": "default",
    "COUNTLEDGER_ALERT_TOPIC_ARNS": "arn:topic",
    "COUNTLEDGER_ALERT_DEAD_LETTER_QUEUE_URL": "https://dead",
    "COUNTLEDGER_INGEST_STREAM_ARN": "arn:ingest",
    "COUNTLEDGER_INGEST_QUARANTINE_QUEUE_URL": "https://broken",
    "COUNTLEDGER_INGEST_EXPIRED_QUEUE_URL": "https://expired",
    "COUNTLEDGER_CLOCK_SKEW_MS": "5000",
    "COUNTLEDGER_REPLICATION_BOUND_MS": "7000",
    "COUNTLEDGER_TRANSPORT": "boto3",
    "COUNTLEDGER_CONNECT_TIMEOUT_MS": "500",
    "COUNTLEDGER_READ_TIMEOUT_MS": "1500",
    "COUNTLEDGER_CALL_TIMEOUT_MS": "4000",
    "COUNTLEDGER_MAX_ATTEMPTS": "3",
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_FIELDS, "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")


def test_every_setting_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _FIELDS.items():
        monkeypatch.setenv(name, value)

    found = Settings.from_environment()

    assert {f"COUNTLEDGER_{n.upper()}": str(v) for n, v in asdict(found).items()} == _FIELDS


def test_a_named_stack_ignores_the_environment_and_what_is_given_wins_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings.from_environment() == Settings.of_stack("countledger")
    for name, value in _FIELDS.items():
        monkeypatch.setenv(name, value)

    assert Settings.from_environment(stack_name="given").stack_name == "given"
    assert Settings.from_environment(stack_name=None).stack_name == "stage-2"
    found = Settings.of_stack("mine")
    assert (found.stack_name, found.ledger_table) == ("mine", None)
    assert found.clock_skew_ms == CLOCK_SKEW_DEFAULT_MS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COUNTLEDGER_CLOCK_SKEW_MS", "a minute"),
        ("COUNTLEDGER_CLOCK_SKEW_MS", ""),
        ("COUNTLEDGER_CLOCK_SKEW_MS", "-1"),
        ("COUNTLEDGER_CLOCK_SKEW_MS", "1.5"),
        ("COUNTLEDGER_CLOCK_SKEW_MS", str(HOUR_MS + 1)),
        ("COUNTLEDGER_CONNECT_TIMEOUT_MS", "0"),
        ("COUNTLEDGER_READ_TIMEOUT_MS", "60001"),
        ("COUNTLEDGER_CALL_TIMEOUT_MS", "5s"),
        ("COUNTLEDGER_MAX_ATTEMPTS", "0"),
        ("COUNTLEDGER_STACK_NAME", ""),
        ("COUNTLEDGER_STACK_NAME", "x" * 129),
    ],
)
def test_a_bad_value_names_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(BadSetting) as refused:
        Settings.from_environment()

    assert str(refused.value).startswith(f"{name} is {value!r}: ")
    assert "\n" not in str(refused.value)


def test_the_region_is_the_callers_then_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="set AWS_REGION, give --region"):
        _ = Connection.open(Settings()).region
    with pytest.raises(BadSetting, match="nobody"):
        Connection.open(Settings(), profile="nobody")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    assert Connection.open(Settings()).region == "eu-west-1"
    assert Connection.open(Settings(), region="us-east-1").region == "us-east-1"


def test_a_setting_that_is_given_needs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLEDGER_LEDGER_TABLE", "mine")

    assert Connection.open().setting("ledger_table") == "mine"
