"""Whether exactly those alerts were told that were due."""

from __future__ import annotations

from countledger.consumers.alerts.alert import Alert
from countledger.consumers.alerts.rule import Direction
from countledger.infra.demo.checks import THRESHOLD, compare, update_in


def _alert(counter: str, version: int) -> Alert:
    return Alert(
        rule="demo-long-files",
        revision="r",
        counter=counter,
        direction=Direction.RISING,
        threshold=THRESHOLD,
        old=0,
        new=THRESHOLD,
        version=version,
        region="us-east-1",
        at_ms=0,
    )


UPDATES = [
    ("lines:a", 1, 0, 999),
    ("lines:a", 2, 999, 1000),
    ("lines:a", 3, 1000, 1500),
    ("lines:a", 4, 1500, 10),
    ("lines:a", 5, 10, 2000),
    ("lines:b", 1, 0, 5),
]
DUE = [_alert("lines:a", 2), _alert("lines:a", 5)]
NOTHING: dict[str, list[object]] = {"missing": [], "unexpected": [], "silent": []}


def test_alerts_that_are_all_and_the_only_ones_due_are_good() -> None:
    assert compare(DUE, UPDATES, ["lines:a"], fresh=True) == NOTHING


def test_an_alert_that_is_missing_is_found() -> None:
    found = compare(DUE[:1], UPDATES, ["lines:a"], fresh=True)

    assert found == NOTHING | {"missing": [UPDATES[4]]}


def test_an_alert_that_was_not_due_is_found() -> None:
    extra = [_alert("lines:a", 3), _alert("lines:b", 1)]

    found = compare(DUE + extra, UPDATES, ["lines:a"], fresh=True)

    assert found == NOTHING | {"unexpected": extra}


def test_a_long_file_that_never_alerted_is_found() -> None:
    silent = compare(DUE, UPDATES, ["lines:a", "lines:c"], fresh=True)["silent"]

    assert silent == ["lines:c"]
    assert compare(DUE, UPDATES, ["lines:a", "lines:c"], fresh=False) == NOTHING
    assert compare([], UPDATES, ["lines:a"], fresh=False)["silent"] == ["lines:a"]


def test_a_stream_record_is_read_without_the_evaluator() -> None:
    key = {"counter": {"S": "lines:a"}, "part": {"S": "total"}}
    new = {**key, "total": {"N": "7"}, "version": {"N": "1"}}
    old = {**key, "total": {"N": "5"}, "version": {"N": "0"}}
    other = {"counter": {"S": "commits:a"}, "part": {"S": "total"}}
    state = {"counter": {"S": "lines:a"}, "part": {"S": "alert#r"}}

    assert update_in({"Keys": key, "NewImage": new}) == ("lines:a", 1, 0, 7)
    assert update_in({"Keys": key, "NewImage": new, "OldImage": old}) == ("lines:a", 1, 5, 7)
    assert update_in({"Keys": key, "OldImage": old}) is None
    assert update_in({"Keys": other, "NewImage": new}) is None
    assert update_in({"Keys": state, "NewImage": state}) is None
