"""Known wrong variants of the producers: buffers, Kinesis, sequences, claims, transfers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from countledger.consumers import walk
from countledger.consumers.leftovers import Leftovers
from countledger.infra.portability import importing
from countledger.infra.portability.exporting import Exporter
from countledger.infra.portability.importing import Importer
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    SequenceExists,
    TransactionCancelled,
)
from countledger.ledger.expressions import Assign, Compare
from countledger.ledger.operations import Delete, Put, Update
from countledger.producers.buffer import delivery, outcomes, spool, state
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.spool_rows import decode_row
from countledger.producers.claims.claim import Freeing, Taking
from countledger.producers.compensation import Compensator
from countledger.producers.ingest import entries, ingest
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.kinesis import message, producer
from countledger.producers.sequences import expecting, sequence
from countledger.producers.sequences.appending import Appending
from countledger.producers.sequences.collection import Collection
from countledger.producers.sequences.drawing import Lease
from countledger.producers.sequences.expecting import ExpectedDraw
from countledger.producers.strict import keyed_write
from countledger.producers.strict.keyed_write import KeyedWrite
from tests.simulation import product
from tests.simulation.dynamo import SimulatedClient
from tests.simulation.shape import LEDGER

if TYPE_CHECKING:
    import pytest

    from countledger.ledger.attempts import Steps
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

        exact: Any = SimpleNamespace(read=read, dynamo=one.reads, table=LEDGER)
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

    patch.setattr(state, "may_coalesce", may_coalesce)


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
    keep = delivery.keep

    def forgetful(pendings: Any, kept: Any) -> None:  # noqa: ANN401 - handed on
        keep(pendings, kept)
        if kept is not None:
            kept.update([row for one in pendings for row in one.rows or []], [])

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

    patch.setattr(entries, "decode", decoded)


def identity_by_id_alone(patch: pytest.MonkeyPatch) -> None:
    """What is in a message is no part of its identity: whoever knows the id replaces the entry."""

    def bound(entry: Entry) -> Entry:
        return entry if entry.key is not None else replace(entry, message_id=entry.id)

    patch.setattr(message, "bound", bound)
    patch.setattr(producer, "bound", bound)


def ingest_goes_on(patch: pytest.MonkeyPatch) -> None:
    """What failed for now is passed over."""
    patch.setattr(ingest, "_retry_from", lambda *_: None)


def ingest_sets_nothing_aside(patch: pytest.MonkeyPatch) -> None:
    """What cannot be counted is dropped."""
    patch.setattr(Ingest, "_quarantine", lambda *_: None)


# ---- strict counters ----


def markers_by_age(patch: pytest.MonkeyPatch) -> None:
    """Markers are removed by their time, whichever counter they belong to."""

    def remove(leftovers: Leftovers, _counter: str, markers: Any) -> None:  # noqa: ANN401 - items
        now_ms = max((marker["at"] for marker in markers), default=0)
        for marker in markers:
            key = {name: marker[name] for name in ("counter", "part")}
            leftovers._delete_item(key, Compare("at", "<=", now_ms))

    patch.setattr(Leftovers, "_delete_old", remove)


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
    patch.setattr(
        expecting, "plan_expected", lambda *some, **more: _unconditional(plan(*some, **more))
    )


def expect_by_the_number(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer the next number passes for one's own."""
    interpret = ExpectedDraw._interpret

    def hopeful(draw: ExpectedDraw, reply: Any) -> Any:  # noqa: ANN401 - handed on
        before = getattr(reply.state, "before", None)
        if before and reply.answer and reply.answer.get("total") == before.last + 1:
            reply = replace(reply, answer={**reply.answer, "tag": before.tag})
        return interpret(draw, reply)

    patch.setattr(ExpectedDraw, "_interpret", hopeful)


def delete_any_sequence(patch: pytest.MonkeyPatch) -> None:
    """A sequence is deleted whichever has the name by then."""

    def of_a_name(table: str, key: Any, _condition: object) -> Delete:  # noqa: ANN401 - a key
        return Delete(table, key, Compare("method", "=", "sequence"))

    patch.setattr("countledger.producers.sequences.sequences.Delete", of_a_name)


# ---- claims ----


def free_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """A claim is released without asking whose it is."""
    write = Freeing.write
    patch.setattr(Freeing, "write", lambda step: _unconditional(write(step)))


def take_from_anybody(patch: pytest.MonkeyPatch) -> None:
    """A claim is taken whoever has it."""
    write = Taking.write
    patch.setattr(Taking, "write", lambda step: _unconditional(write(step)))


