"""The OpenAPI document: it is committed, it is the code's, and it is complete."""

import json
from pathlib import Path
from typing import Any, Final

from countledger import CountLedger
from countledger.infra.calls.access import Scopes
from countledger.infra.http.api import http_app

PATH: Final = Path(__file__).parents[2] / "docs/openapi.json"


def _document() -> dict[str, Any]:
    return http_app(CountLedger, lambda _: Scopes()).openapi()


def written() -> str:
    """The document as it is committed."""
    return json.dumps(_document(), indent=1, ensure_ascii=False) + "\n"


def _operations() -> list[dict[str, Any]]:
    paths = _document()["paths"].values()
    return [operation for operations in paths for operation in operations.values()]


def test_the_committed_document_is_that_of_the_code() -> None:
    """Run `make docs` after a change of a route; a change here is one that clients see."""
    assert PATH.read_text() == written()


def test_every_operation_says_what_it_costs_and_what_it_answers() -> None:
    for operation in _operations():
        name = operation["operationId"]
        assert "unit" in operation["description"] or "calls" in operation["description"], name
        assert {"401", "403", "422", "503"} <= {*operation["responses"]}, name


def test_no_amount_of_the_document_is_a_number() -> None:
    """Parsers of many languages read a number of JSON as a float."""
    text = json.dumps(_document())

    assert '"type": "number"' not in text
