"""What `countledger verify` says of strict counters: whether they hold what their holds reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger import Judgement, Verdict
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem, NoSuchCounter
from countledger.ledger.namespace import Kind
from countledger.producers.strict.definition import Method
from countledger.producers.strict.open_holds import counters_with_holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger import CountLedger
    from countledger.producers.strict.open_holds import HeldComparison


def has_holds(client: CountLedger, counter: str) -> bool:
    """Whether a counter may have holds: a read unit or two."""
    try:
        namespace = client.namespaces.find(keys.namespace_of(keys.check_counter(counter)))
    except CorruptItem:
        return False  # the verdict on the counter says so
    return (
        namespace is not None
        and namespace.kind is Kind.STRICT
        and client.strict.show(counter).method is Method.MARKER
    )


def all_with_holds(client: CountLedger) -> Iterator[str]:
    """The strict counters to compare: those of the home region that have holds."""
    if client.connection.setting("home_region") == client.connection.region:
        found = client.namespaces.list(on_corrupt=lambda _error: None)
        strict = [one.name for one in found if one.kind is Kind.STRICT]
        yield from counters_with_holds(client.strict.context, strict)


def held_verdicts(client: CountLedger, counters: Iterable[str]) -> Iterator[Verdict]:
    """What strict counters hold, compared with their open holds."""
    for counter in counters:
        try:
            yield verdict_on_holds(client.strict.verify_holds(counter))
        except CorruptItem as error:
            yield Verdict(counter, Judgement.UNREADABLE, None, None, 0, str(error))
        except NoSuchCounter:
            continue  # it was deleted since it was found


def verdict_on_holds(found: HeldComparison) -> Verdict:
    """The verdict on what a strict counter holds; its open holds decide. Pure."""
    proof = f"what it holds (not its value), by {found.holds} open holds"
    if found.overdue:
        proof += f", {found.overdue} of them expired and not released"
    if not found.proven:
        verdict, proof = Judgement.BUSY, "no verdict: holds were placed or ended; try again"
    elif found.differing:
        verdict = Judgement.DRIFT
        proof += f"; what they reserve is not what is held in {', '.join(found.differing)}"
    else:
        verdict = Judgement.EXACT
    return Verdict(found.counter, verdict, found.held, found.reserved, 0, proof)
