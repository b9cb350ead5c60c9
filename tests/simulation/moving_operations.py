"""Operations that export balances and import them, and the account of what an import promises.

An export is read while all the others write. Its lines are imported under a name into counters of
their own (`m:0` for `n:0`), by several clients at once and again after crashes, and under a name
that was used before for other values.
"""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

from countledger.infra.memory.tables import key_of
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import CounterLine, NamespaceLine, UnreadLine
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import (
    BadPayload,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchCounter,
    SequenceExhausted,
    SequenceExists,
    ServiceFailed,
)
from countledger.ledger.ids import IdempotencyKey, id_of_key
from countledger.ledger.namespace import Kind
from tests.simulation.client import Client, Memory
from tests.simulation.dynamo import STALE_MS
from tests.simulation.ledger_account import GONE, MOVED
from tests.simulation.ledger_operations import ALLOWED
from tests.simulation.number_operations import SEQUENCE
from tests.simulation.quarantine_operations import COUNTER as MALFORMED
from tests.simulation.shape import COUNTERS
from tests.simulation.sums import Wrong
from tests.simulation.world import World

# Deltas are told apart up to three times: so many imports may go into one counter.
_NAMES: Final = ("opening", "second", "third")
_MOVED_SEQUENCE: Final = "q:moved"
# Of a sequence of which an earlier try of the import, or one at the same time, was stopped.
_UNKNOWN: Final = BadPayload
_ALLOWED: Final = (*ALLOWED, IdempotencyKeyReused, SequenceExists, ServiceFailed, _UNKNOWN)


def export(client: Client) -> None:
    """All counters of a namespace, while others write; maybe stopped anywhere by a fault."""
    ledger, began_ms = client.auditor.ledger, client.world.schedule.now_ms
    before = {c: ledger.before_read(c, client.region) for c in sorted(client.memory.free)}
    found: list[CounterLine] = []
    unseen: list[str] = []
    exporter = Exporter(_stack(client), "n")
    for line in exporter.walk(segments=client.random.choice([1, 2])):
        if not isinstance(line, UnreadLine):
            found.append(line)
        elif line.unreadable == MALFORMED and line.item is not None:
            client.tell(f"export: {line.reason}")
        elif line.item is not None or client.region == client.world.home:
            raise Wrong(f"an export could not read {line}")
        else:
            unseen.append(line.unreadable)  # its namespace has not reached this region yet
    named = [*unseen, *(line.counter for line in found)]
    if len(set(named)) < len(named):
        raise Wrong(f"an export named a counter twice: {named}")
    for line in found:
        if line.counter in before:
            ledger.read(line.counter, before[line.counter], int(line.value))
    missing = [counter for counter, required in before.items() if required]
    missing = [counter for counter in missing if counter not in named]
    # The walk over entries leaves a counter that has a total to the walk over totals. If somebody
    # deletes the total by hand meanwhile, or so shortly before that a read may still show it,
    # neither names it.
    excused = {c: ledger.accounts[c].excused.get(client.region, (-1.0, "")) for c in missing}
    late_ms = began_ms - STALE_MS
    missing = [c for c, (at_ms, why) in excused.items() if at_ms < late_ms or why != GONE]
    if missing:
        raise Wrong(f"an export did not find {missing}: {named}")
    if (
        client.region == client.world.home
        and client.auditor.numbers.sequences[SEQUENCE].incarnation
    ):
        with suppress(NoSuchCounter):  # it was deleted just now
            found.append(exporter.line(SEQUENCE))
    client.memory.exported.lines += [line for line in found if line.counter in (*before, SEQUENCE)]
    client.tell(f"exported {[(line.counter, line.value) for line in found]}")


