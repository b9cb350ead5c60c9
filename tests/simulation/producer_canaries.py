"""Known wrong variants of the producers: buffers, Kinesis, sequences, claims, transfers."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

from countledger.consumers import audit
from countledger.consumers.leftovers import Leftovers
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    SequenceExists,
    TransactionCancelled,
)
from countledger.ledger.operations import Assign, Compare, Delete, Put
from countledger.producers import kinesis
from countledger.producers.buffer import sending, settings, spool
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.claims.claim import Freeing, Taking
from countledger.producers.ingest import entries, ingest
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.recorder import Compensator
from countledger.producers.sequences import sequences
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import Appending, ExpectedDraw, Lease
from countledger.producers.strict import multi_update
from countledger.producers.strict.multi_update import KeyedWrite
from tests.simulation import product
from tests.simulation.canary import (
    Canary,
    all_of,
    refusals_believed,
    replaced,
    unconditional,
    wrapped,
)
from tests.simulation.dynamo import SimulatedClient
from tests.simulation.shape import COPIES
from tests.simulation.world import World

_NUMBERS: Final = count(10**6)


def _renamed(entry: Entry, number: int) -> Entry:
    """The entry under another id."""
    return replace(entry, id=f"{entry.id[:24]}{number:012x}")


def _of_memory(kept: Any, world: World, at_ms: int, count: int) -> list[str]:  # noqa: ANN401
    """Ids of a generator in the memory of the process, which goes on alike in each copy of it."""
    actor = world.schedule.actor
    if actor is None or actor.owner is None:
        made: list[str] = kept(world, at_ms, count)
        return made
    memory = vars(actor.owner)
    first = memory["made"] = memory.get("made", 0) + count
    head = kept(world, at_ms, 1)[0][:24]
    return [f"{head}{actor.owner.number:04x}{first + number:08x}" for number in range(count)]


def _lagging(one: product.Product) -> Compensator:
    """What is to be compensated is read where it may lag."""

    def read(counter: str) -> SimpleNamespace:
        return SimpleNamespace(value=one.totals.read(counter).value)

    exact: Any = SimpleNamespace(read=read, connection=one.connection)
    return Compensator(one.recorder, exact)


def _reopened(decode: Any, row: int, text: str) -> Any:  # noqa: ANN401 - a row
    """What a spool holds is sent as if it were new."""
    found = decode(row, text)
    if found.entry is None or found.entry.key is not None:
        return found
    return found._replace(entry=_renamed(found.entry, next(_NUMBERS)))


def _forgetful(keep: Any, pendings: Any, kept: Any) -> None:  # noqa: ANN401 - handed on
    """The spool lets go of what is only on its way."""
    keep(pendings, kept)
    if kept is not None:
        kept.update([row for one in pendings for row in one.rows or []], [])


def _arrived(decode: Any, data: bytes, *, arrived_ms: int, origin: str) -> Entry:  # noqa: ANN401
    """A record that is in the stream twice is two events."""
    entry: Entry = decode(data, arrived_ms=arrived_ms, origin=origin)
    return entry if entry.key is not None else _renamed(entry, arrived_ms)


def _bound(entry: Entry) -> Entry:
    """What is in a message is no part of its identity: who knows the id replaces the entry."""
    return entry if entry.key is not None else replace(entry, message_id=entry.id)


def _remove_by_age(leftovers: Leftovers, _counter: str, markers: Any) -> None:  # noqa: ANN401
    """Markers are removed by their time, whichever counter they belong to."""
    now_ms = max((marker["at"] for marker in markers), default=0)
    for marker in markers:
        key = {name: marker[name] for name in ("counter", "part")}
        leftovers._delete_item(key, Compare("at", "<=", now_ms))


def _hopeful(interpret: Any, draw: ExpectedDraw, reply: Any) -> Any:  # noqa: ANN401 - handed on
    """After a lost answer the next number passes for one's own."""
    before = getattr(reply.state, "before", None)
    found = reply.answer if isinstance(reply.answer, dict) else {}
    if before and found.get("total") == before.last + 1:
        reply = replace(reply, answer={**found, "tag": before.tag})
    return interpret(draw, reply)


def _taken_again(write: Any, step: Taking) -> Any:  # noqa: ANN401 - a write
    """An owner that takes what it has already makes another claim of it."""
    update = write(step)
    return replace(update, clauses=(Assign("id", step.claim_id), *update.clauses))


def _in_steps(transact: Any, dynamo: SimulatedClient, writes: Any, token: str) -> Any:  # noqa: ANN401
    """One counter after the other."""
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


def _of_an_id_of_its_own(entry_of: Any, importer: Importer, line: Any) -> Any:  # noqa: ANN401
    """What a line writes has another identity at each try."""
    entry = entry_of(importer, line)
    return replace(entry, id=importer.client.connection.ids.new_id(entry.at_ms), key=None)


def _never_behind(make: Any, importer: Importer, line: Any) -> ImportResult:  # noqa: ANN401
    """A sequence that exists is taken for one that is as far as the file says."""
    try:
        result: ImportResult = make(importer, line)
    except SequenceExists:
        return ImportResult.EXISTS
    return result


def _materialized(line: Any, exporter: Exporter, counter: str) -> Any:  # noqa: ANN401 - handed on
    """An export tells what is materialized."""
    total = exporter.client.total(counter).value
    return line(exporter, counter).model_copy(update={"value": total})


_UNREPORTED: Final = replaced(settings.Outcomes, "take_failures", lambda _self: ())
# The spool has the events still when their entry is sent.
_UNSPOOLED: Final = replaced(sending, "keep", lambda _pendings, _spool: None)

