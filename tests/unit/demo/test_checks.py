"""Whether exactly those alerts were published that were due, and what makes a run wrong."""

from __future__ import annotations

from typing import Any

from countledger import Total
from countledger.infra.demo import TotalUpdate, compare, problems, updates_in

UPDATES = [
    TotalUpdate("lines:a", 1, 0, 999),
    TotalUpdate("lines:a", 2, 999, 1000),
    TotalUpdate("lines:a", 3, 1000, 1500),
    TotalUpdate("lines:a", 4, 1500, 10),
    TotalUpdate("lines:a", 5, 10, 2000),
    TotalUpdate("lines:b", 1, 0, 5),
]
DUE = [UPDATES[1], UPDATES[4]]
LONG = Total("lines:a", value=2000, events=5, entries=5)
NOTHING: dict[str, list[object]] = {
    "missing_alerts": [],
    "unexpected_alerts": [],
    "long_files_without_alert": [],
}


def test_alerts_that_are_all_and_the_only_ones_due_are_good() -> None:
    assert compare(DUE, UPDATES, [LONG]) == NOTHING


def test_an_alert_that_is_missing_is_found() -> None:
    found = compare(DUE[:1], UPDATES, [LONG])

    assert found == NOTHING | {"missing_alerts": [UPDATES[4]._asdict()]}


def test_an_alert_that_was_not_due_is_found() -> None:
    extra = [UPDATES[2], UPDATES[5]]

    found = compare(DUE + extra, UPDATES, [LONG])

    assert found == NOTHING | {"unexpected_alerts": [one._asdict() for one in extra]}


def test_an_alert_of_other_values_than_the_totals_is_found() -> None:
    other = UPDATES[1]._replace(old=998)

    found = compare([other, DUE[1]], UPDATES, [LONG])

    assert found["missing_alerts"] == [UPDATES[1]._asdict()]
    assert found["unexpected_alerts"] == [other._asdict()]


def test_a_long_file_that_never_alerted_is_found() -> None:
    """Also if the stream, too, shows nothing of it."""
    totals = [
        LONG,
        Total("lines:c", value=1000, events=1, entries=1),
        Total("lines:d", value=999, events=1, entries=1),
        Total("commits:e", value=1000, events=1, entries=1),
    ]

    assert compare(DUE, UPDATES, totals) == NOTHING | {
        "long_files_without_alert": [{"counter": "lines:c"}]
    }


def test_a_stream_record_is_read_without_the_evaluator() -> None:
    def record(part: str = "total", counter: str = "lines:a", **images: object) -> dict[str, Any]:
        return {"dynamodb": {"Keys": {"counter": {"S": counter}, "part": {"S": part}}, **images}}

    new = {"total": {"N": "7"}, "version": {"N": "1"}}
    old = {"total": {"N": "5"}, "version": {"N": "0"}}

    found = updates_in(
        [
            record(NewImage=new),
            record(NewImage=new, OldImage=old),
            record(OldImage=old),
            record(counter="commits:a", NewImage=new),
            record(part="alert#r", NewImage={}),
        ]
    )

    assert list(found) == [TotalUpdate("lines:a", 1, 0, 7), TotalUpdate("lines:a", 1, 5, 7)]


def test_a_run_is_good_only_if_nothing_at_all_is_wrong() -> None:
    good: dict[str, Any] = {
        "wrong_numbers": [],
        "missing_events": 0,
        "unrecognised_retries": None,
        "wrong_days": [],
        "partition_effects_unseen": 0,
    }
    row = {"counter": "lines:a"}

    assert problems({**good, **NOTHING}) == []
    for wrong, clause in {
        ("missing_events", 1_234): "1,234 events did not reach their totals",
        ("unrecognised_retries", 2): "2 retries were not recognised",
        ("partition_effects_unseen", 1): "1 effects of the partition were not seen",
    }.items():
        (found,) = problems({**good, **NOTHING, wrong[0]: wrong[1]})
        assert found.startswith(clause)
    for name in ("wrong_numbers", "wrong_days", *NOTHING):
        (found,) = problems({**good, **NOTHING, name: [row, row]})
        assert found.startswith("2 ")
