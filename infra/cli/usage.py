"""Arguments that are each well formed, but do not go together."""

from __future__ import annotations

from countledger.ledger.errors import BadInput


class BadUsage(BadInput):
    """Arguments that exclude or need each other."""
