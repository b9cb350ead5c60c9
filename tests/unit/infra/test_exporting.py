"""What an export says of counters that are deleted meanwhile."""

import pytest

from countledger import Kind
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import UnreadLine
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import NoSuchCounter
from countledger.testing import MemoryStack


def test_a_sequence_that_was_deleted_during_the_export_has_no_line() -> None:
    """A line of 0 would create it again."""
    stack = MemoryStack()
    stack.ledger.sequences.draw_block("q:kept", 5)
    stack.ledger.sequences.draw_block("q:gone", 7)
    walk = iter(Exporter(stack.ledger)._lines_of_use(["q:gone", "q:kept"]))
    stack.ledger.sequences.delete("q:gone")

    assert [(one.counter, one.value) for one in walk if not isinstance(one, UnreadLine)] == [
        ("q:kept", 5)
    ]
    with pytest.raises(NoSuchCounter):
        Exporter(stack.ledger).line("q:gone")


def test_a_sequence_is_exported_by_a_consistent_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier number would be continued, and later ones given out twice."""
    stack = MemoryStack()
    stack.ledger.sequences.draw("q:a")
    reads: list[bool] = []
    plain = type(stack.ledger.connection.dynamo("standard")).get

    def noted(
        self: DynamoClient, table: str, key: dict[str, str], *, consistent: bool = False
    ) -> object:
        if key["counter"] == "q:a":
            reads.append(consistent)
        return plain(self, table, key, consistent=consistent)

    monkeypatch.setattr(type(stack.ledger.connection.dynamo("standard")), "get", noted)

    assert Exporter(stack.ledger).line("q:a").value == 1
    assert reads == [True]


def test_a_sequence_that_begins_at_zero_moves_before_its_first_number() -> None:
    old, new = MemoryStack(), MemoryStack()
    old.ledger.sequences.create("q:a", first=0)
    line = Exporter(old.ledger).line("q:a")

    new.ledger.namespaces.create("q", kind=Kind.SEQUENCE)
    assert [*Importer.begin(new.ledger, "move").outcomes([line])] == [ImportResult.MADE]
    assert new.ledger.sequences.draw("q:a") == 0
