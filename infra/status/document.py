"""The state of a stack as one document for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.infra.status.facts import Facts
    from countledger.infra.status.findings import StatusFinding


def document(facts: Facts, found: Sequence[StatusFinding]) -> dict[str, Any]:
    """The same for programs; times are ISO 8601 as everywhere, ages and counts are numbers."""
    texts = _times(asdict(facts))
    return {"healthy": not found, "findings": [asdict(one) for one in found], **texts}


def _times(value: Any) -> Any:  # noqa: ANN401 - any part of a document
    """Every `..._at_ms`, `..._since_ms` and `..._through_ms` as the moment that it is."""
    if isinstance(value, dict):
        return dict(_named(name, part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return [_times(one) for one in value]
    return value


def _named(name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - any part of a document
    moment = name.removesuffix("_ms")
    if moment == name or not f"_{moment}".endswith(("_at", "_since", "_through")):
        return name, _times(value)
    return moment, None if value is None else to_datetime(value)
