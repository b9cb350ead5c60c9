"""The ways in which a test takes a rule out of the product, to see that it is missed.

A canary is a rule with its switch; `tests/exploring/canaries.py`, `tests/simulation/canaries.py`
and `tests/faults/canary.py` say where each is looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from countledger.ledger.attempts import Steps

# Takes a rule out of the product, until the patch is undone.
Switch: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def replaced(owner: object, name: str, value: object) -> Switch:
    """Something of the product is replaced."""
    return lambda patch: patch.setattr(owner, name, value)


def wrapped(owner: object, name: str, around: Callable[..., object]) -> Switch:
    """A function of the product is replaced; `around` gets it first, and then its arguments."""

    def switch_off(patch: pytest.MonkeyPatch) -> None:
        kept = getattr(owner, name)
        patch.setattr(owner, name, lambda *given, **more: around(kept, *given, **more))

    return switch_off


def unconditional(owner: object, name: str) -> Switch:
    """The write that a function plans has no condition; a refusal in its place stays."""
    return wrapped(owner, name, lambda plan, *given, **more: bare(plan(*given, **more)))


def bare(write: Any) -> Any:  # noqa: ANN401 - any write
    """A write without its condition."""
    return write if isinstance(write, str) else replace(write, condition=None)


def stepless(value: object) -> Callable[..., Steps[object]]:
    """Steps that send nothing, and end with this value."""

    def steps(*_: object) -> Steps[object]:
        yield from ()
        return value

    return steps


def all_of(*switches: Switch) -> Switch:
    """Several rules are switched off."""

    def switch_off(patch: pytest.MonkeyPatch) -> None:
        for one in switches:
            one(patch)

    return switch_off


def refusals_believed(*changes: type) -> Switch:
    """A refusal of these is final although an earlier request may still be applied."""

    def believed(_change: object, refused: object) -> Steps[object]:
        yield from ()
        return refused

    return all_of(*(replaced(one, "confirm_refusal", believed) for one in changes))
