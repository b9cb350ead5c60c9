"""Requests of every kind, derived from the document: no answer contradicts it."""

from tests.http.fuzzing import LEFT_OUT, fuzz
from tests.http.samples import OPEN, SAMPLES
from tests.http.world import memory_api

_NAMES = {one.operation for one in (*SAMPLES, *OPEN)}


def test_no_answer_contradicts_the_document() -> None:
    with memory_api() as api:
        # Any wrong method has the same answer; all of them are tried below.
        found = fuzz(api, 1, coverage={"unexpected-methods": ["put"]})

    assert found.failures == []
    assert found.operations == _NAMES - {LEFT_OUT}


def test_no_answer_of_ten_thousand_contradicts_the_document() -> None:
    with memory_api() as api:
        found = fuzz(api, 110)
        cases, seed = found.cases, 1
        while cases < 10_000 and not found.failures:
            seed += 1  # whose boundaries would be the same
            found = fuzz(api, 40, seed, {"enabled": False})
            cases += found.cases

    assert found.failures == []
