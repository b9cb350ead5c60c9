"""Export, import and the estimate of costs with IAM enforced: which policies they take."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from countledger import CountLedger, Event, Settings
from countledger.compaction.retire import Retire
from countledger.infra.cli.cost import measure, regions_of, retire_of
from countledger.infra.portability.exporting import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import CounterLine, NamespaceLine
from countledger.ledger.errors import AccessDenied
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from countledger.infra.local.stack import LocalStack
    from countledger.infra.portability.lines import Line

MOVERS = ("OperatePolicyArn", "EmitPolicyArn", "StrictPolicyArn", "SequencePolicyArn")


def actor(stack: LocalStack, *policies: str) -> CountLedger:
    """Someone who works on the stack under these of its policies; everyone, under none."""
    session = stack.session(stack.credentials_for(*policies)) if policies else stack.session()
    return CountLedger(Settings(stack_name=stack.name), session=session, endpoint_url=stack.url)


@pytest.fixture
def mark() -> str:
    """In the names of one test."""
    return f"m{uuid.uuid4().hex[:8]}"


def test_who_operates_exports_every_kind(auth_stack: LocalStack, mark: str) -> None:
    """And finds all counters by reading both tables."""
    root = actor(auth_stack)
    assert all(
        getattr(one, "status", None) for one in root.record_many([Event(f"{mark}:a", 2)] * 3)
    )
    root.strict.create(f"{mark}-s:hall", method="marker", lower=0, opening=40, bins=2)
    root.sequences.draw_block(f"{mark}-q:bill", 7)
    auth_stack.pump.drain()
    operator = actor(auth_stack, "OperatePolicyArn")

    names = [f"{mark}:a", f"{mark}-s:hall", f"{mark}-q:bill"]
    lines: list[Any] = list(Exporter(operator).lines(names))
    values = [one.value for one in lines]
    found: list[Any] = list(Exporter(operator, mark).walk())

    assert values == [6, 40, 7]
    assert [one.counter for one in found] == [f"{mark}:a"]
    made: list[Any] = list(Exporter(operator).namespaces())
    assert mark in {one.namespace for one in made}


def test_who_operates_estimates_what_it_costs(auth_stack: LocalStack, mark: str) -> None:
    """From progress, stream, schedules and replicas."""
    actor(auth_stack).record(f"{mark}:a", 1)
    auth_stack.pump.drain()
    operator = actor(auth_stack, "OperatePolicyArn")

    assert measure(operator, least_ms=1) is not None
    assert regions_of(operator) == 1
    assert retire_of(operator) in {None, *Retire}


def test_an_import_takes_the_policies_of_what_it_makes(auth_stack: LocalStack, mark: str) -> None:
    """Of emitters, and of those who make strict counters and sequences, beside the operators'."""
    lines: list[Line] = [
        NamespaceLine(namespace=mark, kind=Kind.LEDGER, horizon_ms=HORIZON_DEFAULT_MS),
        CounterLine(counter=f"{mark}:a", value=5),
        CounterLine(
            counter=f"{mark}-s:hall", kind=Kind.STRICT, value=3, method="marker", lower=0, bins=1
        ),
        CounterLine(counter=f"{mark}-q:bill", kind=Kind.SEQUENCE, value=9),
    ]

    operator = Importer.begin(actor(auth_stack, "OperatePolicyArn"), mark)
    with pytest.raises(AccessDenied):
        list(operator.outcomes(lines))
    moved = list(Importer.begin(actor(auth_stack, *MOVERS), mark).outcomes(lines))

    assert moved == [
        ImportResult.EXISTS,
        ImportResult.RECORDED,
        ImportResult.MADE,
        ImportResult.MADE,
    ]
    assert actor(auth_stack).exact(f"{mark}:a").sum == 5
