"""A stack in memory, for tests of code that counts: no AWS account, no network, no Docker.

    from countledger.testing import MemoryStack

    stack = MemoryStack()
    stack.ledger.record("likes:post-1", +1)
    assert stack.ledger.total("likes:post-1").value == 1

For pytest the fixtures `countledger_stack` and `countledger_default` are there as soon as the
package is installed. docs/testing-your-app.md shows how to test retries, redeliveries, alerts and
expiries, and lists what differs from AWS.
"""

from __future__ import annotations

from countledger.infra.memory.stack import MemoryStack, Notification

__all__ = ["MemoryStack", "Notification"]
