"""The fixtures of `countledger.testing`; it is loaded at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.testing import MemoryStack


@pytest.fixture
def countledger_stack() -> Iterator[MemoryStack]:
    """A `countledger.testing.MemoryStack` of the test's own; its client is `.ledger`.

    The test fails if it planned a fault that no request has met, if a delayed write has not landed,
    or if a delivery failed.
    """
    from countledger.testing import MemoryStack  # noqa: PLC0415 - at the first use

    stack = MemoryStack()
    yield stack
    if stack.planned_faults:
        pytest.fail(
            f"no request met {stack.planned_faults} of the planned faults, or a write has to `land`"
        )
    if stack.failures:
        pytest.fail(f"a delivery of the stack in memory failed: {stack.failures[0]}")


@pytest.fixture
def countledger_default(countledger_stack: MemoryStack) -> Iterator[MemoryStack]:
    """The same stack, installed: `countledger.record` and each new `CountLedger()` use it."""
    with countledger_stack.installed():
        yield countledger_stack