def free_by_owner_alone(patch: pytest.MonkeyPatch) -> None:
    """A claim is deleted if its owner has it, by whichever claim."""
    write = Freeing.write

    def by_owner(step: Freeing) -> Any:  # noqa: ANN401 - a write
        owned = Compare("owner", "=", step.claim.owner)
        return replace(write(step), condition=owned)

    patch.setattr(Freeing, "write", by_owner)


def take_under_another_id(patch: pytest.MonkeyPatch) -> None:
    """An owner that takes what it has already makes another claim of it."""
    write = Taking.write

    def renamed(step: Taking) -> Any:  # noqa: ANN401 - a write
        put = write(step)
        if not isinstance(put, Update):
            return put
        clauses = (Assign("id", step.claim_id), *put.clauses)
        return replace(put, clauses=clauses)

    patch.setattr(Taking, "write", renamed)


# ---- transfers ----


def transfer_in_steps(patch: pytest.MonkeyPatch) -> None:
    """One counter after the other."""
    transact = SimulatedClient.transact

    def in_steps(dynamo: SimulatedClient, writes: Any, token: str) -> bool:  # noqa: ANN401 - handed on
        first = writes[0]
        if not (isinstance(first, Put) and first.item["counter"].startswith("keyed#")):
            return transact(dynamo, writes, token)
        for number, write in enumerate(writes):
            try:
                (dynamo.put if isinstance(write, Put) else dynamo.update)(write)
            except ConditionFailed as failed:
                reasons = [Reason("None")] * len(writes)
                reasons[number] = Reason("ConditionalCheckFailed", failed.item)
                raise TransactionCancelled(tuple(reasons)) from None
        return True

    patch.setattr(SimulatedClient, "transact", in_steps)


def transfers_unmarked(patch: pytest.MonkeyPatch) -> None:
    """The marker of a key is put whatever lies there."""
    marker = keyed_write._marker

    def careless(context: Any, change_id: str, facts: Any) -> Put:  # noqa: ANN401 - handed on
        put: Put = _unconditional(marker(context, change_id, facts))
        return put

    patch.setattr(keyed_write, "_marker", careless)


def transfers_refused_at_once(patch: pytest.MonkeyPatch) -> None:
    """A refusal is final although a request may still land."""

    def believed(_self: Any, refused: Any) -> Steps[Any]:  # noqa: ANN401
        yield from ()
        return refused

    patch.setattr(KeyedWrite, "confirm_refusal", believed)


# ---- export and import ----


def import_at_each_try(patch: pytest.MonkeyPatch) -> None:
    """Each try of an import makes entries of its own time."""
    begin = Importer.begin

    def begun(client: Any, name: str, clock: Any) -> Importer:  # noqa: ANN401 - handed on
        return replace(begin(client, name, clock), at=to_datetime(clock.now_ms()))

    patch.setattr(Importer, "begin", begun)


def import_without_a_key(patch: pytest.MonkeyPatch) -> None:
    """Each try of an import is another event."""
    event_of = importing._event_of

    def anonymous(*arguments: Any) -> Any:  # noqa: ANN401 - handed on
        event: Any = event_of(*arguments)
        return replace(event, key=None)

    patch.setattr(importing, "_event_of", anonymous)


def sequences_are_moved_behind(patch: pytest.MonkeyPatch) -> None:
    """A sequence that exists is taken for one that is as far as the file says."""
    make = Importer._make_sequence

    def careless(importer: Importer, line: Any) -> importing.ImportResult:  # noqa: ANN401 - handed on
        try:
            return make(importer, line)
        except SequenceExists:
            return importing.ImportResult.EXISTS

    patch.setattr(Importer, "_make_sequence", careless)


def export_totals(patch: pytest.MonkeyPatch) -> None:
    """An export tells what is materialized."""
    line = Exporter.line

    def lagging(exporter: Exporter, counter: str) -> Any:  # noqa: ANN401 - handed on
        found = line(exporter, counter)
        return found.model_copy(update={"value": exporter.client.total(counter).total})

    patch.setattr(Exporter, "line", lagging)


def walk_totals_first(patch: pytest.MonkeyPatch) -> None:
    """A counter that gets its total between the two tables is in neither."""
    patch.setattr(walk, "ORDER", tuple(reversed(walk.ORDER)))


# ---- forks ----


def forks_share_a_lease(patch: pytest.MonkeyPatch) -> None:
    """A child draws from the block that it has a copy of."""
    patch.setattr(Lease, "_in_a_child", lambda one, _process: next(iter(one._blocks.values())))


def forks_keep_events(patch: pytest.MonkeyPatch) -> None:
    """A child sends what its parent had in hand."""
    patch.setattr(BufferedProducer, "restart_in_fork", lambda _producer: None)
