"""Namespaces: created with one setting or another, described, and listed.

The state of the model is the spread and the description; nothing: the namespace does not exist. A
creation shows the spread only: after a lost answer it may meet a later description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.infra.memory.tables import LEDGER
from countledger.ledger import keys
from countledger.ledger.errors import NamespaceConflict, NamespaceUnknown
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.namespace import decode_namespace
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.client import CountLedger
    from countledger.ledger.namespace import Namespace
    from tests.exploring.world import Contents

_Settings: TypeAlias = tuple[int, str] | None

_NAME: Final = "n"
_SPREADS: Final = {"create": 1, "create with 16": 16}


def _model(settings: _Settings, call: str) -> Iterator[Effect]:
    if call == "list":
        yield Effect(() if settings is None else (settings,), settings)
    elif call in _SPREADS:
        made = (_SPREADS[call], "")
        if settings is None:
            yield Effect(made[0], made)
        elif settings[0] == made[0]:
            yield Effect(made[0], settings)
        else:
            yield Effect(NamespaceConflict, settings)
    elif settings is None:
        yield Effect(NamespaceUnknown, settings)
    else:
        described = (settings[0], call.removeprefix("describe as "))
        yield Effect(described, described)


def _seen(namespace: Namespace) -> tuple[int, str]:
    return namespace.spread, namespace.description or ""


def _agrees(settings: _Settings, contents: Contents) -> bool:
    key = keys.namespace_key(_NAME)
    item = contents.tables[LEDGER].get((key["counter"], key["entry"]))
    return (None if item is None else _seen(decode_namespace(dict(item)))) == settings


def _create(ledger: CountLedger, spread: int) -> int:
    return ledger.namespaces.create(_NAME, spread=spread).spread


def _describe(ledger: CountLedger, text: str) -> tuple[int, str]:
    return _seen(ledger.namespaces.describe(_NAME, text))


NAMESPACES: Final = Capability(
    name="namespaces",
    calls={
        "create": lambda ledger: _create(ledger, 1),
        "create with 16": lambda ledger: _create(ledger, 16),
        "describe as a": lambda ledger: _describe(ledger, "a"),
        "describe as b": lambda ledger: _describe(ledger, "b"),
        "list": lambda ledger: tuple(_seen(one) for one in ledger.namespaces.list()),
    },
    scripts=(
        ("create",),
        ("create with 16",),
        ("describe as a",),
        ("list",),
        ("create", "describe as a"),
        ("describe as a", "describe as b"),
        ("create with 16", "describe as b"),
    ),
    starts={
        "none": Beginnings(lambda _: None, None),
        "created": Beginnings(lambda ledger: _create(ledger, 1), (1, "")),
    },
    model=_model,
    agrees=_agrees,
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS, 61 * MINUTE_MS)),
)