CANARIES: Final = [
    Canary(
        "set: from the exact sum",
        replaced(product.Product, "compensator", property(_lagging)),
        "stock",
        seed=1,
    ),
    # A retry computes again, as if nothing had been recorded under its key.
    Canary(
        "set: its entry is found by its key",
        replaced(Compensator, "_there", lambda *_: None),
        "stock",
        seed=2,
    ),
    # A sum has no key, so a retry is another event.
    Canary(
        "keyed events are not coalesced",
        replaced(sending, "may_coalesce", lambda event: event.note is None),
        "buffer",
        seed=1,
    ),
    Canary(
        "a spool's entries keep their ids",
        wrapped(spool, "decode_row", _reopened),
        "buffer",
        seed=19,
    ),
    Canary("a spool stores an entry before it is sent", _UNSPOOLED, "buffer", seed=6),
    Canary(
        "a spool deletes an entry after the answer",
        wrapped(sending, "keep", _forgetful),
        "buffer",
        seed=18,
    ),
    Canary("failures of a buffer are reported", _UNREPORTED, "buffer", seed=1),
    Canary("async: failures are reported", _UNREPORTED, "async", seed=1),
    Canary("async: a spool stores an entry first", _UNSPOOLED, "async", seed=6),
    # A child draws from the block that it has a copy of.
    Canary(
        "fork: a lease belongs to one process",
        replaced(Lease, "_in_a_copy", lambda one, _copy: next(iter(one._blocks.values()))),
        "forks",
        seed=2,
    ),
    # A child sends what its parent had in hand.
    Canary(
        "fork: events belong to the parent",
        replaced(BufferedProducer, "restart_in_fork", lambda _producer: None),
        "forks",
        seed=3,
    ),
    Canary(
        "copy: ids are of the kernel's randomness",
        wrapped(World, "new_ids", _of_memory),
        COPIES,
        seed=3,
    ),
    Canary(
        "copy: a lease ends where it is seen",
        replaced(Lease, "_in_a_copy", lambda one, _copy: next(iter(one._blocks.values()))),
        COPIES,
        seed=3,
    ),
    # Each try of an import makes entries of its own time.
    Canary(
        "import: one time for all attempts",
        wrapped(
            Importer,
            "begin",
            lambda begin, client, name, clock: replace(
                begin(client, name, clock), at=to_datetime(clock.now_ms())
            ),
        ),
        "moving",
        seed=3,
    ),
    # Each try of an import is another event.
    Canary(
        "import: its name is the key",
        wrapped(Importer, "_entry_of", _of_an_id_of_its_own),
        "moving",
        seed=3,
    ),
    Canary(
        "import: sequences never go back",
        wrapped(Importer, "_make_sequence", _never_behind),
        "moving",
        seed=3,
    ),
    Canary("export: the exact sum", wrapped(Exporter, "line", _materialized), "moving", seed=1),
    # A counter that gets its total between the two tables is in neither.
    Canary(
        "export: the ledger before the totals",
        replaced(audit, "ORDER", tuple(reversed(audit.ORDER))),
        "moving",
        seed=18,
    ),
    Canary(
        "ingest: identity is the event's", wrapped(entries, "decode", _arrived), "ingest", seed=0
    ),
    Canary(
        "ingest: identity is the content, too",
        all_of(replaced(kinesis, "bound", _bound), replaced(kinesis, "bound", _bound)),
        "ingest",
        seed=2,
    ),
    Canary(
        "ingest: failures are delivered again",
        replaced(ingest, "_retry_from", lambda *_: None),
        "ingest",
        seed=2,
    ),
    Canary(
        "ingest: refused payloads are quarantined",
        replaced(Ingest, "_quarantine", lambda *_: None),
        "ingest",
        seed=1,
    ),
    Canary(
        "marker: deleted by its incarnation",
        replaced(Leftovers, "_delete_old", _remove_by_age),
        "makings",
        seed=28,
    ),
    Canary("append: on condition", unconditional(Collection, "put"), "numbers", seed=4),
    # After a lost answer the item is put under the next number.
    Canary(
        "append: an uncertain number is read",
        all_of(
            replaced(Appending, "_doubt", lambda *_: None),
            replaced(Appending, "_is_mine", lambda *_: False),
        ),
        "numbers",
        seed=3,
    ),
    Canary(
        "draw_expected: its condition", unconditional(sequences, "plan_expected"), "numbers", seed=2
    ),
    Canary(
        "draw_expected: its tag", wrapped(ExpectedDraw, "_interpret", _hopeful), "numbers", seed=13
    ),
    Canary(
        "sequences: deleted by their id",
        replaced(
            sequences,
            "Delete",
            lambda table, key, _condition: Delete(table, key, Compare("method", "=", "sequence")),
        ),
        "numbers",
        seed=34,
    ),
    Canary("claims: released by their owner", unconditional(Freeing, "write"), "numbers", seed=1),
    Canary("claims: taken if free", unconditional(Taking, "write"), "numbers", seed=1),
    Canary(
        "claims: released by their id",
        wrapped(
            Freeing,
            "write",
            lambda write, step: replace(
                write(step), condition=Compare("owner", "=", step.claim.owner)
            ),
        ),
        "numbers",
        seed=16,
    ),
    Canary(
        "claims: an owner's claim keeps its id",
        wrapped(Taking, "write", _taken_again),
        "numbers",
        seed=7,
    ),
    Canary(
        "transfer: one transaction",
        wrapped(SimulatedClient, "transact", _in_steps),
        "joint",
        seed=1,
    ),
    # The marker of a key is put even if there is one.
    Canary("transfer: its marker", unconditional(multi_update, "_marker"), "joint", seed=2),
    Canary("transfer: refusals are confirmed", refusals_believed(KeyedWrite), "joint", seed=86),
]