def import_(client: Client) -> None:
    """Lines of an export, under a name; by whoever comes, at once or again."""
    memory, random = client.memory.exported, client.random
    if not memory.lines:
        return
    name = random.choice(_NAMES)
    chosen = random.sample(memory.lines, min(len(memory.lines), random.randint(1, 3)))
    lines: dict[str, CounterLine] = {}
    for line in chosen:
        moved = _moved(line)
        before = memory.offered.get((name, moved.counter))
        if before and random.random() < 0.7:
            # The same file once more, as after a crash.
            moved = moved.model_copy(update={"value": random.choice(sorted(before))})
        lines[moved.counter] = moved
    for counter, line in lines.items():
        memory.offered.setdefault((name, counter), set()).add(int(line.value))
    importer = Importer.begin(_stack(client), name, client.process)
    settings = NamespaceLine(
        namespace=MOVED, kind=Kind.LEDGER, spread=1, horizon_ms=client.world.shape.horizon_ms
    )
    _check_time(client, importer)
    outcomes = importer.outcomes([settings, *lines.values()])
    for given, outcome in zip([settings, *lines.values()], outcomes, strict=True):
        client.tell(f"import {name}: {given}: {outcome!r}")
        if not isinstance(outcome, (ImportResult, *_ALLOWED)):
            raise Wrong(f"import {name} answered {given} with {outcome!r}")
        if isinstance(given, CounterLine):
            _note(client, importer, given, outcome)


def _note(client: Client, importer: Importer, line: CounterLine, outcome: object) -> None:
    """What was said of a line is so."""
    if line.kind is Kind.SEQUENCE:
        if isinstance(outcome, ImportResult):
            _draw(client, line)
        return
    offered = client.memory.exported.offered[importer.name, line.counter]
    if isinstance(outcome, IdempotencyKeyReused) and len(offered) == 1:
        raise Wrong(f"{line} was refused as another one under {importer.name}: {offered}")
    age_ms = client.world.schedule.now_ms - to_ms(importer.at)
    shape = client.world.shape
    if isinstance(outcome, KeyExpired) and age_ms < shape.horizon_ms - shape.skew_ms:
        raise Wrong(f"{line} was refused as expired after {age_ms:.0f} ms")
    if outcome in {ImportResult.RECORDED, ImportResult.DUPLICATE}:
        key = _key(importer.name, to_ms(importer.at))
        client.auditor.ledger.acknowledge(line.counter, key, int(line.value))


def _draw(client: Client, line: CounterLine) -> None:
    """From where a sequence was moved to, no number comes that was given out before."""
    last = client.memory.exported.last
    last[line.counter] = before = max(int(line.value), last.get(line.counter, 0))
    try:
        number = client.product.sequences.draw(line.counter)
    except SequenceExhausted:
        return
    if number <= before:
        raise Wrong(f"{line.counter} was moved on to {before}, and gave {number} out")
    client.auditor.numbers.drawn(line.counter, [number], None)


def _check_time(client: Client, importer: Importer) -> None:
    """The time of an import is that of its first call, for ever."""
    table = client.world.copies[client.region][COUNTERS].items
    stored = table[key_of(keys.import_key(importer.name))]["at"]
    if to_ms(importer.at) != stored:
        raise Wrong(f"import {importer.name} goes by {importer.at}, and was begun at {stored}")


def _moved(line: CounterLine) -> CounterLine:
    name = line.counter.partition(":")[2]
    counter = _MOVED_SEQUENCE if line.kind is Kind.SEQUENCE else f"{MOVED}:{name}"
    return line.model_copy(update={"counter": counter})


def _key(name: str, at_ms: int) -> str:
    return keys.entry_key(id_of_key(IdempotencyKey(f"import:{name}", to_datetime(at_ms))), 1)


def _stack(client: Client) -> Any:  # noqa: ANN401 - what exports and imports need of a client
    """The product's own parts, as a `CountLedger` has them."""
    product = client.product
    return SimpleNamespace(
        namespaces=product.namespaces,
        exact=product.exact.read,
        total=product.totals.read,
        strict=product.strict,
        sequences=product.sequences,
        connection=product.connection,
    )


def check_imports(world: World, memory: Memory) -> None:
    """A name has put one entry at the most into each counter, of a value that it was given."""
    exported = memory.exported
    items = world.copies[world.home][COUNTERS].items
    for counter in sorted({counter for _, counter in exported.offered}):
        if not counter.startswith(f"{MOVED}:"):
            continue
        expected: dict[str, set[int]] = {}
        for name in _NAMES:
            stored = items.get(key_of(keys.import_key(name)))
            if stored is not None and (name, counter) in exported.offered:
                expected[_key(name, stored["at"])] = exported.offered[name, counter]
        for (key, _), delta in world.auditor.ledger.accounts[counter].made.items():
            if delta not in expected.get(key, set()):
                raise Wrong(f"{counter} has {key} of {delta}, and imports may have put {expected}")
