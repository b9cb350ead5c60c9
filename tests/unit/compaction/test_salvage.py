"""What becomes of each entry of a lost region's copy."""

from dataclasses import replace

import pytest

from countledger.compaction.salvage import (
    LedgerCopy,
    Salvage,
    SalvageEvidence,
    SalvageFate,
    SalvageReport,
    fate_of,
)
from countledger.ledger.attributes import Item
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.exact import NO_HEAD, Covered, Head, encode_head
from countledger.ledger.operations import Put
from tests.unit.compaction.parts import LEDGER
from tests.unit.compaction.world import World
from tests.unit.ledger.memory import MemoryClient

AT = 1_800_000_000_000
ITEM: Item = {
    name: value
    for name, value in encode_entry(
        Entry(
            counter="n:1",
            id="01a3185c-1f2e-8757-b161-5f280dcb9482",
            delta=7,
            at_ms=AT,
            origin="b",
        ),
        1,
    ).items()
    if value is not None
}
KEY = ITEM["entry"]
HEAD = Head(generation=3, run="r", incarnation="i", entries=5, to_at_ms=AT + 1)
EVIDENCE = SalvageEvidence(here=HEAD, there=HEAD, awaited=True, merged_before_ms=AT + 10)


def test_what_is_here_as_well_is_there_or_differs() -> None:
    assert fate_of(ITEM, ITEM, EVIDENCE) is SalvageFate.THERE
    assert fate_of(ITEM, ITEM | {"delta": 8}, EVIDENCE) is SalvageFate.DIFFERS


@pytest.mark.parametrize("which", ["here", "there"])
def test_what_either_head_covers_was_merged(which: str) -> None:
    head = replace(HEAD, covers={KEY: Covered(7)})

    evidence = replace(EVIDENCE, here=head) if which == "here" else replace(EVIDENCE, there=head)

    assert fate_of(ITEM, None, evidence) is SalvageFate.MERGED


def test_a_bare_key_that_was_used_again_is_another_entry() -> None:
    again = {**ITEM, "entry": "e#k" + "0" * 32}
    head = replace(HEAD, covers={again["entry"]: Covered(7, AT - 1)})

    assert fate_of(again, None, replace(EVIDENCE, here=head)) is SalvageFate.BROUGHT


def test_while_nothing_was_merged_since_the_loss_the_rest_was_never_here() -> None:
    assert fate_of(ITEM, None, EVIDENCE) is SalvageFate.BROUGHT


def test_after_that_age_decides() -> None:
    late = replace(EVIDENCE, awaited=False)

    assert fate_of(ITEM, None, late) is SalvageFate.UNDECIDED
    assert fate_of(ITEM, None, replace(late, merged_before_ms=AT)) is SalvageFate.BROUGHT
    newest = replace(HEAD, to_at_ms=AT - 1)
    assert fate_of(ITEM, None, replace(late, here=newest)) is SalvageFate.BROUGHT
    assert fate_of(ITEM, None, replace(late, here=NO_HEAD)) is SalvageFate.UNDECIDED


@pytest.mark.parametrize(
    ("in_service", "fate"), [(True, SalvageFate.BROUGHT), (False, SalvageFate.UNDECIDED)]
)
def test_a_copy_in_service_has_seen_every_head_whether_or_not_merging_waits(
    *, in_service: bool, fate: SalvageFate
) -> None:
    """An entry is merged once every region in service shows it: what is missing here was not."""
    world, there = World(), MemoryClient()
    for copy in (world.dynamo, there):
        copy.put(Put(LEDGER, encode_head("n:1", HEAD)))
    there.put(Put(LEDGER, ITEM))
    salvage = Salvage(
        connection=world.process(),
        source=LedgerCopy(dynamo=there, table=LEDGER),
        target=LedgerCopy(dynamo=world.dynamo, table=LEDGER),
        held=lambda: False,
        in_service=in_service,
    )

    assert salvage.run(SalvageReport()).fates == {fate: 1}


def test_what_belongs_to_a_deleted_counter_is_not_written() -> None:
    empty = Head(generation=9, run="d", incarnation="d", entries=0, to_at_ms=AT)

    assert fate_of(ITEM, None, replace(EVIDENCE, here=empty)) is SalvageFate.DELETED
    assert (
        fate_of({**ITEM, "at": AT + 1}, None, replace(EVIDENCE, here=empty)) is SalvageFate.BROUGHT
    )


def test_what_cannot_be_read_is_listed() -> None:
    assert fate_of({**ITEM, "delta": "seven"}, None, EVIDENCE) is SalvageFate.UNREADABLE
