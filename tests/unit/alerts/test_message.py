"""The message of an alert: exact, bounded, and the same at each delivery."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.delivery import (
    DeadLetter,
    decode_dead_letter,
    encode_dead_letter,
    subject_of,
)
from countledger.consumers.alerts.message import Alert, alert_in, body_of, trial_alert
from countledger.consumers.alerts.rule import Bus, Direction, Topic
from countledger.ledger.errors import BadPayload
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, SECOND_MS
from tests.unit.alerts.evaluating import START_MS, rule

ALERT = Alert(
    rule="big",
    revision="r1",
    counter="files:a",
    direction=Direction.RISING,
    threshold=1_000,
    old=990,
    new=1_010,
    version=17,
    region="eu-central-1",
    at_ms=START_MS,
)
_AMOUNTS = st.integers(-(10**38) + 1, 10**38 - 1) | st.decimals(
    -1000, 1000, places=5, allow_nan=False
).map(lambda one: one.normalize()).filter(lambda one: one != one.to_integral_value())


def test_the_message_is_pinned() -> None:
    """Readers rest on these names and forms; a later release may add, never change."""
    assert json.loads(body_of(ALERT)) == {
        "v": 1,
        "id": "eu-central-1/big@r1/17/1000/rising/files:a",
        "dedup": "2985f8e9ec7c3efc54791b085f26d1c726ccbc6f1f9212833412fa334017996b",
        "rule": "big",
        "revision": "r1",
        "counter": "files:a",
        "direction": "rising",
        "threshold": "1000",
        "old": "990",
        "new": "1010",
        "version": 17,
        "region": "eu-central-1",
        "at": "2030-03-17T17:30:00Z",
    }


def test_a_trial_says_so_and_has_an_id_of_its_own() -> None:
    trial = trial_alert(rule(10, "both"), "a:b", START_MS)

    assert json.loads(body_of(trial))["test"] is True
    assert trial.id.startswith("test/")
    assert subject_of(trial) == "countledger: test of rule: a:b rising"
    assert subject_of(ALERT) == "countledger: big: files:a rising"


@st.composite
def _alerts(draw: st.DrawFn) -> Alert:
    through, count = draw(st.just((None, 1)) | st.tuples(_AMOUNTS, st.integers(101, 10**76)))
    return Alert(
        rule="big",
        revision="r1",
        counter=draw(st.sampled_from(["files:a", "a/b", "\u00e9"])),
        direction=draw(st.sampled_from([Direction.RISING, Direction.FALLING])),
        threshold=draw(_AMOUNTS),
        through=through,
        count=count,
        old=draw(_AMOUNTS),
        new=draw(_AMOUNTS),
        version=draw(st.integers(1, 2**53 - 1)),
        region="eu-central-1",
        at_ms=START_MS,
        test=draw(st.booleans()),
    )


@given(_alerts())
def test_an_alert_is_read_as_it_was_published(alert: Alert) -> None:
    letter = DeadLetter(alert, Bus(), "no", START_MS)

    assert alert_in(json.loads(body_of(alert))) == alert
    assert decode_dead_letter(encode_dead_letter(letter)) == letter


def test_the_ids_of_different_alerts_differ() -> None:
    parts = {
        "rule": "small",
        "revision": "r2",
        "counter": "files:b",
        "direction": Direction.FALLING,
        "threshold": 999,
        "version": 18,
        "region": "eu-west-1",
        "test": True,
    }
    others = [Alert(**{**_words(ALERT), name: value}) for name, value in parts.items()]

    assert len({one.id for one in [ALERT, *others]}) == len(parts) + 1
    assert len({one.dedup for one in [ALERT, *others]}) == len(parts) + 1
    later = Alert(**{**_words(ALERT), "at_ms": START_MS + SECOND_MS})
    assert later.id == ALERT.id


def test_the_longest_message_is_small() -> None:
    """Ten of them fit into one call of either service many times over."""
    long = Alert(
        **{
            **_words(ALERT),
            "rule": "r" * 64,
            "revision": "x" * 36,
            "counter": "\u00e9" * (COUNTER_NAME_MAX_BYTES // 2),
            "threshold": -(10**38) + 1,
            "through": -(10**38) + 1,
            "count": 10**76,
        }
    )

    assert len(body_of(long).encode()) < 3_000
    assert len(subject_of(long)) < 100
    assert subject_of(long).isascii()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not a dead letter"),
        ("[" * 100_000, "not a dead letter"),
        ("[]", "of format 1"),
        ('{"v": 2}', "of format 1"),
        ('{"v": 1, "target": "bus"}', "lacks target, reason or failed_at_ms"),
        ('{"v":1,"target":"bus","reason":"","failed_at_ms":1}', "not the message of an alert"),
    ],
)
def test_p8_what_is_no_dead_letter_is_reported(body: str, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        decode_dead_letter(body)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"target": "arn:aws:sqs:eu-central-1:111122223333:q"},
            "not the ARN of a standard SNS topic",
        ),
        ({"target": 5}, "lacks target, reason or failed_at_ms"),
        ({"reason": None}, "lacks target, reason or failed_at_ms"),
        ({"failed_at_ms": "1"}, "lacks target, reason or failed_at_ms"),
        ({"message": {}}, "not the message of an alert"),
        ({"message": {"threshold": "1001"}}, "its id is"),
        ({"message": {"threshold": "1e3"}}, "threshold"),
        ({"message": {"at": "yesterday"}}, "at"),
        ({"message": {"version": 2**53}}, "version"),
    ],
)
def test_p8_a_dead_letter_that_was_edited_is_reported(changed: dict[str, Any], reason: str) -> None:
    """An id that is not that of the alert would be taken for another one."""
    topic = Topic("arn:aws:sns:eu-central-1:111122223333:alarms")
    said = json.loads(encode_dead_letter(DeadLetter(ALERT, topic, "no", START_MS)))
    if "message" in changed:
        message = {**said["message"], **changed["message"]} if changed["message"] else {}
        changed = {"message": message}

    with pytest.raises(BadPayload, match=reason):
        decode_dead_letter(json.dumps({**said, **changed}))


def _words(alert: Alert) -> dict[str, Any]:
    return {name: getattr(alert, name) for name in Alert.__slots__}
