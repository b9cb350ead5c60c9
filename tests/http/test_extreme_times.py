"""Times at the ends of the calendar are taken, or refused in words, in each place of a request."""

from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.calls.shapes import to_cursor
from tests.http.samples import SAMPLES, Sample
from tests.http.world import Api, memory_api, names_of

_OFFSETS: Final = st.sampled_from(["Z", "+00:00", "-23:59", "+23:59", "+14:00", "-12:00"])
_EXTREMES: Final = st.builds(
    "{}{}".format,
    st.sampled_from(
        [
            "0001-01-01T00:00:00",
            "0001-01-01T00:00:00.001",
            "0002-01-01T00:00:00",
            "1969-12-31T23:59:59.999",
            "1970-01-01T00:00:00",
            "9998-12-31T23:59:59.999",
            "9999-01-01T00:00:00",
            "9999-12-31T00:00:00",
            "9999-12-31T23:59:59.999999999",
        ]
    ),
    _OFFSETS,
)
_WITH_KEY: Final = [one for one in SAMPLES if one.key is not None]
_WINDOWS: Final = "/v1/counters/likes:a/windows"
_EMPTY: Final = {"items": [], "more": False, "next": None, "unreadable": []}
_FIRST_OF_KEYS: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEY_REFUSALS: Final = {"bad-time", "key-expired", "clock-skew"}


def _moment(text: str) -> datetime | None:
    """The time in UTC; None: it is outside of the calendar."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:
        return None


@pytest.fixture(scope="module")
def filled() -> Iterator[Api]:
    """With what each request under a key changes, and with windows of each kind."""
    with memory_api() as made:
        made.post("/v1/counters/likes:a/entries", {"delta": "1"}, "first")
        made.clients[-1].window_settings.enable("likes", by="minute", ranked=1)
        (create,) = (one for one in SAMPLES if one.operation == "create_strict")
        assert made.post("/v1/strict", create.body).status_code == HTTPStatus.CREATED
        yield made


@given(per=st.sampled_from(["minute", "hour", "day", "month"]), since=_EXTREMES, until=_EXTREMES)
def test_windows_at_the_ends_of_the_calendar_are_read_or_refused(
    filled: Api, per: str, since: str, until: str
) -> None:
    for query in ({"since": since}, {"since": since, "until": until}):
        answer = filled.http.get(_WINDOWS, params={"per": per, **query})
        if answer.status_code != HTTPStatus.OK:
            assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY, answer.text
            assert names_of(answer.json()) == "bad-time"


@pytest.mark.parametrize(
    ("since", "until", "windows"),
    [
        ("1970-01-01T00:00:00Z", "1970-03-01T00:00:00Z", ["1970-01", "1970-02"]),
        ("1969-12-31T23:59:59.999Z", "1970-03-01T00:00:00Z", None),
        ("9998-11-01T00:00:00Z", "9998-12-31T00:00:00Z", ["9998-11", "9998-12"]),
        ("9998-11-01T00:00:00Z", "9998-12-31T00:00:00.001Z", None),
    ],
)
def test_windows_are_read_from_1970_to_the_last_day_of_9998(
    filled: Api, since: str, until: str, windows: list[str] | None
) -> None:
    answer = filled.http.get(_WINDOWS, params={"per": "month", "since": since, "until": until})
    if windows is None:
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "from 1970 on" in answer.json()["detail"]
    else:
        assert [one["name"] for one in answer.json()["items"]] == windows


@given(sample=st.sampled_from(_WITH_KEY), at=_EXTREMES)
def test_a_key_at_the_ends_of_the_calendar_is_refused(filled: Api, sample: Sample, at: str) -> None:
    method, path, headers, body = sample.request_with({})
    headers["Idempotency-Key"] = f'"k"; at="{at}"'
    answer = filled.http.request(method, path, headers=headers, json=body)
    if answer.status_code == HTTPStatus.OK:  # of a batch each event has its own outcome
        refused = [one["problem"] for one in answer.json()["items"]]
        assert len(refused) == len(body["events"])
    else:
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY, answer.text
        refused = [answer.json()]
    assert {names_of(one) for one in refused} <= _KEY_REFUSALS


@given(key_at=_EXTREMES, occurred_at=_EXTREMES)
def test_an_event_of_any_time_of_the_calendar_counts_but_under_no_key_of_such_a_time(
    filled: Api, key_at: str, occurred_at: str
) -> None:
    before = _total(filled)
    event = {"counter": "likes:a", "delta": "1", "occurred_at": occurred_at}
    events = [event, {**event, "key": "k", "key_at": key_at}]
    answer = filled.post("/v1/entries", {"events": events}, uuid4().hex)
    made_at = _moment(key_at)
    if _moment(occurred_at) is None or made_at is None or made_at < _FIRST_OF_KEYS:
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY, answer.text
        assert (names_of(answer.json()), _total(filled)) == ("bad-time", before)
        return
    recorded, refused = answer.json()["items"]
    assert recorded["status"] == "recorded"
    assert names_of(refused["problem"]) in _KEY_REFUSALS
    assert _total(filled) == before + 1


def _total(api: Api) -> int:
    api.materialize()
    return int(api.get("/v1/counters/likes:a").json()["value"])


@pytest.mark.parametrize(
    ("day", "refused"),
    [
        ("0001-01-01", "outside the years 2 to 9998"),
        ("0002-01-01", "that of 0002-01-01 no longer"),
        ("9998-12-31", None),
        ("9999-01-01", "outside the years 2 to 9998"),
        ("9999-12-31", "outside the years 2 to 9998"),
    ],
)
def test_a_ranking_of_a_day_at_the_ends_of_the_calendar_is_empty_or_refused(
    filled: Api, day: str, refused: str | None
) -> None:
    answer = filled.http.get("/v1/namespaces/likes/top", params={"day": day})
    if refused is None:
        assert (answer.status_code, answer.json()) == (HTTPStatus.OK, _EMPTY)
    else:
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        assert refused in answer.json()["detail"]


@pytest.mark.parametrize(
    ("at_ms", "is_later"),
    [
        (-(10**30), False),
        (-1, False),
        (0, False),
        (253_402_300_799_998, True),
        (253_402_300_799_999, True),
        (1 << 48, True),
        (10**30, True),
    ],
)
def test_a_page_of_entries_begins_at_any_time_of_a_cursor(
    filled: Api, at_ms: int, *, is_later: bool
) -> None:
    cursor = to_cursor(at_ms, 0)
    answer = filled.http.get("/v1/counters/likes:a/entries", params={"cursor": cursor})
    assert answer.status_code == HTTPStatus.OK, answer.text
    assert bool(answer.json()["items"]) is is_later
