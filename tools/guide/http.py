"""The tables of the HTTP API: its problems, the units of its operations, and what calls need."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from countledger.infra import calls
from countledger.infra.calls.call import Calls
from countledger.infra.calls.refusals import REFUSALS
from countledger.infra.http.calls import READ_UNITS, WRITE_UNITS
from countledger.infra.http.problems import TYPE_PREFIX, status_of, title_of, type_of
from countledger.ledger import errors
from tests.http.samples import OPEN, SAMPLES, Sample
from tests.http.world import memory_api
from tools.guide.marked import table_of

HTTP: Final = Path(__file__).parents[2] / "docs" / "http.md"
# Caught by the library itself; they never reach a caller.
_INNER: Final = {"ConditionFailed", "TransactionCancelled", "TokenMismatch"}


def http_tables() -> dict[str, str]:
    """The tables by the names of their marks."""
    kinds = [
        one
        for one in vars(errors).values()
        if isinstance(one, type)
        and issubclass(one, errors.CountledgerError)
        and one.__name__ not in _INNER
    ]
    rows = [(status_of(one), one) for one in kinds]
    rows += [(refusal.status, one) for one, refusal in REFUSALS.items()]
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
        ),
        "units": table_of(["operation", "read units", "write units"], units_of_operations()),
        "calls": table_of(["command", "operation", "scope", "costs"], _described_calls()),
    }


def described_domains() -> list[Calls]:
    """All whose calls are described, by the names of their commands."""
    found = [import_module(f"{calls.__name__}.{one.name}") for one in iter_modules(calls.__path__)]
    named = [one for module in found for one in vars(module).values() if isinstance(one, Calls)]
    return sorted({id(one): one for one in named}.values(), key=lambda one: one.name)


def _described_calls() -> Iterator[list[str]]:
    """Each call that is described: its command, its route, what it needs and what it costs."""
    for domain in described_domains():
        for op in domain.ops:
            yield [
                f"`{domain.name} {op.name}`" if op.command else "",
                f"`{op.verb} {op.path.removeprefix('/v1')}`" if op.path else "",
                op.scope if op.path else "",
                op.costs,
            ]


# Each creates a namespace: the first write to one costs more than those after it.
_BEFORE: Final = (
    Sample("", "POST /v1/counters/likes:0/entries", "", {"delta": "1"}, "before", 201),
    Sample("", "POST /v1/strict", "", {"counter": "stock:0", "method": "atomic"}, status=201),
    Sample("", "POST /v1/sequences", "", {"sequence": "no:0"}, status=201),
)
# Its calls of other services need a whole stack.
_LEFT_OUT: Final = {"status"}


def units_of_operations() -> Iterator[list[str]]:
    """What the first request of each operation consumes, in the order of the document."""
    found: dict[str, list[str]] = {}
    with memory_api() as api:
        kept: dict[str, str] = {}
        for sample in (*_BEFORE, *SAMPLES, *OPEN):
            if sample.operation in _LEFT_OUT:
                continue
            method, path, headers, body = sample.request_with(kept)
            sent = {} if body is None else {"json": body}
            answer = api.http.request(method, path, headers=headers, **sent)
            if sample.keeps is not None:
                kept[sample.keeps[0]] = answer.json()[sample.keeps[1]]
            units = [answer.headers[READ_UNITS], answer.headers[WRITE_UNITS]]
            found.setdefault(sample.operation, units)
        document = api.app.openapi()["paths"]
    for path, operations in document.items():
        for method, operation in operations.items():
            if (name := operation["operationId"]) in found:
                yield [f"`{method.upper()} {path.removeprefix('/v1')}`", *found[name]]
