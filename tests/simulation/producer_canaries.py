"""Known wrong variants of the producers: buffers, Kinesis, sequences, claims, transfers."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

from countledger.consumers import audit
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.ledger.clock import to_datetime
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    SequenceExists,
)
from countledger.ledger.operations import Delete
from countledger.producers import kinesis
from countledger.producers.buffer import sending, settings, spool
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.ingest import entries, ingest
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.recorder import Compensator
from countledger.producers.sequences.sequences import Lease
from countledger.producers.strict import creation, multi_update
from countledger.producers.strict.definition import of
from tests.simulation import product
from tests.simulation.canary import Canary
from tests.simulation.shape import COPIES
from tests.simulation.world import World
from tests.switches import all_of, replaced, wrapped

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


def _held_or_not(plan: Any, *given: Any) -> list[Delete]:  # noqa: ANN401 - handed on
    """A counter goes, whatever open holds have of it."""
    return [replace(one, condition=of(given[1].incarnation)) for one in plan(*given)]


def _of_any_version(plan: Any, *given: Any) -> list[Any]:  # noqa: ANN401 - handed on
    """A counter is set to a value, whatever has happened since it was read."""
    return [replace(one, condition=of(given[1].incarnation)) for one in plan(*given)]


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
        seed=2,
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
        seed=2,
    ),
    Canary(
        "a spool's entries keep their ids",
        wrapped(spool, "decode_row", _reopened),
        "buffer",
        seed=2,
    ),
    Canary("a spool stores an entry before it is sent", _UNSPOOLED, "buffer", seed=6),
    Canary(
        "a spool deletes an entry after the answer",
        wrapped(sending, "keep", _forgetful),
        "buffer",
        seed=2,
    ),
    Canary("failures of a buffer are reported", _UNREPORTED, "buffer", seed=2),
    Canary("async: failures are reported", _UNREPORTED, "async", seed=2),
    Canary("async: a spool stores an entry first", _UNSPOOLED, "async", seed=6, rare=True),
    # A child draws from the block that it has a copy of.
    Canary(
        "fork: a lease belongs to one process",
        replaced(Lease, "_in_a_copy", lambda one, _copy: next(iter(one._blocks.values()))),
        "forks",
        seed=1,
    ),
    # A child sends what its parent had in hand.
    Canary(
        "fork: events belong to the parent",
        replaced(BufferedProducer, "restart_in_fork", lambda _producer: None),
        "forks",
        seed=3,
    ),
    Canary(
        "open holds keep their counter",
        wrapped(creation, "plan_deletion", _held_or_not),
        "open holds",
        seed=3,
    ),
    Canary(
        "a value is set on the version that was read",
        wrapped(multi_update, "plan_value", _of_any_version),
        "administrators",
        seed=5,
    ),
    # A late request of a call that others have overtaken.
    Canary(
        "bounds are moved before every later move",
        replaced(creation, "_numbered", lambda write, _moves, _call: write),
        "administrators",
        seed=21,
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
    Canary("export: the exact sum", wrapped(Exporter, "line", _materialized), "moving", seed=2),
    # A counter that gets its total between the two tables is in neither.
    Canary(
        "export: the ledger before the totals",
        replaced(audit, "ORDER", tuple(reversed(audit.ORDER))),
        "moving",
        seed=2,
    ),
    Canary(
        "ingest: identity is the event's", wrapped(entries, "decode", _arrived), "ingest", seed=0
    ),
    Canary(
        "ingest: identity is the content, too",
        all_of(replaced(kinesis, "bound", _bound), replaced(kinesis, "bound", _bound)),
        "ingest",
        seed=0,
    ),
    Canary(
        "ingest: failures are delivered again",
        replaced(ingest, "_retry_from", lambda *_: None),
        "ingest",
        seed=0,
    ),
    Canary(
        "ingest: refused payloads are quarantined",
        replaced(Ingest, "_quarantine", lambda *_: None),
        "ingest",
        seed=2,
    ),
]
