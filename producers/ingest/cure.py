"""What can be done about what the ingest set aside; the extra `kinesis` is needed only then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection
    from countledger.ledger.namespace import Namespaces
    from countledger.ledger.quarantine_desk import Answer
    from countledger.ledger.quarantined import Copy


@dataclass(frozen=True, slots=True)
class CureOfKinesis:
    """Takes in again what came through Kinesis.

    Attributes:
        connection: to the stack.
        namespaces: of the stack.
    """

    connection: Connection
    namespaces: Namespaces

    def __call__(self, copy: Copy, *, even_if_counted: bool) -> Answer:
        """As `TakeInAgain`.

        Raises:
            SetupError: the extra `kinesis` is not installed.
        """
        from countledger.producers.ingest.again import take_in_again  # noqa: PLC0415 - an extra

        again = take_in_again(self.connection, self.namespaces)
        return again(copy, even_if_counted=even_if_counted)
