"""Known wrong variants of the producers: buffers, Kinesis, sequences, claims, transfers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from countledger.ledger.errors import ConditionFailed, Reason, TransactionCancelled
from countledger.ledger.operations import Put
from countledger.producers.buffer import coalesce, delivery, holdings, outcomes, spool
from countledger.producers.buffer.spool_rows import decode_row
from countledger.producers.claims.claim import Freeing, Taking
from countledger.producers.compensation import Compensator
from countledger.producers.ingest import ingest, reading
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.kinesis import message
from countledger.producers.sequences import expecting, sequence
from countledger.producers.sequences.appending import Appending
from countledger.producers.sequences.collection import Collection
from countledger.producers.sequences.expecting import Expecting
from countledger.producers.strict import marked
from countledger.producers.strict.marked import MarkedSending
from tests.simulation import product
from tests.simulation.door import SimulatedDoor
from tests.simulation.shape import LEDGER

if TYPE_CHECKING:
    import pytest

    from countledger.ledger.entry import Entry
    from countledger.producers.event import Event


def _unconditional(write: Any) -> Any:  # noqa: ANN401 - any write
    return replace(write, condition=None)


def _anew(entry: Entry, number: int) -> Entry:
    """The entry under another id."""
    return replace(entry, id=f"{entry.id[:24]}{number:012x}")


# ---- setting to a value ----


def set_by_the_total(patch: pytest.MonkeyPatch) -> None:
    """What is to be compensated is read where it may lag behind."""

    def lagging(one: product.Product) -> Compensator:
        def read(counter: str) -> SimpleNamespace:
            return SimpleNamespace(sum=one.totals.read(counter).total)

        exact: Any = SimpleNamespace(read=read, door=one.reads, table=LEDGER)
        return Compensator(one.recorder, exact)

    patch.setattr(product.Product, "compensator", property(lagging))


def set_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """A retry reckons anew, as if nothing had been recorded under its key."""
    patch.setattr(Compensator, "_there", lambda *_: None)


# ---- buffers ----


def coalesce_the_keyed(patch: pytest.MonkeyPatch) -> None:
    """A sum has no key, so a retry is another event."""

    def may_coalesce(event: Event) -> bool:
        return event.note is None

    patch.setattr(holdings, "may_coalesce", may_coalesce)


def reopen_under_other_ids(patch: pytest.MonkeyPatch) -> None:
    """What a spool holds is sent as if it were new."""
    decode, numbers = decode_row, iter(range(10**6, 10**9))

    def decoded(row: int, text: str) -> Any:  # noqa: ANN401 - a row
        found = decode(row, text)
        if found.entry is None or found.entry.key is not None:
            return found
        return found._replace(entry=_anew(found.entry, next(numbers)))

    patch.setattr(spool, "decode_row", decoded)


def send_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The spool has the events still when their entry is sent."""
    patch.setattr(delivery, "keep", lambda _pendings, _spool: None)


def forget_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    """The spool lets go of what is only on its way."""
    keep = coalesce.keep

    def forgetful(pendings: Any, kept: Any) -> None:  # noqa: ANN401 - handed on
        keep(pendings, kept)
        if kept is not None:
            kept.settle([row for one in pendings for row in one.rows or []], [])

    patch.setattr(delivery, "keep", forgetful)


def fail_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Entries that failed are told to nobody."""
    patch.setattr(outcomes.Outcomes, "take_failures", lambda _self: ())


# ---- Kinesis ----


def identity_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """A record that lies in the stream twice is two events."""
    decode = message.decode

    def decoded(data: bytes, *, arrived_ms: int, origin: str) -> Entry:
        entry = decode(data, arrived_ms=arrived_ms, origin=origin)
        return entry if entry.key is not None else _anew(entry, arrived_ms)

    patch.setattr(reading, "decode", decoded)


def ingest_goes_on(patch: pytest.MonkeyPatch) -> None:
    """What failed for now is passed over."""
    patch.setattr(ingest, "_begin_again", lambda *_: None)


def ingest_sets_nothing_aside(patch: pytest.MonkeyPatch) -> None:
    """What cannot be counted is dropped."""
    patch.setattr(Ingest, "_set_aside", lambda *_: None)


# ---- sequences ----


def append_over(patch: pytest.MonkeyPatch) -> None:
    """An item is put whatever lies there."""
    put = Collection.put
    patch.setattr(Collection, "put", lambda *arguments: _unconditional(put(*arguments)))


def append_without_doubt(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer the item is put under the next number."""
    patch.setattr(Appending, "_doubt", lambda _self, _number: None)
    patch.setattr(Appending, "_is_mine", lambda _self, _item: False)


def expect_nothing(patch: pytest.MonkeyPatch) -> None:
    """A draw by expectation is carried out whatever the last number is."""
    plan = sequence.plan_expected
    patch.setattr(expecting, "plan_expected", lambda *arguments: _unconditional(plan(*arguments)))


def expect_by_the_number(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer the next number passes for one's own."""
    read = Expecting._read

    def hopeful(draw: Expecting) -> Any:  # noqa: ANN401 - an item
        item = read(draw)
        return {**item, "tag": draw.tag} if item.get("total") == draw.last + 1 else item

    patch.setattr(Expecting, "_read", hopeful)


# ---- claims ----


def free_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """A claim is released without asking whose it is."""
    write = Freeing.write
    patch.setattr(Freeing, "write", lambda step: _unconditional(write(step)))


def take_from_anybody(patch: pytest.MonkeyPatch) -> None:
    """A claim is taken whoever has it."""
    write = Taking.write
    patch.setattr(Taking, "write", lambda step: _unconditional(write(step)))


# ---- transfers ----


def transfer_in_steps(patch: pytest.MonkeyPatch) -> None:
    """One counter after the other."""
    transact = SimulatedDoor.transact

    def in_steps(door: SimulatedDoor, writes: Any, token: str) -> bool:  # noqa: ANN401 - handed on
        first = writes[0]
        if not (isinstance(first, Put) and first.item["counter"].startswith("keyed#")):
            return transact(door, writes, token)
        for number, write in enumerate(writes):
            try:
                (door.put if isinstance(write, Put) else door.update)(write)
            except ConditionFailed as failed:
                reasons = [Reason("None")] * len(writes)
                reasons[number] = Reason("ConditionalCheckFailed", failed.item)
                raise TransactionCancelled(tuple(reasons)) from None
        return True

    patch.setattr(SimulatedDoor, "transact", in_steps)


def transfers_unmarked(patch: pytest.MonkeyPatch) -> None:
    """The marker of a key is put whatever lies there."""
    marker = marked._marker

    def careless(means: Any, change_id: str, facts: Any) -> Put:  # noqa: ANN401 - handed on
        put: Put = _unconditional(marker(means, change_id, facts))
        return put

    patch.setattr(marked, "_marker", careless)


def transfers_refused_at_once(patch: pytest.MonkeyPatch) -> None:
    """A refusal is final although a request may still land."""
    patch.setattr(MarkedSending, "settle", lambda _self, refused: refused)
