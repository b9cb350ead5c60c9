"""Requests of every kind, derived from the document: no answer contradicts it."""

from __future__ import annotations

from tests.http.fuzzing import NOT_SIMULATED, fuzz
from tests.http.samples import OPEN, SAMPLES
from tests.http.world import moto_api, simulated_api

# Its calls of other services need a whole stack.
_INDEXED = NOT_SIMULATED - {"status"}
_NAMES = {one.operation for one in (*SAMPLES, *OPEN)}


def test_no_answer_contradicts_the_document() -> None:
    with simulated_api() as api:
        found = fuzz(api, 1)

    assert found.failures == []
    assert found.operations == _NAMES - NOT_SIMULATED


def test_no_answer_of_ten_thousand_contradicts_the_document() -> None:
    with simulated_api() as api:
        found = fuzz(api, 75)

    assert found.failures == []
    assert found.cases >= 10_000


def test_no_answer_over_indexes_contradicts_the_document() -> None:
    with moto_api() as api:
        found = fuzz(api, 3, _INDEXED)

    assert found.failures == []
    assert found.operations == _INDEXED
