"""The table of the HTTP API's problems, made from the classes of errors and outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from countledger.infra.http.outcomes import REFUSALS
from countledger.infra.http.problems import TYPE_PREFIX, status_of, title_of, type_of
from countledger.ledger import errors
from tests.guide.marked import table_of

HTTP: Final = Path(__file__).parents[2] / "docs" / "http.md"
# Caught by the library itself; they never reach a caller.
_INNER: Final = {"ConditionFailed", "TransactionCancelled", "TokenMismatch"}


def http_tables() -> dict[str, str]:
    """The table by the name of its marks."""
    kinds = [
        one
        for one in vars(errors).values()
        if isinstance(one, type)
        and issubclass(one, errors.CountledgerError)
        and one.__name__ not in _INNER
    ]
    rows = [(status_of(one), one) for one in kinds]
    rows += [(status, one) for one, (status, _) in REFUSALS.items()]
    rows.sort(key=lambda row: (row[0], row[1].__name__))
    return {
        "problems": table_of(
            [f"type, after `{TYPE_PREFIX}`", "status", "what it is"],
            (
                [
                    f"`{type_of(one.__name__).removeprefix(TYPE_PREFIX)}`",
                    str(int(status)),
                    title_of(one),
                ]
                for status, one in rows
            ),
        )
    }
