"""Times at the ends of the calendar are refused in words in every place of a request."""

from http import HTTPStatus
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.http.cursors import to_cursor
from tests.http.samples import SAMPLES, Sample
from tests.http.world import Api, memory_api

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


@pytest.fixture(scope="module")
def filled() -> Any:  # noqa: ANN401 - of a generator
    with memory_api() as made:
        made.post("/v1/counters/likes:a/entries", {"delta": "1"}, "first")
        made.clients[-1].window_settings.enable("likes", by="minute", ranked=1)
        yield made


@given(per=st.sampled_from(["minute", "hour", "day", "month"]), since=_EXTREMES, until=_EXTREMES)
def test_windows_at_the_ends_of_the_calendar_are_refused(
    filled: Api, per: str, since: str, until: str
) -> None:
    for query in ({"since": since}, {"since": since, "until": until}):
        answer = filled.http.get(_WINDOWS, params={"per": per, **query})
        assert answer.status_code in {HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY}, answer.text


@given(sample=st.sampled_from(_WITH_KEY), at=_EXTREMES)
def test_a_key_at_the_ends_of_the_calendar_is_refused(filled: Api, sample: Sample, at: str) -> None:
    method, path, headers, body = sample.request_with({})
    headers["Idempotency-Key"] = f'"k"; at="{at}"'
    answer = filled.http.request(method, path, headers=headers, json=body)
    assert answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR, answer.text


@given(key_at=_EXTREMES, occurred_at=_EXTREMES)
def test_an_event_at_the_ends_of_the_calendar_is_counted_or_refused(
    filled: Api, key_at: str, occurred_at: str
) -> None:
    event = {"counter": "likes:a", "delta": "1", "occurred_at": occurred_at}
    events = [event, {**event, "key": "k", "key_at": key_at}]
    answer = filled.post("/v1/entries", {"events": events})
    assert answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR, answer.text
    filled.materialize()


@pytest.mark.parametrize("day", ["0001-01-01", "0002-01-01", "9998-12-31", "9999-12-31"])
def test_a_ranking_of_a_day_at_the_ends_of_the_calendar_is_refused(filled: Api, day: str) -> None:
    answer = filled.http.get("/v1/namespaces/likes/top", params={"day": day})
    assert answer.status_code in {HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY}, answer.text


@pytest.mark.parametrize(
    "at_ms", [-(10**30), -1, 0, 253_402_300_799_998, 253_402_300_799_999, 1 << 48, 10**30]
)
def test_a_page_of_entries_begins_at_any_time_of_a_cursor(filled: Api, at_ms: int) -> None:
    cursor = to_cursor(at_ms, 0)
    answer = filled.http.get("/v1/counters/likes:a/entries", params={"cursor": cursor})
    assert answer.status_code == HTTPStatus.OK, answer.text
