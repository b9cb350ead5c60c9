"""A stack in memory with claims, and a table of the app's own."""

from datetime import UTC, datetime

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger.attributes import Item
from countledger.ledger.dynamo import DynamoClient
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from countledger.producers.own_items import NewItem
from countledger.testing import MemoryStack

SEAT, NEXT = Claim("seat", "7", "ann"), Claim("seat", "8", "ann")
OWN = NewItem("users", {"id": "ann"}, ("id",))


class Seats:
    """A stack whose time passes by waits only.

    Attributes:
        table: what the app uses beside the claims.
    """

    def __init__(self) -> None:
        self.stack = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))
        self.stack.hold_stream()
        self.stack.create_table("users", "id")
        self.claims: Claims = self.stack.ledger.claims
        self.table: DynamoClient = self.stack.ledger.connection.retrying

    def owners(self, *values: str) -> list[str | None]:
        """Who has each value."""
        return [self.claims.owner("seat", value) for value in values]

    def item(self, claim: Claim = SEAT) -> Item:
        """What is stored of a claim."""
        (found,) = (
            one for one in self.stack.items(COUNTERS) if one["counter"] == claim.key["counter"]
        )
        return found

    def own_item(self) -> Item | None:
        """What is stored of the app's own item."""
        return self.table.get(*OWN.place, consistent=True)

    def late(self, minutes: int = 12) -> int:
        """Tokens are forgotten, and what is late lands; how many requests that were."""
        self.stack.advance(minutes=minutes)
        return len(self.stack.land())
